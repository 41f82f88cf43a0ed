//! No waiter is left behind: in calm times, a key that is surely free goes to who waits for it.
//!
//! Blamed is an acquire with a wait that was told `T`, or had to wait, although its key had been free
//! for [`FREE_NS_MAX`] all along, as far as anybody outside can tell. "Surely free" from the latest of:
//!
//! - for each grant of the key: the answer of its release, or the end of its lease (counted from the
//!   answer, plus the second that an end may come late);
//! - for each acquire of unknown outcome from before it was calm: the beginning of the calm plus its lease (what is
//!   not committed by then never will be, and its lease was running by then at the latest);
//! - for one of a client that vanished in the same calm: the moment it vanished plus
//!   [`GIVEN_BACK_NS_MAX`]. Its waiter is removed, or its grant, which nobody took, is released by the
//!   server itself.

use super::Violation;
use super::calm::Calm;
use crate::history::{Answer, Call, Doubt, Grant, History, Operation, Outcome, Refusal, S};

/// How long a free key may be left while somebody waits for it, in nanoseconds. Milliseconds are usual; this leaves room for
/// a machine that is busy with other things.
const FREE_NS_MAX: u64 = 2 * S;

/// How late a lease may end in a healthy cluster, in nanoseconds.
const LATE_NS_MAX: u64 = S;

/// How long the server may take to notice that a client vanished, and to give its grant back, in nanoseconds.
const GIVEN_BACK_NS_MAX: u64 = S;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let calm = Calm::of(history);
    let keys = history.by_key();
    keys.iter()
        .flat_map(|(key, operations)| left_behind(key, operations, &calm))
        .collect()
}

fn left_behind(key: &str, operations: &[&Operation], calm: &Calm) -> Vec<Violation> {
    let mut violations = Vec::new();
    for waiter in operations {
        let Call::Acquire { wait_s, .. } = waiter.call else {
            continue;
        };
        let wait = u64::from(wait_s) * S;
        let waited = match waiter.outcome {
            Outcome::Ok(_) => true,
            Outcome::Fail(Refusal::TimedOut) => wait > FREE_NS_MAX,
            _ => false,
        };
        if !waited || wait == 0 || waiter.ended < waiter.called + FREE_NS_MAX {
            continue;
        }
        if !calm.holds(waiter.called, waiter.ended) {
            continue;
        }
        let began = calm.since(waiter.called);
        let others = operations.iter().filter(|op| op.id != waiter.id);
        let free = others
            .filter(|op| op.called < waiter.ended)
            .filter_map(|op| taken_until(op, operations, began))
            .max();
        let free = free.unwrap_or(0).max(waiter.called);
        if waiter.ended.saturating_sub(free) >= FREE_NS_MAX {
            let text = format!("left behind, the key is free since {}", super::ms(free));
            violations.push(Violation::at_key(key, waiter.ended, &[waiter], text));
        }
    }
    violations
}

/// Until when `operation` may hold the key, as seen in a calm that began at `calm_since`. Never
/// less than what the server would do at its slowest.
fn taken_until(operation: &Operation, operations: &[&Operation], calm_since: u64) -> Option<u64> {
    let Call::Acquire { lease_s, .. } = operation.call else {
        return None;
    };
    let lease = u64::from(lease_s) * S;
    let lease_end = |from: u64| from.saturating_add(lease + LATE_NS_MAX);
    match operation.outcome {
        Outcome::Ok(Answer::Granted { .. }) => {
            let grant = operation.grant().expect("it was granted");
            Some(released_at(grant, operations).min(lease_end(operation.ended)))
        }
        Outcome::Info(Doubt::Vanished) if operation.called > calm_since => {
            Some(operation.ended.saturating_add(GIVEN_BACK_NS_MAX))
        }
        Outcome::Info(_) if operation.called > calm_since => Some(u64::MAX),
        Outcome::Info(_) => Some(lease_end(calm_since)),
        _ => None,
    }
}

/// When the grant's release was answered.
fn released_at(grant: Grant<'_>, operations: &[&Operation]) -> u64 {
    let begin = operations.partition_point(|op| op.called < grant.op.called);
    operations[begin..]
        .iter()
        .filter(|op| matches!(op.call, Call::Release { token, .. } if token == grant.token))
        .filter(|op| matches!(op.outcome, Outcome::Ok(_)))
        .map(|op| op.ended)
        .min()
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::build::Build;

    fn count(build: Build) -> usize {
        check(&build.history()).len()
    }

    #[test]
    fn a_waiter_on_a_held_key_is_not_left_behind() {
        let build = Build::default()
            .grant("k", 10, 0, 5, 1)
            .refused("k", 4, 10, 3_950, Refusal::TimedOut)
            .released("k", 1, 4_000, 4_005);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn a_waiter_on_a_free_key_is_left_behind() {
        let build = Build::default()
            .grant("k", 10, 0, 5, 1)
            .released("k", 1, 1_000, 1_005)
            .refused("k", 4, 10, 3_950, Refusal::TimedOut);
        assert_eq!(count(build), 1);
    }

    #[test]
    fn a_waiter_that_was_served_late_was_left_behind_meanwhile() {
        let build = Build::default()
            .grant("k", 2, 0, 5, 1)
            .grant("k", 10, 6, 5_006, 2);
        assert_eq!(count(build), 1);
        let build = Build::default()
            .grant("k", 2, 0, 5, 1)
            .grant("k", 10, 6, 3_500, 2);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn a_vanished_client_does_not_hold_a_key_for_long() {
        let vanished = |gone, ended| {
            Build::default()
                .grant("k", 10, 0, 5, 1)
                .doubt("k", 60, 6, gone, Doubt::Vanished)
                .released("k", 1, 1_000, 1_005)
                .refused("k", 20, 10, ended, Refusal::TimedOut)
        };
        assert_eq!(count(vanished(1_003, 19_950)), 1);
        assert_eq!(count(vanished(18_000, 19_950)), 0);
    }

    #[test]
    fn a_lost_acquire_of_unknown_fate_may_hold_it() {
        let build = Build::default()
            .doubt("k", 60, 6, 100, Doubt::Lost)
            .refused("k", 20, 10, 19_950, Refusal::TimedOut);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn a_fault_meanwhile_excuses() {
        let build = Build::default()
            .fault("kill", "a", None, (2_000, 2_100), 1)
            .refused("k", 4, 10, 3_950, Refusal::TimedOut);
        assert_eq!(count(build), 0);
    }
}
