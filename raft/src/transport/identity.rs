//! What this node proves about itself in every handshake.

use std::sync::OnceLock;

/// Node id, cluster id and the shared secret. Shared by everything that dials or accepts.
pub struct Identity {
    node_id: u64,
    cluster_id: OnceLock<u128>,
    secret: Vec<u8>,
}

/// The node already belongs to another cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this node belongs to cluster {current:032x}, not {other:032x}")]
pub struct ClusterIdDiffers {
    /// The id that is set.
    pub current: u128,
    /// The id that was to be set.
    pub other: u128,
}

impl Identity {
    /// The identity of this process. An empty secret is one that everybody knows.
    pub fn new(node_id: u64, cluster_id: Option<u128>, secret: &[u8]) -> Self {
        let cell = OnceLock::new();
        if let Some(id) = cluster_id {
            let _ = cell.set(id);
        }
        Self {
            node_id,
            cluster_id: cell,
            secret: secret.to_vec(),
        }
    }

    /// This node's id.
    pub fn node_id(&self) -> u64 {
        self.node_id
    }

    /// The cluster that this node belongs to, if any yet.
    pub fn cluster_id(&self) -> Option<u128> {
        self.cluster_id.get().copied()
    }

    /// Joins a cluster, from the next handshake on. Setting the same id again is fine.
    pub fn set_cluster_id(&self, id: u128) -> Result<(), ClusterIdDiffers> {
        let current = *self.cluster_id.get_or_init(|| id);
        if current == id {
            Ok(())
        } else {
            Err(ClusterIdDiffers { current, other: id })
        }
    }

    /// The shared secret.
    pub(crate) fn secret(&self) -> &[u8] {
        &self.secret
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secret stays out of logs.
        f.debug_struct("Identity")
            .field("node_id", &self.node_id)
            .field("cluster_id", &self.cluster_id())
            .finish_non_exhaustive()
    }
}
