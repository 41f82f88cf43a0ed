//! What is done about a running command, decided apart from the doing.
//!
//! [`Watch`] is told what happened and when, and says what to do. Its rules:
//!
//! - a signal is passed on to the command;
//! - when the lease is about to end the command is told to stop, and killed when its time for that
//!   is over; whatever it says in the end, the code is [`EXIT_LEASE_OVER`];
//! - when the process that holds the lock is gone, everything is killed at once: nobody would
//!   release the lock after the command, or end the command before the lease;
//! - the command has ended when its process has *and* nothing that it left in its session runs any
//!   more: what it left has the time from TERM to KILL to finish, with the lock still held, and is
//!   killed then. A lock that is given back while a part of the work goes on protects nothing.
//!
//! Times are counted from the begin of the guarding, on the client's clock.

use std::time::Duration;

use rustix::process::Signal;

use super::plan::{Plan, Schedule};
use crate::cli::exit::{EXIT_LEASE_OVER, signal_code};

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A signal for the command came.
    Signal(Signal),
    /// The process that holds the lock is gone.
    Orphaned,
    /// The command's process ended, with this code.
    Ended(u8),
    /// Whether anything else of the command runs; of interest once its process has ended.
    Rest(bool),
    /// Time passed.
    Time,
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Send the signal to all processes of the command.
    PassOn(Signal),
    /// Tell all processes of the command to end, those that are stopped as well.
    Stop,
    /// Kill all that descends from the command, see that it is gone, and end with this code.
    KillAll(u8),
    /// Kill what is left of the command in its session, see that it is gone, and end with this code.
    KillRest(u8),
    /// End with this code.
    Exit(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Runs,
    /// It was told to stop because the lease is about to end.
    Stopping,
    /// Its process has ended; the rest may run until then.
    Rest {
        code: u8,
        until: Duration,
    },
}

/// The state of one guarded command.
#[derive(Debug)]
pub(super) struct Watch {
    /// None if it may outlive the lease.
    schedule: Option<Schedule>,
    kill_after: Duration,
    phase: Phase,
}

impl Watch {
    /// Watches a command whose lease ends `left` after the begin.
    pub(super) fn new(plan: &Plan, left: Duration) -> Self {
        Self {
            schedule: plan.schedule(left),
            kill_after: plan.kill_after,
            phase: Phase::Runs,
        }
    }

    /// Whether the command's process has ended.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Rest { .. })
    }

    /// What to do about this event.
    pub(super) fn step(&mut self, now: Duration, event: Event) -> Option<Effect> {
        match (event, self.phase) {
            (Event::Orphaned, _) => Some(Effect::KillAll(signal_code(Signal::KILL.as_raw()))),
            (Event::Signal(signal), _) => Some(Effect::PassOn(signal)),
            (Event::Ended(code), Phase::Runs) => {
                let until = now + self.kill_after;
                let kill = self.schedule.map_or(until, |schedule| schedule.kill);
                self.rest(code, until.min(kill))
            }
            (Event::Ended(_), Phase::Stopping) => {
                let kill = self.schedule.map_or(now, |schedule| schedule.kill);
                self.rest(EXIT_LEASE_OVER, kill)
            }
            (Event::Rest(false), Phase::Rest { code, .. }) => Some(Effect::Exit(code)),
            (Event::Time, Phase::Rest { code, until }) => {
                (now >= until).then_some(Effect::KillRest(code))
            }
            (Event::Time, phase) => self.lease_end(now, phase),
            (Event::Ended(_), Phase::Rest { .. }) | (Event::Rest(_), _) => None,
        }
    }

    fn rest(&mut self, code: u8, until: Duration) -> Option<Effect> {
        self.phase = Phase::Rest { code, until };
        None
    }

    fn lease_end(&mut self, now: Duration, phase: Phase) -> Option<Effect> {
        let schedule = self.schedule?;
        if phase == Phase::Stopping {
            return (now >= schedule.kill).then_some(Effect::KillAll(EXIT_LEASE_OVER));
        }
        (now >= schedule.term).then(|| {
            self.phase = Phase::Stopping;
            Effect::Stop
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::OnLeaseEnd;
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// TERM at 24.5 s, KILL at 29.5 s.
    fn watch(on_lease_end: OnLeaseEnd) -> Watch {
        let plan = Plan {
            on_lease_end,
            kill_after: ms(5_000),
        };
        Watch::new(&plan, ms(30_000))
    }

    /// Feeds events at their times and expects the effects beside them.
    fn check(mut watch: Watch, story: &[(u64, Event, Option<Effect>)]) {
        for &(at, event, effect) in story {
            assert_eq!(watch.step(ms(at), event), effect, "{event:?} at {at} ms");
        }
    }

    #[test]
    fn a_command_that_ends_by_itself_gives_its_code() {
        let story = [
            (0, Event::Time, None),
            (20, Event::Ended(7), None),
            (21, Event::Rest(false), Some(Effect::Exit(7))),
        ];
        check(watch(OnLeaseEnd::Term), &story);
        check(watch(OnLeaseEnd::Warn), &story);
    }

    #[test]
    fn a_command_that_ignores_the_request_to_stop_is_killed_before_the_lease_ends() {
        let story = [
            (24_499, Event::Time, None),
            (24_500, Event::Time, Some(Effect::Stop)),
            (24_501, Event::Time, None),
            (29_499, Event::Time, None),
            (29_500, Event::Time, Some(Effect::KillAll(EXIT_LEASE_OVER))),
        ];
        check(watch(OnLeaseEnd::Term), &story);
    }

    #[test]
    fn a_machine_that_slept_through_both_times_is_told_both_at_once() {
        let story = [
            (100, Event::Time, None),
            (90_000, Event::Time, Some(Effect::Stop)),
            (90_000, Event::Time, Some(Effect::KillAll(EXIT_LEASE_OVER))),
        ];
        check(watch(OnLeaseEnd::Term), &story);
    }

    #[test]
    fn a_command_that_stops_when_told_reports_the_lease_whatever_its_code() {
        let story = [
            (24_500, Event::Time, Some(Effect::Stop)),
            (25_000, Event::Ended(0), None),
            (25_000, Event::Rest(true), None),
            (25_000, Event::Time, None),
            (
                26_000,
                Event::Rest(false),
                Some(Effect::Exit(EXIT_LEASE_OVER)),
            ),
        ];
        check(watch(OnLeaseEnd::Term), &story);
    }

    #[test]
    fn what_a_stopped_command_leaves_is_killed_before_the_lease_ends() {
        let story = [
            (24_500, Event::Time, Some(Effect::Stop)),
            (24_600, Event::Ended(143), None),
            (29_499, Event::Rest(true), None),
            (29_499, Event::Time, None),
            (29_500, Event::Time, Some(Effect::KillRest(EXIT_LEASE_OVER))),
        ];
        check(watch(OnLeaseEnd::Term), &story);
    }

    #[test]
    fn what_a_command_leaves_has_its_time_to_finish() {
        let story = [
            (1_000, Event::Ended(0), None),
            (1_000, Event::Rest(true), None),
            (5_999, Event::Time, None),
            (6_000, Event::Time, Some(Effect::KillRest(0))),
        ];
        check(watch(OnLeaseEnd::Term), &story);
        check(watch(OnLeaseEnd::Warn), &story);
    }

    #[test]
    fn what_a_command_leaves_shortly_before_the_lease_ends_has_no_longer_than_the_lease() {
        let story = [
            (24_400, Event::Ended(0), None),
            (29_399, Event::Time, None),
            (29_400, Event::Time, Some(Effect::KillRest(0))),
        ];
        check(watch(OnLeaseEnd::Term), &story);
        // The command's end was seen before the time for TERM was.
        let story = [
            (26_000, Event::Ended(0), None),
            (29_499, Event::Time, None),
            (29_500, Event::Time, Some(Effect::KillRest(0))),
        ];
        check(watch(OnLeaseEnd::Term), &story);
    }

    #[test]
    fn a_command_that_may_outlive_its_lease_does() {
        let story = [
            (30_000, Event::Time, None),
            (100_000, Event::Time, None),
            (100_000, Event::Ended(0), None),
            (100_000, Event::Rest(false), Some(Effect::Exit(0))),
        ];
        check(watch(OnLeaseEnd::Warn), &story);
    }

    #[test]
    fn signals_are_passed_on_in_every_phase() {
        let hangup = Event::Signal(Signal::HUP);
        let passed = Some(Effect::PassOn(Signal::HUP));
        let story = [
            (0, hangup, passed),
            (24_500, Event::Time, Some(Effect::Stop)),
            (24_500, hangup, passed),
            (25_000, Event::Ended(0), None),
            (25_000, hangup, passed),
        ];
        check(watch(OnLeaseEnd::Term), &story);
    }

    #[test]
    fn nothing_outlives_the_process_that_holds_the_lock() {
        let killed = Some(Effect::KillAll(137));
        for before in [
            &[][..],
            &[(24_500, Event::Time, Some(Effect::Stop))],
            &[(10, Event::Ended(0), None)],
        ] {
            for on_lease_end in [OnLeaseEnd::Term, OnLeaseEnd::Warn] {
                let mut watch = watch(on_lease_end);
                for &(at, event, _) in before {
                    watch.step(ms(at), event);
                }
                assert_eq!(watch.step(ms(25_000), Event::Orphaned), killed);
            }
        }
    }
}
