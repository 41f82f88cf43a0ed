//! Whose votes count.
//!
//! Fault answered: a node that was removed doesn't know it, hears nothing any more, and asks for
//! votes in ever higher terms; each request would depose a healthy leader. Votes of ids that this
//! node has *seen removed* are therefore dropped before they reach Raft. Ids that it never heard of
//! are let through: this node may be the one that is behind.
//!
//! The same gate keeps a superseded founder out (see [`founding`](super::founding)): a node to
//! which an empty node had promised its vote before it promised it to another one.
//!
//! What was seen removed is stored, so that a restart doesn't forget it. A member is always
//! admitted, whatever the list says: membership is the stronger truth.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use storage::{Storage, codec};

use super::Error;

/// Under which name the list is stored.
const STORED_AS: &str = "removed";

/// Most ids that are remembered; the oldest go first. A removed node that comes back after so many
/// more is still held off by pre-vote, because its log is behind.
const REMOVED_MAX: usize = 256;

/// Longest stored list, in bytes: the ids and their count.
const STORED_BYTES_MAX: usize = REMOVED_MAX * 8 + 8;

/// Decides whose votes may reach Raft.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Every id of the effective and of the committed membership.
    members: BTreeSet<u64>,
    /// Every id of the committed membership.
    committed: BTreeSet<u64>,
    /// Oldest first.
    removed: Vec<u64>,
}

impl Gate {
    /// The gate as it was stored.
    pub(super) fn load(storage: &Storage) -> Result<Self, Error> {
        let removed = match storage.get(STORED_AS)? {
            None => Vec::new(),
            Some(bytes) => codec::decode(&bytes, STORED_BYTES_MAX).map_err(|error| {
                Error::StorageFailed(format!("the stored list of removed nodes: {error}"))
            })?,
        };
        Ok(Self(Mutex::new(State {
            removed,
            ..State::default()
        })))
    }

    /// Whether a vote of `id` may reach Raft.
    pub(super) fn admits(&self, id: u64) -> bool {
        self.lock().admits(id)
    }

    /// Keeps `id` out from now on, as if it had been removed, durably.
    pub(super) fn shut_out(&self, id: u64, storage: &Storage) -> Result<(), Error> {
        let mut state = self.lock();
        state.remember([id]);
        state.store(storage)
    }

    /// Takes a new membership; what was committed before and is no member now was removed.
    pub(super) fn update(
        &self,
        committed: BTreeSet<u64>,
        effective: BTreeSet<u64>,
        storage: &Storage,
    ) -> Result<(), Error> {
        let mut state = self.lock();
        if state.update(committed, effective) {
            state.store(storage)
        } else {
            Ok(())
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn admits(&self, id: u64) -> bool {
        self.members.contains(&id) || !self.removed.contains(&id)
    }

    /// True if the list of removed ids changed.
    fn update(&mut self, committed: BTreeSet<u64>, effective: BTreeSet<u64>) -> bool {
        self.members = committed.union(&effective).copied().collect();
        let gone: Vec<u64> = self.committed.difference(&self.members).copied().collect();
        // An id counts as removed only by a committed membership: one that is merely proposed may
        // still be taken back.
        self.committed = committed;
        let changed = !gone.is_empty();
        self.remember(gone);
        changed
    }

    fn remember(&mut self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            if !self.removed.contains(&id) {
                self.removed.push(id);
            }
        }
        let excess = self.removed.len().saturating_sub(REMOVED_MAX);
        self.removed.drain(..excess);
    }

    fn store(&self, storage: &Storage) -> Result<(), Error> {
        let bytes = codec::encode(&self.removed).expect("a list of numbers always encodes");
        Ok(storage.put(STORED_AS, &bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[u64]) -> BTreeSet<u64> {
        ids.iter().copied().collect()
    }

    #[test]
    fn unknown_ids_are_let_through() {
        assert!(State::default().admits(9));
    }

    #[test]
    fn an_id_is_shut_out_once_its_removal_is_committed() {
        let mut state = State::default();
        assert!(!state.update(set(&[1, 2, 3]), set(&[1, 2, 3])));
        assert!(!state.update(set(&[1, 2, 3]), set(&[1, 2, 4])));
        assert!(state.admits(3), "the change may still be taken back");
        assert!(state.update(set(&[1, 2, 4]), set(&[1, 2, 4])));
        assert!(!state.admits(3));
        assert!(state.admits(4));
    }

    #[test]
    fn a_member_is_admitted_whatever_the_list_says() {
        let mut state = State {
            removed: vec![5],
            ..State::default()
        };
        assert!(!state.admits(5));
        state.update(set(&[1]), set(&[1, 5]));
        assert!(state.admits(5));
    }

    #[test]
    fn the_list_is_bounded_and_forgets_the_oldest() {
        let mut state = State::default();
        state.remember(0..REMOVED_MAX as u64 + 1);
        assert_eq!(state.removed.len(), REMOVED_MAX);
        assert!(state.admits(0));
        assert!(!state.admits(1));
        let bytes = codec::encode(&state.removed).unwrap();
        assert!(bytes.len() <= STORED_BYTES_MAX);
    }
}
