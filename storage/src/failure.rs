//! The one flag that stops a store.
//!
//! After a failed sync the kernel may have dropped the dirty pages and call the next sync a success,
//! so what the disk holds is unknown from then on. Nothing is tried again: the first failure is kept,
//! everything afterwards is refused with it, and the process is expected to stop. At the next start
//! recovery finds out what is really there.

use std::sync::Arc;

use tokio::sync::watch;

use crate::Error;

/// Whether the store has failed, and why. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Failure(Arc<watch::Sender<Option<String>>>);

impl Failure {
    pub(crate) fn new() -> Failure {
        Failure(Arc::new(watch::Sender::new(None)))
    }

    /// Records the first failure; later ones change nothing.
    pub(crate) fn set(&self, why: &str) {
        let first = self.0.send_if_modified(|failure| {
            let first = failure.is_none();
            if first {
                *failure = Some(why.to_owned());
            }
            first
        });
        if first {
            tracing::error!(why, "storage has failed; nothing is acknowledged any more");
        }
    }

    /// An error if the store has failed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &*self.0.borrow() {
            Some(why) => Err(Error::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    /// Follows the flag.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<String>> {
        self.0.subscribe()
    }
}
