//! The clock that counts leases on the client's side.
//!
//! Fault answered: a client that still believes in a lock which the cluster has given to another.
//! `CLOCK_MONOTONIC` stands still while a laptop or a virtual machine sleeps and is slewed by time
//! daemons. So two clocks are read, `CLOCK_BOOTTIME`, which goes on during sleep, and
//! `CLOCK_MONOTONIC_RAW`, which is not slewed, and the one that ran further counts. Erring is
//! towards a lease that looks shorter.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};
use wire::Lease;

/// Where moments come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The system's clocks.
    System,
    /// The time of a paused runtime, counted from there.
    #[cfg(test)]
    Paused(tokio::time::Instant),
}

impl Clock {
    pub(crate) fn now(self) -> Moment {
        match self {
            Self::System => Moment {
                boot: duration(clock_gettime(ClockId::Boottime)),
                raw: duration(clock_gettime(ClockId::MonotonicRaw)),
            },
            #[cfg(test)]
            Self::Paused(base) => Moment {
                boot: base.elapsed(),
                raw: base.elapsed(),
            },
        }
    }
}

/// A moment on both clocks. Later readings of one process are never less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    boot: Duration,
    raw: Duration,
}

impl Moment {
    /// The time since `earlier`, by the clock that ran further.
    fn since(self, earlier: Self) -> Duration {
        let boot = self.boot.saturating_sub(earlier.boot);
        boot.max(self.raw.saturating_sub(earlier.raw))
    }
}

/// How long a grant surely lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validity {
    /// A moment that is surely not after the grant.
    pub(crate) since: Moment,
    pub(crate) lease: Lease,
    pub(crate) clock: Clock,
}

impl Validity {
    /// What surely remains of the lease.
    pub(crate) fn remaining(&self) -> Duration {
        Duration::from_nanos(self.lease.nanos()).saturating_sub(self.clock.now().since(self.since))
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
        let earlier = Clock::System.now();
        assert!(Clock::System.now() >= earlier);
    }
}
