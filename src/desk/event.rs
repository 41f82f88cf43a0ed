//! What goes into the desk and what comes out of it.

use raft::lock::Applied;
use raft::{Activation, Activity};
use wire::{Acquire, Key, Reason, Release, Reply, Token};

/// One authenticated client connection of this process; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Who leads the cluster, as this node sees it. That it may *serve* is another question: that is
/// what [`Event::Activated`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// This node follows and knows no leader.
    Unknown,
    /// Another node leads: its client address, byte for byte as configured.
    Other(String),
    /// This node leads, active or not.
    Own,
}

/// Something that happened. Every event comes with the process's monotonic time in nanoseconds.
#[derive(Clone, Debug)]
pub enum Event {
    /// A connection came through its handshake.
    Opened(SessionId),
    /// A session asks for a lock.
    Acquire {
        /// Who asks.
        session: SessionId,
        /// Monotonic time, in nanoseconds, at which the frame was complete: the wait counts from it.
        arrived: u64,
        /// The request.
        acquire: Acquire,
    },
    /// A session ends a grant.
    Release {
        /// Who asks.
        session: SessionId,
        /// The request.
        release: Release,
    },
    /// The session's input is over: no more requests will come. With `last` the input was
    /// malformed: what was asked before and needs no waiting is still answered, then `last` is sent.
    /// Without it the client closed its side: undecided acquires are given back when granted.
    InputEnded {
        /// Whose.
        session: SessionId,
        /// What to say last.
        last: Option<Reason>,
    },
    /// The session is gone: nothing can be delivered to it any more.
    Closed(SessionId),
    /// An `A` could not be handed to the session's socket.
    Undelivered {
        /// The lock's name.
        key: Key,
        /// The grant that nobody was told of.
        token: Token,
    },
    /// The apply stream: this process may serve.
    Activated(Activation),
    /// The apply stream: a batch was applied.
    Applied {
        /// The span it belongs to; one that is not the desk's current one is ignored.
        activity: Activity,
        /// What it did.
        applied: Applied,
    },
    /// Every activity up to this one is over.
    Revoked(Activity),
    /// Who leads now, as far as this node knows. Tell it before the [`Event::Revoked`] that belongs
    /// to it, so that whoever is refused learns where to go. Never sent in single mode.
    Leader(Leadership),
    /// The process is stopping: refuse everything from here on.
    Stopping,
    /// Time passed: the moment that [`Desk::wakeup`](super::Desk::wakeup) named has come.
    Tick,
}

/// Something to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Put a reply into a session's outbox.
    Reply(SessionId, Reply),
    /// Everything that will ever be said to this session is in its outbox, but for this last
    /// reply: write it all, then close. The desk has forgotten the session.
    Finish(SessionId, Option<Reply>),
    /// Close this session: what became of one of its requests is unknown, and only the missing
    /// answer may say so. What is in its outbox already was decided, so it still goes out as far as
    /// the socket takes it; nothing is put behind it. The desk has forgotten the session.
    Close(SessionId),
    /// A release is settled: its place in the release lane is free again. Exactly one for each
    /// [`Event::Release`].
    ReleaseSettled,
}
