//! Why a node must stop.
//!
//! Every one of these ends the process: nothing here can be answered by trying again. What can be
//! (a peer that does not answer, a lost election) is dealt with inside and never becomes an error.

use std::sync::Arc;

use crate::type_config::Peer;

/// The reason for which a node cannot start or cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A setting that cannot work; nothing was touched.
    #[error("{0}")]
    Settings(String),
    /// The data directory could not be read or written, or what it holds cannot be trusted.
    #[error(transparent)]
    Storage(Arc<storage::Error>),
    /// A write or a sync failed while the node ran. A disk that failed once cannot be believed
    /// about what it dropped, so nothing more is acknowledged.
    #[error("storage failed: {0}")]
    StorageFailed(String),
    /// Two nodes were started with different `CLUSTER_PEERS`. Overlapping lists could found two
    /// clusters, so neither is founded.
    #[error(
        "CLUSTER_PEERS differs: this node has \"{own}\", the node at {peer} has \"{other}\"; \
         make them the same and start again"
    )]
    PeerLists {
        /// The peer's client address.
        peer: String,
        /// This node's list, sorted.
        own: String,
        /// The peer's list, sorted.
        other: String,
    },
    /// A peer belongs to another cluster than this node's data.
    #[error(
        "this node's data belongs to cluster {own:032x}, the node at {peer} to cluster \
         {other:032x}; one of the two has the wrong data directory or the wrong CLUSTER_PEERS"
    )]
    Clusters {
        /// The peer's client address.
        peer: String,
        /// This node's cluster id.
        own: u128,
        /// The peer's cluster id.
        other: u128,
    },
    /// Most of the peers belong to another cluster than this node's data.
    #[error(
        "this node's data belongs to cluster {own:032x}, and most nodes in CLUSTER_PEERS belong to \
         another cluster: it has the wrong data directory or the wrong CLUSTER_PEERS"
    )]
    OtherCluster {
        /// This node's cluster id.
        own: u128,
    },
    /// The members know this node under another address, and would never reach it here.
    #[error(
        "this data directory belongs to the node at {}={}, but this node is {}={}: it has the \
         wrong data directory or the wrong address",
        .known.client, .known.raft, .own.client, .own.raft
    )]
    Misplaced {
        /// The addresses that this node was started with.
        own: Peer,
        /// Its addresses in the membership.
        known: Peer,
    },
    /// This node was replaced by another one; its id is never admitted again.
    #[error(
        "node {id:016x} was replaced and its id is not admitted again: delete its data directory \
         and start it once more; it rejoins under a new id"
    )]
    Replaced {
        /// This node's id.
        id: u64,
    },
    /// Consensus stopped: storage failed underneath it, an entry could not be applied, or a task of
    /// it panicked. A replica that goes on after that may have diverged.
    #[error("consensus stopped: {0}")]
    Consensus(String),
    /// The operating system refused a thread, a runtime or the listener.
    #[error("{0}")]
    System(String),
}

impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Self {
        Self::Storage(Arc::new(error))
    }
}
