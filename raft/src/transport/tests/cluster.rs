//! Three real Raft nodes over the transport.

use std::time::{Duration, Instant};

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;

use super::support::*;
use crate::transport::StreamEnded;
use crate::type_config::Payload;

fn payload(number: u64) -> Payload {
    Payload(Bytes::from(number.to_be_bytes().to_vec()))
}

fn leader(nodes: &[Node]) -> &Node {
    nodes
        .iter()
        .find(|node| node.raft.is_leader())
        .expect("a leader")
}

/// Writes at the leader. A leader just elected has not heard from a quorum yet and refuses; so does
/// one whose heartbeats wait for a processor.
async fn write(nodes: &[Node], number: u64) {
    let written = tokio::time::timeout(SOON, async {
        loop {
            let leader = nodes.iter().find(|node| node.raft.is_leader());
            if let Some(leader) = leader
                && leader.raft.client_write(payload(number)).await.is_ok()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    written.await.expect("a leader takes a write");
}

fn applied(node: &Node) -> usize {
    node.memory.0.lock().unwrap().payloads.len()
}

#[tokio::test]
async fn three_nodes_elect_replicate_and_hand_over() {
    let mut nodes = three_nodes().await;
    for number in 0..100 {
        write(&nodes, number).await;
    }
    for node in &nodes {
        eventually("replicated", || applied(node) == 100).await;
    }

    let old = leader(&nodes).id;
    let next = nodes.iter().find(|node| node.id != old).unwrap().id;
    leader(&nodes)
        .raft
        .trigger()
        .transfer_leader(next)
        .await
        .unwrap();
    let leads = || {
        nodes
            .iter()
            .any(|node| node.id == next && node.raft.is_leader())
    };
    eventually("leadership is handed over", leads).await;

    // The leader goes: both others learn that its last stream has ended, and one of them follows.
    let at = nodes.iter().position(|node| node.id == next).unwrap();
    let gone = nodes.remove(at);
    let vote = gone
        .raft
        .with_raft_state(|state| *state.vote_ref())
        .await
        .unwrap();
    for node in &nodes {
        eventually("a live stream", || node.bare.server.has_live_stream(&vote)).await;
    }
    gone.stop().await;
    drop(gone);
    for node in &mut nodes {
        loop {
            let ended = tokio::time::timeout(SOON, node.bare.ended.recv())
                .await
                .unwrap();
            if ended == Some(StreamEnded { vote }) {
                break;
            }
        }
        // A request that was in a socket when the leader went may still open and end one more.
        eventually("no live stream", || {
            !node.bare.server.has_live_stream(&vote)
        })
        .await;
    }
    eventually("a new leader", || {
        nodes.iter().any(|node| node.raft.is_leader())
    })
    .await;
    for node in &nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_follower_that_is_behind_gets_a_snapshot() {
    let nodes = three_nodes().await;
    let late = node(4, true).await;
    for number in 0..200 {
        write(&nodes, number).await;
    }
    let leader = leader(&nodes);
    leader.memory.0.lock().unwrap().snapshot = Bytes::from(vec![9; 3_000_000]);
    leader.raft.trigger().snapshot().await.unwrap();
    let began = Instant::now();
    eventually("purged", || {
        let purged = leader.raft.metrics().borrow_watched().purged;
        purged.is_some_and(|purged| purged.index > 150)
    })
    .await;
    leader
        .raft
        .add_learner(late.id, late.peer(), true)
        .await
        .unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(late.memory.0.lock().unwrap().snapshot.len(), 3_000_000);
    for node in nodes.iter().chain([&late]) {
        node.stop().await;
    }
}
