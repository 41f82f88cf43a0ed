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
