//! A node's process, whoever has started it.
//!
//! Signals go to a handle of the process (`pidfd`), so they never hit another one that has got its
//! number since. How it ended is told by whoever waits for it.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::Child;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// How long a process may take to stop in order (the product promises 10 s), and a killed one to be
/// gone.
const STOP_TIME_MAX: Duration = Duration::from_secs(15);

/// How often something is looked at that is awaited.
const LOOK: Duration = Duration::from_millis(20);

/// How the end of one is called that was in order.
pub(crate) const IN_ORDER: &str = "exit status: 0";

/// A process that was started.
pub(crate) struct Process {
    /// Its number; `None` if it was gone before it could be asked for.
    pid: Option<Pid>,
    handle: Option<OwnedFd>,
    /// The one task that waits for its end, and says how that was.
    end: JoinSet<String>,
}

impl Process {
    /// A child of this process. It is killed when it is dropped.
    pub(crate) fn child(mut child: Child) -> Self {
        Self::new(child.id(), async move {
            match child.wait().await {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            }
        })
    }

    /// Any process; `end` is over when it is gone, and says how it ended, in the words of an exit
    /// status.
    pub(crate) fn new(
        pid: Option<u32>,
        end: impl Future<Output = String> + Send + 'static,
    ) -> Self {
        let pid = pid
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        let handle = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut waiting = JoinSet::new();
        waiting.spawn(end);
        Self {
            pid,
            handle,
            end: waiting,
        }
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.end.try_join_next()?.ok()
    }

    /// SIGKILL; whether it is gone then.
    pub(crate) async fn kill(mut self) -> bool {
        self.signal(Signal::KILL);
        self.end_within(STOP_TIME_MAX).await.is_some()
    }

    /// SIGTERM; how it ended and how long that took.
    pub(crate) async fn terminate(mut self) -> (String, Duration) {
        let began = Instant::now();
        self.signal(Signal::TERM);
        match self.end_within(STOP_TIME_MAX).await {
            Some(how) => (how, began.elapsed()),
            None => {
                self.kill().await;
                ("still there, killed".into(), began.elapsed())
            }
        }
    }

    /// SIGSTOP; whether the kernel shows it as stopped then.
    pub(crate) async fn pause(&self) -> bool {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + STOP_TIME_MAX;
        while Instant::now() < deadline {
            if self.stat().is_some_and(|stat| stat.starts_with('T')) {
                return true;
            }
            sleep(LOOK).await;
        }
        false
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// What the kernel shows of it in `/proc`, in a file.
    pub(crate) fn shown(&self, file: &str) -> Option<String> {
        let pid = self.pid?.as_raw_nonzero();
        fs::read_to_string(format!("/proc/{pid}/{file}")).ok()
    }

    /// Its state and what follows it in `/proc`.
    fn stat(&self) -> Option<String> {
        let stat = self.shown("stat")?;
        stat.rsplit(") ").next().map(str::to_owned)
    }

    fn signal(&self, signal: Signal) {
        if let Some(handle) = &self.handle {
            // A process that has just ended needs no signal.
            let _ = pidfd_send_signal(handle, signal);
        }
    }

    async fn end_within(&mut self, time: Duration) -> Option<String> {
        timeout(time, self.end.join_next()).await.ok()??.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::words;

    fn start(line: &str) -> Process {
        Process::child(words(line).kill_on_drop(true).spawn().unwrap())
    }

    #[tokio::test]
    async fn a_paused_process_is_seen_to_stand_still_and_can_be_killed() {
        let process = start("sleep 100");
        assert!(process.pause().await);
        assert!(process.kill().await);
    }

    #[tokio::test]
    async fn how_a_process_ends_is_told() {
        let (how, _) = start("sleep 100").terminate().await;
        assert_eq!(how, "signal: 15 (SIGTERM)");
        let mut process = start("true");
        let how = process.end_within(STOP_TIME_MAX).await;
        assert_eq!(how.as_deref(), Some(IN_ORDER));
        assert_eq!(process.ended(), None);
    }

    #[tokio::test]
    async fn who_was_gone_at_once_is_known_to_have_ended() {
        let mut process = Process::new(None, async { "exit status: 2".into() });
        while !process.end.is_empty() {
            if let Some(how) = process.ended() {
                assert_eq!(how, "exit status: 2");
            }
            tokio::task::yield_now().await;
        }
    }
}
