//! Copies votes to sled in the background: see [`meta`](crate::meta) for why nobody waits for it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::meta::Meta;
use crate::wal::Vote;

/// The handle of the thread. Dropping it finishes the copy.
#[derive(Debug)]
pub(crate) struct VoteCopy {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    /// Only the newest vote matters.
    vote: Option<Vote>,
    closed: bool,
}

impl VoteCopy {
    pub(crate) fn start(meta: Arc<Meta>) -> std::io::Result<VoteCopy> {
        let shared = Arc::<Shared>::default();
        let thread = std::thread::Builder::new()
            .name("vote-copy".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.run(&meta)
            })?;
        Ok(VoteCopy {
            shared,
            thread: Some(thread),
        })
    }

    /// Copies a vote that is durable in the WAL.
    pub(crate) fn copy(&self, vote: Vote) {
        self.shared
            .work
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .vote = Some(vote);
        self.shared.changed.notify_one();
    }
}

impl Drop for VoteCopy {
    fn drop(&mut self) {
        self.shared
            .work
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its hook, and the copy is not what is relied on.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, meta: &Meta) {
        loop {
            let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
            let vote = loop {
                match work.vote.take() {
                    Some(vote) => break vote,
                    None if work.closed => return,
                    None => {
                        work = self
                            .changed
                            .wait(work)
                            .unwrap_or_else(PoisonError::into_inner);
                    }
                }
            };
            drop(work);
            let copied = meta.change(|record| {
                record.vote = Some(vote);
                Ok(())
            });
            // An error has failed the store already: a sync failed.
            if copied.is_err() {
                return;
            }
        }
    }
}
