//! The lock table: pure and deterministic. No I/O, no clock, no randomness, no iteration over
//! hash maps: the same entries in give the same state and the same outcomes on every node.
//!
//! # Why the answers are safe
//!
//! - **A key is never held twice.** A grant is only made when the key is not in the map, and a key
//!   leaves the map only by a release that names its current token or when cluster time reaches
//!   its deadline. An old holder's late release names an old token and changes nothing.
//! - **Tokens only grow.** There is one counter for all keys; it is part of the state, goes into
//!   snapshots, and is raised before a grant is handed out. At its end the table grants nothing
//!   any more instead of starting over.
//! - **No lease ends early.** A deadline is `now` plus the lease, `now` is not before the stamp of
//!   the batch that made the grant, and `now` moves only to stamps (never back). So a lease ends
//!   only by a batch that was stamped at least a whole lease later. That stamps never run ahead of
//!   real time is the argument of [`state_machine`](crate::state_machine).
//! - **No arithmetic wraps.** `now` never passes [`STAMP_MAX`], from which every lease can still
//!   be added. A batch with a greater stamp does not move the clock and gets no grants (its
//!   releases still count), so one mad stamp can neither end all leases nor make one that has no
//!   end in time.
//! - **The cap on active keys is state,** set once by the log, never a constant that two versions
//!   could disagree about.
//!
//! What is deliberately missing: waiters, sessions and wall clocks. They belong to the leader alone.

mod command;
mod deadlines;
mod fingerprint;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use wire::{Key, LEASE_SECONDS_MAX, Lease, Token};

pub use command::{Applied, Attempt, Batch, Command, Grant, Listed, Listing, Lock, Outcome, Stamp};
pub use snapshot::Image;

use deadlines::Deadlines;
use fingerprint::Fingerprint;

/// The last stamp to which cluster time moves: the longest lease still fits behind it.
pub const STAMP_MAX: Stamp = Stamp(u64::MAX - LEASE_SECONDS_MAX as u64 * 1_000_000_000);

/// Who holds what, until when: the replicated state.
#[derive(Clone, Debug, Default)]
pub struct LockTable {
    /// Cluster time: the greatest stamp so far.
    now: Stamp,
    /// The token counter: how many grants were ever made, and so the newest token.
    tokens_granted: u64,
    /// At most this many keys are held at once. Nothing is granted before it is set.
    active_keys_max: Option<u32>,
    /// Every key that is held. Ordered, so that walking it is the same on every node.
    locks: BTreeMap<Key, Held>,
    /// The same locks by the time at which they end.
    deadlines: Deadlines,
    /// Changes with every change of `locks`, the same on every node.
    fingerprint: Fingerprint,
}

/// What the table keeps of one held key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    /// Token and deadline.
    grant: Grant,
    /// How long the grant lasts from when it was made.
    lease: Lease,
}

impl LockTable {
    /// An empty table for at most `active_keys_max` held keys. The default table has no cap yet
    /// and grants nothing until [`fix_active_keys_max`](Self::fix_active_keys_max).
    pub fn new(active_keys_max: u32) -> Self {
        Self {
            active_keys_max: Some(active_keys_max),
            ..Self::default()
        }
    }

    /// Sets the cap on active keys, once: a table that has one keeps it.
    pub fn fix_active_keys_max(&mut self, active_keys_max: u32) {
        self.active_keys_max.get_or_insert(active_keys_max);
    }

    /// Moves the clock to the batch's stamp, ends every lock that is due, then carries out the
    /// commands in order.
    pub fn apply(&mut self, batch: &Batch) -> Applied {
        let dated = batch.stamp <= STAMP_MAX;
        if dated {
            self.now = self.now.max(batch.stamp);
        }
        let ended = self.end_due();
        let outcomes = batch
            .commands
            .iter()
            .map(|command| self.carry_out(command, dated))
            .collect();
        self.deadlines.tidy(
            |key, token| is_live(&self.locks, key, token),
            self.locks.len(),
        );
        Applied {
            origin: batch.origin,
            sequence: batch.sequence,
            now: self.now,
            ended,
            outcomes,
        }
    }

    /// Cluster time: the greatest stamp so far.
    pub fn now(&self) -> Stamp {
        self.now
    }

    /// How many grants were ever made, which is also the newest token.
    pub fn tokens_granted(&self) -> u64 {
        self.tokens_granted
    }

    /// How many keys are held.
    pub fn active_keys(&self) -> usize {
        self.locks.len()
    }

    /// The cap on active keys; `None` before it is set, when nothing is granted.
    pub fn active_keys_max(&self) -> Option<u32> {
        self.active_keys_max
    }

    /// When the next lock ends by itself, if any is held.
    pub fn next_deadline(&self) -> Option<Stamp> {
        self.deadlines.next()
    }

    /// Every lock that is held, in order of token.
    pub fn held(&self) -> Vec<Lock> {
        let lock = |(key, held): (&Key, &Held)| Lock {
            key: key.clone(),
            grant: held.grant,
        };
        let mut locks: Vec<Lock> = self.locks.iter().map(lock).collect();
        locks.sort_unstable_by_key(|lock| lock.grant.token);
        locks
    }

    /// The first `count_max` held locks whose keys begin with `prefix`, in order of key. Costs what it
    /// gives, however many locks there are. `now` is what to say for cluster time.
    pub fn list(&self, prefix: &str, count_max: usize, now: Stamp) -> Listing {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let mut matching = self
            .locks
            .range::<str, _>(from)
            .take_while(|(key, _)| key.as_str().starts_with(prefix));
        let listed = |(key, held): (&Key, &Held)| Listed {
            lock: Lock {
                key: key.clone(),
                grant: held.grant,
            },
            lease: held.lease,
        };
        let locks = matching.by_ref().take(count_max).map(listed).collect();
        let more = matching.next().is_some();
        Listing { now, locks, more }
    }

    /// A number that is the same on two nodes that applied the same, and almost surely another
    /// when their states differ. It finds a replica that went astray by a defect; it is no
    /// protection against somebody who chooses keys. Costs the same however many locks there are.
    pub fn state_hash(&self) -> u64 {
        self.fingerprint
            .of_state(self.now, self.tokens_granted, self.active_keys_max)
    }

    /// Ends every lock whose deadline cluster time has reached, in order of (deadline, token).
    fn end_due(&mut self) -> Vec<Lock> {
        let mut ended = Vec::new();
        while let Some((key, token)) = self.deadlines.pop_due(self.now) {
            // The entry is stale if the lock was released since, or granted again.
            if is_live(&self.locks, &key, token) {
                let grant = self.end(&key).expect("the key was just found to be held");
                ended.push(Lock { key, grant });
            }
        }
        ended
    }

    /// Lets every lease begin anew, with half of its length.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn halve_leases(&mut self) {
        for (key, held) in &mut self.locks {
            self.fingerprint.remove(key, held);
            held.grant.deadline = Stamp(self.now.0 + held.lease.nanos() / 2);
            self.fingerprint.add(key, held);
        }
        let live = self.locks.iter();
        self.deadlines = Deadlines::from_live(live.map(|(key, held)| (held.grant, key.clone())));
    }

    /// One command. `dated`: the batch's stamp is one that leases can be counted from.
    fn carry_out(&mut self, command: &Command, dated: bool) -> Outcome {
        match command {
            Command::Acquire { key, lease } => Outcome::Acquired(self.attempt(key, *lease, dated)),
            Command::Release { key, token, next } => {
                let current = is_current(&self.locks, key, *token);
                if current {
                    self.end(key);
                }
                let next = next.map(|lease| self.attempt(key, lease, dated));
                if current {
                    Outcome::Released { next }
                } else {
                    Outcome::NotCurrent { next }
                }
            }
        }
    }

    /// Grants `key` if it is free, there is room for it, and there is a token and a time to give.
    fn attempt(&mut self, key: &Key, lease: Lease, dated: bool) -> Attempt {
        let active_keys = self.locks.len();
        let vacant = match self.locks.entry(key.clone()) {
            Entry::Occupied(held) => return Attempt::Held(held.get().grant),
            Entry::Vacant(vacant) => vacant,
        };
        if self
            .active_keys_max
            .is_none_or(|max| active_keys >= max as usize)
        {
            return Attempt::KeysFull;
        }
        let Some(token) = self.tokens_granted.checked_add(1).filter(|_| dated) else {
            return Attempt::TokensExhausted;
        };
        self.tokens_granted = token;
        let deadline = self
            .now
            .0
            .checked_add(lease.nanos())
            .expect("now is at most STAMP_MAX, made for this");
        let grant = Grant {
            token: Token(token),
            deadline: Stamp(deadline),
        };
        let held = Held { grant, lease };
        self.fingerprint.add(key, &held);
        self.deadlines.push(grant, key.clone());
        vacant.insert(held);
        Attempt::Granted(grant)
    }

    /// Frees `key`; what it was held under, if it was. Its heap entry stays behind as a stale one.
    fn end(&mut self, key: &Key) -> Option<Grant> {
        let held = self.locks.remove(key)?;
        self.fingerprint.remove(key, &held);
        Some(held.grant)
    }
}

/// Whether a deadline of `token` is that of the lock that `key` is held by.
fn is_live(locks: &BTreeMap<Key, Held>, key: &Key, token: Token) -> bool {
    #[cfg(feature = "planted-bugs")]
    if planted::has(planted::Bug::ExpiryWithoutToken) {
        return locks.contains_key(key);
    }
    is_current(locks, key, token)
}

/// Whether `key` is held under just this token.
fn is_current(locks: &BTreeMap<Key, Held>, key: &Key, token: Token) -> bool {
    locks.get(key).is_some_and(|held| held.grant.token == token)
}
