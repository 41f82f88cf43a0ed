//! What may be asked of the running driver from outside: a look, never a part in its work.
//!
//! Questions have a short queue of their own, so a crowd of sessions can't hold them back and whoever
//! asks too much only waits. Each is answered between two rounds, in time that does not depend on
//! how many sessions, waiters or locks there are. That an answer comes at all is what shows that
//! the driver works.

use raft::lock::{Listing, Stamp};
use tokio::sync::{mpsc, oneshot};
use wire::Key;

use super::Traffic;
use crate::desk::{Counts, Tally};

/// Questions that may wait; whoever has more waits itself.
pub(super) const QUESTIONS_MAX: usize = 16;

/// The driver at one moment.
#[derive(Clone, Debug)]
pub struct Report {
    /// Whether requests are served: always in single mode, else while this node leads and may.
    pub active: bool,
    /// How much the desk has of everything.
    pub counts: Counts,
    /// What happened at the desk.
    pub tally: Tally,
    /// What went through the driver.
    pub traffic: Traffic,
    /// The lock table of single mode.
    pub table: Option<Table>,
}

/// A lock table at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its time.
    pub now: Stamp,
    /// How many keys are held.
    pub active_keys: usize,
    /// How many grants were ever made, which is also the newest token.
    pub tokens_granted: u64,
    /// Equal for equal states.
    pub state_hash: u64,
}

/// A question, and where its answer goes.
pub(super) enum Question {
    Report(oneshot::Sender<Report>),
    Waiters {
        keys: Vec<Key>,
        answer: oneshot::Sender<Vec<usize>>,
    },
    Locks {
        prefix: String,
        count_max: usize,
        answer: oneshot::Sender<Option<Listing>>,
    },
}

/// Asks the driver. Answers are `None` once it has ended.
#[derive(Clone)]
pub struct Observer(pub(super) mpsc::Sender<Question>);

impl Observer {
    /// The driver at this moment.
    pub async fn report(&self) -> Option<Report> {
        self.ask(Question::Report).await
    }

    /// How many acquires queue here for each of `keys`.
    pub async fn waiters(&self, keys: Vec<Key>) -> Option<Vec<usize>> {
        self.ask(|answer| Question::Waiters { keys, answer }).await
    }

    /// The first `count_max` held locks whose keys begin with `prefix`, in order of key. In cluster
    /// mode there is no lock table here: the node has it.
    pub async fn locks(&self, prefix: String, count_max: usize) -> Option<Listing> {
        let question = |answer| Question::Locks {
            prefix,
            count_max,
            answer,
        };
        self.ask(question).await.flatten()
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.0.send(question(answer)).await.ok()?;
        answered.await.ok()
    }
}
