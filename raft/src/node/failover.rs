//! A dead leader *process* is replaced in milliseconds, without waiting for an election timeout.
//!
//! When a process dies, its sockets close at once and its port refuses: its followers can know
//! within a millisecond what the timers would only suspect after a second. This is a hint and no
//! more. Raft's safety never depends on it: all it does is to give up the lease that this node's
//! own vote grants the leader, and to ask for an ordinary election with pre-vote.
//!
//! # Which faults this answers
//!
//! - *One node's connection is cut, the leader is healthy.* Every voter asks the others, live,
//!   before it gives up its lease; a voter that has an open stream from the leader says no. So it
//!   takes a majority of followers that all lost the stream *and* are refused. Without that, two
//!   false alarms in a row deposed a healthy leader.
//! - *A firewall that rejects, a name that resolves to nothing.* Only "refused" counts, from every
//!   address of the name; anything else is left to the timers.
//! - *All followers at once.* They act in order of their ids, some milliseconds apart, so that the
//!   votes are not split.
//!
//! The steps are numbered as in the design notes; `v` is the vote on the stream that ended.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::Duration;

use futures_util::future::join_all;
use openraft::raft::TransferLeaderRequest;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::RaftHandle;
use super::control::{Answer, Request};
use super::quorum::{self, Configs};
use crate::transport::{Dialer, PeerServer, Probe, StreamEnded, Vote};
use crate::type_config::Peer;

/// How often the leader's port is tried, and how long to wait between. A process that is being
/// killed closes its connections a moment before its listener.
const PROBES_MAX: u32 = 10;
const PROBE_PAUSE: Duration = Duration::from_millis(3);

/// How often a peer is asked whether the leader is lost, how long its answer may take, and how long
/// to wait between: it may notice a few milliseconds later than this node.
const ASKS_MAX: u32 = 3;
const ASK_TIMEOUT: Duration = Duration::from_millis(80);
const ASK_PAUSE: Duration = Duration::from_millis(5);

/// Head start of each voter over the next one in order of id.
const RANK_PAUSE: Duration = Duration::from_millis(15);

/// How often an election is asked for, and how long each may take before the next: doubled each
/// time. A vote has to be on two disks before it counts, and on a slow disk an election that is
/// started over every few milliseconds never ends.
const ELECTIONS_MAX: u32 = 6;
const ELECTION_PAUSE: Duration = Duration::from_millis(12);
const ELECTION_RANK_PAUSE: Duration = Duration::from_millis(7);

/// How often this node looks whether an election is over.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// How often to wait for another candidate to finish, and how long.
const CANDIDATE_WAITS_MAX: u32 = 3;
const CANDIDATE_PAUSE: Duration = Duration::from_millis(15);

/// What a node needs to find out whether a leader is lost.
#[derive(Clone)]
pub(super) struct Watch {
    pub(super) raft: RaftHandle,
    pub(super) dialer: Dialer,
    pub(super) server: Weak<PeerServer<super::StateMachine>>,
}

/// This node's vote and the membership, at one moment.
struct Standing {
    vote: Vote,
    configs: Configs,
    peers: Vec<(u64, Peer)>,
}

impl Standing {
    fn is_voter(&self, id: u64) -> bool {
        self.configs.iter().any(|voters| voters.contains(&id))
    }

    fn address(&self, id: u64) -> Option<&str> {
        let peer = self.peers.iter().find(|(peer, _)| *peer == id);
        peer.map(|(_, peer)| peer.raft.as_str())
    }
}

impl Watch {
    /// Acts on streams that end, until the transport or Raft is gone.
    pub(super) async fn run(self, mut ended: mpsc::Receiver<StreamEnded>) {
        // One finding per vote: what did not lead to an election is left to the timers.
        let mut found_refused = None;
        while let Some(StreamEnded { vote }) = ended.recv().await {
            if found_refused == Some(vote) {
                continue;
            }
            match self.leader_died(vote).await {
                Ok(true) => found_refused = Some(vote),
                Ok(false) => {}
                Err(Stopped) => return,
            }
        }
    }

    /// Steps 1 to 6. True if the leader's port refused, whatever came of it.
    async fn leader_died(&self, v: Vote) -> Result<bool, Stopped> {
        let own = *self.raft.node_id();
        let lost = v.leader_id().voted_for;

        // 1. Only a voter that follows v has a lease to give up.
        let standing = self.standing().await?;
        if standing.vote != v || !v.is_committed() || lost == own || !standing.is_voter(own) {
            return Ok(false);
        }

        // 2. Refused, not silent: a machine or a network that is gone is left to the timers.
        let Some(address) = standing.address(lost) else {
            return Ok(false);
        };
        if !self.is_refused(address, PROBES_MAX).await {
            return Ok(false);
        }

        // 3. A majority must have lost it, in each configuration.
        let agreeing = self.ask_voters(&standing, own, v).await;
        if !quorum::is_majority(&standing.configs, &agreeing) {
            tracing::info!(
                leader = lost,
                "the leader refuses, but others still hear from it"
            );
            return Ok(true);
        }
        tracing::info!(
            leader = lost,
            term = v.leader_id().term,
            "the leader's process is gone"
        );

        // 4. Addressed to another id, this only ends our own lease on v. (Addressed to ourselves it
        // would start an election without pre-vote, even on a learner.)
        let request = TransferLeaderRequest::new(v, lost, None);
        let _ = self
            .raft
            .handle_transfer_leader(request)
            .await
            .map_err(|_| Stopped)?;

        // 5. Voters with smaller ids go first.
        let rank = quorum::rank(&standing.configs, own, lost);
        if rank > 0 {
            sleep(RANK_PAUSE * rank).await;
        }

        // 6.
        self.elect(v, rank).await?;
        Ok(true)
    }

    /// Whether this node agrees that the leader with this vote is lost; for step 3 of a peer. Looked
    /// up now, never remembered.
    pub(super) async fn agrees(&self, term: u64, leader: u64) -> bool {
        let v = Vote::new_committed(term, leader);
        let Ok(standing) = self.standing().await else {
            return false;
        };
        if standing.vote != v || !standing.is_voter(*self.raft.node_id()) || self.hears(&v) {
            return false;
        }
        let Some(address) = standing.address(leader) else {
            return false;
        };
        // Looked at again after the probe: a stream may have come up meanwhile.
        self.is_refused(address, 1).await && !self.hears(&v)
    }

    fn hears(&self, v: &Vote) -> bool {
        self.server
            .upgrade()
            .is_none_or(|server| server.has_live_stream(v))
    }

    async fn is_refused(&self, address: &str, probes_max: u32) -> bool {
        for attempt in 0..probes_max {
            if attempt > 0 {
                sleep(PROBE_PAUSE).await;
            }
            if self.dialer.probe(address).await == Probe::Refused {
                return true;
            }
        }
        false
    }

    /// The voters that agree that v's leader is lost, this one included.
    async fn ask_voters(&self, standing: &Standing, own: u64, v: Vote) -> BTreeSet<u64> {
        let lost = v.leader_id().voted_for;
        let mut agreeing = BTreeSet::from([own]);
        for attempt in 0..ASKS_MAX {
            if attempt > 0 {
                sleep(ASK_PAUSE).await;
            }
            let open = quorum::voters(&standing.configs)
                .into_iter()
                .filter(|id| *id != lost && !agreeing.contains(id))
                .filter_map(|id| Some((id, standing.address(id)?)));
            let answers =
                open.map(|(id, address)| async move { self.ask(address, v).await.then_some(id) });
            let answers = join_all(answers.collect::<Vec<_>>()).await;
            agreeing.extend(answers.into_iter().flatten());
            if quorum::is_majority(&standing.configs, &agreeing) {
                break;
            }
        }
        agreeing
    }

    async fn ask(&self, address: &str, v: Vote) -> bool {
        let id = v.leader_id();
        let request = Request::Lost {
            term: id.term,
            leader: id.voted_for,
        }
        .encode();
        match self.dialer.control(address, request, ASK_TIMEOUT).await {
            Ok(bytes) => matches!(Answer::decode(&bytes), Some(Answer::Lost { lost: true })),
            Err(_) => false,
        }
    }

    /// Asks for elections until somebody leads in v's place.
    async fn elect(&self, v: Vote, rank: u32) -> Result<(), Stopped> {
        let own = *self.raft.node_id();
        let mut pause = ELECTION_PAUSE + ELECTION_RANK_PAUSE * rank;
        let mut candidate_waits = 0;
        for _ in 0..ELECTIONS_MAX {
            let mut vote = self.vote().await?;
            while stands(&vote) && vote.leader_id().voted_for != own {
                if candidate_waits == CANDIDATE_WAITS_MAX {
                    break;
                }
                candidate_waits += 1;
                sleep(CANDIDATE_PAUSE).await;
                vote = self.vote().await?;
            }
            if leads_after(&vote, &v) {
                return Ok(());
            }
            self.raft.trigger().elect(true).await.map_err(|_| Stopped)?;
            let over = Instant::now() + pause;
            while Instant::now() < over {
                sleep(LOOK_PAUSE).await;
                if leads_after(&self.vote().await?, &v) {
                    return Ok(());
                }
            }
            pause *= 2;
        }
        Ok(())
    }

    async fn vote(&self) -> Result<Vote, Stopped> {
        let vote = self.raft.with_raft_state(|state| *state.vote_ref()).await;
        vote.map_err(|_| Stopped)
    }

    async fn standing(&self) -> Result<Standing, Stopped> {
        let standing = self.raft.with_raft_state(|state| {
            let membership = state.membership_state.effective();
            Standing {
                vote: *state.vote_ref(),
                configs: membership.get_joint_config().clone(),
                peers: membership
                    .nodes()
                    .map(|(id, peer)| (*id, peer.clone()))
                    .collect(),
            }
        });
        standing.await.map_err(|_| Stopped)
    }
}

/// True if no quorum has granted this vote yet.
fn stands(vote: &Vote) -> bool {
    !vote.is_committed()
}

/// True if a quorum has granted this vote, and it is not v.
fn leads_after(vote: &Vote, v: &Vote) -> bool {
    vote.is_committed() && vote != v
}

/// Raft has stopped.
struct Stopped;
