//! A node and its cluster, for people.

use std::time::Duration;

use openraft::{Instant, RaftMetrics, ServerState};

use super::activation::Board;
use crate::feed::Leader;
use crate::state_machine::Progress;
use crate::type_config::{Peer, TypeConfig};

/// What a node does in Raft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Receives the log and has no vote.
    Learner,
    /// Follows a leader.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Leads.
    Leader,
    /// Has stopped.
    Stopped,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its node id.
    pub id: u64,
    /// Its addresses.
    pub peer: Peer,
    /// True for a voter, false for a learner.
    pub voter: bool,
    /// On a leader: the age of the newest message that this member has answered. `None` for the
    /// leader itself and for who never answered.
    pub last_contact: Option<Duration>,
    /// On a leader: how many entries of its log this member is not known to have.
    pub lag_entries: Option<u64>,
}

/// A node and its cluster at one moment, as the node sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// This node's id.
    pub node_id: u64,
    /// Its cluster, if it belongs to one yet.
    pub cluster_id: Option<u128>,
    /// What it does.
    pub role: Role,
    /// The current term.
    pub term: u64,
    /// The id of the leader of this term, if it is known.
    pub leader: Option<u64>,
    /// Index of the newest entry in its log.
    pub last_log: Option<u64>,
    /// How far it has applied the log, and what the lock table is then.
    pub progress: Progress,
    /// Index of the newest entry in its newest snapshot.
    pub snapshot: Option<u64>,
    /// Index of the newest entry that it purged from its log.
    pub purged: Option<u64>,
    /// The membership that is in effect, in order of id.
    pub members: Vec<Member>,
    /// Index up to which the log is committed, as the leader says.
    pub committed: Option<u64>,
    /// Who leads: this node, or a leader that was heard from within an election timeout.
    pub heard_leader: Option<Leader>,
    /// True if this node is a voter of the committed membership.
    pub is_voter: bool,
    /// True if what the leader says is committed is applied here.
    pub caught_up: bool,
    /// How many times this node came to know another leader than before, since it started.
    pub leader_changes: u64,
}

impl Overview {
    pub(super) fn new(
        cluster_id: Option<u128>,
        metrics: &RaftMetrics<TypeConfig>,
        progress: Progress,
        board: &Board,
    ) -> Self {
        // A statement of its own: the status must not stay borrowed while the board is asked below,
        // because the board publishes under its lock.
        let heard_leader = board.status().borrow().leader.clone();
        let membership = metrics.membership_config.membership();
        let voters: Vec<u64> = membership.voter_ids().collect();
        let members = membership.nodes().map(|(id, peer)| Member {
            id: *id,
            peer: peer.clone(),
            voter: voters.contains(id),
            last_contact: last_contact(metrics, *id),
            lag_entries: lag_entries(metrics, *id),
        });
        Self {
            node_id: metrics.id,
            cluster_id,
            role: match metrics.state {
                ServerState::Learner => Role::Learner,
                ServerState::Follower => Role::Follower,
                ServerState::Candidate => Role::Candidate,
                ServerState::Leader => Role::Leader,
                ServerState::Shutdown => Role::Stopped,
            },
            term: metrics.current_term,
            leader: metrics.current_leader,
            last_log: metrics.last_log_index,
            progress,
            snapshot: metrics.snapshot.map(|id| id.index()),
            purged: metrics.purged.map(|id| id.index()),
            members: members.collect(),
            committed: metrics.cluster_committed.map(|id| id.index()),
            heard_leader,
            is_voter: metrics
                .committed_membership_config
                .voter_ids()
                .any(|id| id == metrics.id),
            caught_up: board.has_caught_up(),
            leader_changes: board.leader_changes(),
        }
    }
}

/// How long ago a leader had an answer from another member.
pub(super) fn last_contact(metrics: &RaftMetrics<TypeConfig>, id: u64) -> Option<Duration> {
    let heard = metrics.heartbeat.as_ref()?.get(&id).copied().flatten();
    heard
        .filter(|_| id != metrics.id)
        .map(|at| at.into_inner().elapsed())
}

fn lag_entries(metrics: &RaftMetrics<TypeConfig>, id: u64) -> Option<u64> {
    let matched = metrics.replication.as_ref()?.get(&id)?;
    let has = |index: Option<u64>| index.map_or(0, |index| index + 1);
    let matched = has(matched.as_ref().map(|log_id| log_id.index()));
    Some(has(metrics.last_log_index).saturating_sub(matched))
}

/// The voter that a leader hands over to: the one with the longest log among those that were heard
/// from within `recent`. `None` if this node doesn't lead or there is no such voter.
pub(super) fn successor(metrics: &RaftMetrics<TypeConfig>, recent: Duration) -> Option<u64> {
    if metrics.state != ServerState::Leader {
        return None;
    }
    let matched = metrics.replication.as_ref()?;
    let is_there = |id: &u64| last_contact(metrics, *id).is_some_and(|age| age < recent);
    let others = metrics
        .membership_config
        .voter_ids()
        .filter(|id| *id != metrics.id);
    others
        .filter(is_there)
        .max_by_key(|id| matched.get(id).copied().flatten())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::super::activation::View;
    use super::*;

    /// How many overviews are taken while the board is written to all the time.
    const OVERVIEWS: usize = 20_000;

    /// Longer than a starved machine takes for them.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn an_overview_and_a_board_that_publishes_do_not_wait_for_each_other() {
        let board = Arc::new(Board::new());
        let done = Arc::new(AtomicBool::new(false));
        let (finished, both) = mpsc::channel();
        // Neither thread is joined before both have said that they ended: one that waits for ever
        // must fail this test and not hang it.
        let looking = {
            let (board, done, finished) = (board.clone(), done.clone(), finished.clone());
            thread::spawn(move || {
                let metrics = RaftMetrics::new_initial(1);
                for _ in 0..OVERVIEWS {
                    Overview::new(None, &metrics, Progress::default(), &board);
                }
                done.store(true, Ordering::Relaxed);
                finished.send(()).unwrap();
            })
        };
        let publishing = thread::spawn(move || {
            let mut view = View::default();
            while !done.load(Ordering::Relaxed) {
                view.term += 1;
                board.observe(&view);
            }
            finished.send(()).unwrap();
        });
        for _ in 0..2 {
            both.recv_timeout(PATIENCE)
                .expect("each waits for the other");
        }
        looking.join().unwrap();
        publishing.join().unwrap();
    }
}
