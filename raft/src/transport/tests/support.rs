//! Nodes for the tests: a real Raft with a log in memory and a state machine that only remembers.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt};
use openraft::entry::RaftEntry;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf, StoredMembershipOf};
use openraft::{Config, EntryPayload, OptionalSend, Raft, RaftSnapshotBuilder};
use storage::memory::LogStore;
use tokio::sync::mpsc;

use crate::transport::wire::{Entry, LogId};
use crate::transport::{
    Identity, PeerIdentity, PeerNetwork, PeerServer, Service, StreamEnded, Vote,
};
use crate::type_config::{Payload, Peer, TypeConfig};

pub(super) const CLUSTER: u128 = 0xC1;
pub(super) const SECRET: &[u8] = b"a secret of the tests";

/// Longer than anything that a test waits for may take.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// Waits until the condition holds.
pub(super) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(SOON, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "not within {SOON:?}: {what}");
}

/// What the state machine remembers, shared with the test.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    pub(super) payloads: Vec<Bytes>,
    pub(super) snapshot: Bytes,
    pub(super) last_applied: Option<LogId>,
    membership: StoredMembershipOf<TypeConfig>,
}

/// Remembers payloads in order; its snapshot is whatever the test puts there.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(pub(super) Arc<Mutex<Remembered>>);

impl Memory {
    fn current(&self) -> SnapshotOf<TypeConfig, Bytes> {
        let memory = self.0.lock().unwrap();
        SnapshotOf::<TypeConfig, Bytes> {
            meta: SnapshotMetaOf::<TypeConfig> {
                last_log_id: memory.last_applied,
                last_membership: memory.membership.clone(),
            },
            snapshot: memory.snapshot.clone(),
        }
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Memory {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<TypeConfig, Bytes>> {
        Ok(self.current())
    }
}

impl RaftStateMachine<TypeConfig> for Memory {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Memory;

    async fn applied_state(
        &mut self,
    ) -> io::Result<(Option<LogId>, StoredMembershipOf<TypeConfig>)> {
        let memory = self.0.lock().unwrap();
        Ok((memory.last_applied, memory.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            let mut memory = self.0.lock().unwrap();
            memory.last_applied = Some(entry.log_id());
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(payload) => memory.payloads.push(payload.0),
                EntryPayload::Membership(members) => {
                    memory.membership =
                        StoredMembershipOf::<TypeConfig>::new(Some(entry.log_id), members);
                }
            }
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Memory {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<TypeConfig>,
        snapshot: Bytes,
    ) -> io::Result<()> {
        let mut memory = self.0.lock().unwrap();
        memory.snapshot = snapshot;
        memory.last_applied = meta.last_log_id;
        memory.membership = meta.last_membership.clone();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<TypeConfig, Bytes>>> {
        Ok(Some(self.current()))
    }
}

/// Answers a control request with the asker's id and the request.
#[derive(Debug)]
pub(super) struct Echo {
    pub(super) admits: AtomicBool,
}

impl Service for Echo {
    fn control(&self, from: PeerIdentity, request: Vec<u8>) -> BoxFuture<'static, Vec<u8>> {
        let mut answer = from.node_id.to_be_bytes().to_vec();
        answer.extend_from_slice(&request);
        std::future::ready(answer).boxed()
    }

    fn admits_vote(&self, _id: u64) -> bool {
        self.admits.load(Ordering::SeqCst)
    }
}

/// A server without Raft, and what it takes to reach it.
pub(super) struct Bare {
    pub(super) server: PeerServer<Memory>,
    pub(super) ended: mpsc::Receiver<StreamEnded>,
    pub(super) service: Arc<Echo>,
    pub(super) address: String,
}

pub(super) fn identity(id: u64) -> Arc<Identity> {
    Arc::new(Identity::new(id, Some(CLUSTER), SECRET))
}

/// Starts a server on a free port.
pub(super) fn bare(identity: &Arc<Identity>) -> Bare {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let service = Arc::new(Echo {
        admits: AtomicBool::new(true),
    });
    let (server, ended) = PeerServer::start(listener, identity.clone(), service.clone()).unwrap();
    Bare {
        server,
        ended,
        service,
        address,
    }
}

/// A node with Raft.
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) raft: Raft<TypeConfig, Memory>,
    pub(super) network: PeerNetwork,
    pub(super) memory: Memory,
    pub(super) bare: Bare,
}

impl Node {
    pub(super) fn peer(&self) -> Peer {
        Peer {
            client: String::new(),
            raft: self.bare.address.clone(),
        }
    }

    /// Stops everything and closes its sockets.
    pub(super) async fn stop(&self) {
        self.bare.server.shutdown().await;
        self.raft.shutdown().await.unwrap();
        self.network.close();
    }
}

/// Starts a node. `elects`: whether it may begin an election by itself.
pub(super) async fn node(id: u64, elects: bool) -> Node {
    let identity = identity(id);
    let bare = bare(&identity);
    let config = Config {
        heartbeat_interval: 100,
        election_timeout_min: 500,
        election_timeout_max: 1000,
        enable_elect: elects,
        enable_pre_vote: Some(true),
        replication_lag_threshold: 50,
        max_in_snapshot_log_to_keep: 0,
        ..Config::default()
    };
    let network = PeerNetwork::new(identity);
    let memory = Memory::default();
    let (config, log) = (Arc::new(config.validate().unwrap()), LogStore::new());
    let raft = Raft::new(id, config, network.clone(), log, memory.clone())
        .await
        .unwrap();
    bare.server.serve_raft(raft.clone());
    Node {
        id,
        raft,
        network,
        memory,
        bare,
    }
}

/// Three nodes, one cluster, a leader.
pub(super) async fn three_nodes() -> Vec<Node> {
    let nodes = vec![
        node(1, true).await,
        node(2, true).await,
        node(3, true).await,
    ];
    let members: BTreeMap<u64, Peer> = nodes.iter().map(|node| (node.id, node.peer())).collect();
    nodes[0].raft.initialize(members).await.unwrap();
    eventually("a leader", || {
        nodes.iter().any(|node| node.raft.is_leader())
    })
    .await;
    nodes
}

/// A leader's vote in term 3.
pub(super) fn leader_vote(leader: u64) -> Vote {
    Vote::new_committed(3, leader)
}

pub(super) fn log_id(leader: u64, index: u64) -> LogId {
    use openraft::vote::RaftLeaderId;
    LogId::new(leader_vote(leader).leader_id.to_committed(), index)
}

pub(super) fn entry(leader: u64, index: u64, payload: impl Into<Bytes>) -> Entry {
    let payload = EntryPayload::Normal(Payload(payload.into()));
    Entry {
        log_id: log_id(leader, index),
        payload,
    }
}
