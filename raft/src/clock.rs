//! The monotonic clock that leases are counted with.
//!
//! Fault answered: wall clocks jump and are slewed. `CLOCK_MONOTONIC` is slewed too (chrony may
//! change its rate by several per cent), so servers read `CLOCK_MONOTONIC_RAW`. It stops while the
//! machine is suspended, which only lengthens a lease.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// A source of monotonic nanoseconds.
pub trait Clock: Send + Sync + 'static {
    /// Nanoseconds since some fixed moment before this process started; never goes back.
    fn now(&self) -> u64;
}

/// `CLOCK_MONOTONIC_RAW`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> u64 {
        #[cfg(feature = "planted-bugs")]
        if planted::has(planted::Bug::WallClock) {
            let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
            return since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0));
        }
        let time = clock_gettime(ClockId::MonotonicRaw);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    }
}

/// A clock that only moves when it is told to, for tests.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Moves on by `nanos`.
    pub fn advance(&self, nanos: u64) {
        self.0.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
