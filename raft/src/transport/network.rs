//! openraft's outgoing side.
//!
//! Each network object belongs to one task of openraft (the replication to a peer, the heartbeats to
//! it, one election's vote) and holds one connection, which it dials when it is first needed and
//! keeps. Faults answered:
//!
//! - *A peer that is down.* Refused and unanswered dials are `Unreachable`, so openraft waits between
//!   tries: [`BACKOFF_MS`], far shorter than its default of up to a second.
//! - *An address at which another node answers* (one that waits to replace the old one). openraft's
//!   own wait does not hold back a stream that cannot be set up, so a leader under traffic would dial
//!   as often as it proposes. Therefore each dial after a failed one waits as well, in the same steps.
//! - *A dial longer than a heartbeat.* A call waits for a dial only as long as it may; the dial goes
//!   on and the next call finds it done. Else no connection would ever come about where resolving a
//!   name takes longer than a heartbeat.
//! - *A dial longer than an election*, or one that leaves too little time for the answer. Each election
//!   has network objects of its own. What they dialled goes to the [`Pool`] when it is done, or its
//!   first answer is due, too late for them, and the next election finds it there. Else nobody would
//!   ever lead where machines are busy or far apart. Each dials anew all the same, and gives up an older
//!   connection that is silent: one from before a partition was healed would only cost time.
//! - *A large transfer before a heartbeat.* Heartbeats, replication and snapshots have connections of
//!   their own.
//! - *A slow disk taken for a dead peer.* A heartbeat gets openraft's `soft_ttl`. An append gets at
//!   least [`APPEND_PATIENCE_MIN`], since giving up means to send everything again to a peer that is
//!   behind already; heartbeats tell meanwhile whether it lives.
//! - *A pre-vote that nobody answered* is an error, never a grant.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use openraft::{RaftNetworkFactory, errors};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::append::AppendStream;
use super::auth::Lane;
use super::connection::Connection;
use super::link::Link;
use super::measures::PeerMeasures;
use super::pool::Pool;
use super::wire::{self, Kind};
use super::{Dialer, Error, Identity, Vote, snapshot};
use crate::type_config::{Peer, TypeConfig};

/// Waits between tries to reach a peer, in milliseconds; the last one repeats.
const BACKOFF_MS: [u64; 4] = [20, 40, 80, 100];

/// The least time that an answer to an append request gets. Disks were seen to take 100 ms for one
/// sync.
const APPEND_PATIENCE_MIN: Duration = Duration::from_millis(500);

type RpcError = RPCError<TypeConfig>;

/// Makes the connections of openraft's replicators, heartbeats and elections.
#[derive(Clone, Debug)]
pub struct PeerNetwork {
    dialer: Dialer,
    pool: Arc<Pool>,
    measures: Arc<PeerMeasures>,
}

impl PeerNetwork {
    /// A network that authenticates as `identity`.
    pub fn new(identity: Arc<Identity>) -> Self {
        Self {
            dialer: Dialer::new(identity),
            pool: Arc::default(),
            measures: Arc::default(),
        }
    }

    /// The dialer beneath, for what openraft does not ask for itself.
    pub fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// What the connections have measured.
    pub fn measures(&self) -> Arc<PeerMeasures> {
        Arc::clone(&self.measures)
    }

    /// Closes every idle connection, and each one that openraft's tasks leave from now on.
    pub fn close(&self) {
        self.pool.close();
    }

    fn client(
        &self,
        target: u64,
        peer: &Peer,
        lane: Lane,
        append_patience_min: Duration,
    ) -> PeerClient {
        PeerClient {
            target,
            address: peer.raft.clone(),
            lane,
            append_patience_min,
            dialer: self.dialer.clone(),
            pool: self.pool.clone(),
            measures: Arc::clone(&self.measures),
            link: None,
            dialing: None,
            failed_dials: 0,
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for PeerNetwork {
    type Network = PeerClient;

    async fn new_client(&mut self, target: u64, node: &Peer) -> PeerClient {
        self.client(target, node, Lane::Raft, APPEND_PATIENCE_MIN)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Peer) -> PeerClient {
        self.client(target, node, Lane::Raft, Duration::ZERO)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &Peer) -> PeerClient {
        self.client(target, node, Lane::Snapshot, Duration::ZERO)
    }
}

/// openraft's connection to one peer.
#[derive(Debug)]
pub struct PeerClient {
    target: u64,
    address: String,
    lane: Lane,
    append_patience_min: Duration,
    dialer: Dialer,
    pool: Arc<Pool>,
    measures: Arc<PeerMeasures>,
    link: Option<Link>,
    dialing: Option<Dialing>,
    /// Dials that failed since the last one that did not.
    failed_dials: usize,
}

/// What a dial that goes on between calls comes to.
type Dialing = oneshot::Receiver<Result<Connection, Error>>;

impl PeerClient {
    /// A connection for the next request, at the latest by `deadline`.
    async fn connected(&mut self, patience: Duration, deadline: Instant) -> Result<Link, Error> {
        match self.idle() {
            Some(link) => Ok(link),
            None => self.dialled(patience, deadline).await,
        }
    }

    /// A connection that is there already.
    fn idle(&mut self) -> Option<Link> {
        let own = self.link.take().filter(Link::is_usable);
        own.or_else(|| {
            let shared = self.lane == Lane::Raft;
            shared.then(|| self.pool.take(self.target, &self.address))?
        })
    }

    /// A new connection, at the latest by `deadline`.
    async fn dialled(&mut self, patience: Duration, deadline: Instant) -> Result<Link, Error> {
        // It stays here while it is waited for: this call may be dropped half-way.
        let dialing = self.dialing.take().unwrap_or_else(|| self.dial());
        let dialing = self.dialing.insert(dialing);
        let Ok(dialled) = timeout_at(deadline, dialing).await else {
            return Err(Error::Timeout(patience));
        };
        self.dialing = None;
        let connection = dialled
            .map_err(|_| Error::cut("the dial was given up"))
            .flatten();
        self.failed_dials = match connection {
            Ok(_) => 0,
            Err(_) => {
                self.measures.dials_failed.add_one();
                self.failed_dials.saturating_add(1)
            }
        };
        Ok(Link::new(connection?))
    }

    /// Begins to dial, after a pause if that failed before.
    fn dial(&self) -> Dialing {
        let (dialer, pool, address) = (
            self.dialer.clone(),
            Arc::clone(&self.pool),
            self.address.clone(),
        );
        let (lane, target) = (self.lane, self.target);
        let pause = pause_after(self.failed_dials);
        let (done, dialing) = oneshot::channel();
        tokio::spawn(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let dialled = dialer.dial(&address, lane, Some(target)).await;
            if let Err(Ok(connection)) = done.send(dialled)
                && lane == Lane::Raft
            {
                pool.put(target, &address, Link::new(connection));
            }
        });
        dialing
    }

    /// One request and its answer.
    async fn ask<Q: Serialize, A: DeserializeOwned>(
        &mut self,
        kind: Kind,
        request: &Q,
        option: &RPCOption,
    ) -> Result<A, RpcError> {
        let patience = option.soft_ttl();
        let deadline = Instant::now() + patience;
        // The connection is taken out meanwhile: if this call is dropped half-way it goes, too.
        let mut taken = self.idle();
        let is_new = taken.is_none();
        let asked = async {
            let link = match &mut taken {
                Some(link) => link,
                None => taken.insert(self.dialled(patience, deadline).await?),
            };
            link.connection
                .send(|out| wire::encode(kind, request, out))
                .await?;
            while link.owed > 0 {
                link.connection.expect().await?;
                link.owed -= 1;
            }
            let answer = link.connection.expect().await?;
            Ok(wire::decode_answer(kind, &answer))
        };
        let answer = match timeout_at(deadline, asked).await {
            Ok(Ok(answer)) => {
                if matches!(answer, Ok(_) | Err(Error::Denied(_))) {
                    self.link = taken;
                }
                answer
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                if let Some(mut link) = taken.filter(|_| is_new) {
                    link.owed += 1;
                    self.link = Some(link);
                }
                Err(Error::Timeout(patience))
            }
        };
        answer.map_err(|error| {
            self.measures.calls_failed.add_one();
            rpc_error(&error)
        })
    }
}

impl Drop for PeerClient {
    fn drop(&mut self) {
        if self.lane == Lane::Raft
            && let Some(link) = self.link.take()
        {
            self.pool.put(self.target, &self.address, link);
        }
    }
}

/// How openraft shall take an error: a connection that was lost may be replaced at once; where
/// nobody answers, or nobody who would serve us, it shall wait.
pub(crate) fn rpc_error(error: &Error) -> RpcError {
    match error {
        Error::Lost(_) => RPCError::Network(NetworkError::new(error)),
        _ => RPCError::Unreachable(Unreachable::new(error)),
    }
}

/// How long the next try waits after so many that failed.
fn pause_after(failed: usize) -> Duration {
    let last = BACKOFF_MS.len() - 1;
    let pause = failed
        .checked_sub(1)
        .map_or(0, |earlier| BACKOFF_MS[earlier.min(last)]);
    Duration::from_millis(pause)
}

impl NetBackoff<TypeConfig> for PeerClient {
    fn backoff(&self) -> Option<Backoff> {
        Some(Backoff::new((1..).map(pause_after)))
    }
}

impl NetStreamAppend<TypeConfig> for PeerClient {
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RpcError>>, RpcError>,
    >
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    {
        Box::pin(async move {
            let setup = option.soft_ttl();
            let link = self.connected(setup, Instant::now() + setup).await;
            let link = link.map_err(|error| rpc_error(&error))?;
            let patience = setup.max(self.append_patience_min);
            let measures = Arc::clone(&self.measures);
            let stream = AppendStream::new(link, &mut self.link, input, patience, measures);
            Ok(Box::pin(stream) as BoxStream<'s, _>)
        })
    }
}

impl NetVote<TypeConfig> for PeerClient {
    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        self.ask(Kind::Vote, &rpc, &option).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        self.ask(Kind::PreVote, &rpc, &option).await
    }
}

impl NetTransferLeader<TypeConfig> for PeerClient {
    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        self.ask(Kind::TransferLeader, &req, &option).await
    }
}

impl NetSnapshot<TypeConfig> for PeerClient {
    type SnapshotData = Bytes;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, Bytes>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let setup = option.soft_ttl();
        let measures = Arc::clone(&self.measures);
        let sent = async {
            let mut link = self.connected(setup, Instant::now() + setup).await?;
            let response = snapshot::send(&mut link.connection, vote, &snapshot).await?;
            self.link = Some(link);
            Ok(response)
        };
        let mut sent = std::pin::pin!(sent);
        let mut cancel = std::pin::pin!(cancel);
        tokio::select! {
            closed = &mut cancel => Err(StreamingError::Closed(closed)),
            sent = &mut sent => sent.map_err(|error| {
                measures.calls_failed.add_one();
                errors::StreamingError::from(rpc_error(&error))
            }),
        }
    }
}
