//! Time as the end of a lease is counted in, shared by the processes around a command.
//!
//! As in the client library two clocks are read, one that goes on while the machine sleeps and one
//! that no time daemon slews, and the reading that is worse for us counts: what has passed is the
//! greater one of both, what is left the smaller one. Both clocks are the machine's, so that a
//! moment keeps its meaning in another process.

use std::fmt;
use std::ops::Add;
use std::str::FromStr;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    boot: Duration,
    raw: Duration,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self {
            boot: duration(clock_gettime(ClockId::Boottime)),
            raw: duration(clock_gettime(ClockId::MonotonicRaw)),
        }
    }

    /// The time that has passed since, by the clock that ran further.
    pub(super) fn elapsed(self) -> Duration {
        Self::now().since(self)
    }

    /// The time that is left until then, by the clock that ran further; zero if that was before.
    pub(super) fn left(self) -> Duration {
        self.after(Self::now())
    }

    fn since(self, earlier: Self) -> Duration {
        let boot = self.boot.saturating_sub(earlier.boot);
        boot.max(self.raw.saturating_sub(earlier.raw))
    }

    fn after(self, now: Self) -> Duration {
        let boot = self.boot.saturating_sub(now.boot);
        boot.min(self.raw.saturating_sub(now.raw))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self {
            boot: self.boot + later,
            raw: self.raw + later,
        }
    }
}

/// As an argument for another process of this machine: both readings in nanoseconds.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.boot.as_nanos(), self.raw.as_nanos())
    }
}

impl FromStr for Moment {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let nanos = |text: &str| text.parse().ok().map(Duration::from_nanos);
        let readings = text.split_once(',');
        let moment = readings.and_then(|(boot, raw)| {
            Some(Self {
                boot: nanos(boot)?,
                raw: nanos(raw)?,
            })
        });
        moment.ok_or("not a moment on two clocks")
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

    fn seconds(boot: u64, raw: u64) -> Moment {
        Moment {
            boot: Duration::from_secs(boot),
            raw: Duration::from_secs(raw),
        }
    }

    #[test]
    fn the_clock_that_ran_further_counts_in_both_directions() {
        let start = seconds(100, 10);
        let end = start + Duration::from_secs(30);
        // The machine slept for five seconds, or a time daemon slowed one clock down.
        for now in [seconds(107, 12), seconds(102, 17)] {
            assert_eq!(now.since(start), Duration::from_secs(7));
            assert_eq!(end.after(now), Duration::from_secs(23));
        }
        assert_eq!(end.after(seconds(131, 11)), Duration::ZERO);
    }

    #[test]
    fn a_moment_survives_the_way_to_another_process() {
        let moment = Moment::now();
        assert_eq!(moment.to_string().parse(), Ok(moment));
        for wrong in [
            "",
            "1",
            "1,",
            ",1",
            "1,-1",
            "1,2,3",
            "1,99999999999999999999",
        ] {
            assert!(wrong.parse::<Moment>().is_err(), "{wrong:?}");
        }
    }
}
