//! Queues whose waiters vanish.

use crate::harness::raw::Received;
use crate::harness::{Cluster, Frame, PATIENCE, Raw, SETTLE, acquire, eventually, release};

#[test]
fn when_the_first_half_of_a_queue_vanishes_the_rest_is_served_in_order() {
    let mut cluster = Cluster::start(3);
    let mut holder = cluster.leader_session();
    let mut token = holder.ask(acquire("k", 0, 250, 0)).token();
    let leader = cluster.leader();
    let mut waiters: Vec<_> = (1..=40)
        .map(|owner| {
            let mut waiter = cluster.session(leader);
            waiter.send(acquire("k", 60, 60, owner));
            waiter.expect_nothing_pending();
            waiter
        })
        .collect();
    // They end in order: only when its own end comes back is a session surely gone, and a grant
    // that was handed to the socket of one that is not would be a delivered one.
    for mut gone in waiters.drain(..20) {
        gone.shut_down();
        gone.expect_end();
    }
    assert_eq!(holder.ask(release("k", token)), Frame::released(token, "k"));
    for (owner, waiter) in (21..=40).zip(&mut waiters) {
        let granted = waiter.reply();
        assert_eq!(granted, Frame::granted(granted.token(), owner, "k"));
        assert!(granted.token() > token);
        token = granted.token();
        assert_eq!(waiter.ask(release("k", token)), Frame::released(token, "k"));
    }
    assert!(holder.ask(acquire("k", 0, 30, 99)).token() > token);
}

/// Queues 5,000 waiters for one key from 50 sessions, and drops all of them at once. Their leases
/// are short: a grant may reach the socket of a session that is gone before its end is read.
fn vanish(address: &str) {
    let mut sessions: Vec<_> = (0..50).map(|_| Raw::connect(address)).collect();
    for session in &mut sessions {
        let waiters: Vec<_> = (0..100)
            .flat_map(|owner| acquire("k", 250, 1, owner))
            .collect();
        session.send(waiters);
    }
    for session in &mut sessions {
        session.expect_nothing_pending();
    }
}

#[test]
fn five_thousand_waiters_that_vanish_leave_a_free_key_and_no_memory_behind() {
    let mut cluster = Cluster::start_with(3, &["--max-waiters", "16384"]);
    let leader = cluster.leader();
    let address = cluster.nodes[leader].address.clone();
    let mut session = cluster.session(leader);
    let mut round = || {
        let token = session.ask(acquire("k", 0, 250, 1)).token();
        vanish(&address);
        assert_eq!(
            session.ask(release("k", token)),
            Frame::released(token, "k")
        );
        session.send(acquire("k", 60, 30, 2));
        let next = session.reply_within(SETTLE).token();
        assert_eq!(session.ask(release("k", next)), Frame::released(next, "k"));
    };
    // The first rounds fill what an allocator keeps for later.
    round();
    round();
    let before = cluster.nodes[leader].process().resident_kib();
    for _ in 0..5 {
        round();
    }
    // Five rounds of 5,000: a leak of a hundred bytes a waiter would be 2.5 MB and is not seen
    // here, one of what a waiter takes, its key and its session's places, is.
    eventually("memory comes back", PATIENCE, || {
        let now = cluster.nodes[leader].process().resident_kib();
        (now < before + 6 * 1_024).then_some(())
    });
}

#[test]
fn a_waiter_of_each_of_many_keys_is_served_when_all_leases_end_together() {
    let mut cluster = Cluster::start(3);
    let mut session = cluster.leader_session();
    let keys: Vec<_> = (0..300).map(|n| format!("k{n}")).collect();
    session.send(
        keys.iter()
            .flat_map(|key| acquire(key, 0, 1, 1))
            .collect::<Vec<_>>(),
    );
    for _ in &keys {
        session.reply().token();
    }
    session.send(
        keys.iter()
            .flat_map(|key| acquire(key, 30, 60, 2))
            .collect::<Vec<_>>(),
    );
    let mut served = Vec::new();
    for _ in &keys {
        match session.receive_reply(SETTLE) {
            Received::Frame(Frame::Granted { owner: 2, key, .. }) => served.push(key),
            other => panic!("expected a grant, got {other:?}"),
        }
    }
    served.sort();
    let mut expected: Vec<_> = keys.into_iter().map(String::into_bytes).collect();
    expected.sort();
    assert_eq!(served, expected);
}
