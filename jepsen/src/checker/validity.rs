//! What makes a run worthless: it is *invalid* then, which is neither a pass nor a violation.
//!
//! - every fault that was to happen did, as counted from outside (packets dropped, processes gone),
//!   and, if there were faults at all, one hit the leader and one a node that did not lead;
//! - clients got grants, and a register without a check behind the same lock lost updates, if there
//!   was one: else nothing ever outlived its lease, and the register with the check shows nothing;
//! - the run came to its end: healed, every node's state seen.

use std::collections::BTreeMap;

use super::store::lost;
use crate::history::History;

/// Fewer grants than this show nothing.
const GRANTS_MIN: usize = 50;

/// The workload that has registers behind its locks.
pub(crate) const REGISTER: &str = "register";

/// Why the run is invalid; empty: it is valid.
pub(crate) fn problems(history: &History) -> Vec<String> {
    let mut problems = Vec::new();
    let grants = history.grants().count();
    if grants < GRANTS_MIN {
        problems.push(format!(
            "only {grants} grants, at least {GRANTS_MIN} are needed"
        ));
    }
    if history.healed.is_none() {
        problems.push("the run did not come to its end".into());
    }
    if history.statuses.is_empty() {
        problems.push("no node said what its state is".into());
    }
    let has_registers = history.info.workloads.iter().any(|name| name == REGISTER);
    if has_registers && lost(history, false).is_empty() {
        problems
            .push("the register without a check lost no update: no work outlived its lease".into());
    }
    faults(history, &mut problems);
    problems
}

fn faults(history: &History, problems: &mut Vec<String>) {
    if history.info.faults.is_empty() {
        return;
    }
    let mut evidence: BTreeMap<&str, u64> = BTreeMap::new();
    for fault in &history.faults {
        let seen = fault.end.as_ref().map_or(0, |end| end.evidence);
        *evidence.entry(&fault.begin.kind).or_default() += seen;
    }
    for kind in &history.info.faults {
        if evidence.get(kind.as_str()).copied().unwrap_or(0) == 0 {
            problems.push(format!("{kind} was not seen to happen"));
        }
    }
    let bit = || {
        let bit =
            |fault: &&crate::history::Fault| fault.end.as_ref().is_some_and(|end| end.evidence > 0);
        history.faults.iter().filter(bit)
    };
    let hits = |leads: bool| {
        bit().any(|fault| {
            let leader = fault.begin.leader.as_ref();
            leader.is_some_and(|leader| {
                let targets = &fault.begin.targets;
                targets.iter().any(|target| (target == leader) == leads)
            })
        })
    };
    if !hits(true) {
        problems.push("no fault hit a leader".into());
    }
    if !hits(false) {
        problems.push("no fault hit a node that did not lead".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Access;
    use crate::history::build::Build;

    fn good() -> Build {
        let mut build = Build::default()
            .fault("kill", "a", Some("a"), (10, 20), 1)
            .fault("kill", "b", Some("a"), (30, 40), 1)
            .status(1, "a", 1, "x")
            .healed(50);
        for token in 1..=GRANTS_MIN as u64 {
            build = build.grant("k", 10, token, token, token);
        }
        for at in 1..=2 {
            build = build.access(
                at,
                Access {
                    fenced: false,
                    name: "r".into(),
                    write: true,
                    token: at,
                    value: 1,
                    accepted: true,
                },
            );
        }
        build
    }

    fn judged(build: Build) -> Vec<String> {
        let mut history = build.history();
        history.info.faults = vec!["kill".into()];
        history.info.workloads = vec![REGISTER.into()];
        problems(&history)
    }

    #[test]
    fn a_good_run_is_valid() {
        assert_eq!(judged(good()), Vec::<String>::new());
    }

    #[test]
    fn an_empty_run_is_not() {
        assert_eq!(judged(Build::default()).len(), 7);
    }

    #[test]
    fn a_fault_that_nobody_saw_does_not_count() {
        let build = Build::default()
            .fault("kill", "a", Some("a"), (10, 20), 0)
            .fault("kill", "b", Some("a"), (30, 40), 1);
        let problems = judged(build);
        assert!(
            problems.contains(&"no fault hit a leader".to_owned()),
            "{problems:?}"
        );
        assert!(!problems.iter().any(|problem| problem.contains("not seen")));
    }
}
