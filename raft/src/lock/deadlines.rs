//! When locks end: a min-heap of (deadline, token, key), validated by token.
//!
//! A release does not look for its entry in the heap; it leaves it behind as a *stale* one, told
//! from a live one by its token, which is no longer the key's. Two things keep that harmless:
//! stale entries on top are dropped after every batch, so the top is always a lock that is held;
//! and when stale entries outnumber live ones the heap is built anew from the live ones, so its
//! size is bounded by the number of held locks, however often they change hands. A rebuild costs
//! as much as the releases since the last one: constant time for each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use wire::{Key, Token};

use super::command::{Grant, Stamp};

/// So many stale entries are left alone even if they outnumber the live ones: a nearly empty heap
/// is not worth rebuilding after each release.
const STALE_MIN: usize = 64;

/// The heap. Every held lock has exactly one entry in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(Stamp, Token, Key)>>,
}

impl Deadlines {
    /// A heap of just these grants.
    pub(super) fn from_live(live: impl Iterator<Item = (Grant, Key)>) -> Self {
        let heap = live
            .map(|(grant, key)| Reverse((grant.deadline, grant.token, key)))
            .collect();
        Self { heap }
    }

    /// Notes a new grant.
    pub(super) fn push(&mut self, grant: Grant, key: Key) {
        self.heap.push(Reverse((grant.deadline, grant.token, key)));
    }

    /// Takes out the first entry whose deadline is not after `now`, live or stale.
    pub(super) fn pop_due(&mut self, now: Stamp) -> Option<(Key, Token)> {
        let Reverse((deadline, ..)) = self.heap.peek()?;
        if *deadline > now {
            return None;
        }
        let Reverse((_, token, key)) = self.heap.pop()?;
        Some((key, token))
    }

    /// The first deadline. After [`tidy`](Self::tidy) it is that of a lock that is held.
    pub(super) fn next(&self) -> Option<Stamp> {
        self.heap.peek().map(|Reverse((deadline, ..))| *deadline)
    }

    /// Drops stale entries from the top, and all of them when they outnumber the `live_count`
    /// live ones.
    pub(super) fn tidy(&mut self, is_live: impl Fn(&Key, Token) -> bool, live_count: usize) {
        let stale_count = self.heap.len().saturating_sub(live_count);
        if stale_count > live_count.max(STALE_MIN) {
            self.heap
                .retain(|Reverse((_, token, key))| is_live(key, *token));
            // What a burst needed is given back, with some room to go on.
            self.heap.shrink_to(2 * live_count);
        }
        while let Some(Reverse((_, token, key))) = self.heap.peek() {
            if is_live(key, *token) {
                break;
            }
            self.heap.pop();
        }
    }

    /// Entries, live and stale.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }
}
