//! After healing the service is there again, and its replicas are equal.
//!
//! - Every key that was used can be taken within the longest lease that was asked for it, plus an
//!   election, plus 2 s. The run's last client, number [`LAST_CLIENT`], asks for each of them as
//!   soon as all is healed; the time counts from its call.
//! - Two nodes that applied the same entries have the same state: at one applied index there is one
//!   hash, at any time of the run. (A node that is given a new state, by a snapshot, shows the hash
//!   of that one.)
//! - In the end, all nodes come to the same index.

use std::collections::BTreeMap;

use super::Violation;
use crate::history::{Call, History, NodeStatus, S};

/// Who asks for every key in the end.
pub(crate) const LAST_CLIENT: u32 = 0;

/// What is allowed on top of lease and election, in nanoseconds.
const MARGIN_NS: u64 = 2 * S;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut violations = hashes(history);
    if let Some(healed) = history.healed {
        violations.extend(keys(history, healed));
        violations.extend(apart(history, healed));
    }
    violations
}

fn keys(history: &History, healed: u64) -> Vec<Violation> {
    let mut leases: BTreeMap<&str, u64> = BTreeMap::new();
    for operation in &history.operations {
        if let Call::Acquire { key, lease_s, .. } = &operation.call
            && operation.called < healed
        {
            let lease = leases.entry(key).or_default();
            *lease = (*lease).max(u64::from(*lease_s) * S);
        }
    }
    let election = history.info.election_ms * crate::history::MS;
    let last = history.operations.iter();
    let last = last.filter(|op| op.client == LAST_CLIENT && op.called >= healed);
    last.filter_map(|operation| {
        let Call::Acquire { key, .. } = &operation.call else {
            return None;
        };
        let lease = leases.get(key.as_str()).copied().unwrap_or(0);
        let latest = operation.called + lease + election + MARGIN_NS;
        let taken = operation.grant().is_some() && operation.ended <= latest;
        let text = "the key could not be taken in time after all was healed";
        (!taken).then(|| Violation::at_key(key, operation.ended.min(latest), &[operation], text))
    })
    .collect()
}

fn hashes(history: &History) -> Vec<Violation> {
    let mut known: BTreeMap<u64, &NodeStatus> = BTreeMap::new();
    let mut violations = Vec::new();
    for (at, status) in &history.statuses {
        let first = known.entry(status.applied).or_insert(status);
        if first.state_hash != status.state_hash {
            let text = format!(
                "at index {} node {} has state {} and node {} has {}",
                status.applied, first.node, first.state_hash, status.node, status.state_hash
            );
            violations.push(Violation::general(*at, text));
        }
    }
    violations
}

/// Nodes that are not where the others are, by what they said last.
fn apart(history: &History, healed: u64) -> Option<Violation> {
    let mut last: BTreeMap<&str, &NodeStatus> = BTreeMap::new();
    let said = history.statuses.iter().filter(|(at, _)| *at >= healed);
    for (_, status) in said {
        last.insert(&status.node, status);
    }
    let first = last.values().next()?;
    let equal = last.values().all(|status| status.applied == first.applied);
    let complete = last.len() == usize::from(history.info.nodes);
    (!equal || !complete).then(|| {
        let places: Vec<String> = last
            .values()
            .map(|status| format!("{} at {}", status.node, status.applied))
            .collect();
        let text = format!("the nodes did not come together: {}", places.join(", "));
        Violation::general(history.end, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Refusal;
    use crate::history::build::Build;

    fn count(build: Build) -> usize {
        let mut history = build.history();
        for operation in &mut history.operations {
            if history.healed.is_some_and(|at| operation.called >= at) {
                operation.client = LAST_CLIENT;
            }
        }
        check(&history).len()
    }

    #[test]
    fn a_key_that_is_taken_within_its_lease_is_fine() {
        let build = Build::default()
            .grant("k", 5, 0, 5, 1)
            .healed(1_000)
            .grant("k", 1, 1_000, 9_000, 2);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn a_key_that_is_taken_late_or_never_is_found() {
        let build = Build::default()
            .grant("k", 5, 0, 5, 1)
            .healed(1_000)
            .grant("k", 1, 1_000, 9_001, 2)
            .refused("j", 9, 1_000, 9_900, Refusal::TimedOut);
        assert_eq!(count(build), 2);
    }

    #[test]
    fn equal_states_at_equal_indexes_are_fine() {
        let build = Build::default()
            .status(1, "a", 5, "x")
            .status(2, "b", 6, "y")
            .status(3, "b", 5, "x");
        assert_eq!(count(build), 0);
    }

    #[test]
    fn a_replica_that_went_astray_is_found() {
        let build = Build::default()
            .status(1, "a", 5, "x")
            .status(2, "b", 5, "y");
        assert_eq!(count(build), 1);
    }

    #[test]
    fn nodes_that_stay_apart_are_found() {
        let build = |last| {
            Build::default()
                .healed(10)
                .status(11, "a", 5, "x")
                .status(12, "b", 5, "x")
                .status(13, "c", last, if last == 5 { "x" } else { "w" })
        };
        assert_eq!(count(build(5)), 0);
        assert_eq!(count(build(4)), 1);
        let two = Build::default()
            .healed(10)
            .status(11, "a", 5, "x")
            .status(12, "b", 5, "x");
        assert_eq!(count(two), 1);
    }
}
