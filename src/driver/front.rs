//! What sessions hold of the driver, and what they tell it.

use std::sync::Arc;

use raft::clock::Clock;
use tokio::sync::{Semaphore, mpsc};
use wire::{Key, Reason, Request, Token};

use super::Outbox;
use crate::desk::SessionId;

/// What a session tells the driver.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// It is through its handshake.
    Opened {
        /// Its name from here on.
        session: SessionId,
        /// Where its replies go.
        outbox: Arc<Outbox>,
    },
    /// What one read brought, in order. Each release has taken its place in the lane.
    Requests {
        /// Whose.
        session: SessionId,
        /// When it was read: monotonic nanoseconds.
        arrived: u64,
        /// At least one.
        requests: Vec<Request>,
    },
    /// No more requests will come; see [`Event::InputEnded`].
    Ended {
        /// Whose.
        session: SessionId,
        /// What to say last.
        last: Option<Reason>,
    },
    /// It is closed. Its last message.
    Gone {
        /// Whose.
        session: SessionId,
        /// Grants that surely did not reach its client.
        undelivered: Vec<(Key, Token)>,
    },
}

impl Inbound {
    /// How many requests it brings.
    pub(super) fn requests(&self) -> usize {
        match self {
            Self::Requests { requests, .. } => requests.len(),
            _ => 0,
        }
    }
}

/// What sessions hold of the driver. The driver ends when the last one is dropped.
#[derive(Clone)]
pub(crate) struct Front {
    /// Takes messages; full means: wait.
    pub(crate) inbound: mpsc::Sender<Inbound>,
    /// A session takes a permit for each release and forgets it; the driver puts it back when the
    /// release is settled.
    pub(crate) release_lane: Arc<Semaphore>,
    /// Tells when requests arrived.
    pub(crate) clock: Arc<dyn Clock>,
}
