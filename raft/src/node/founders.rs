//! `CLUSTER_PEERS` as one comparable text.
//!
//! All founding members must have been started with the same list: two lists that overlap could
//! otherwise found two clusters. Nodes therefore show each other the whole list in one fixed form,
//! which also lets the message about a difference name both.

use crate::type_config::Peer;

/// Most members that a list may name.
pub(super) const FOUNDERS_MAX: usize = 64;

/// Longest text of a list that is taken from a peer, in bytes.
pub(super) const FOUNDERS_BYTES_MAX: usize = FOUNDERS_MAX * 600;

/// The list in its fixed form: `client=raft`, sorted, with a comma between.
pub(super) fn text(peers: &[Peer]) -> String {
    let mut parts: Vec<String> = peers
        .iter()
        .map(|peer| format!("{}={}", peer.client, peer.raft))
        .collect();
    parts.sort();
    parts.join(",")
}

/// The client address of the member that founds the cluster: the smallest one.
pub(super) fn founder(peers: &[Peer]) -> Option<&Peer> {
    peers.iter().min_by(|a, b| a.client.cmp(&b.client))
}

/// What is wrong with the list, if anything.
pub(super) fn fault(own: &Peer, peers: &[Peer]) -> Option<String> {
    if peers.len() > FOUNDERS_MAX {
        return Some(format!(
            "CLUSTER_PEERS names more than {FOUNDERS_MAX} members"
        ));
    }
    if !peers.contains(own) {
        return Some(format!("CLUSTER_PEERS does not name this node ({own})"));
    }
    for (index, peer) in peers.iter().enumerate() {
        let before = &peers[..index];
        if before
            .iter()
            .any(|p| p.client == peer.client || p.raft == peer.raft)
        {
            return Some(format!("CLUSTER_PEERS names {peer} twice"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> Peer {
        Peer {
            client: format!("h:{port}"),
            raft: format!("h:{}", port + 1000),
        }
    }

    #[test]
    fn order_does_not_matter() {
        assert_eq!(text(&[peer(2), peer(1)]), text(&[peer(1), peer(2)]));
        assert_eq!(founder(&[peer(2), peer(1), peer(3)]), Some(&peer(1)));
    }

    #[test]
    fn a_list_with_another_raft_port_is_another_list() {
        let other = Peer {
            raft: "h:9".into(),
            ..peer(2)
        };
        assert_ne!(text(&[peer(1), peer(2)]), text(&[peer(1), other]));
    }

    #[test]
    fn doubles_and_a_list_without_this_node_are_faults() {
        assert_eq!(fault(&peer(1), &[peer(1), peer(2)]), None);
        assert!(fault(&peer(1), &[peer(1), peer(1)]).is_some());
        assert!(fault(&peer(3), &[peer(1), peer(2)]).is_some());
        let same_raft = Peer {
            client: "x:1".into(),
            ..peer(1)
        };
        assert!(fault(&peer(1), &[peer(1), same_raft]).is_some());
    }
}
