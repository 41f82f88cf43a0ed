//! Calls on their way: from the caller to a connection, perhaps to another one, and back.
//!
//! A call is a value that is always in exactly one place: waiting in the dispatcher, or in one
//! session's ledger. Whoever has it answers it or hands it on; that is what makes "surely unsent"
//! a fact instead of a guess.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;
use wire::{Key, Lease, Owner, Token, Wait};

use crate::clock::Validity;
use crate::dispatch::Dispatcher;
use crate::{Error, ReleaseOutcome};

/// A call that some connection is to carry.
pub(crate) enum Call {
    Acquire(AcquireCall),
    Release(ReleaseCall),
}

/// One place under a limit, free again when it is dropped.
pub(crate) type Permit = OwnedSemaphorePermit;

/// An acquire that was not answered yet.
pub(crate) struct AcquireCall {
    pub(crate) owner: Owner,
    pub(crate) key: Key,
    pub(crate) lease: Lease,
    /// One immediate try: the frame's wait is 0.
    pub(crate) immediate: bool,
    /// When the call ends at the latest.
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Result<Grant, Error>>,
    pub(crate) permit: Permit,
}

impl AcquireCall {
    /// The frame's wait, were it sent at `now`: what remains, rounded up to seconds.
    pub(crate) fn wait(&self, now: Instant) -> Wait {
        if self.immediate {
            return Wait(0);
        }
        let remaining = seconds_up(self.deadline.saturating_duration_since(now));
        Wait(
            remaining
                .and_then(|seconds| u8::try_from(seconds).ok())
                .unwrap_or(u8::MAX),
        )
    }

    /// Whether the caller went away.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    /// Answers the caller. The place under the limit stays taken until the permit is dropped.
    pub(crate) fn answer(self, answer: Result<Grant, Error>) -> Permit {
        // A caller that went away needs no answer, and a grant gives itself back.
        let _ = self.reply.send(answer);
        self.permit
    }
}

/// A release that was not answered yet.
pub(crate) struct ReleaseCall {
    pub(crate) key: Key,
    pub(crate) token: Token,
    /// When it is given up; the lease ends the grant then.
    pub(crate) deadline: Instant,
    /// Whether a byte of it may have been sent, on any connection.
    pub(crate) sent: bool,
    /// Who wants to know; nobody for a compensating release.
    pub(crate) reply: Option<oneshot::Sender<Result<ReleaseOutcome, Error>>>,
    pub(crate) _permit: Permit,
}

impl ReleaseCall {
    pub(crate) fn answer(self, answer: Result<ReleaseOutcome, Error>) {
        if let Some(reply) = self.reply {
            // Whoever went away needs no answer.
            let _ = reply.send(answer);
        }
    }

    /// Ends it without an answer from a server.
    pub(crate) fn give_up(self) {
        let error = if self.sent {
            Error::Indeterminate
        } else {
            Error::NotConnected
        };
        self.answer(Err(error));
    }
}

/// A duration in seconds, fractions rounded up; `None` if that is more than a u64.
pub(crate) fn seconds_up(duration: Duration) -> Option<u64> {
    duration
        .as_secs()
        .checked_add(u64::from(duration.subsec_nanos() > 0))
}

/// A grant that must not get lost: unless it is released it gives itself back when it is dropped,
/// on whatever way between the server's `A` and the end of the caller's work that happens.
pub(crate) struct Grant {
    dispatcher: Arc<Dispatcher>,
    pub(crate) key: Key,
    pub(crate) token: Token,
    pub(crate) validity: Validity,
    armed: bool,
}

impl Grant {
    pub(crate) fn new(
        dispatcher: Arc<Dispatcher>,
        key: Key,
        token: Token,
        validity: Validity,
    ) -> Self {
        Self {
            dispatcher,
            key,
            token,
            validity,
            armed: true,
        }
    }

    /// From here on it is somebody else's to release.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.armed {
            self.dispatcher.compensate(self.key.clone(), self.token);
        }
    }
}
