//! A deadline that moves often and passes rarely.
//!
//! Moving a timer costs a lock and a walk of the timer wheel; here a move is one store, and the
//! timer is set again only when it fires too early.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Passes when it has not been moved for its patience.
#[derive(Debug)]
pub(crate) struct Deadline {
    patience: Duration,
    at: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Deadline {
    /// A deadline `patience` from now.
    pub(crate) fn new(patience: Duration) -> Self {
        let at = Instant::now() + patience;
        Self {
            patience,
            at,
            sleep: Box::pin(tokio::time::sleep_until(at)),
        }
    }

    /// Moves it to a full patience from now.
    pub(crate) fn restart(&mut self) {
        self.at = Instant::now() + self.patience;
    }

    /// What it waits for in all.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Ready once the deadline has passed.
    pub(crate) fn poll_passed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= self.at {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(self.at);
        }
        Poll::Pending
    }
}
