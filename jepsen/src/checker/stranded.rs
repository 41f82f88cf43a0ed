//! No waiter is left behind: in calm times, a key that is surely free goes to who waits for it.
//!
//! Blamed is an acquire with a wait that was told `T`, or had to wait, although its key had been
//! free for [`FREE_NS_MAX`] all along, as far as anybody outside can tell. "Surely free" from the
//! latest of:
//!
//! - for each grant of the key: the answer of its release, or the end of its lease (counted from
//!   the answer, plus the second that an end may come late);
//! - for each acquire of unknown outcome from before it was calm: the beginning of the calm plus
//!   its lease (what is not committed by then never will be, and its lease was running by then at
//!   the latest);
//! - for one of a client that vanished in the same calm: the moment it vanished plus
//!   [`GIVEN_BACK_NS_MAX`]. Its waiter is removed, or its grant, which nobody took, is released by
//!   the server itself.

use super::Violation;
use super::calm::Calm;
use super::releases::Releases;
use crate::history::{Call, Doubt, History, OpId, Operation, Outcome, Refusal, S};

/// How long a free key may be left while somebody waits for it, in nanoseconds. Milliseconds are
/// usual; this leaves room for a machine that is busy with other things.
const FREE_NS_MAX: u64 = 2 * S;

/// How late a lease may end in a healthy cluster, in nanoseconds.
const LATE_NS_MAX: u64 = S;

/// How long the server may take to notice that a client vanished, and to give its grant back, in
/// nanoseconds.
const GIVEN_BACK_NS_MAX: u64 = S;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let calm = Calm::of(history);
    let keys = history.by_key();
    keys.iter()
        .flat_map(|(key, operations)| left_behind(key, operations, &calm))
        .collect()
}

fn left_behind(key: &str, operations: &[&Operation], calm: &Calm) -> Vec<Violation> {
    let releases = Releases::of(operations);
    let held = Held::of(operations, &releases);
    let unknown: Vec<&&Operation> = operations
        .iter()
        .filter(|op| matches!(op.outcome, Outcome::Info(_)))
        .collect();
    let mut violations = Vec::new();
    for waiter in operations.iter().filter(|op| has_waited(op)) {
        if !calm.holds(waiter.called, waiter.ended) {
            continue;
        }
        let calm_since = calm.since(waiter.called);
        let doubted = unknown
            .iter()
            .take_while(|op| op.called < waiter.ended)
            .filter_map(|op| doubted_until(op, calm_since))
            .max();
        let free = waiter
            .called
            .max(held.until(waiter))
            .max(doubted.unwrap_or(0));
        if waiter.ended.saturating_sub(free) >= FREE_NS_MAX {
            let text = format!("left behind, the key is free since {}", super::ms(free));
            violations.push(Violation::at_key(key, waiter.ended, &[waiter], text));
        }
    }
    violations
}

/// Whether it is an acquire that waited so long that it may have been left behind.
fn has_waited(operation: &Operation) -> bool {
    let Call::Acquire { wait_s, .. } = operation.call else {
        return false;
    };
    let answered = match operation.outcome {
        Outcome::Ok(_) => wait_s > 0,
        Outcome::Fail(Refusal::TimedOut) => u64::from(wait_s) * S > FREE_NS_MAX,
        _ => false,
    };
    answered && operation.ended >= operation.called + FREE_NS_MAX
}

/// Until when the known grants of a key may have held it, at the slowest.
struct Held {
    /// For each grant, in order of its call: the call, and the two latest ends of it and all before
    /// it, with their calls' numbers.
    ends: Vec<(u64, [(u64, OpId); 2])>,
}

impl Held {
    fn of(operations: &[&Operation], releases: &Releases) -> Self {
        let mut latest = [(0, OpId::MAX); 2];
        let ends = operations
            .iter()
            .filter_map(|op| op.grant())
            .map(|grant| {
                let lease_end = grant.op.ended.saturating_add(grant.lease + LATE_NS_MAX);
                let end = releases.answered(grant.token).min(lease_end);
                if end > latest[0].0 {
                    latest = [(end, grant.op.id), latest[0]];
                } else if end > latest[1].0 {
                    latest[1] = (end, grant.op.id);
                }
                (grant.op.called, latest)
            })
            .collect();
        Self { ends }
    }

    /// The latest end of a grant that was called before `waiter` was answered, other than its own.
    fn until(&self, waiter: &Operation) -> u64 {
        let before = self
            .ends
            .partition_point(|(called, _)| *called < waiter.ended);
        let latest = before.checked_sub(1).map(|last| self.ends[last].1);
        let others = latest
            .into_iter()
            .flatten()
            .find(|(_, op)| *op != waiter.id);
        others.map_or(0, |(end, _)| end)
    }
}

/// Until when an acquire of unknown outcome may hold the key, in a calm that began at `calm_since`.
fn doubted_until(operation: &Operation, calm_since: u64) -> Option<u64> {
    let (Call::Acquire { lease_s, .. }, Outcome::Info(why)) = (&operation.call, operation.outcome)
    else {
        return None;
    };
    let lease = u64::from(*lease_s) * S;
    Some(match why {
        _ if operation.called <= calm_since => calm_since.saturating_add(lease + LATE_NS_MAX),
        Doubt::Vanished => operation.ended.saturating_add(GIVEN_BACK_NS_MAX),
        _ => u64::MAX,
    })
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
