//! What happened at the desk, as plain numbers. Nothing is counted by key.

use raft::measure::Histogram;

/// Bounds of waits and holds, in nanoseconds: 1 ms to 250 s, the longest lease.
const SPAN_NANOS: &[u64] = &[
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    120_000_000_000,
    250_000_000_000,
];

/// What happened since the process started, while this desk served.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Leases that ended by themselves.
    pub expired: u64,
    /// Grants that nobody could be told of, and that the desk releases itself.
    pub given_back: u64,
    /// From an acquire's arrival to its grant, in nanoseconds; only of those that were granted.
    pub waits: Histogram,
    /// From a grant to its release or the end of its lease, in nanoseconds.
    pub holds: Histogram,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            expired: 0,
            given_back: 0,
            waits: Histogram::new(SPAN_NANOS),
            holds: Histogram::new(SPAN_NANOS),
        }
    }
}

impl Tally {
    /// An acquire that arrived then is granted now.
    pub(super) fn waited(&mut self, arrived: u64, now: u64) {
        self.waits.observe(now.saturating_sub(arrived));
    }

    /// A grant has ended. One from before this desk's time has no known beginning.
    pub(super) fn held(&mut self, since: Option<u64>, now: u64) {
        if let Some(since) = since {
            self.holds.observe(now.saturating_sub(since));
        }
    }
}
