//! When the command must end, worked out from the flags before anything is asked of a server.
//!
//! Fault answered: a command that still works when its lease is over and another holds the lock.
//! The end takes time: the command gets TERM, has [`Plan::kill_after`] to clean up, gets KILL, and
//! a process that is killed needs a moment to be gone ([`DYING_MAX`]). All of that has to lie
//! *before* the end of the lease, so it is counted backwards from there. Flags that leave no time
//! for the work itself are an error; nothing is clamped.

use std::time::Duration;

use wire::LEASE_SECONDS_MAX;

/// How long killed processes may take to be gone. They let go of their memory first, and on a busy
/// machine they are not run at once.
pub(super) const DYING_MAX: Duration = Duration::from_millis(500);

/// What happens to a command that still runs when its lease is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OnLeaseEnd {
    /// It is stopped in time: TERM, then KILL
    Term,
    /// It goes on, with a warning: others may hold the lock then
    Warn,
}

impl OnLeaseEnd {
    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Term => "term",
            Self::Warn => "warn",
        }
    }
}

/// What is to happen at the end of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) on_lease_end: OnLeaseEnd,
    /// From TERM to KILL.
    pub(super) kill_after: Duration,
}

/// When the command is told to end, counted from when the guarding begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) term: Duration,
    pub(super) kill: Duration,
}

impl Plan {
    /// How long before the end of the lease the end of the command begins.
    pub(super) fn ending(&self) -> Duration {
        match self.on_lease_end {
            OnLeaseEnd::Term => self.kill_after + DYING_MAX,
            OnLeaseEnd::Warn => Duration::ZERO,
        }
    }

    /// How much of the lease must be left when the grant arrives: the work and the end of it.
    /// Without a word about the work that is half of the time which the command can have at all.
    pub(super) fn budget(
        &self,
        lease: Duration,
        work_budget: Option<Duration>,
    ) -> Result<Duration, String> {
        let ending = self.ending();
        let Some(usable) = lease.checked_sub(ending).filter(|time| !time.is_zero()) else {
            return Err(format!(
                "--lease is \"{}\": it must be more than {}, which is --kill-after and {} for the end",
                lease.as_secs_f64(),
                seconds(ending),
                seconds(DYING_MAX)
            ));
        };
        let work = work_budget.unwrap_or(usable / 2);
        if work > usable {
            return Err(format!(
                "--work-budget is \"{}\": --lease and --kill-after leave {} for the work",
                work.as_secs_f64(),
                seconds(usable)
            ));
        }
        Ok(work + ending)
    }

    /// The schedule of a command whose lease ends `left` from now; none where it may go on.
    pub(super) fn schedule(&self, left: Duration) -> Option<Schedule> {
        (self.on_lease_end == OnLeaseEnd::Term).then(|| Schedule {
            term: left.saturating_sub(self.ending()),
            kill: left.saturating_sub(DYING_MAX),
        })
    }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// A number of seconds, fractions allowed, as a flag's value.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    if !(0.0..=f64::from(LEASE_SECONDS_MAX)).contains(&seconds) {
        return Err(format!("it must be 0 to {LEASE_SECONDS_MAX}"));
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn plan(on_lease_end: OnLeaseEnd, kill_after: Duration) -> Plan {
        Plan {
            on_lease_end,
            kill_after,
        }
    }

    #[test]
    fn everything_lies_before_the_end_of_the_lease() {
        let five = plan(OnLeaseEnd::Term, ms(5_000));
        let expected = Schedule {
            term: ms(24_000),
            kill: ms(29_000),
        };
        assert_eq!(five.schedule(ms(29_500)), Some(expected));
        assert_eq!(
            five.schedule(ms(400)),
            Some(Schedule {
                term: ms(0),
                kill: ms(0)
            })
        );
        assert_eq!(plan(OnLeaseEnd::Warn, ms(5_000)).schedule(ms(29_500)), None);
    }

    #[test]
    fn a_grant_must_cover_the_work_and_the_end_of_it() {
        let five = plan(OnLeaseEnd::Term, ms(5_000));
        assert_eq!(five.budget(ms(30_000), Some(ms(10_000))), Ok(ms(15_500)));
        assert_eq!(five.budget(ms(30_000), Some(ms(24_500))), Ok(ms(30_000)));
        assert_eq!(five.budget(ms(30_000), None), Ok(ms(12_250 + 5_500)));
        let none = plan(OnLeaseEnd::Term, ms(0));
        assert_eq!(none.budget(ms(1_000), None), Ok(ms(750)));
        let warn = plan(OnLeaseEnd::Warn, ms(5_000));
        assert_eq!(warn.budget(ms(1_000), None), Ok(ms(500)));
        assert_eq!(warn.budget(ms(1_000), Some(ms(0))), Ok(ms(0)));
    }

    #[test]
    fn flags_that_leave_no_time_are_refused_by_name() {
        let five = plan(OnLeaseEnd::Term, ms(5_000));
        assert_eq!(
            five.budget(ms(5_000), None),
            Err(
                "--lease is \"5\": it must be more than 5.5 s, which is --kill-after and 0.5 s \
                 for the end"
                    .to_owned()
            )
        );
        assert_eq!(
            five.budget(ms(30_000), Some(ms(24_501))),
            Err(
                "--work-budget is \"24.501\": --lease and --kill-after leave 24.5 s for the work"
                    .to_owned()
            )
        );
        // A lease that is just used up by the end leaves nothing either.
        assert!(
            plan(OnLeaseEnd::Term, ms(500))
                .budget(ms(1_000), None)
                .is_err()
        );
    }

    #[test]
    fn seconds_are_read_with_fractions_and_within_bounds() {
        assert_eq!(parse_seconds("0"), Ok(ms(0)));
        assert_eq!(parse_seconds("0.25"), Ok(ms(250)));
        assert_eq!(parse_seconds("250"), Ok(ms(250_000)));
        for wrong in ["", "soon", "-1", "250.001", "inf", "NaN", "1e300", "5s"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong:?}");
        }
    }
}
