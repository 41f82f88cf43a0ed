//! When waits and leases end, with nothing else on the machine.

use std::time::{Duration, Instant};

use crate::harness::{Cluster, Frame, Raw, Server, acquire, median};

#[test]
fn a_wait_ends_a_tenth_of_a_second_before_its_limit() {
    let server = Server::single_alone(&[]);
    let mut holder = Raw::connect(&server.address);
    holder.ask(acquire("k", 0, 250, 0));
    let mut took = Vec::new();
    for wait in [1, 1, 1, 2] {
        let sent = Instant::now();
        assert_eq!(
            holder.ask(acquire("k", wait, 30, 1)),
            Frame::wait_over(1, "k")
        );
        let limit = Duration::from_secs(u64::from(wait));
        // Never earlier than promised; the server counts from a moment after `sent`.
        let elapsed = sent.elapsed();
        assert!(
            elapsed + Duration::from_millis(101) >= limit,
            "{elapsed:?} of {limit:?}"
        );
        took.push(limit.saturating_sub(elapsed));
    }
    // What is left for the way to the client: asserted on the median, as one hiccup is no bug.
    let left = median(took.clone());
    assert!(
        left > Duration::from_millis(50),
        "left of the waits: {took:?}"
    );
}

#[test]
fn a_lease_hands_on_within_a_second_after_its_end() {
    let mut cluster = Cluster::start_alone(3);
    let mut session = cluster.leader_session();
    for (lease, key) in [(1, "a"), (2, "b"), (1, "c")] {
        let asked = Instant::now();
        session.ask(acquire(key, 0, lease, 1));
        let told = Instant::now();
        session.ask(acquire(key, 10, 30, 2)).token();
        let lease = Duration::from_secs(u64::from(lease));
        assert!(
            asked.elapsed() >= lease,
            "ended early, after {:?}",
            asked.elapsed()
        );
        assert!(
            told.elapsed() < lease + Duration::from_secs(1),
            "{:?}",
            told.elapsed()
        );
    }
}
