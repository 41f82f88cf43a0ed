//! Who may still come in: the limits and their hysteresis.
//!
//! Fault answered: a flood. Every unanswered acquire holds exactly one place, either *in flight*
//! (on its way to the lock table from the start) or *queued* (in a key's queue, where it stays
//! counted while it is under way as somebody's successor). So what the desk keeps of clients is
//! bounded by the two limits together. A gate that has closed at 90 % opens only below 75 %, so
//! that a full desk answers `B` steadily instead of flapping at the edge.
//!
//! Releases are not counted here: their lane is kept by whoever reads from the sockets, and what
//! the desk gives back on its own is at most one release per held key.

/// The limits that the desk keeps. The one on active keys is replicated and comes with the
/// activation.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Waiters in one key's queue; no hysteresis.
    pub waiters_per_key_max: usize,
    /// Waiters in all queues together.
    pub waiters_max: usize,
    /// Acquires in flight.
    pub acquires_in_flight_max: usize,
}

/// Closes at 90 % of its limit and opens again below 75 %.
#[derive(Debug)]
pub(super) struct Gate {
    limit: usize,
    used: usize,
    closed: bool,
}

impl Gate {
    /// A gate with `used` places of `limit` taken; it starts open below 90 %.
    pub(super) fn new(limit: usize, used: usize) -> Self {
        let mut gate = Self {
            limit,
            used,
            closed: false,
        };
        gate.swing();
        gate
    }

    /// Whether one more may come in.
    pub(super) fn is_open(&self) -> bool {
        !self.closed
    }

    /// How many places are taken.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Takes a place. Also past the limit: whoever has the right to come in does not ask.
    pub(super) fn enter(&mut self) {
        self.used += 1;
        self.swing();
    }

    /// Gives a place back.
    pub(super) fn leave(&mut self) {
        self.used = self.used.checked_sub(1).expect("only who entered leaves");
        self.swing();
    }

    fn swing(&mut self) {
        if self.used * 10 >= self.limit * 9 {
            self.closed = true;
        } else if self.used * 4 < self.limit * 3 {
            self.closed = false;
        }
    }
}

/// All gates of one activity.
#[derive(Debug)]
pub(super) struct Admission {
    /// Acquires in flight.
    pub(super) acquires: Gate,
    /// Waiters in all queues.
    pub(super) waiters: Gate,
    /// Keys that are held.
    pub(super) keys: Gate,
    /// Waiters in one queue.
    pub(super) waiters_per_key_max: usize,
}

impl Admission {
    /// Everything free but for `active_keys` of `active_keys_max` keys.
    pub(super) fn new(limits: Limits, active_keys_max: usize, active_keys: usize) -> Self {
        Self {
            acquires: Gate::new(limits.acquires_in_flight_max, 0),
            waiters: Gate::new(limits.waiters_max, 0),
            keys: Gate::new(active_keys_max, active_keys),
            waiters_per_key_max: limits.waiters_per_key_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_closes_at_nine_tenths_and_opens_below_three_quarters() {
        let mut gate = Gate::new(100, 0);
        for used in 0..90 {
            assert!(gate.is_open(), "{used} of 100");
            gate.enter();
        }
        for used in (75..=90).rev() {
            assert!(!gate.is_open(), "{used} of 100, coming down");
            gate.leave();
        }
        assert_eq!(gate.used(), 74);
        assert!(gate.is_open());
    }

    #[test]
    fn a_gate_that_starts_nearly_full_starts_closed() {
        assert!(Gate::new(100, 89).is_open());
        assert!(!Gate::new(100, 90).is_open());
        assert!(!Gate::new(100, 200).is_open());
    }

    #[test]
    fn a_gate_without_places_is_never_open() {
        assert!(!Gate::new(0, 0).is_open());
    }
}
