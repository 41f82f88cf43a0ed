//! Cluster time, as a leader tells it.
//!
//! Fault answered: a lease that ends early after a failover. Time goes on from what the table knew
//! when this process applied the entry that last moved it, by this process's own monotonic clock:
//! what has passed since the stamp was given is never less than what has passed since it was
//! applied here, so cluster time never runs ahead of real time. Stamps never go back.
//!
//! A lock ends only when a stamp says so. So while any lock is held a batch is stamped at the next
//! end of a lease, and at least once a second in any case (a node that has just restarted and counts
//! from its replay is then hardly behind). Ends that lie close together share a stamp, so that a
//! thousand leases that end in the same blink don't become a thousand batches.

use raft::lock::Stamp;

/// While a lock is held, stamps are at most this far apart, in nanoseconds: a second, less what a
/// timer may be late.
const STAMP_NANOS_MAX: u64 = 900_000_000;

/// A batch that only carries time comes at least this long after the stamp before it, in
/// nanoseconds.
const STAMP_NANOS_MIN: u64 = 5_000_000;

/// Cluster time of one activity.
#[derive(Debug)]
pub(super) struct Timeline {
    /// Cluster time at `base_at`.
    base: Stamp,
    /// Monotonic time in nanoseconds.
    base_at: u64,
    /// The newest stamp given, or known from before.
    last: Stamp,
}

impl Timeline {
    /// Goes on from `base`, which the table had at the monotonic time `base_at`.
    pub(super) fn new(base: Stamp, base_at: u64) -> Self {
        Self {
            base,
            base_at,
            last: base,
        }
    }

    /// The stamp of a batch that is handed over at `now`.
    pub(super) fn stamp(&mut self, now: u64) -> Stamp {
        let passed = now.saturating_sub(self.base_at);
        self.last = self.last.max(Stamp(self.base.0.saturating_add(passed)));
        self.last
    }

    /// The newest stamp given.
    pub(super) fn last(&self) -> Stamp {
        self.last
    }

    /// When the next stamp is due, in monotonic time, while a lock is held. `end`: the first lease
    /// that ends after [`last`](Self::last); one that ends earlier has its stamp already.
    pub(super) fn due_at(&self, end: Option<Stamp>) -> u64 {
        let latest = self.last.0.saturating_add(STAMP_NANOS_MAX);
        let wanted = end.map_or(latest, |end| end.0.min(latest));
        let due = wanted.max(self.last.0.saturating_add(STAMP_NANOS_MIN));
        self.base_at.saturating_add(due - self.base.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_count_from_when_the_table_last_moved_and_never_go_back() {
        let mut timeline = Timeline::new(Stamp(1_000), 50);
        assert_eq!(timeline.stamp(40), Stamp(1_000));
        assert_eq!(timeline.stamp(60), Stamp(1_010));
        assert_eq!(timeline.stamp(55), Stamp(1_010));
    }

    #[test]
    fn the_next_stamp_comes_with_the_next_end_but_not_too_soon_or_too_late() {
        let mut timeline = Timeline::new(Stamp(0), 0);
        timeline.stamp(1_000_000_000);
        let due_at = |end| timeline.due_at(Some(Stamp(end)));
        assert_eq!(due_at(1_200_000_000), 1_200_000_000);
        assert_eq!(due_at(1_000_000_001), 1_005_000_000);
        assert_eq!(due_at(9_000_000_000), 1_900_000_000);
        assert_eq!(timeline.due_at(None), 1_900_000_000);
    }

    #[test]
    fn the_end_of_time_does_not_wrap() {
        let mut timeline = Timeline::new(Stamp(u64::MAX - 1), 7);
        assert_eq!(timeline.stamp(u64::MAX), Stamp(u64::MAX));
        assert!(timeline.due_at(Some(Stamp(u64::MAX))) >= 7);
    }
}
