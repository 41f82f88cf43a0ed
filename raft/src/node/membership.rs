//! Who belongs to the cluster, and how that changes.
//!
//! # Which faults this answers
//!
//! - *A node lost its disk.* It comes back under a new id (the old one has promised votes and
//!   acknowledged entries that it no longer has) and asks to join. With the address of a voter it
//!   *replaces* that voter: learner, catch-up, then one joint change that adds the new id and
//!   removes the old one. A new address becomes a learner, and an operator decides.
//! - *A replacement of a voter that is alive* (two processes with one address, a cut link). It needs
//!   both: the old id silent for [`SILENT_TIMEOUTS`] election timeouts, and dialling the address
//!   reaches the new id.
//! - *A replaced node comes back with its old data.* Once a voter and no member any more: refused.
//! - *A data directory at the wrong place.* The members dial a node where the membership has it, so
//!   one that was started under another address would be alone for good; and one whose peers are
//!   another cluster's would be as well. Both stop with a line that says so.
//! - *The leader dies between two steps.* Each step looks only at the membership as it is, so the
//!   next leader goes on from there; a membership that was left joint is finished by
//!   [`finish_joint`].
//! - *Two changes at once.* One lock: whoever finds it taken waits and looks again.
//!
//! The asking node repeats its question until it is what it wants to be, so nothing is remembered
//! between two questions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{ChangeMembers, Instant, RaftMetrics, ServerState};

use super::control::{Answer, Identity, JoinAnswer, Request};
use super::founding::{ANSWER_TIMEOUT, identity_at};
use super::local::Local;
use super::{Error, founding};
use crate::transport::{self, Refusal};
use crate::type_config::{Peer, TypeConfig};

/// For how many election timeouts a voter must have been silent before it may be replaced.
pub(super) const SILENT_TIMEOUTS: u32 = 10;

/// A learner that is at most so many entries behind is made a voter.
const CATCH_UP_ENTRIES: u64 = 1024;

/// Most learners that a cluster takes.
const LEARNERS_MAX: usize = 16;

/// How often a node asks to found or join, at first and when nothing changes for long.
const ASK_PAUSE: Duration = Duration::from_millis(100);
const ASK_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Under which name it is stored that this node has been a voter.
const VOTER_STORED_AS: &str = "voter";

type Metrics = RaftMetrics<TypeConfig>;

// The asking side.

/// Brings this node into the cluster and keeps looking whether it still belongs: for as long as the
/// process runs. Returns only with a reason to stop.
pub(super) async fn belong(local: &Local) -> Error {
    let mut pause = ASK_PAUSE;
    let mut said = "";
    loop {
        if let Some(error) = misplaced(local) {
            return error;
        }
        let step = if is_settled_voter(local) {
            pause = ASK_PAUSE;
            stay(local).await
        } else {
            become_member(local).await
        };
        match step {
            Ok(why) if said != why => {
                tracing::info!("{why}");
                said = why;
            }
            Ok(_) => {}
            Err(error) => return error,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 5 / 4).min(ASK_PAUSE_MAX);
    }
}

/// A voter stays one until something makes it doubt that; then it asks. What it is told comes back.
async fn stay(local: &Local) -> Result<&'static str, Error> {
    remember_voter(local)?;
    if await_doubt(local).await.is_err() {
        // Raft has stopped; whoever stopped it, or its error, says why.
        std::future::pending::<()>().await;
    }
    ask_to_join(local).await
}

/// One attempt to become a member; what it waits for comes back.
async fn become_member(local: &Local) -> Result<&'static str, Error> {
    if !local.has_begun().await {
        match founding::round(local).await? {
            founding::Round::Founded => return Ok("waiting for the first election"),
            founding::Round::Waiting(why) => return Ok(why),
            founding::Round::Joined => {}
        }
    }
    ask_to_join(local).await
}

fn is_settled_voter(local: &Local) -> bool {
    let metrics = local.raft.metrics();
    let metrics = metrics.borrow_watched();
    metrics
        .committed_membership_config
        .voter_ids()
        .any(|id| id == local.id)
}

/// An error if the members know this node under another address than it was started with.
fn misplaced(local: &Local) -> Option<Error> {
    let metrics = local.raft.metrics();
    let metrics = metrics.borrow_watched();
    let known = metrics.membership_config.membership().get_node(&local.id)?;
    (*known != local.own).then(|| Error::Misplaced {
        own: local.own.clone(),
        known: known.clone(),
    })
}

/// True while nothing makes this node doubt that it belongs: it leads, or knows a leader.
fn hears_leader(local: &Local) -> bool {
    local.board.status().borrow().leader.is_some()
}

fn remember_voter(local: &Local) -> Result<(), Error> {
    if local.storage.get(VOTER_STORED_AS)?.is_none() {
        local.storage.put(VOTER_STORED_AS, &[1])?;
    }
    Ok(())
}

/// Waits until this voter has heard no leader for as long as it takes to be replaced, or is no voter
/// any more. An error when Raft has stopped.
async fn await_doubt(local: &Local) -> Result<(), ()> {
    let silence = local.silence();
    let mut status = local.board.status();
    let mut server = local.raft.server_metrics();
    loop {
        let silent = !hears_leader(local);
        tokio::select! {
            changed = status.changed() => changed.map_err(|_| ())?,
            changed = server.changed() => changed.map_err(|_| ())?,
            () = tokio::time::sleep(silence), if silent => return Ok(()),
        }
        if !is_settled_voter(local) {
            return Ok(());
        }
    }
}

/// Asks whoever may lead for membership.
async fn ask_to_join(local: &Local) -> Result<&'static str, Error> {
    let was_voter = local.storage.get(VOTER_STORED_AS)?.is_some();
    let request = Request::Join {
        peer: local.own.clone(),
        was_voter,
    }
    .encode();
    let mut addresses: Vec<String> = local.peers.iter().map(|peer| peer.raft.clone()).collect();
    addresses.retain(|address| *address != local.own.raft);
    let mut asked = BTreeSet::new();
    let mut why = "no leader answers";
    let mut strangers = 0;
    while let Some(address) = addresses.pop() {
        if !asked.insert(address.clone()) {
            continue;
        }
        let answer = local
            .dialer
            .control(&address, request.clone(), ANSWER_TIMEOUT)
            .await;
        if matches!(
            answer,
            Err(transport::Error::Refused(Refusal::OtherCluster))
        ) {
            strangers += 1;
        }
        let answer = answer.ok().and_then(|bytes| Answer::decode(&bytes));
        match answer {
            Some(Answer::Join(JoinAnswer::NotLeader(leader))) => {
                let leader = leader
                    .map(|peer| peer.raft)
                    .filter(|raft| *raft != local.own.raft);
                addresses.extend(leader);
            }
            Some(Answer::Join(JoinAnswer::Voter)) => why = "waiting for the log",
            Some(Answer::Join(JoinAnswer::Learner)) => {
                why = "a learner: this address belongs to no voter; an operator may promote it";
            }
            Some(Answer::Join(JoinAnswer::Wait(reason))) => {
                tracing::debug!(reason, "asked to join");
                why = "joining";
            }
            Some(Answer::Join(JoinAnswer::Replaced)) => {
                return Err(Error::Replaced { id: local.id });
            }
            _ => {}
        }
    }
    // One stranger has the wrong data itself. When most are strangers, this node has.
    if 2 * strangers > local.peers.len() {
        return Err(Error::OtherCluster {
            own: local.identity.cluster_id().unwrap_or_default(),
        });
    }
    Ok(why)
}

// The leader's side.

/// Answers a node that asks to join.
pub(super) async fn admit(local: &Local, id: u64, peer: Peer, was_voter: bool) -> JoinAnswer {
    let plan = {
        let metrics = local.raft.metrics();
        let metrics = metrics.borrow_watched();
        let asker = Asker {
            id,
            peer: &peer,
            was_voter,
        };
        plan(&metrics, asker, local.silence(), local.board.led_for())
    };
    let change = match plan {
        Plan::Answer(answer) => return answer,
        Plan::Change(change) => change,
    };
    // The address must lead to the new id: else it is another process, or it is not there yet.
    match identity_at(local, &peer.raft).await {
        Some(Identity { id: there, .. }) if there == id => {}
        _ => return JoinAnswer::Wait("its address does not reach it".into()),
    }
    if change_membership(local, change) {
        JoinAnswer::Wait("the change is under way".into())
    } else {
        JoinAnswer::Wait("another change is under way".into())
    }
}

/// What a leader does about a node that asks to join.
#[derive(Debug, PartialEq)]
enum Plan {
    Answer(JoinAnswer),
    Change(ChangeMembers<u64, Peer>),
}

/// The node that asks.
#[derive(Clone, Copy)]
struct Asker<'a> {
    id: u64,
    peer: &'a Peer,
    was_voter: bool,
}

fn plan(metrics: &Metrics, asker: Asker<'_>, silence: Duration, led_for: Duration) -> Plan {
    let Asker {
        id,
        peer,
        was_voter,
    } = asker;
    let wait = |why: &str| Plan::Answer(JoinAnswer::Wait(why.into()));
    let membership = metrics.membership_config.membership();
    if metrics.state != ServerState::Leader {
        let leader = metrics
            .current_leader
            .filter(|leader| *leader != metrics.id);
        let leader = leader.and_then(|leader| membership.get_node(&leader).cloned());
        return Plan::Answer(JoinAnswer::NotLeader(leader));
    }
    if membership.get_joint_config().len() > 1
        || metrics.membership_config != metrics.committed_membership_config
    {
        return wait("a membership change is under way");
    }
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    if voters.contains(&id) {
        return Plan::Answer(JoinAnswer::Voter);
    }
    let known = membership.get_node(&id).is_some();
    if was_voter && !known {
        return Plan::Answer(JoinAnswer::Replaced);
    }
    let at_address = |voter: bool| {
        let nodes = membership.nodes().filter(|(node, p)| {
            **node != id && p.client == peer.client && voters.contains(*node) == voter
        });
        nodes.map(|(node, _)| *node).collect::<BTreeSet<u64>>()
    };
    let replaced = at_address(true);
    if replaced
        .iter()
        .any(|old| silent_for(metrics, *old, led_for) < silence)
    {
        return wait("the voter with this address was heard from");
    }
    if !known {
        let stale = at_address(false);
        if membership.learner_ids().count() >= LEARNERS_MAX + stale.len() {
            return wait("the cluster has as many learners as it takes");
        }
        // An earlier learner at this address is gone: the address reaches the new one.
        return Plan::Change(ChangeMembers::Batch(vec![
            ChangeMembers::RemoveNodes(stale),
            ChangeMembers::AddNodes(BTreeMap::from([(id, peer.clone())])),
        ]));
    }
    if replaced.is_empty() {
        return Plan::Answer(JoinAnswer::Learner);
    }
    if !has_caught_up(metrics, id) {
        return wait("it is catching up");
    }
    Plan::Change(ChangeMembers::Batch(vec![
        ChangeMembers::AddVoterIds(BTreeSet::from([id])),
        ChangeMembers::RemoveVoters(replaced),
    ]))
}

/// For how long this leader has heard nothing from `id`; it can't know of the time before it led.
fn silent_for(metrics: &Metrics, id: u64, led_for: Duration) -> Duration {
    if id == metrics.id {
        return Duration::ZERO;
    }
    let heard = metrics
        .heartbeat
        .as_ref()
        .and_then(|heard| heard.get(&id).copied().flatten());
    heard.map_or(led_for, |at| at.into_inner().elapsed().min(led_for))
}

pub(super) fn has_caught_up(metrics: &Metrics, id: u64) -> bool {
    let matched = metrics
        .replication
        .as_ref()
        .and_then(|all| all.get(&id)?.as_ref());
    let last = metrics.last_log_index.unwrap_or(0);
    matched.is_some_and(|matched| matched.index() + CATCH_UP_ENTRIES >= last)
}

/// Starts a membership change in the background; false if one is running.
pub(super) fn change_membership(local: &Local, change: ChangeMembers<u64, Peer>) -> bool {
    let Ok(running) = std::sync::Arc::clone(&local.changing).try_lock_owned() else {
        return false;
    };
    let raft = local.raft.clone();
    tracing::info!(%change, "changing the membership");
    tokio::spawn(async move {
        let _running = running;
        match raft.change_membership(change, false).await {
            Ok(done) => tracing::info!(at = done.log_id.index(), "changed the membership"),
            // Whoever wanted it asks again.
            Err(error) => tracing::warn!(%error, "the membership change failed"),
        }
    });
    true
}

/// Finishes a joint membership that an earlier leader left behind.
pub(super) fn finish_joint(local: &Local) {
    let left_joint = {
        let metrics = local.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.state == ServerState::Leader
            && metrics.membership_config.get_joint_config().len() > 1
            && metrics.membership_config == metrics.committed_membership_config
    };
    if left_joint {
        // A change of nothing takes a joint membership to its final configuration. If the change
        // that made it joint still runs here, the lock is taken and this does nothing.
        change_membership(local, ChangeMembers::AddVoterIds(BTreeSet::new()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use openraft::{Membership, StoredMembership, TokioInstant};

    use super::*;

    const SILENCE: Duration = Duration::from_secs(10);
    const LED_LONG: Duration = Duration::from_secs(100);

    fn peer(address: u64) -> Peer {
        Peer {
            client: format!("c:{address}"),
            raft: format!("r:{address}"),
        }
    }

    /// A leader, node 1 of voters 1, 2 and 3 at the addresses of the same number, with learner 20
    /// at address 2 and learner 40 at address 4.
    fn leader() -> Metrics {
        let nodes = [(1, 1), (2, 2), (3, 3), (20, 2), (40, 4)];
        membership(
            Metrics::new_initial(1),
            vec![BTreeSet::from([1, 2, 3])],
            &nodes,
        )
    }

    fn membership(
        mut metrics: Metrics,
        configs: Vec<BTreeSet<u64>>,
        nodes: &[(u64, u64)],
    ) -> Metrics {
        let nodes: BTreeMap<u64, Peer> = nodes.iter().map(|(id, at)| (*id, peer(*at))).collect();
        let stored = StoredMembership::new(None, Membership::new(configs, nodes).unwrap());
        metrics.membership_config = Arc::new(stored);
        metrics.committed_membership_config = Arc::clone(&metrics.membership_config);
        metrics.state = ServerState::Leader;
        metrics.current_leader = Some(1);
        metrics.last_log_index = Some(5000);
        metrics
    }

    fn heard_now(mut metrics: Metrics, id: u64) -> Metrics {
        let now = openraft::metrics::SerdeInstant::new(TokioInstant::now());
        metrics.heartbeat = Some(BTreeMap::from([(id, Some(now))]));
        metrics
    }

    fn matched(mut metrics: Metrics, id: u64, index: u64) -> Metrics {
        let log_id = openraft::LogId::new_term_index(1, index);
        metrics.replication = Some(BTreeMap::from([(id, Some(log_id))]));
        metrics
    }

    fn ask(metrics: &Metrics, id: u64, at: u64, was_voter: bool) -> Plan {
        let peer = peer(at);
        plan(
            metrics,
            Asker {
                id,
                peer: &peer,
                was_voter,
            },
            SILENCE,
            LED_LONG,
        )
    }

    fn waits(plan: &Plan) -> bool {
        matches!(plan, Plan::Answer(JoinAnswer::Wait(_)))
    }

    #[test]
    fn only_a_leader_decides() {
        let mut metrics = leader();
        metrics.state = ServerState::Follower;
        metrics.current_leader = Some(3);
        assert_eq!(
            ask(&metrics, 50, 2, false),
            Plan::Answer(JoinAnswer::NotLeader(Some(peer(3))))
        );
    }

    #[test]
    fn a_voter_is_told_that_it_is_one() {
        assert_eq!(ask(&leader(), 2, 2, true), Plan::Answer(JoinAnswer::Voter));
    }

    #[test]
    fn a_node_that_was_replaced_is_never_readmitted() {
        assert_eq!(
            ask(&leader(), 99, 2, true),
            Plan::Answer(JoinAnswer::Replaced)
        );
    }

    #[test]
    fn a_newcomer_at_a_live_voters_address_waits() {
        assert!(waits(&ask(&heard_now(leader(), 2), 50, 2, false)));
        assert!(waits(&ask(&heard_now(leader(), 2), 20, 2, false)));
    }

    #[test]
    fn a_leader_that_has_just_won_does_not_know_yet_who_is_silent() {
        let metrics = leader();
        let peer = peer(2);
        let asker = Asker {
            id: 50,
            peer: &peer,
            was_voter: false,
        };
        assert!(waits(&plan(&metrics, asker, SILENCE, SILENCE / 2)));
    }

    #[test]
    fn a_newcomer_takes_the_place_of_an_earlier_learner_at_its_address() {
        let expected = ChangeMembers::Batch(vec![
            ChangeMembers::RemoveNodes(BTreeSet::from([20])),
            ChangeMembers::AddNodes(BTreeMap::from([(50, peer(2))])),
        ]);
        assert_eq!(ask(&leader(), 50, 2, false), Plan::Change(expected));
    }

    #[test]
    fn a_learner_replaces_the_silent_voter_once_it_has_caught_up() {
        let behind = matched(leader(), 20, 5000 - CATCH_UP_ENTRIES - 1);
        assert!(waits(&ask(&behind, 20, 2, false)));
        let expected = ChangeMembers::Batch(vec![
            ChangeMembers::AddVoterIds(BTreeSet::from([20])),
            ChangeMembers::RemoveVoters(BTreeSet::from([2])),
        ]);
        assert_eq!(
            ask(&matched(leader(), 20, 5000), 20, 2, false),
            Plan::Change(expected)
        );
    }

    #[test]
    fn a_learner_at_an_address_of_its_own_stays_one() {
        assert_eq!(
            ask(&leader(), 40, 4, false),
            Plan::Answer(JoinAnswer::Learner)
        );
    }

    #[test]
    fn the_leaders_own_address_is_never_given_away() {
        assert!(waits(&ask(&leader(), 50, 1, false)));
    }

    #[test]
    fn during_a_change_everybody_waits() {
        let configs = vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 3, 20])];
        let nodes = [(1, 1), (2, 2), (3, 3), (20, 2)];
        let joint = membership(Metrics::new_initial(1), configs, &nodes);
        assert!(waits(&ask(&joint, 50, 2, false)));

        let mut uncommitted = leader();
        uncommitted.committed_membership_config = Arc::default();
        assert!(waits(&ask(&uncommitted, 50, 2, false)));
    }

    #[test]
    fn learners_are_bounded() {
        let mut nodes: Vec<(u64, u64)> = vec![(1, 1), (2, 2), (3, 3)];
        nodes.extend((0..LEARNERS_MAX as u64).map(|n| (100 + n, 100 + n)));
        let full = membership(
            Metrics::new_initial(1),
            vec![BTreeSet::from([1, 2, 3])],
            &nodes,
        );
        assert!(waits(&ask(&full, 50, 5, false)));
    }
}
