//! Connections that nobody uses at the moment.
//!
//! openraft makes a new network object for every election, and new ones for replication and
//! heartbeats whenever the membership or the leader changes. The objects leave their connection here
//! and take one from here, so that an election costs no dial.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::link::Link;

/// Idle connections kept for one peer: one for replication, one for heartbeats, one for votes.
const IDLE_PER_PEER_MAX: usize = 3;

/// Peers that idle connections are kept for; a cluster has a handful.
const PEERS_MAX: usize = 64;

/// Idle connections by node id and address.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    links: BTreeMap<(u64, String), Vec<Link>>,
}

impl Pool {
    /// A usable connection, the one last used.
    pub(crate) fn take(&self, node_id: u64, address: &str) -> Option<Link> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let links = state.links.get_mut(&(node_id, address.to_owned()))?;
        while let Some(link) = links.pop() {
            if link.is_usable() {
                return Some(link);
            }
        }
        None
    }

    /// Keeps a connection for the next user, or closes it.
    pub(crate) fn put(&self, node_id: u64, address: &str, link: Link) {
        if !link.is_usable() {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return;
        }
        if state.links.len() >= PEERS_MAX {
            state.links.clear();
        }
        let links = state
            .links
            .entry((node_id, address.to_owned()))
            .or_default();
        links.retain(Link::is_usable);
        if links.len() < IDLE_PER_PEER_MAX {
            links.push(link);
        }
    }

    /// Closes what is idle, and what becomes idle from now on.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        state.links.clear();
    }
}
