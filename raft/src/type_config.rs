//! The types that openraft is instantiated with. Nothing outside this crate names them.

use bytes::Bytes;
use openraft::impls::leader_id_std;
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    /// One leader per term; entries carry opaque, already encoded bytes, so that the log, the
    /// network and `apply` share one encoding and cloning an entry is cheap.
    pub TypeConfig:
        D = Payload,
        R = (),
        NodeId = u64,
        Node = Peer,
        LeaderId = leader_id_std::LeaderId<Self::Term, Self::NodeId>,
);

/// A log entry's content: one encoded command batch.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Payload(pub Bytes);

impl std::fmt::Display for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A member of the cluster as the membership records it.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Peer {
    /// Client address, `host:port`, as configured: what `M` and `L` announce.
    pub client: String,
    /// Peer address, `host:port`; the name is resolved again at every dial.
    pub raft: String,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (peer address {})", self.client, self.raft)
    }
}
