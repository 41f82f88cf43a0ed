//! openraft's outgoing side.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::{SnapshotOf, VoteOf};
use openraft::{RaftNetworkFactory, RaftNetworkV2};

use super::{Dialer, Identity};
use crate::type_config::{Peer, TypeConfig};

/// Makes the connections of openraft's replicators, heartbeats and elections.
#[derive(Clone, Debug)]
pub struct PeerNetwork {
    dialer: Dialer,
}

impl PeerNetwork {
    /// A network that authenticates as `identity`.
    pub fn new(identity: Arc<Identity>) -> Self {
        Self {
            dialer: Dialer::new(identity),
        }
    }

    /// The dialer beneath.
    pub fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// Closes every idle connection; those in use end with openraft's tasks.
    pub fn close(&self) {}
}

impl RaftNetworkFactory<TypeConfig> for PeerNetwork {
    type Network = PeerClient;

    async fn new_client(&mut self, target: u64, node: &Peer) -> PeerClient {
        PeerClient {
            _target: target,
            _address: node.raft.clone(),
        }
    }
}

/// openraft's connection to one peer.
#[derive(Debug)]
pub struct PeerClient {
    _target: u64,
    _address: String,
}

impl RaftNetworkV2<TypeConfig> for PeerClient {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        todo!()
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        todo!()
    }

    async fn full_snapshot(
        &mut self,
        _vote: VoteOf<TypeConfig>,
        _snapshot: SnapshotOf<TypeConfig, Bytes>,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        todo!()
    }
}
