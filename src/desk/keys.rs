//! One record per key: what the lock table is known to hold there, and who queues for it.
//!
//! The mirror of the table is exact as of the newest applied batch: it starts from the activation
//! and follows every outcome in log order. That a lock ended by its lease is read off cluster time
//! itself, by the table's own rule (deadline ≤ now), so even a release that was missed could leave
//! a lock in the mirror no longer than its lease.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use raft::lock::{Grant, Stamp};
use wire::{Key, Token};

use super::waiters::WaiterId;

/// A map with fewer places than this is never shrunk, in keys.
const KEYS_KEPT: usize = 1024;

/// A key's grant, as of the newest applied batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) grant: Grant,
    /// Monotonic time, in nanoseconds, when this desk learned of it; `None` if it was there before.
    pub(super) since: Option<u64>,
    /// A release with this very token is on its way, so whoever asks behind it may be granted.
    pub(super) releasing: bool,
}

/// Everything about one key.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    pub(super) held: Option<Held>,
    /// Unanswered acquires with a wait, in order of arrival; the first may be under way.
    pub(super) queue: BTreeSet<WaiterId>,
    /// How many of `queue` are counted as waiters.
    pub(super) queued: usize,
    /// The one of `queue` that a taken batch asks for, alone or as the next of a release.
    pub(super) under_way: Option<WaiterId>,
    /// The next batches will ask for whoever is first then.
    pub(super) attempt_pending: bool,
    /// The pending attempt has kept the place of an acquire that went before it was taken. So
    /// whoever comes and goes can't add to what is pending more than the gate of acquires admits.
    pub(super) place_kept: bool,
}

impl KeyState {
    /// Held, and nothing on its way could have changed that: nobody needs to ask the table.
    pub(super) fn is_held_fast(&self) -> bool {
        self.held.is_some_and(|held| !held.releasing)
    }

    /// Whether the key is held under `token`.
    pub(super) fn is_current(&self, token: Token) -> bool {
        self.held.is_some_and(|held| held.grant.token == token)
    }

    /// The first waiter, if nobody is under way.
    pub(super) fn next(&self) -> Option<WaiterId> {
        match self.under_way {
            Some(_) => None,
            None => self.queue.first().copied(),
        }
    }

    fn is_idle(&self) -> bool {
        self.held.is_none() && self.queue.is_empty() && !self.attempt_pending
    }
}

/// The records of all keys that are held or asked for.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// Looked up, never walked.
    states: HashMap<Key, KeyState>,
    /// Every held key by the end of its lease.
    ends: BTreeMap<(Stamp, Token), Key>,
}

impl Keys {
    /// What is known of `key`, if anything is.
    pub(super) fn get(&self, key: &Key) -> Option<&KeyState> {
        self.states.get(key)
    }

    /// The record of a key that has one.
    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut KeyState> {
        self.states.get_mut(key)
    }

    /// The record of `key`, made if there is none. [`tidy`](Self::tidy) it when something was
    /// taken out.
    pub(super) fn entry(&mut self, key: &Key) -> &mut KeyState {
        self.states.entry(key.clone()).or_default()
    }

    /// The key is held under `grant`, as is known since `since`; true if it was free.
    pub(super) fn hold(&mut self, key: &Key, grant: Grant, since: Option<u64>) -> bool {
        let held = &mut self.entry(key).held;
        match *held {
            Some(known) if known.grant == grant => false,
            before => {
                *held = Some(Held {
                    grant,
                    since,
                    releasing: false,
                });
                self.ends.insert((grant.deadline, grant.token), key.clone());
                if let Some(old) = before {
                    self.ends.remove(&(old.grant.deadline, old.grant.token));
                }
                before.is_none()
            }
        }
    }

    /// The key is not held any more, if it was held under `token`; how it was.
    pub(super) fn free(&mut self, key: &Key, token: Token) -> Option<Held> {
        let state = self.states.get_mut(key)?;
        let held = state.held.take_if(|held| held.grant.token == token)?;
        self.ends.remove(&(held.grant.deadline, token));
        Some(held)
    }

    /// Frees one key whose lease is over at cluster time `now`, the earliest first; how it was held.
    pub(super) fn end_one(&mut self, now: Stamp) -> Option<(Key, Held)> {
        let first = self.ends.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        let key = first.remove();
        let held = self.entry(&key).held.take();
        held.map(|held| (key, held))
    }

    /// Forgets `key` if there is nothing to know about it, and gives memory back after a crowd.
    pub(super) fn tidy(&mut self, key: &Key) {
        if self.states.get(key).is_some_and(KeyState::is_idle) {
            self.states.remove(key);
            let capacity = self.states.capacity();
            if capacity > KEYS_KEPT && self.states.len() < capacity / 8 {
                self.states.shrink_to(capacity / 4);
            }
        }
    }

    /// When the first lease after `stamp` ends.
    pub(super) fn first_end_after(&self, stamp: Stamp) -> Option<Stamp> {
        let after = (stamp, Token(u64::MAX));
        let mut later = self.ends.range(after..).map(|((end, _), _)| *end);
        later.find(|end| *end > stamp)
    }

    /// How many keys are held.
    pub(super) fn held_count(&self) -> usize {
        self.ends.len()
    }

    /// How many keys have a record.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// For how many keys there is room without growing.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.states.capacity()
    }
}
