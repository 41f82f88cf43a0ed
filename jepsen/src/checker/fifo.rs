//! Waiters of a key are served in the order of their arrival, as long as one leader serves.
//!
//! The order of arrival on different connections is not seen from outside, but sometimes it is
//! proven: a client that sent a release after its acquire and got that one's answer knows that the
//! acquire is in its place ([`Operation::arrived`]). Let `a` be such an acquire, and `b` one that
//! was called after `a` had arrived. Then, while `a` waits, `b` must not be granted:
//!
//! - both granted: `a` has the smaller token. (A node that stopped serving in between would have
//!   refused or closed `a`'s session, so one and the same leader served from `a`'s arrival to `a`'s
//!   grant.)
//! - `b` granted by the same node, and `a` was told `T` only after its wait, which went on when `b`
//!   had its answer already.

use super::Violation;
use crate::history::{Call, History, MS, Operation, Outcome, Refusal, S};

/// How much earlier than its limit a wait may be answered, in nanoseconds.
const EARLY_NS_MAX: u64 = 100 * MS;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let keys = history.by_key();
    keys.iter()
        .flat_map(|(key, operations)| overtaken(key, operations))
        .collect()
}

fn overtaken(key: &str, operations: &[&Operation]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for first in operations {
        let Some(arrived) = first.arrived else {
            continue;
        };
        let begin = operations.partition_point(|op| op.called < arrived);
        let rival = operations[begin..]
            .iter()
            .take_while(|op| op.called < first.ended)
            .find(|op| overtakes(first, op));
        if let Some(rival) = rival {
            let text = "a later waiter was served first";
            violations.push(Violation::at_key(key, rival.ended, &[first, rival], text));
        }
    }
    violations
}

/// Whether `second`, called after `first` had arrived, was granted while `first` waited.
fn overtakes(first: &Operation, second: &Operation) -> bool {
    let (Some(granted), Call::Acquire { wait_s, node, .. }) = (second.grant(), &first.call) else {
        return false;
    };
    let Call::Acquire {
        node: second_node, ..
    } = &second.call
    else {
        return false;
    };
    match (first.grant(), first.outcome) {
        (Some(grant), _) => grant.token > granted.token,
        (None, Outcome::Fail(Refusal::TimedOut)) if *wait_s > 0 => {
            let waited_until = first.called + u64::from(*wait_s) * S - EARLY_NS_MAX;
            node == second_node && second.ended < waited_until
        }
        _ => false,
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
    fn in_order_is_fine() {
        let build = Build::default()
            .grant("k", 10, 0, 500, 1)
            .arrived(5)
            .grant("k", 10, 6, 600, 2)
            .arrived(9);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn who_came_later_and_was_first_is_found() {
        let build = Build::default()
            .grant("k", 10, 0, 500, 2)
            .arrived(5)
            .grant("k", 10, 6, 400, 1);
        assert_eq!(count(build), 1);
    }

    #[test]
    fn without_proof_of_arrival_nobody_is_blamed() {
        let build = Build::default()
            .grant("k", 10, 0, 500, 2)
            .grant("k", 10, 6, 400, 1);
        assert_eq!(count(build), 0);
        let build = Build::default()
            .grant("k", 10, 0, 500, 2)
            .arrived(7)
            .grant("k", 10, 6, 400, 1);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn a_waiter_that_was_passed_over_until_its_wait_was_over_is_found() {
        let build = Build::default()
            .refused("k", 2, 0, 1_950, Refusal::TimedOut)
            .arrived(5)
            .grant("k", 10, 6, 1_899, 1);
        assert_eq!(count(build), 1);
        let build = Build::default()
            .refused("k", 2, 0, 1_950, Refusal::TimedOut)
            .arrived(5)
            .grant("k", 10, 6, 1_901, 1);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn a_refused_session_ends_the_order() {
        let build = Build::default()
            .refused("k", 2, 0, 500, Refusal::Moved)
            .arrived(5)
            .grant("k", 10, 6, 400, 1);
        assert_eq!(count(build), 0);
    }
}
