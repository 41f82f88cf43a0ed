//! What nodes ask each other beside Raft: who are you, promise, join, is the leader lost.
//!
//! The transport carries these requests without looking into them, also between nodes that belong
//! to no cluster yet. A request that does not decode is answered with a refusal; nothing in it is
//! believed beyond what the handshake proved (the asker's id) or what this node looked up itself.

use serde::{Deserialize, Serialize};
use storage::codec;

use crate::transport::CONTROL_BYTES_MAX;
use crate::type_config::Peer;

/// Longest address in a request, in bytes.
const ADDRESS_BYTES_MAX: usize = 280;

/// A question to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// Who listens at this address?
    WhoAreYou,
    /// The asker is about to found the cluster; see [`founding`](super::founding).
    Promise {
        /// The cluster id that it founds under.
        cluster: u128,
        /// Its `CLUSTER_PEERS`, in the fixed form.
        founders: String,
    },
    /// The asker wants to be a member.
    Join {
        /// Its addresses.
        peer: Peer,
        /// True if it has been a voter before.
        was_voter: bool,
    },
    /// The asker's stream from this leader ended and its port refuses. Is it lost for you too?
    Lost {
        /// The leader's term.
        term: u64,
        /// The leader's id.
        leader: u64,
    },
}

/// An answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// To [`Request::WhoAreYou`].
    Identity(Identity),
    /// To [`Request::Promise`]: given, by this node.
    Promised {
        /// The id of the node that promises.
        id: u64,
    },
    /// To [`Request::Join`].
    Join(JoinAnswer),
    /// To [`Request::Lost`].
    Lost {
        /// True if the leader is lost for the answering node too.
        lost: bool,
    },
    /// Not now, or never; the reason is for a person to read.
    Refused(String),
}

/// Who a node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// Its id.
    pub(super) id: u64,
    /// Its client address.
    pub(super) client: String,
    /// Its `CLUSTER_PEERS`, in the fixed form.
    pub(super) founders: String,
    /// The cluster it belongs to, or is about to.
    pub(super) cluster: Option<u128>,
    /// True while it has neither a vote nor a log nor a snapshot.
    pub(super) empty: bool,
}

/// What became of a request to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum JoinAnswer {
    /// This node doesn't lead; perhaps that one does.
    NotLeader(Option<Peer>),
    /// The asker is a voter.
    Voter,
    /// The asker is a learner and stays one: its address belongs to no voter.
    Learner,
    /// It is under way, or waits for something; ask again.
    Wait(String),
    /// The asker's id was removed and is never admitted again.
    Replaced,
}

impl Request {
    /// Its bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        codec::encode(self).expect("plain data always encodes")
    }

    /// Reads a request; `None` if it is none, or longer than it may be.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let request = codec::decode(bytes, CONTROL_BYTES_MAX).ok()?;
        let fits = match &request {
            Self::WhoAreYou | Self::Lost { .. } => true,
            Self::Promise { founders, .. } => founders.len() <= super::founders::FOUNDERS_BYTES_MAX,
            Self::Join { peer, .. } => {
                peer.client.len() <= ADDRESS_BYTES_MAX && peer.raft.len() <= ADDRESS_BYTES_MAX
            }
        };
        fits.then_some(request)
    }
}

impl Answer {
    /// Its bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        codec::encode(self).expect("plain data always encodes")
    }

    /// Reads an answer; `None` if it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        codec::decode(bytes, CONTROL_BYTES_MAX).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_their_encoding_and_garbage_is_none() {
        let request = Request::Promise {
            cluster: 7,
            founders: "a:1=a:2".into(),
        };
        assert_eq!(Request::decode(&request.encode()), Some(request));
        assert_eq!(Request::decode(&[0xFF; 40]), None);
        assert_eq!(Request::decode(&[]), None);
    }

    #[test]
    fn an_address_that_is_too_long_is_no_request() {
        let peer = Peer {
            client: "x".repeat(1000),
            raft: "y:1".into(),
        };
        let request = Request::Join {
            peer,
            was_voter: false,
        };
        assert_eq!(Request::decode(&request.encode()), None);
    }
}
