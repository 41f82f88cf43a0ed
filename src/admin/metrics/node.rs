//! What the node of a cluster knows and measures.

use std::collections::BTreeMap;
use std::time::Duration;

use raft::node::{Measures, Member, Overview};

use super::super::look::NodeLook;
use super::super::status::{Role, known_leader, role};
use super::page::{Page, Unit};

/// Every role with its name on the page.
const ROLES: [(Role, &str); 6] = [
    (Role::Leader, "leader"),
    (Role::Follower, "follower"),
    (Role::Candidate, "candidate"),
    (Role::Learner, "learner"),
    (Role::Starting, "starting"),
    (Role::Stopped, "stopped"),
];

pub(super) fn add(page: &mut Page, node: &NodeLook, active: bool) {
    let overview = &node.overview;
    add_locks(
        page,
        overview.progress.active_keys,
        overview.progress.tokens_granted,
    );
    leadership(page, overview, active);
    members(page, overview);
    log(page, overview, &node.measures);
    peers(page, &node.measures);
    snapshots(page, overview, &node.measures);
}

/// What the lock table says, in both modes.
pub(super) fn add_locks(page: &mut Page, active_keys: usize, tokens_granted: u64) {
    page.gauge(
        "ticketing_active_keys",
        "Keys that are held, as of the newest applied entry.",
        active_keys as u64,
    );
    page.counter(
        "ticketing_tokens_granted_total",
        "The token counter: grants ever made, as of the newest applied entry.",
        tokens_granted,
    );
}

fn leadership(page: &mut Page, overview: &Overview, active: bool) {
    page.gauge(
        "ticketing_has_leader",
        "1 if this node knows who leads now: itself while it may serve, or a leader that it hears.",
        known_leader(overview, active).is_some().into(),
    );
    let own = role(overview);
    page.labelled_gauge(
        "ticketing_role",
        "1 for what this node does in the cluster, 0 for the other roles.",
        "role",
        ROLES.map(|(role, name)| (name, u64::from(role == own))),
    );
    page.gauge("ticketing_term", "The current term.", overview.term);
    page.counter(
        "ticketing_leader_changes_total",
        "How many times this node came to know another leader than before.",
        overview.leader_changes,
    );
}

fn members(page: &mut Page, overview: &Overview) {
    let voters = overview.members.iter().filter(|member| member.voter);
    let voters = voters.count() as u64;
    page.labelled_gauge(
        "ticketing_members",
        "Members of the cluster, by kind.",
        "kind",
        [
            ("voter", voters),
            ("learner", overview.members.len() as u64 - voters),
        ],
    );
    let others = others(overview);
    page.labelled_seconds(
        "ticketing_peer_last_contact_seconds",
        "On the leader: how long ago this member answered.",
        "peer",
        others.iter().filter_map(|member| {
            let age = member.last_contact?.as_secs_f64();
            Some((member.peer.client.as_str(), age))
        }),
    );
    page.labelled_gauge(
        "ticketing_peer_lag_entries",
        "On the leader: entries of its log that this member is not known to have.",
        "peer",
        others
            .iter()
            .filter_map(|member| Some((member.peer.client.as_str(), member.lag_entries?))),
    );
}

/// The other members, one for each address. While a node that lost its data is replaced there are two
/// with the same one, and a page with a series twice would be refused as a whole: of them, who was
/// heard from last.
fn others(overview: &Overview) -> Vec<&Member> {
    let mut newest = BTreeMap::new();
    for member in &overview.members {
        if member.id == overview.node_id {
            continue;
        }
        let known: &mut &Member = newest.entry(&member.peer.client).or_insert(member);
        let age = |member: &Member| member.last_contact.unwrap_or(Duration::MAX);
        if age(member) < age(known) {
            *known = member;
        }
    }
    newest.into_values().collect()
}

fn log(page: &mut Page, overview: &Overview, measures: &Measures) {
    page.known_gauge(
        "ticketing_log_last_index",
        "Index of the newest entry in the log.",
        overview.last_log,
    );
    page.known_gauge(
        "ticketing_log_committed_index",
        "Index up to which the log is committed, as the leader says.",
        overview.committed,
    );
    page.known_gauge(
        "ticketing_log_applied_index",
        "Index of the newest applied entry.",
        overview.progress.last_applied.map(|id| id.index()),
    );
    page.known_gauge(
        "ticketing_log_purged_index",
        "Index of the newest entry that was purged behind a snapshot.",
        overview.purged,
    );
    page.counter(
        "ticketing_proposals_applied_total",
        "Log entries that this node proposed and that were committed and applied.",
        measures.proposals_applied,
    );
    page.counter(
        "ticketing_proposals_failed_total",
        "Log entries that this node wanted to propose and that were refused or lost.",
        measures.proposals_failed,
    );
    page.gauge(
        "ticketing_proposals_pending",
        "Log entries that this node proposed and whose fate is not known yet.",
        measures.proposals_pending,
    );
    page.histogram(
        "ticketing_log_append_duration_seconds",
        "Making durable what was queued for the log: one write and one sync for all of it.",
        &measures.log_appends,
        Unit::Nanos,
    );
    page.histogram(
        "ticketing_log_sync_duration_seconds",
        "The sync (fdatasync) of each append alone.",
        &measures.log_syncs,
        Unit::Nanos,
    );
    page.counter(
        "ticketing_log_written_bytes_total",
        "Bytes written to the log.",
        measures.log_bytes,
    );
}

fn peers(page: &mut Page, measures: &Measures) {
    page.histogram(
        "ticketing_peer_round_trip_duration_seconds",
        "On the leader: from an append request (a heartbeat is one) to its answer, all peers.",
        &measures.peer_round_trips,
        Unit::Nanos,
    );
    page.counter(
        "ticketing_peer_dials_failed_total",
        "Connections to peers that could not be made.",
        measures.peer_dials_failed,
    );
    page.counter(
        "ticketing_peer_requests_failed_total",
        "Append streams, votes and snapshots to peers that ended with an error.",
        measures.peer_calls_failed,
    );
}

fn snapshots(page: &mut Page, overview: &Overview, measures: &Measures) {
    page.known_gauge(
        "ticketing_snapshot_index",
        "Index of the newest entry in the newest snapshot.",
        overview.snapshot,
    );
    page.histogram(
        "ticketing_snapshot_build_duration_seconds",
        "Encoding and writing a snapshot of this node's own.",
        &measures.snapshot_builds,
        Unit::Nanos,
    );
    page.counter(
        "ticketing_snapshots_received_total",
        "Snapshots that a leader sent and that were installed.",
        measures.snapshots_received,
    );
    page.gauge(
        "ticketing_snapshot_size_bytes",
        "Size of the newest snapshot that this process wrote; 0 before the first.",
        measures.snapshot_bytes,
    );
}
