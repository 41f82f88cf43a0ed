//! The running driver as its owner sees it: how it is brought to an end.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Observer;

/// How long a stop waits for batches under way, so that their requests still get an answer.
pub(super) const QUIESCE: Duration = Duration::from_secs(1);

/// How far the process has come on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Serving,
    /// Nothing is proposed any more.
    Quiescing,
    /// Every session is refused, answered and closed once nothing is under way.
    Stopping,
}

/// The running driver.
pub(crate) struct Handle {
    phase: watch::Sender<Phase>,
    quiet: watch::Receiver<bool>,
    observer: Observer,
    task: JoinHandle<()>,
}

impl Handle {
    pub(super) fn new(
        phase: watch::Sender<Phase>,
        quiet: watch::Receiver<bool>,
        observer: Observer,
        task: JoinHandle<()>,
    ) -> Self {
        Self {
            phase,
            quiet,
            observer,
            task,
        }
    }

    /// What may look at the driver.
    pub(crate) fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// Has nothing more proposed, and waits (bounded) until nothing is under way. Nobody's request is
    /// then indeterminate: it is answered, or can be refused.
    pub(crate) async fn quiesce(&self) {
        self.advance(Phase::Quiescing);
        let mut quiet = self.quiet.clone();
        // Without an answer in time the rest ends as indeterminate. With an error the task is over.
        let _ = timeout(QUIESCE, quiet.wait_for(|quiet| *quiet)).await;
    }

    /// Has every session answered and closed, after [`quiesce`](Self::quiesce).
    pub(crate) fn stop(&self) {
        self.advance(Phase::Stopping);
    }

    /// Waits for the end: after a stop, when the last session is gone.
    pub(crate) async fn ended(&mut self) {
        if let Err(error) = (&mut self.task).await
            && error.is_panic()
        {
            tracing::error!(%error, "the desk's task failed");
        }
    }

    /// Ends the task without waiting for anybody.
    pub(crate) fn abort(&self) {
        self.task.abort();
    }

    fn advance(&self, to: Phase) {
        self.phase.send_modify(|phase| *phase = to.max(*phase));
    }
}
