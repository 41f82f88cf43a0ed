//! The handshake of two peers: who proves what to whom. Pure; the bytes travel in
//! [`handshake`](super::handshake).
//!
//! ```text
//! dialer                                   acceptor
//!   Hello { versions, ids, lane, nonce } ->
//!                                        <- Challenge { version, ids, nonce }   or Refused
//!   Proof(HMAC "dialer", both messages)  ->
//!                                        <- Proof(HMAC "acceptor", both)        or Refused
//! ```
//!
//! Each proof is an HMAC-SHA-256 under `CLUSTER_SECRET` over the role of the prover and the whole
//! `Hello` and `Challenge`: both nonces, both node ids, both cluster ids, the lane, both version
//! ranges and the version chosen. Faults answered:
//!
//! - *A stranger.* Neither side goes on before the other has proved the secret. The acceptor proves
//!   last, so a port scanner learns two random ids and nothing that depends on the secret.
//! - *Replay.* Each side contributes a fresh 256-bit nonce, so a recorded proof fits no other
//!   handshake.
//! - *Reflection.* The role is part of what is proved, so a proof sent back to its maker is not the
//!   one that it waits for.
//! - *Another node at an old address.* A dialer that wants a particular node names its id; whoever
//!   answers must be that node. A node that lost its disk has a new id, so openraft never mistakes
//!   it for the one that acknowledged entries.
//! - *Another cluster.* Cluster ids are compared in every handshake. A node without one may only
//!   send and answer control requests, through which it learns one.
//! - *Another version.* Both name the range that they speak; the greatest common one is used, and
//!   without a common one the connection is refused with a line that names both. `Hello` and
//!   `Answer::Refused` never change their encoding, so that this answer is always understood.
//!   The ranges are part of the proofs, so nobody on the path can talk two peers down.
//!
//! Not answered: somebody *on the path* who lets the handshake pass and then changes or adds frames.
//! The proofs are not bound to what follows; a network that is not trusted needs a tunnel beneath.
//! And the secret is one for all nodes: a node that knows it can claim any node id.

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use storage::codec;

use super::{Error, Identity};

/// The versions of the peer protocol that this program speaks: the encodings in
/// [`wire`](super::wire), the order of messages, and openraft's types within them.
pub(crate) const VERSIONS: Versions = Versions { min: 1, max: 1 };

/// The first bytes of every `Hello`.
const MAGIC: [u8; 8] = *b"TKT-PEER";

/// Length of a nonce in bytes.
const NONCE_BYTES: usize = 32;

/// Length of a proof in bytes.
const PROOF_BYTES: usize = 32;

/// What a connection is for. Each lane is a connection of its own, so that a snapshot never stands
/// before a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lane {
    /// Control requests: allowed before the nodes belong to a cluster.
    Control,
    /// Append streams, votes, transfers of leadership.
    Raft,
    /// One snapshot.
    Snapshot,
}

/// A range of peer protocol versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The oldest.
    pub min: u16,
    /// The newest.
    pub max: u16,
}

impl Versions {
    /// The newest version in both ranges.
    fn newest_common(self, other: Versions) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}", self.min, self.max)
    }
}

/// Fresh random bytes that make a proof good for one handshake only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nonce([u8; NONCE_BYTES]);

impl Nonce {
    /// A nonce from the system's random source.
    pub(crate) fn random() -> Result<Self, Error> {
        let mut bytes = [0; NONCE_BYTES];
        getrandom::fill(&mut bytes).map_err(|_| Error::NoRandomness)?;
        Ok(Self(bytes))
    }
}

/// The dialer's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    magic: [u8; 8],
    versions: Versions,
    pub(crate) lane: Lane,
    pub(crate) node_id: u64,
    /// The node that the dialer wants, or `None` if it takes whoever answers.
    wanted: Option<u64>,
    pub(crate) cluster_id: Option<u128>,
    nonce: Nonce,
}

impl Hello {
    pub(crate) fn new(own: &Identity, lane: Lane, wanted: Option<u64>, nonce: Nonce) -> Self {
        Self {
            magic: MAGIC,
            versions: VERSIONS,
            lane,
            node_id: own.node_id(),
            wanted,
            cluster_id: own.cluster_id(),
            nonce,
        }
    }
}

/// The acceptor's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Challenge {
    versions: Versions,
    /// The version that both will use.
    pub(crate) version: u16,
    pub(crate) node_id: u64,
    pub(crate) cluster_id: Option<u128>,
    nonce: Nonce,
}

impl Challenge {
    /// Answers a `Hello`, or says why not. Only what says nothing about this node is refused here;
    /// [`judge`] does the rest when the dialer has proved the secret.
    pub(crate) fn answer(own: &Identity, hello: &Hello, nonce: Nonce) -> Result<Self, Refusal> {
        let version = VERSIONS
            .newest_common(hello.versions)
            .ok_or(Refusal::Version {
                own: VERSIONS,
                yours: hello.versions,
            })?;
        Ok(Self {
            versions: VERSIONS,
            version,
            node_id: own.node_id(),
            cluster_id: own.cluster_id(),
            nonce,
        })
    }
}

/// What the acceptor answers, to `Hello` and to the dialer's proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer<T> {
    Refused(Refusal),
    Accepted(T),
}

/// Why an acceptor refuses a dialer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// No common version of the peer protocol.
    #[error("no common version of the peer protocol: one side speaks {own}, the other {yours}")]
    Version {
        /// The acceptor's range.
        own: Versions,
        /// The dialer's range.
        yours: Versions,
    },
    /// The acceptor has as many connections as it allows.
    #[error("too many connections")]
    Busy,
    /// The dialer could not prove that it knows the secret.
    #[error("the cluster secrets differ")]
    Secret,
    /// The two belong to different clusters.
    #[error("the nodes belong to different clusters")]
    OtherCluster,
    /// One of the two belongs to no cluster yet, so it may only use control requests.
    #[error("one of the nodes belongs to no cluster yet")]
    NoCluster,
    /// The dialer wants another node than the one at this address.
    #[error("the node at this address has another id: {node_id}")]
    OtherNode {
        /// Who is there.
        node_id: u64,
    },
    /// The acceptor is starting: it answers control requests only.
    #[error("the node is starting")]
    NotReady,
}

/// Which side made a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Dialer,
    Acceptor,
}

/// Shows that its maker knows the secret, for one handshake and one role.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Proof([u8; PROOF_BYTES]);

impl Proof {
    pub(crate) fn new(own: &Identity, role: Role, hello: &Hello, challenge: &Challenge) -> Self {
        Self(
            mac(own, role, hello, challenge)
                .finalize()
                .into_bytes()
                .into(),
        )
    }

    /// Whether a holder of the secret made this proof, in time that does not depend on its bytes.
    pub(crate) fn holds(
        &self,
        own: &Identity,
        role: Role,
        hello: &Hello,
        challenge: &Challenge,
    ) -> bool {
        mac(own, role, hello, challenge)
            .verify_slice(&self.0)
            .is_ok()
    }
}

fn mac(own: &Identity, role: Role, hello: &Hello, challenge: &Challenge) -> Hmac<Sha256> {
    let label: &[u8; 24] = match role {
        Role::Dialer => b"ticketing peer: dialer  ",
        Role::Acceptor => b"ticketing peer: acceptor",
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(own.secret()).expect("HMAC takes any key length");
    mac.update(label);
    // The encoding of the pair can be read back in only one way, so no two handshakes give the
    // same bytes.
    mac.update(&codec::encode(&(hello, challenge)).expect("plain data always encodes"));
    mac
}

/// The acceptor's decision about a dialer that has proved the secret.
pub(crate) fn judge(hello: &Hello, challenge: &Challenge, raft_ready: bool) -> Result<(), Refusal> {
    if hello
        .wanted
        .is_some_and(|wanted| wanted != challenge.node_id)
    {
        return Err(Refusal::OtherNode {
            node_id: challenge.node_id,
        });
    }
    same_cluster(hello, challenge)?;
    if hello.lane != Lane::Control && !raft_ready {
        return Err(Refusal::NotReady);
    }
    Ok(())
}

/// The dialer's decision about an acceptor, before it proves anything to it.
pub(crate) fn check_challenge(hello: &Hello, challenge: &Challenge) -> Result<(), Error> {
    if hello.versions.newest_common(challenge.versions) != Some(challenge.version) {
        return Err(Error::Untrusted(
            "the peer chose a version that was not offered",
        ));
    }
    if hello
        .wanted
        .is_some_and(|wanted| wanted != challenge.node_id)
    {
        return Err(Error::Refused(Refusal::OtherNode {
            node_id: challenge.node_id,
        }));
    }
    same_cluster(hello, challenge).map_err(Error::Refused)
}

fn same_cluster(hello: &Hello, challenge: &Challenge) -> Result<(), Refusal> {
    match (hello.cluster_id, challenge.cluster_id) {
        (Some(one), Some(other)) if one != other => Err(Refusal::OtherCluster),
        (Some(_), Some(_)) => Ok(()),
        _ if hello.lane == Lane::Control => Ok(()),
        _ => Err(Refusal::NoCluster),
    }
}

/// Decodes a `Hello`; anything that does not begin as one is refused.
pub(crate) fn decode_hello(bytes: &[u8]) -> Result<Hello, Error> {
    if !bytes.starts_with(&MAGIC) {
        return Err(Error::Malformed("not a peer of this service"));
    }
    codec::decode(bytes, super::frame::HANDSHAKE_FRAME_BYTES_MAX)
        .map_err(|_| Error::Malformed("handshake"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: u128 = 77;

    fn node(id: u64) -> Identity {
        Identity::new(id, Some(CLUSTER), b"the secret")
    }

    fn hello(own: &Identity) -> Hello {
        Hello::new(own, Lane::Raft, Some(2), Nonce::random().unwrap())
    }

    fn challenge(own: &Identity, hello: &Hello) -> Challenge {
        Challenge::answer(own, hello, Nonce::random().unwrap()).unwrap()
    }

    #[test]
    fn both_sides_accept_each_other_with_the_same_secret() {
        let (dialer, acceptor) = (node(1), node(2));
        let hello = hello(&dialer);
        let challenge = challenge(&acceptor, &hello);
        check_challenge(&hello, &challenge).unwrap();
        let proof = Proof::new(&dialer, Role::Dialer, &hello, &challenge);
        assert!(proof.holds(&acceptor, Role::Dialer, &hello, &challenge));
        assert_eq!(judge(&hello, &challenge, true), Ok(()));
        let proof = Proof::new(&acceptor, Role::Acceptor, &hello, &challenge);
        assert!(proof.holds(&dialer, Role::Acceptor, &hello, &challenge));
    }

    #[test]
    fn a_proof_under_another_secret_does_not_hold() {
        let (dialer, acceptor) = (node(1), node(2));
        let stranger = Identity::new(1, Some(CLUSTER), b"the Secret");
        let hello = hello(&dialer);
        let challenge = challenge(&acceptor, &hello);
        for role in [Role::Dialer, Role::Acceptor] {
            let proof = Proof::new(&stranger, role, &hello, &challenge);
            assert!(!proof.holds(&acceptor, role, &hello, &challenge));
        }
    }

    #[test]
    fn a_reflected_proof_does_not_hold() {
        let (dialer, acceptor) = (node(1), node(2));
        let hello = hello(&dialer);
        let challenge = challenge(&acceptor, &hello);
        let own = Proof::new(&dialer, Role::Dialer, &hello, &challenge);
        assert!(!own.holds(&dialer, Role::Acceptor, &hello, &challenge));
    }

    #[test]
    fn a_replayed_proof_does_not_hold_against_a_fresh_nonce_of_either_side() {
        let (dialer, acceptor) = (node(1), node(2));
        let first = hello(&dialer);
        let recorded = challenge(&acceptor, &first);
        let proof = Proof::new(&dialer, Role::Dialer, &first, &recorded);
        assert!(!proof.holds(
            &acceptor,
            Role::Dialer,
            &first,
            &challenge(&acceptor, &first)
        ));
        let proof = Proof::new(&acceptor, Role::Acceptor, &first, &recorded);
        assert!(!proof.holds(&dialer, Role::Acceptor, &hello(&dialer), &recorded));
    }

    #[test]
    fn every_field_is_part_of_the_proof() {
        let (dialer, acceptor) = (node(1), node(2));
        let hello = hello(&dialer);
        let challenge = challenge(&acceptor, &hello);
        let proof = Proof::new(&dialer, Role::Dialer, &hello, &challenge);
        let hellos = [
            Hello {
                versions: Versions { min: 0, ..VERSIONS },
                ..hello.clone()
            },
            Hello {
                lane: Lane::Snapshot,
                ..hello.clone()
            },
            Hello {
                node_id: 3,
                ..hello.clone()
            },
            Hello {
                wanted: None,
                ..hello.clone()
            },
            Hello {
                cluster_id: None,
                ..hello.clone()
            },
        ];
        for changed in hellos {
            assert!(
                !proof.holds(&acceptor, Role::Dialer, &changed, &challenge),
                "{changed:?}"
            );
        }
        let challenges = [
            Challenge {
                versions: Versions { min: 0, ..VERSIONS },
                ..challenge.clone()
            },
            Challenge {
                version: 9,
                ..challenge.clone()
            },
            Challenge {
                node_id: 3,
                ..challenge.clone()
            },
            Challenge {
                cluster_id: None,
                ..challenge.clone()
            },
        ];
        for changed in challenges {
            assert!(
                !proof.holds(&acceptor, Role::Dialer, &hello, &changed),
                "{changed:?}"
            );
        }
    }

    #[test]
    fn the_newest_common_version_is_used_and_none_is_refused() {
        let range = |min, max| Versions { min, max };
        assert_eq!(range(1, 3).newest_common(range(2, 5)), Some(3));
        assert_eq!(range(2, 5).newest_common(range(1, 2)), Some(2));
        assert_eq!(range(1, 2).newest_common(range(3, 4)), None);

        let newer = Hello {
            versions: range(VERSIONS.max + 1, VERSIONS.max + 2),
            ..hello(&node(1))
        };
        let refusal = Challenge::answer(&node(2), &newer, Nonce::random().unwrap()).unwrap_err();
        let line = refusal.to_string();
        assert!(line.contains("1 to 1") && line.contains("2 to 3"), "{line}");
    }

    #[test]
    fn a_version_that_was_not_offered_is_not_trusted() {
        let hello = hello(&node(1));
        let chosen = Challenge {
            version: 9,
            ..challenge(&node(2), &hello)
        };
        assert!(matches!(
            check_challenge(&hello, &chosen),
            Err(Error::Untrusted(_))
        ));
    }

    #[test]
    fn another_cluster_is_refused_on_every_lane_by_both_sides() {
        let other = Identity::new(2, Some(CLUSTER + 1), b"the secret");
        for lane in [Lane::Control, Lane::Raft, Lane::Snapshot] {
            let hello = Hello {
                lane,
                ..hello(&node(1))
            };
            let challenge = challenge(&other, &hello);
            assert_eq!(judge(&hello, &challenge, true), Err(Refusal::OtherCluster));
            let checked = check_challenge(&hello, &challenge);
            assert!(matches!(
                checked,
                Err(Error::Refused(Refusal::OtherCluster))
            ));
        }
    }

    #[test]
    fn without_a_cluster_id_only_control_requests_are_allowed() {
        let newcomer = Identity::new(2, None, b"the secret");
        for (lane, expected) in [
            (Lane::Control, Ok(())),
            (Lane::Raft, Err(Refusal::NoCluster)),
            (Lane::Snapshot, Err(Refusal::NoCluster)),
        ] {
            let hello = Hello {
                lane,
                ..hello(&node(1))
            };
            assert_eq!(judge(&hello, &challenge(&newcomer, &hello), true), expected);
        }
    }

    #[test]
    fn a_node_under_another_id_is_not_the_one_that_was_wanted() {
        let hello = hello(&node(1));
        let challenge = challenge(&node(5), &hello);
        let refusal = Refusal::OtherNode { node_id: 5 };
        assert_eq!(judge(&hello, &challenge, true), Err(refusal.clone()));
        assert!(
            matches!(check_challenge(&hello, &challenge), Err(Error::Refused(r)) if r == refusal)
        );
    }

    #[test]
    fn a_starting_node_answers_control_requests_only() {
        let hello = hello(&node(1));
        let challenge = challenge(&node(2), &hello);
        assert_eq!(judge(&hello, &challenge, false), Err(Refusal::NotReady));
        let control = Hello {
            lane: Lane::Control,
            ..hello
        };
        assert_eq!(judge(&control, &challenge, false), Ok(()));
    }

    #[test]
    fn bytes_that_are_no_hello_are_refused() {
        let own = node(1);
        let bytes = codec::encode(&hello(&own)).unwrap();
        assert!(decode_hello(&bytes).is_ok());
        assert!(decode_hello(b"GET / HTTP/1.1\r\n\r\n").is_err());
        for cut in 0..bytes.len() {
            assert!(decode_hello(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
