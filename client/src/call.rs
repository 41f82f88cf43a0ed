//! Calls on their way: from the caller to a connection, perhaps to another one, and back.
//!
//! A call is a value that is always in exactly one place: waiting in the dispatcher, or in one
//! session's ledger. Whoever has it answers it or hands it on; that is what makes "surely unsent"
//! a fact instead of a guess.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use wire::{Key, Lease, Owner, Token, Wait};

use crate::clock::Moment;
use crate::dispatch::Dispatcher;
use crate::{Error, ReleaseOutcome};

/// A call that some connection is to carry.
pub(crate) enum Call {
    Acquire(AcquireCall),
    Release(ReleaseCall),
}

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
    pub(crate) _permit: Permit,
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

    pub(crate) fn answer(self, answer: Result<Grant, Error>) {
        // A caller that went away needs no answer, and a grant gives itself back.
        let _ = self.reply.send(answer);
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
    pub(crate) _permit: Option<Permit>,
}

impl ReleaseCall {
    pub(crate) fn answer(self, answer: Result<ReleaseOutcome, Error>) {
        if let Some(reply) = self.reply {
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
    pub(crate) lease: Lease,
    /// A moment that is surely not after the grant.
    pub(crate) since: Moment,
    armed: bool,
}

impl Grant {
    pub(crate) fn new(
        dispatcher: Arc<Dispatcher>,
        key: Key,
        token: Token,
        lease: Lease,
        since: Moment,
    ) -> Self {
        Self {
            dispatcher,
            key,
            token,
            lease,
            since,
            armed: true,
        }
    }

    /// What surely remains of the lease.
    pub(crate) fn remaining(&self) -> Duration {
        Duration::from_nanos(self.lease.nanos()).saturating_sub(self.since.elapsed())
    }

    /// Hands the release over, with an answer.
    pub(crate) fn release(
        mut self,
        deadline: Instant,
    ) -> oneshot::Receiver<Result<ReleaseOutcome, Error>> {
        self.armed = false;
        let (reply, answer) = oneshot::channel();
        self.dispatcher.submit(Call::Release(ReleaseCall {
            key: self.key.clone(),
            token: self.token,
            deadline,
            sent: false,
            reply: Some(reply),
            _permit: None,
        }));
        answer
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.armed {
            self.dispatcher.compensate(self.key.clone(), self.token);
        }
    }
}

/// A bound on how many of something there are.
pub(crate) struct Limit {
    used: Arc<AtomicUsize>,
    max: usize,
}

/// One place under a [`Limit`], free again when it is dropped.
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Limit {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            used: Arc::default(),
            max,
        }
    }

    pub(crate) fn take(&self) -> Option<Permit> {
        let permit = Permit(Arc::clone(&self.used));
        // One too many is counted for a moment and taken back as the permit is dropped.
        (self.used.fetch_add(1, Ordering::Relaxed) < self.max).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
