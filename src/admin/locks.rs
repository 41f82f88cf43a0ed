//! What `GET /v1/locks` says.

use raft::lock::Listing;
use serde::{Deserialize, Serialize};

/// How many locks are listed unless the request says otherwise.
pub const LOCKS_DEFAULT: usize = 100;

/// How many locks are listed at most.
pub const LOCKS_MAX: usize = 1000;

/// Some of the held locks, in order of key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locks {
    /// The locks.
    pub locks: Vec<ListedLock>,
    /// True if there are more with the same prefix than were asked for.
    pub more: bool,
}

/// A held lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedLock {
    /// Its name.
    pub key: String,
    /// The grant's token. Readers of JSON that keep numbers as floating point round it above 2^53.
    pub token: u64,
    /// How long the grant lasts from when it was made, in seconds.
    pub lease_seconds: u64,
    /// How long it still lasts, in milliseconds, as far as this node can say.
    pub remaining_ms: u64,
    /// How many acquires queue for it on this node; only the leader has any.
    pub waiters: u64,
}

/// Puts together what the table and the desk said.
pub(super) fn locks(listing: Listing, waiters: &[usize]) -> Locks {
    let now = listing.now;
    let listed = |(listed, waiters): (raft::lock::Listed, &usize)| ListedLock {
        key: listed.lock.key.as_str().to_owned(),
        token: listed.lock.grant.token.0,
        lease_seconds: listed.lease.seconds().into(),
        remaining_ms: listed.lock.grant.deadline.0.saturating_sub(now.0) / 1_000_000,
        waiters: *waiters as u64,
    };
    Locks {
        locks: listing.locks.into_iter().zip(waiters).map(listed).collect(),
        more: listing.more,
    }
}
