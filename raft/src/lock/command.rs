//! The replicated vocabulary: what the log says, and what the lock table answers.

use serde::{Deserialize, Serialize};
use wire::{Key, Lease, Token};

/// Cluster time: nanoseconds from 0, carried by log entries. Never a wall clock.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Stamp(pub u64);

/// The unit of replication: commands that one process hands to the log together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// A random number of the proposing process, new at every start. Only that very process acts
    /// on the outcomes.
    pub origin: u64,
    /// Counts the batches of one origin, from 1.
    pub sequence: u64,
    /// Cluster time when the last command was in the batch.
    pub stamp: Stamp,
    /// Applied in order, after `stamp` has moved the clock and ended what was due.
    pub commands: Vec<Command>,
}

/// One request to the lock table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Grant `key` for `lease` if it is free.
    Acquire {
        /// The lock's name.
        key: Key,
        /// How long the grant would last.
        lease: Lease,
    },
    /// Free `key` if `token` is its current token; then, if the key is free (whether this release
    /// freed it or not) and `next` is there, grant it at once to the first waiter.
    Release {
        /// The lock's name.
        key: Key,
        /// Which grant to end.
        token: Token,
        /// The first waiter's lease: makes a hand-over one commit instead of two.
        next: Option<Lease>,
    },
}

/// A lock given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The grant's fencing token.
    pub token: Token,
    /// When the grant ends by itself.
    pub deadline: Stamp,
}

/// What an attempt to take a key came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The key was free and is now held under this grant.
    Granted(Grant),
    /// Somebody holds the key, under this grant.
    Held(Grant),
    /// The cap on active keys is reached and this would be a new one.
    KeysFull,
    /// The token counter has come to its end, or the batch's stamp is beyond
    /// [`STAMP_MAX`](super::STAMP_MAX): nothing can be granted any more.
    TokensExhausted,
}

/// The answer to one command. Expected refusals are data, the same on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To an acquire.
    Acquired(Attempt),
    /// To a release whose token was the key's current one; `next` is there if the command's was.
    Released {
        /// What the first waiter's attempt came to.
        next: Option<Attempt>,
    },
    /// To a release with any other token; `next` is there if the command's was.
    NotCurrent {
        /// What the first waiter's attempt came to.
        next: Option<Attempt>,
    },
}

/// A lock that is held, or that has just ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The lock's name.
    pub key: Key,
    /// The grant that it is (was) held under.
    pub grant: Grant,
}

/// A held lock as people look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Key, token and deadline.
    pub lock: Lock,
    /// How long the grant lasts from when it was made.
    pub lease: Lease,
}

/// Some of the held locks, in order of key, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Cluster time of that moment.
    pub now: Stamp,
    /// The locks.
    pub locks: Vec<Listed>,
    /// True if there are more that were asked for.
    pub more: bool,
}

/// What applying one [`Batch`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// From the batch.
    pub origin: u64,
    /// From the batch.
    pub sequence: u64,
    /// Cluster time after the batch: the greatest stamp so far.
    pub now: Stamp,
    /// Locks that ended by their lease, before the first command, in order of (deadline, token).
    pub ended: Vec<Lock>,
    /// One per command, in order.
    pub outcomes: Vec<Outcome>,
}
