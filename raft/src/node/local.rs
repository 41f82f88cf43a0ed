//! What the parts of one running node share, and how they answer their peers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use storage::Storage;
use tokio::sync::Mutex;

use super::activation::Board;
use super::control::{self, Answer, Request};
use super::failover::Watch;
use super::gate::Gate;
use super::{Bootstrap, RaftHandle, founding, membership};
use crate::transport::{Dialer, Identity, PeerIdentity, Service};
use crate::type_config::Peer;

/// One running node, as its own tasks see it.
pub(super) struct Local {
    pub(super) id: u64,
    pub(super) own: Peer,
    pub(super) peers: Vec<Peer>,
    /// `peers` in the fixed form that nodes compare.
    pub(super) founders: String,
    pub(super) bootstrap: Bootstrap,
    pub(super) election_timeout: Duration,
    pub(super) storage: Storage,
    pub(super) identity: Arc<Identity>,
    pub(super) dialer: Dialer,
    pub(super) raft: RaftHandle,
    pub(super) board: Arc<Board>,
    pub(super) gate: Arc<Gate>,
    /// Held while a promise is being given.
    pub(super) promising: Mutex<()>,
    /// Held while a membership change is under way.
    pub(super) changing: Arc<Mutex<()>>,
}

impl Local {
    /// True once this node has a vote or a log: it is no longer empty.
    pub(super) async fn has_begun(&self) -> bool {
        // When Raft has stopped, nothing may be founded or promised any more.
        self.raft.is_initialized().await.unwrap_or(true)
    }

    /// For how long a voter must be silent to count as gone.
    pub(super) fn silence(&self) -> Duration {
        self.election_timeout * membership::SILENT_TIMEOUTS
    }

    async fn answer(&self, from: PeerIdentity, request: Request, watch: &Watch) -> Answer {
        match request {
            Request::WhoAreYou => Answer::Identity(control::Identity {
                id: self.id,
                client: self.own.client.clone(),
                founders: self.founders.clone(),
                cluster: self.identity.cluster_id(),
                empty: !self.has_begun().await,
            }),
            Request::Promise { cluster, founders } => {
                match founding::promise(self, from.node_id, cluster, &founders).await {
                    Ok(answer) => answer,
                    Err(error) => {
                        tracing::error!(%error, "no promise");
                        Answer::Refused(error.to_string())
                    }
                }
            }
            Request::Join { peer, was_voter } => {
                Answer::Join(membership::admit(self, from.node_id, peer, was_voter).await)
            }
            Request::Lost { term, leader } => Answer::Lost {
                lost: watch.agrees(term, leader).await,
            },
        }
    }
}

/// The node as the transport sees it. It exists before Raft does, because the transport has to be
/// there first.
pub(super) struct Entrance {
    pub(super) gate: Arc<Gate>,
    pub(super) node: OnceLock<(Arc<Local>, Watch)>,
}

impl Service for Entrance {
    fn control(&self, from: PeerIdentity, request: Vec<u8>) -> BoxFuture<'static, Vec<u8>> {
        let node = self.node.get().cloned();
        async move {
            let answer = match (node, Request::decode(&request)) {
                (Some((local, watch)), Some(request)) => local.answer(from, request, &watch).await,
                (None, _) => Answer::Refused("starting".into()),
                (_, None) => Answer::Refused("this request is not known here".into()),
            };
            answer.encode()
        }
        .boxed()
    }

    fn admits_vote(&self, id: u64) -> bool {
        self.gate.admits(id)
    }
}
