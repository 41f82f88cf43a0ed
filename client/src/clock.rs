//! The clock that counts leases on the client's side.
//!
//! Fault answered: a client that still believes in a lock which the cluster has given to another.
//! `CLOCK_MONOTONIC` stands still while a laptop or a virtual machine sleeps and is slewed by time
//! daemons. So two clocks are read, `CLOCK_BOOTTIME`, which goes on during sleep, and
//! `CLOCK_MONOTONIC_RAW`, which is not slewed, and the one that ran further counts. Erring is
//! towards a lease that looks shorter.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A moment on both clocks. Later readings of one process are never less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    boot: Duration,
    raw: Duration,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self {
            boot: duration(clock_gettime(ClockId::Boottime)),
            raw: duration(clock_gettime(ClockId::MonotonicRaw)),
        }
    }

    /// The time since then, by the clock that ran further.
    pub(crate) fn elapsed(self) -> Duration {
        Self::now().since(self)
    }

    fn since(self, earlier: Self) -> Duration {
        let boot = self.boot.saturating_sub(earlier.boot);
        boot.max(self.raw.saturating_sub(earlier.raw))
    }
}

fn duration(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_that_ran_further_counts() {
        let seconds = |boot, raw| Moment {
            boot: Duration::from_secs(boot),
            raw: Duration::from_secs(raw),
        };
        let start = seconds(100, 10);
        assert_eq!(
            seconds(107, 12).since(start),
            Duration::from_secs(7),
            "slept"
        );
        assert_eq!(
            seconds(102, 13).since(start),
            Duration::from_secs(3),
            "slewed"
        );
    }

    #[test]
    fn later_readings_are_not_less() {
        let earlier = Moment::now();
        assert!(Moment::now() >= earlier);
    }
}
