//! How a cluster comes to be, exactly once.
//!
//! # Which faults this answers
//!
//! - *Two nodes found two clusters.* Only one address founds: the smallest of `CLUSTER_PEERS`, which
//!   all nodes must have in the same form (they show it to each other, and stop at a difference).
//!   And it founds only when *every* peer has promised itself to it.
//! - *The founder's address belongs to another process now* (its disk was lost, or the address moved).
//!   A promise is made to a node id and stored, with the cluster id, before it is given. It passes to
//!   another founder only while the node that gave it is still empty and dialling the founder's
//!   address reaches the new id; the id that it is taken from is shut out for good
//!   ([`Gate`](super::gate::Gate)). So of two would-be founders at most one can ever gather
//!   promises from all, and the other gets no vote from any node that passed its promise on.
//! - *A restart in the middle.* Founder: the cluster id is stored first; a node with a cluster id and
//!   nothing else still counts as empty and goes on with it. Peers: the promise is stored.
//! - *A full set of empty disks* (volumes that were not mounted): `CLUSTER_BOOTSTRAP=never` neither
//!   founds nor promises, so tokens cannot start over at 1.
//! - *A peer belongs to a cluster.* Then there is nothing to found: the node joins it
//!   ([`membership`](super::membership)).
//!
//! Nothing here is in a hurry, except that all peers are usually there at once.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use storage::codec;

use super::control::{Answer, Identity, Request};
use super::local::Local;
use super::{Bootstrap, Error, founders};
use crate::type_config::Peer;

/// How long a peer's answer may take.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Under which name the promise is stored, and how long it may be, in bytes.
const PROMISE_STORED_AS: &str = "promise";
const PROMISE_BYTES_MAX: usize = 64;

/// To whom this node has promised itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Promise {
    founder: u64,
    cluster: u128,
}

/// What one round of asking came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// The cluster exists; its id is stored.
    Joined,
    /// This node has founded it.
    Founded,
    /// Ask again later; why, for the log.
    Waiting(&'static str),
}

/// One round for a node that is empty: asks everybody, and founds or finds the cluster if it can.
pub(super) async fn round(local: &Local) -> Result<Round, Error> {
    let others: Vec<&Peer> = local
        .peers
        .iter()
        .filter(|peer| **peer != local.own)
        .collect();
    let mut present = Vec::new();
    for (peer, identity) in join_all(others.iter().map(|peer| who_is(local, peer))).await {
        if let Some(identity) = identity {
            present.push((peer, identity));
        }
    }

    let mut member = false;
    for (peer, identity) in present.iter().filter(|(_, identity)| !identity.empty) {
        if let Some(cluster) = identity.cluster {
            adopt(local, peer, cluster)?;
            member = true;
        }
    }
    if member {
        return Ok(Round::Joined);
    }
    // Between nodes that are all empty the lists must agree. (A cluster that runs may have been
    // founded by a list that this node, new in it, rightly doesn't have.)
    for (peer, identity) in &present {
        if identity.founders != local.founders {
            return Err(Error::PeerLists {
                peer: peer.client.clone(),
                own: local.founders.clone(),
                other: identity.founders.clone(),
            });
        }
    }
    if local.bootstrap == Bootstrap::Never {
        return Ok(Round::Waiting(
            "CLUSTER_BOOTSTRAP=never, and no peer belongs to a cluster",
        ));
    }
    if present.len() < others.len() {
        return Ok(Round::Waiting("not every peer answers"));
    }
    if founders::founder(&local.peers) != Some(&local.own) {
        return Ok(Round::Waiting(
            "the peer with the smallest address founds the cluster",
        ));
    }
    found(local, &present).await
}

/// Every peer is there and empty, and this node is the one to found the cluster.
async fn found(local: &Local, present: &[(&Peer, Identity)]) -> Result<Round, Error> {
    for (peer, identity) in present {
        if let Some(cluster) = identity.cluster {
            adopt(local, peer, cluster)?;
        }
    }
    let cluster = match local.identity.cluster_id() {
        Some(cluster) => cluster,
        None => {
            let cluster = random_cluster_id()?;
            adopt(local, &local.own, cluster)?;
            cluster
        }
    };

    let promises = present
        .iter()
        .map(|(peer, _)| ask_promise(local, peer, cluster));
    let mut members = BTreeMap::from([(local.id, local.own.clone())]);
    for (peer, promised) in join_all(promises).await {
        let Some(id) = promised else {
            return Ok(Round::Waiting("a peer does not promise"));
        };
        members.insert(id, peer.clone());
    }
    if members.len() != local.peers.len() {
        return Ok(Round::Waiting(
            "two addresses of CLUSTER_PEERS reach the same node",
        ));
    }
    match local.raft.initialize(members).await {
        Ok(()) => {
            tracing::info!(cluster = format!("{cluster:032x}"), "founded the cluster");
            Ok(Round::Founded)
        }
        // A vote came in since this round began: there is a cluster after all.
        Err(error) => {
            tracing::info!(%error, "not founding");
            Ok(Round::Waiting("Raft has begun already"))
        }
    }
}

async fn who_is<'a>(local: &Local, peer: &'a Peer) -> (&'a Peer, Option<Identity>) {
    (peer, identity_at(local, &peer.raft).await)
}

/// Who answers at a peer address.
pub(super) async fn identity_at(local: &Local, address: &str) -> Option<Identity> {
    let answer = local
        .dialer
        .control(address, Request::WhoAreYou.encode(), ANSWER_TIMEOUT)
        .await;
    match Answer::decode(&answer.ok()?) {
        Some(Answer::Identity(identity)) => Some(identity),
        _ => None,
    }
}

async fn ask_promise<'a>(local: &Local, peer: &'a Peer, cluster: u128) -> (&'a Peer, Option<u64>) {
    let request = Request::Promise {
        cluster,
        founders: local.founders.clone(),
    };
    let answer = local
        .dialer
        .control(&peer.raft, request.encode(), ANSWER_TIMEOUT)
        .await;
    let promised = match answer.ok().and_then(|bytes| Answer::decode(&bytes)) {
        Some(Answer::Promised { id }) => Some(id),
        Some(Answer::Refused(reason)) => {
            tracing::warn!(peer = peer.client, reason, "no promise");
            None
        }
        _ => None,
    };
    (peer, promised)
}

/// Answers a founder that asks for this node's promise.
pub(super) async fn promise(
    local: &Local,
    founder: u64,
    cluster: u128,
    list: &str,
) -> Result<Answer, Error> {
    if local.bootstrap == Bootstrap::Never {
        return Ok(Answer::Refused("CLUSTER_BOOTSTRAP=never".into()));
    }
    if list != local.founders {
        return Ok(Answer::Refused(format!(
            "CLUSTER_PEERS is \"{}\" here",
            local.founders
        )));
    }
    // One at a time: the promise must not change between reading and storing it.
    let _serial = local.promising.lock().await;
    if local.has_begun().await {
        return Ok(Answer::Refused("this node belongs to a cluster".into()));
    }
    if local
        .identity
        .cluster_id()
        .is_some_and(|own| own != cluster)
    {
        return Ok(Answer::Refused("this node has another cluster id".into()));
    }
    let before = stored_promise(local)?;
    let passed_from = before
        .map(|promise| promise.founder)
        .filter(|id| *id != founder);
    if let Some(old) = passed_from {
        let address = founders::founder(&local.peers).map(|peer| peer.raft.as_str());
        let there = match address {
            Some(address) => identity_at(local, address)
                .await
                .map(|identity| identity.id),
            None => None,
        };
        if there != Some(founder) {
            return Ok(Answer::Refused(format!("promised to node {old:016x}")));
        }
        local.gate.shut_out(old, &local.storage)?;
    }
    let promise = Promise { founder, cluster };
    local.storage.put(
        PROMISE_STORED_AS,
        &codec::encode(&promise).expect("two numbers always encode"),
    )?;
    adopt(local, &local.own, cluster)?;
    // The old founder's vote may have been on its way while it was shut out.
    if passed_from.is_some() && local.has_begun().await {
        return Ok(Answer::Refused("this node belongs to a cluster".into()));
    }
    Ok(Answer::Promised { id: local.id })
}

fn stored_promise(local: &Local) -> Result<Option<Promise>, Error> {
    match local.storage.get(PROMISE_STORED_AS)? {
        None => Ok(None),
        Some(bytes) => match codec::decode(&bytes, PROMISE_BYTES_MAX) {
            Ok(promise) => Ok(Some(promise)),
            Err(error) => Err(Error::StorageFailed(format!("the stored promise: {error}"))),
        },
    }
}

/// Makes `cluster` this node's cluster, durably, or says that it belongs to another one. `peer` is
/// who told of it.
fn adopt(local: &Local, peer: &Peer, cluster: u128) -> Result<(), Error> {
    if let Some(own) = local.identity.cluster_id() {
        if own == cluster {
            return Ok(());
        }
        return Err(Error::Clusters {
            peer: peer.client.clone(),
            own,
            other: cluster,
        });
    }
    local.storage.set_cluster_id(cluster)?;
    local
        .identity
        .set_cluster_id(cluster)
        .map_err(|differs| Error::Clusters {
            peer: peer.client.clone(),
            own: differs.current,
            other: cluster,
        })
}

fn random_cluster_id() -> Result<u128, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::System(format!("no randomness from the system: {error}")))?;
    Ok(u128::from_le_bytes(bytes))
}
