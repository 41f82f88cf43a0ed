//! Plain instruments: counters and histograms that cost next to nothing where they are fed.
//!
//! They know neither names nor formats; whoever shows them does. Bounds are fixed, so what an
//! instrument takes never depends on what it measures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Bounds for what disks and networks take, in nanoseconds: 50 µs to 2.5 s.
pub const IO_NANOS: &[u64] = &[
    50_000,
    100_000,
    250_000,
    500_000,
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
];

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn add_one(&self) {
        self.add(1);
    }

    /// `count` more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How often values fell between fixed bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One for each bound, and one for what is above all of them.
    counts: Box<[u64]>,
    sum: u64,
}

impl Histogram {
    /// An empty one; `bounds` grow. A value belongs to the first bound that it does not exceed.
    pub fn new(bounds: &'static [u64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1].into(),
            sum: 0,
        }
    }

    /// Takes a value in.
    pub fn observe(&mut self, value: u64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.counts[place] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// Each bound, and how many values did not exceed it.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut count = 0;
        self.bounds.iter().zip(&self.counts).map(move |(bound, n)| {
            count += n;
            (*bound, count)
        })
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

/// A histogram of durations that one thread feeds and another one reads now and then.
#[derive(Debug)]
pub struct Durations(Mutex<Histogram>);

impl Default for Durations {
    fn default() -> Self {
        Self(Mutex::new(Histogram::new(IO_NANOS)))
    }
}

impl Durations {
    /// Takes a duration in.
    pub fn observe(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .observe(nanos);
    }

    /// A copy, in nanoseconds.
    pub fn read(&self) -> Histogram {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_for_its_bound_and_all_above() {
        let mut histogram = Histogram::new(&[10, 20]);
        for value in [0, 10, 11, 20, 21, u64::MAX] {
            histogram.observe(value);
        }
        let buckets: Vec<_> = histogram.cumulative().collect();
        assert_eq!(buckets, [(10, 2), (20, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (6, u64::MAX));
    }

    #[test]
    fn bounds_grow() {
        assert!(IO_NANOS.is_sorted_by(|a, b| a < b));
    }
}
