//! Every question is answered once, and `T` only when it is true.
//!
//! - `T` to an acquire with a wait comes when the wait is over: at most 100 ms before, as the
//!   protocol has it. (A `T` to an immediate try says that the key is held: the linearizability
//!   check judges that.) The official client ends a call by its own clock, `CLOCK_MONOTONIC`, whose
//!   rate may differ from the history's by [`SLEW_PER_MILLE`].
//! - An answer to nothing is one too many.
//! - On a session that stands, an answer comes soon after the wait is over, unless something
//!   was being broken meanwhile.

use super::Violation;
use super::calm::Calm;
use crate::history::{By, Call, Doubt, History, MS, Operation, Outcome, Refusal, S};

/// How much earlier than its limit a wait may be answered, in nanoseconds.
const EARLY_NS_MAX: u64 = 100 * MS;

/// How much the rate of `CLOCK_MONOTONIC` may differ from the history's clock.
const SLEW_PER_MILLE: u64 = 1;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let stray = |(at, session, frame): &(u64, u64, String)| {
        let text = format!("session {session} got an answer to nothing: {frame}");
        Violation::general(*at, text)
    };
    let calm = Calm::of(history);
    let judged = history.operations.iter();
    let judged = judged.filter_map(|operation| judge(operation, &calm));
    history.strays.iter().map(stray).chain(judged).collect()
}

fn judge(operation: &Operation, calm: &Calm) -> Option<Violation> {
    let Call::Acquire {
        key, wait_s, by, ..
    } = &operation.call
    else {
        return None;
    };
    let wait = u64::from(*wait_s) * S;
    match operation.outcome {
        Outcome::Fail(Refusal::TimedOut) if wait > 0 => {
            let slew = match by {
                By::Official => wait / 1000 * SLEW_PER_MILLE,
                By::Raw => 0,
            };
            let earliest = operation.called + wait - EARLY_NS_MAX - slew;
            (operation.ended < earliest).then(|| {
                let early = super::ms(earliest - operation.ended);
                let text = format!("the wait was cut short, {early} too early");
                Violation::at_key(key, operation.ended, &[operation], text)
            })
        }
        Outcome::Info(Doubt::Silent) if calm.holds(operation.called, operation.ended) => {
            let text = "no answer, on a session that stands";
            Some(Violation::at_key(key, operation.ended, &[operation], text))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::build::Build;

    fn count(build: Build) -> usize {
        check(&build.history()).len()
    }

    #[test]
    fn answers_in_time_are_fine() {
        let build = Build::default()
            .refused("k", 2, 0, 1_900, Refusal::TimedOut)
            .refused("k", 0, 0, 1, Refusal::TimedOut)
            .refused("k", 9, 0, 1, Refusal::Busy)
            .timeout("k", 2, 0, 1_899)
            .doubt("k", 9, 0, 20_000, Doubt::Lost);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn a_wait_that_is_cut_short_is_found() {
        let build = Build::default()
            .refused("k", 2, 0, 1_899, Refusal::TimedOut)
            .timeout("k", 2, 0, 1_890);
        assert_eq!(count(build), 2);
    }

    #[test]
    fn an_answer_to_nothing_is_found() {
        assert_eq!(count(Build::default().stray(5)), 1);
    }

    #[test]
    fn silence_is_found_unless_something_was_broken() {
        let build = Build::default().doubt("k", 5, 10_000, 20_000, Doubt::Silent);
        assert_eq!(count(build), 1);
        let build = Build::default()
            .fault("kill", "a", Some("a"), (14_000, 15_000), 1)
            .doubt("k", 5, 10_000, 20_000, Doubt::Silent);
        assert_eq!(count(build), 0);
    }
}
