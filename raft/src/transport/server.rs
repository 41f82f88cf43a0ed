//! The incoming side.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use bytes::Bytes;
use openraft::Raft;
use openraft::storage::RaftStateMachine;
use tokio::sync::mpsc;

use super::{Identity, Service, StreamEnded, Vote};
use crate::type_config::TypeConfig;

/// Accepts, authenticates and serves peers.
#[derive(Debug)]
pub struct PeerServer<SM>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = Bytes>,
{
    raft: std::sync::OnceLock<Raft<TypeConfig, SM>>,
}

impl<SM> PeerServer<SM>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = Bytes>,
{
    /// Serves `listener` on the current tokio runtime. Only control requests are answered until
    /// [`serve_raft`](Self::serve_raft). The receiver gets each end of a leader's stream.
    pub fn start(
        _listener: TcpListener,
        _identity: Arc<Identity>,
        _service: Arc<dyn Service>,
    ) -> io::Result<(Self, mpsc::Receiver<StreamEnded>)> {
        todo!()
    }

    /// Serves `raft` to the peers from now on. Later calls change nothing.
    pub fn serve_raft(&self, raft: Raft<TypeConfig, SM>) {
        let _ = self.raft.set(raft);
    }

    /// Whether an append stream of the leader with this committed vote is open.
    pub fn has_live_stream(&self, _vote: &Vote) -> bool {
        todo!()
    }

    /// Stops accepting and closes every connection; returns when all sockets are closed.
    pub async fn shutdown(&self) {
        todo!()
    }
}
