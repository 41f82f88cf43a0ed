//! What "ready" means, from what was seen.
//!
//! A node is ready when taking *another* one down is safe as far as this one is concerned, and when
//! clients that reach it get somewhere: it knows who leads, it has a vote, and it has what the
//! cluster has committed. A follower is ready. So is a leader only while it may serve: one that has
//! lost its quorum is not.
//!
//! A learner is not ready: it does not count for a quorum, and whoever updates node after node must
//! not go on before the replaced one counts again.

use super::look::{Look, NodeLook};

/// One condition of readiness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Which one.
    pub name: &'static str,
    /// Whether it holds.
    pub passed: bool,
    /// What was seen, for a person.
    pub note: String,
}

impl Check {
    fn new(name: &'static str, passed: bool, note: impl Into<String>) -> Self {
        Self {
            name,
            passed,
            note: note.into(),
        }
    }
}

/// Every condition of readiness; the node is ready when all of them hold.
pub(super) fn readiness(look: &Look) -> Vec<Check> {
    let mut checks = vec![serving(look)];
    if let Some(node) = &look.node {
        let active = look.report.as_ref().is_some_and(|report| report.active);
        let consensus = if node.responds {
            "Raft answers"
        } else {
            "Raft does not answer"
        };
        checks.extend([
            Check::new("consensus", node.responds, consensus),
            member(node),
            leader(node, active),
            caught_up(node),
        ]);
    }
    checks
}

/// Whether all of `checks` hold.
pub(super) fn is_ready(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.passed)
}

fn serving(look: &Look) -> Check {
    let (passed, note) = match (&look.report, look.stopping) {
        (_, true) => (false, "the process is stopping"),
        (None, false) => (false, "the desk does not answer"),
        (Some(_), false) => (true, "the desk answers"),
    };
    Check::new("serving", passed, note)
}

fn member(node: &NodeLook) -> Check {
    let overview = &node.overview;
    let own = |member: &&raft::node::Member| member.id == overview.node_id;
    let note = if overview.is_voter {
        "a voter"
    } else if overview.members.iter().any(|member| own(&member)) {
        "a learner, without a vote"
    } else {
        "not a member yet"
    };
    Check::new("member", overview.is_voter, note)
}

fn leader(node: &NodeLook, active: bool) -> Check {
    let (passed, note) = match &node.overview.heard_leader {
        None => (false, "no leader is known".to_owned()),
        Some(leader) if leader.id != node.overview.node_id => {
            (true, format!("{} leads", leader.client))
        }
        Some(_) if active => (true, "this node leads".to_owned()),
        Some(_) => (
            false,
            "this node leads, but can't serve: it has not heard from a quorum".to_owned(),
        ),
    };
    Check::new("leader", passed, note)
}

fn caught_up(node: &NodeLook) -> Check {
    let overview = &node.overview;
    let index = |index: Option<u64>| index.map_or("nothing".to_owned(), |index| index.to_string());
    let applied = overview.progress.last_applied.map(|id| id.index());
    let note = format!(
        "applied {}, committed {}",
        index(applied),
        index(overview.committed)
    );
    Check::new("caught_up", overview.caught_up, note)
}

#[cfg(test)]
mod tests {
    use raft::Leader;
    use raft::measure::{Histogram, IO_NANOS};
    use raft::node::{Measures, Overview, Role};
    use raft::state_machine::Progress;

    use super::*;
    use crate::desk::{Counts, Tally};
    use crate::driver::{Report, Traffic};

    const OWN: u64 = 1;

    fn report(active: bool) -> Report {
        Report {
            active,
            counts: Counts::default(),
            tally: Tally::default(),
            traffic: Traffic::default(),
            table: None,
        }
    }

    fn measures() -> Measures {
        let none = || Histogram::new(IO_NANOS);
        Measures {
            proposals_pending: 0,
            proposals_applied: 0,
            proposals_failed: 0,
            log_appends: none(),
            log_syncs: none(),
            log_bytes: 0,
            peer_round_trips: none(),
            peer_dials_failed: 0,
            peer_calls_failed: 0,
            snapshot_builds: none(),
            snapshots_received: 0,
            snapshot_bytes: 0,
        }
    }

    /// A follower of node 2 that has everything.
    fn follower() -> Look {
        let overview = Overview {
            node_id: OWN,
            cluster_id: Some(7),
            role: Role::Follower,
            term: 3,
            leader: Some(2),
            last_log: Some(9),
            progress: Progress::default(),
            snapshot: None,
            purged: None,
            members: Vec::new(),
            committed: Some(9),
            heard_leader: Some(Leader {
                id: 2,
                client: "b:1".to_owned(),
            }),
            is_voter: true,
            caught_up: true,
            leader_changes: 1,
        };
        Look {
            report: Some(report(false)),
            node: Some(NodeLook {
                responds: true,
                overview,
                measures: measures(),
            }),
            address: "a:1".to_owned(),
            connections: 0,
            stopping: false,
        }
    }

    /// The conditions that do not hold for a follower after this change.
    fn failing(change: impl FnOnce(&mut Look, &mut NodeLook)) -> Vec<&'static str> {
        let mut look = follower();
        let mut node = look.node.take().expect("a node of a cluster");
        change(&mut look, &mut node);
        look.node = Some(node);
        let checks = readiness(&look);
        assert_eq!(checks.len(), 5);
        let failed = checks.iter().filter(|check| !check.passed);
        let failed: Vec<_> = failed.map(|check| check.name).collect();
        assert_eq!(is_ready(&checks), failed.is_empty());
        failed
    }

    #[test]
    fn a_follower_is_ready_and_each_condition_counts() {
        assert_eq!(failing(|_, _| {}), [""; 0]);
        assert_eq!(failing(|look, _| look.report = None), ["serving"]);
        assert_eq!(failing(|look, _| look.stopping = true), ["serving"]);
        assert_eq!(failing(|_, node| node.responds = false), ["consensus"]);
        assert_eq!(
            failing(|_, node| node.overview.is_voter = false),
            ["member"]
        );
        assert_eq!(
            failing(|_, node| node.overview.heard_leader = None),
            ["leader"]
        );
        assert_eq!(
            failing(|_, node| node.overview.caught_up = false),
            ["caught_up"]
        );
    }

    #[test]
    fn a_leader_is_ready_only_while_it_may_serve() {
        let leads = |active: bool| {
            move |look: &mut Look, node: &mut NodeLook| {
                look.report = Some(report(active));
                node.overview.heard_leader = Some(Leader {
                    id: OWN,
                    client: "a:1".to_owned(),
                });
            }
        };
        assert_eq!(failing(leads(true)), [""; 0]);
        assert_eq!(failing(leads(false)), ["leader"]);
    }

    #[test]
    fn in_single_mode_only_the_desk_counts() {
        let mut look = follower();
        look.node = None;
        assert!(is_ready(&readiness(&look)));
        look.report = None;
        assert!(!is_ready(&readiness(&look)));
    }
}
