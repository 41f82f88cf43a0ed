//! Frames in both directions, bytes to values and back.

use crate::{Key, Lease, Owner, Token, Wait};

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `A`: take a lock.
    Acquire(Acquire),
    /// `R`: end a grant.
    Release(Release),
}

/// The fields of an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// How long it may stay queued.
    pub wait: Wait,
    /// How long the grant would last.
    pub lease: Lease,
    /// Echoed by the answer.
    pub owner: Owner,
    /// The lock's name.
    pub key: Key,
}

/// The fields of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Which grant to end.
    pub token: Token,
    /// The lock's name.
    pub key: Key,
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `A`: granted.
    Granted {
        /// The grant's fencing token.
        token: Token,
        /// From the acquire.
        owner: Owner,
        /// From the acquire.
        key: Key,
    },
    /// `T`: not acquired, the wait is over.
    TimedOut {
        /// From the acquire.
        owner: Owner,
        /// From the acquire.
        key: Key,
    },
    /// `B`: not acquired, a limit is reached.
    Busy {
        /// From the acquire.
        owner: Owner,
        /// From the acquire.
        key: Key,
    },
    /// `R`: the grant was ended.
    Released {
        /// From the release.
        token: Token,
        /// From the release.
        key: Key,
    },
    /// `N`: nothing released, the token is not the key's current one.
    NotCurrent {
        /// From the release.
        token: Token,
        /// From the release.
        key: Key,
    },
    /// `M`: ask the leader at this client address.
    Moved(String),
    /// `L`: pushed, who leads now.
    Leader(String),
    /// `E`: an error.
    Error(Reason),
}

/// Why a server says `E`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Unknown op byte; the session ends.
    BadOp,
    /// The stream ended, or stalled, inside a frame; the session ends.
    BadRequest,
    /// Lease 0 or 251 to 255; the session ends.
    BadLease,
    /// The key is empty, too long, has a space, or is not UTF-8; the session ends.
    BadKey,
    /// No newline within the limit; the session ends.
    LineTooLong,
    /// The digest does not match; the session ends.
    AuthFailed,
    /// This node follows and knows no leader; refused for the whole session.
    NoLeader,
    /// This node cannot serve yet or any more; refused for the whole session.
    NotActive,
}
