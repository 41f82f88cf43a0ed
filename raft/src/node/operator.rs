//! What an operator may ask of a running node.
//!
//! Faults answered:
//!
//! - *A transfer of the lead to a voter that is gone by then.* Raft marks the leader as leaving and
//!   lets it propose nothing more, and nothing takes that back; the cluster would have a leader that
//!   serves nobody. So if nobody has taken the lead over in time, this node stands for election
//!   itself: in the new term, whoever wins may propose. The leases on the old term were given up for
//!   the transfer, so the others do not refuse.
//! - *A membership that could not go on.* A learner is promoted only when it has the log, and a voter
//!   is removed only when a majority of those that would remain was heard from lately: a change
//!   that nobody is left to commit would leave the cluster between two memberships.
//! - *Two changes at once*: one is carried out at a time, and only on a committed membership.

use std::collections::BTreeSet;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{ChangeMembers, RaftMetrics, ServerState};

use super::{Node, membership, overview, quorum};
use crate::type_config::{Peer, TypeConfig};

/// How many election timeouts a hand-over may take.
const HAND_OVER_TIMEOUTS: u32 = 2;

/// Why an operator's request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Only a leader can do it.
    #[error("this node does not lead")]
    NotLeading,
    /// There is nobody to take the lead.
    #[error("no other voter was heard from lately")]
    NobodyThere,
    /// Nobody took the lead over in time.
    #[error("nobody took the lead over in time; there is a new election")]
    NotTaken,
    /// The membership is being changed already.
    #[error("another change of the membership is under way")]
    Changing,
    /// There is no such member.
    #[error("{0:016x} is not a member")]
    NoMember(u64),
    /// It has its vote already.
    #[error("{0:016x} is a voter already")]
    Voter(u64),
    /// It does not have the log yet.
    #[error("{0:016x} has not caught up yet")]
    Behind(u64),
    /// A leader does not remove itself.
    #[error("this node leads: transfer the lead, and ask the new leader to remove it")]
    Own,
    /// Those that remain could not go on without it.
    #[error("without {0:016x} no majority of the voters that remain was heard from lately")]
    Needed(u64),
}

type Change = ChangeMembers<u64, Peer>;

impl Node {
    /// Gives the lead to the voter that is most up to date. The client address of the new leader.
    pub async fn transfer(&self) -> Result<String, Refused> {
        let passed = self.pass_lead().await;
        if passed == Err(Refused::NotTaken) {
            // An error means that Raft has stopped, which its owner finds out by itself.
            let _ = self.raft.trigger().elect(true).await;
        }
        let leader = passed?;
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let peer = metrics.membership_config.membership().get_node(&leader);
        Ok(peer.map_or_else(String::new, |peer| peer.client.clone()))
    }

    /// Ends this node's activity for good and, if it leads, gives the lead to the voter that is most
    /// up to date. True when somebody else leads (or this node never did); false if that did not
    /// come about within two election timeouts.
    pub async fn hand_over(&self) -> bool {
        self.board.stop();
        matches!(self.pass_lead().await, Ok(_) | Err(Refused::NotLeading))
    }

    /// Gives the learner `id` a vote. Returns when the change is under way.
    pub fn promote(&self, id: u64) -> Result<(), Refused> {
        self.change(|metrics| promotion(metrics, id))
    }

    /// Takes the member `id` out of the cluster; its id is never admitted again if it was a voter.
    /// Returns when the change is under way.
    pub fn remove(&self, id: u64) -> Result<(), Refused> {
        self.change(|metrics| removal(metrics, id, self.election_timeout))
    }

    fn change(
        &self,
        decide: impl FnOnce(&RaftMetrics<TypeConfig>) -> Result<Change, Refused>,
    ) -> Result<(), Refused> {
        let local = self.local.upgrade().ok_or(Refused::NotLeading)?;
        let change = decide(&self.raft.metrics().borrow_watched())?;
        let begun = membership::change_membership(&local, change);
        begun.then_some(()).ok_or(Refused::Changing)
    }

    /// The id of who took the lead over.
    async fn pass_lead(&self) -> Result<u64, Refused> {
        let target = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            if metrics.state != ServerState::Leader {
                return Err(Refused::NotLeading);
            }
            overview::successor(&metrics, self.election_timeout).ok_or(Refused::NobodyThere)?
        };
        let asked = self.raft.trigger().transfer_leader(target).await;
        asked.map_err(|_| Refused::NotTaken)?;
        let own = *self.raft.node_id();
        let others = move |leader: Option<u64>| leader.is_some_and(|leader| leader != own);
        let patience: Duration = self.election_timeout * HAND_OVER_TIMEOUTS;
        let wait = self.raft.wait(Some(patience));
        let seen = wait.metrics(move |m| others(m.current_leader), "hand-over");
        let seen = seen.await.map_err(|_| Refused::NotTaken)?;
        seen.current_leader.ok_or(Refused::NotTaken)
    }
}

fn promotion(metrics: &RaftMetrics<TypeConfig>, id: u64) -> Result<Change, Refused> {
    let voters = voters_if_settled(metrics)?;
    let membership = metrics.membership_config.membership();
    if membership.get_node(&id).is_none() {
        return Err(Refused::NoMember(id));
    }
    if voters.contains(&id) {
        return Err(Refused::Voter(id));
    }
    if !membership::has_caught_up(metrics, id) {
        return Err(Refused::Behind(id));
    }
    Ok(ChangeMembers::AddVoterIds(BTreeSet::from([id])))
}

fn removal(
    metrics: &RaftMetrics<TypeConfig>,
    id: u64,
    recent: Duration,
) -> Result<Change, Refused> {
    let mut voters = voters_if_settled(metrics)?;
    if metrics
        .membership_config
        .membership()
        .get_node(&id)
        .is_none()
    {
        return Err(Refused::NoMember(id));
    }
    if id == metrics.id {
        return Err(Refused::Own);
    }
    let one = BTreeSet::from([id]);
    if !voters.remove(&id) {
        return Ok(ChangeMembers::RemoveNodes(one));
    }
    let is_there = |voter: &u64| {
        let heard = overview::last_contact(metrics, *voter);
        *voter == metrics.id || heard.is_some_and(|age| age < recent)
    };
    let there: BTreeSet<u64> = voters.iter().copied().filter(is_there).collect();
    if !quorum::is_majority(&[voters], &there) {
        return Err(Refused::Needed(id));
    }
    Ok(ChangeMembers::RemoveVoters(one))
}

/// The voters, if this node leads them and no change is under way.
fn voters_if_settled(metrics: &RaftMetrics<TypeConfig>) -> Result<BTreeSet<u64>, Refused> {
    if metrics.state != ServerState::Leader {
        return Err(Refused::NotLeading);
    }
    let membership = &metrics.membership_config;
    if membership.get_joint_config().len() > 1 || *membership != metrics.committed_membership_config
    {
        return Err(Refused::Changing);
    }
    Ok(membership.voter_ids().collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use openraft::metrics::SerdeInstant;
    use openraft::{Instant, LogId, Membership, StoredMembership, TokioInstant};

    use super::*;

    const RECENT: Duration = Duration::from_secs(1);

    /// Node 1 leads voters 1, 2 and 3 and the learner 4. All have everything, and those in `heard`
    /// have just answered.
    fn leader(heard: &[u64]) -> RaftMetrics<TypeConfig> {
        let peer = |id: u64| Peer {
            client: format!("c:{id}"),
            raft: format!("r:{id}"),
        };
        let nodes: BTreeMap<u64, Peer> = (1..=4).map(|id| (id, peer(id))).collect();
        let membership = Membership::new(vec![BTreeSet::from([1, 2, 3])], nodes).unwrap();
        let mut metrics = RaftMetrics::new_initial(1);
        metrics.membership_config = Arc::new(StoredMembership::new(None, membership));
        metrics.committed_membership_config = Arc::clone(&metrics.membership_config);
        metrics.state = ServerState::Leader;
        metrics.last_log_index = Some(5000);
        let now = SerdeInstant::new(TokioInstant::now());
        metrics.heartbeat = Some(heard.iter().map(|id| (*id, Some(now))).collect());
        let log_id = LogId::new_term_index(1, 5000);
        metrics.replication = Some((1..=4).map(|id| (id, Some(log_id))).collect());
        metrics
    }

    #[test]
    fn a_learner_that_has_caught_up_is_promoted() {
        let mut metrics = leader(&[2, 3]);
        let expected = ChangeMembers::AddVoterIds(BTreeSet::from([4]));
        assert_eq!(promotion(&metrics, 4), Ok(expected));
        assert_eq!(promotion(&metrics, 2), Err(Refused::Voter(2)));
        assert_eq!(promotion(&metrics, 9), Err(Refused::NoMember(9)));
        metrics.replication = Some(BTreeMap::from([(4, None)]));
        assert_eq!(promotion(&metrics, 4), Err(Refused::Behind(4)));
    }

    #[test]
    fn a_voter_goes_only_if_the_others_can_go_on() {
        let one = |id| BTreeSet::from([id]);
        let all = leader(&[2, 3]);
        assert_eq!(
            removal(&all, 3, RECENT),
            Ok(ChangeMembers::RemoveVoters(one(3)))
        );
        assert_eq!(removal(&all, 1, RECENT), Err(Refused::Own));
        assert_eq!(removal(&all, 9, RECENT), Err(Refused::NoMember(9)));
        // Of 1 and 2, which would remain, both are needed.
        let without_two = leader(&[3]);
        assert_eq!(removal(&without_two, 3, RECENT), Err(Refused::Needed(3)));
        assert_eq!(
            removal(&without_two, 2, RECENT),
            Ok(ChangeMembers::RemoveVoters(one(2)))
        );
        // A learner counts for nothing.
        assert_eq!(
            removal(&leader(&[]), 4, RECENT),
            Ok(ChangeMembers::RemoveNodes(one(4)))
        );
    }

    #[test]
    fn only_a_leader_decides_and_one_change_at_a_time() {
        let mut metrics = leader(&[2, 3]);
        metrics.committed_membership_config = Arc::default();
        assert_eq!(promotion(&metrics, 4), Err(Refused::Changing));
        assert_eq!(removal(&metrics, 3, RECENT), Err(Refused::Changing));
        metrics.state = ServerState::Follower;
        assert_eq!(promotion(&metrics, 4), Err(Refused::NotLeading));
    }
}
