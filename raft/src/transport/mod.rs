//! The connections between the nodes of a cluster.
//!
//! Outgoing: openraft asks [`PeerNetwork`] for a [`PeerClient`] for each of its tasks; the node asks
//! the [`Dialer`] for what openraft knows nothing of. Incoming: the [`PeerServer`] accepts, has the
//! peer prove itself, and serves one of three lanes, each a connection of its own:
//!
//! | lane | carries | deadlines |
//! |---|---|---|
//! | control | requests whose content the node owns; the only lane before a node has a cluster | the asker's |
//! | raft | append streams (many requests under way), votes, transfers of leadership | openraft's `soft_ttl`; at least 500 ms for an append |
//! | snapshot | one snapshot at a time, in answered pieces | a piece 10 s, installing 60 s |
//!
//! # What answers what
//!
//! - Strangers, replay, reflection, another cluster, another version: the handshake (`auth`).
//! - Lengths that lie and streams that are cut: frames (`frame`).
//! - Peers that are broken or claim to be others: the messages are checked before they reach openraft
//!   (`wire`), and votes of nodes that are no members not at all (`raft_lane`).
//! - Floods, silence, too many connections: bounds and deadlines (`server`).
//! - Dead and stopped peers: deadlines on every answer, keep-alive on idle connections (`append`,
//!   `link`, `connection`). Nothing is retried here: openraft repeats what was not answered, and it
//!   may, because appends and votes are idempotent.
//! - A leader whose process died: the end of its streams is reported (`registry`). It is a hint only.
//!
//! # What the secret alone does not protect
//!
//! The handshake proves who is at the other end when the connection begins. It does not encrypt or
//! seal what follows: somebody *on the path* can read frames, and can change or add some after a
//! genuine handshake. It also proves no more than the knowledge of one secret that all nodes share,
//! so a stolen secret lets its thief be any node. On a network where others could be on the path,
//! run the peer ports through a tunnel (WireGuard, a service mesh with mutual TLS). CRC-32 over a
//! snapshot is against damage, not against forgery.

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
mod measures;
mod network;
mod pool;
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
pub use measures::PeerMeasures;
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
