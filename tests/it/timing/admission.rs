//! How much may be in flight: seen only while nothing is decided, which a leader without followers
//! bears for one election timeout.

use crate::harness::raw::Received;
use crate::harness::{Cluster, Frame, PATIENCE, acquire};

/// Nine tenths of 4,096 in flight, rounded up: admission closes there.
const ADMITTED: u64 = 3_687;

/// How many are asked for.
const ASKED: u64 = 5_000;

#[test]
fn acquires_in_flight_are_bounded_over_all_sessions_and_the_rest_is_told_so() {
    let mut cluster = Cluster::start_alone(3);
    let leader = cluster.settle();
    let mut sessions = [cluster.session(leader), cluster.session(leader)];
    for session in &mut sessions {
        session.expect_nothing_pending();
    }
    for follower in cluster.others(leader) {
        cluster.nodes[follower].pause();
    }
    let halves = [0..ASKED / 2, ASKED / 2..ASKED];
    for (session, half) in sessions.iter_mut().zip(halves.clone()) {
        let requests = half.flat_map(|owner| acquire(format!("k{owner}"), 0, 30, owner));
        session.send(requests.collect::<Vec<_>>());
    }
    let mut busy = 0;
    for (session, half) in sessions.iter_mut().zip(halves) {
        for _ in half {
            match session.receive_reply(PATIENCE) {
                Received::Frame(Frame::Busy { .. }) => busy += 1,
                // Admitted, and not proposed when the node stopped serving.
                Received::Frame(Frame::Error(_)) => {}
                // What became of those that were proposed nobody knows: closed without a word.
                Received::End => break,
                other => panic!("expected B, E or the end, got {other:?}"),
            }
        }
    }
    assert_eq!(busy, ASKED - ADMITTED);
    // They are in flight no more.
    for follower in cluster.others(leader) {
        cluster.nodes[follower].resume();
    }
    assert!(matches!(
        cluster.ask(&acquire("after", 0, 30, 1)),
        Frame::Granted { .. }
    ));
}
