//! What `GET /v1/status` says.
//!
//! Ids and hashes are text in hexadecimal: many readers of JSON keep numbers as floating point, and
//! would round them. What makes no sense in single mode is null there.

use raft::node::{Overview, Role as RaftRole};
use serde::{Deserialize, Serialize};

use super::health;
use super::look::Look;

/// A node as it sees itself and its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Whether it is part of a cluster.
    pub mode: Mode,
    /// Its client address.
    pub address: String,
    /// Its id: 16 hexadecimal digits.
    pub node_id: Option<String>,
    /// Its cluster's id: 32 hexadecimal digits. Null before it belongs to one.
    pub cluster_id: Option<String>,
    /// What it does in the cluster.
    pub role: Option<Role>,
    /// Whether it decides on requests: always in single mode, else as the leader that may serve.
    pub active: bool,
    /// What `/readyz` says.
    pub ready: bool,
    /// The current term.
    pub term: Option<u64>,
    /// Client address of the leader, as far as this node knows now.
    pub leader: Option<String>,
    /// The members of the cluster, in order of id.
    pub members: Option<Vec<Member>>,
    /// Index of the newest applied log entry.
    pub applied_index: Option<u64>,
    /// Index of the newest entry in the log.
    pub last_log_index: Option<u64>,
    /// Index of the newest entry in the newest snapshot.
    pub snapshot_index: Option<u64>,
    /// Index of the newest entry that was purged from the log.
    pub purged_index: Option<u64>,
    /// Cluster time, in milliseconds.
    pub cluster_time_ms: u64,
    /// How many keys are held.
    pub active_keys: u64,
    /// How many acquires queue on this node.
    pub waiters: u64,
    /// How many grants were ever made: the newest token.
    pub tokens_granted: u64,
    /// Open client connections of this node.
    pub connections: u64,
    /// Of the state at `applied_index`: equal on all nodes that applied just that. 16 hexadecimal
    /// digits.
    pub state_hash: String,
}

/// Whether a server is part of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It is.
    Cluster,
    /// It stands alone.
    Single,
}

/// What a node does in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It leads, or believes so.
    Leader,
    /// It follows.
    Follower,
    /// It asks for votes.
    Candidate,
    /// It receives the log and has no vote.
    Learner,
    /// It is no member yet, or does not know of it.
    Starting,
    /// Raft has stopped.
    Stopped,
}

/// A member of a cluster, as the node that was asked sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its id: 16 hexadecimal digits.
    pub node_id: String,
    /// Its client address.
    pub address: String,
    /// Whether it votes.
    pub kind: MemberKind,
    /// How long ago it answered, in milliseconds; only the leader knows.
    pub last_contact_ms: Option<u64>,
    /// How many entries of the leader's log it is not known to have; only the leader knows.
    pub lag_entries: Option<u64>,
}

/// Whether a member votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberKind {
    /// It does.
    Voter,
    /// It only receives.
    Learner,
}

/// The status of what was seen.
pub(super) fn status(look: &Look) -> Status {
    let overview = look.node.as_ref().map(|node| &node.overview);
    let report = look.report.as_ref();
    let active = report.is_some_and(|report| report.active);
    let table = report.and_then(|report| report.table);
    let progress = overview.map(|overview| &overview.progress);
    let of_state = |of_node: fn(&raft::state_machine::Progress) -> u64,
                    of_table: fn(&crate::driver::Table) -> u64| {
        progress
            .map(of_node)
            .or(table.as_ref().map(of_table))
            .unwrap_or(0)
    };
    let nanos = of_state(|progress| progress.now.0, |table| table.now.0);
    let hash = of_state(|progress| progress.state_hash, |table| table.state_hash);
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: overview.map_or(Mode::Single, |_| Mode::Cluster),
        address: look.address.clone(),
        node_id: overview.map(|overview| hex(overview.node_id)),
        cluster_id: overview
            .and_then(|overview| overview.cluster_id)
            .map(|id| format!("{id:032x}")),
        role: overview.map(role),
        active,
        ready: health::is_ready(&health::readiness(look)),
        term: overview.map(|overview| overview.term),
        leader: overview.and_then(|overview| known_leader(overview, active)),
        members: overview.map(|overview| overview.members.iter().map(member).collect()),
        applied_index: progress.and_then(|p| p.last_applied.map(|id| id.index())),
        last_log_index: overview.and_then(|overview| overview.last_log),
        snapshot_index: overview.and_then(|overview| overview.snapshot),
        purged_index: overview.and_then(|overview| overview.purged),
        cluster_time_ms: nanos / 1_000_000,
        active_keys: of_state(|p| p.active_keys as u64, |t| t.active_keys as u64),
        waiters: report.map_or(0, |report| report.counts.waiters as u64),
        tokens_granted: of_state(|p| p.tokens_granted, |t| t.tokens_granted),
        connections: look.connections as u64,
        state_hash: hex(hash),
    }
}

/// Who leads, to the best of this node's knowledge. A leader that can't serve names nobody.
pub(super) fn known_leader(overview: &Overview, active: bool) -> Option<String> {
    let leader = overview.heard_leader.as_ref()?;
    (leader.id != overview.node_id || active).then(|| leader.client.clone())
}

fn hex(number: u64) -> String {
    format!("{number:016x}")
}

pub(super) fn role(overview: &Overview) -> Role {
    let is_member = overview
        .members
        .iter()
        .any(|member| member.id == overview.node_id);
    match overview.role {
        RaftRole::Stopped => Role::Stopped,
        _ if !is_member => Role::Starting,
        RaftRole::Learner => Role::Learner,
        RaftRole::Follower => Role::Follower,
        RaftRole::Candidate => Role::Candidate,
        RaftRole::Leader => Role::Leader,
    }
}

fn member(member: &raft::node::Member) -> Member {
    Member {
        node_id: hex(member.id),
        address: member.peer.client.clone(),
        kind: if member.voter {
            MemberKind::Voter
        } else {
            MemberKind::Learner
        },
        last_contact_ms: member
            .last_contact
            .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        lag_entries: member.lag_entries,
    }
}
