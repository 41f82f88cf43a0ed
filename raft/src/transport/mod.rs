//! The connections between the nodes of a cluster.

mod append;
mod auth;
mod connection;
mod deadline;
mod dial;
mod error;
mod frame;
mod handshake;
mod identity;
mod link;
mod network;
mod pool;
mod quiet_log;
mod raft_lane;
mod registry;
mod server;
mod snapshot;
#[cfg(test)]
mod tests;
mod wire;

use std::net::SocketAddr;

use futures_util::future::BoxFuture;

pub use auth::{Refusal, Versions};
pub use dial::{Dialer, Probe};
pub use error::Error;
pub use frame::FrameTooLong;
pub use identity::{ClusterIdDiffers, Identity};
pub use network::{PeerClient, PeerNetwork};
pub use registry::StreamEnded;
pub use server::PeerServer;

use crate::type_config::TypeConfig;

/// A vote as openraft sees it: a term, the node voted for, and whether a quorum granted it.
pub type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;

/// Who is at the other end of an authenticated connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Its node id, proved by the handshake.
    pub node_id: u64,
    /// Its cluster id, or `None` while it belongs to no cluster.
    pub cluster_id: Option<u128>,
    /// The address that it connected from. Its port is an ephemeral one.
    pub address: SocketAddr,
}

/// What the node decides for the transport.
pub trait Service: Send + Sync + 'static {
    /// Answers a control request (bootstrap, join, lost-probe). The transport does not look into
    /// either; both are at most [`CONTROL_BYTES_MAX`] long.
    fn control(&self, from: PeerIdentity, request: Vec<u8>) -> BoxFuture<'static, Vec<u8>>;

    /// Whether votes and pre-votes of this node may reach Raft.
    fn admits_vote(&self, id: u64) -> bool;
}

/// Greatest control request and answer, in bytes.
pub const CONTROL_BYTES_MAX: usize = 64 * 1024;
