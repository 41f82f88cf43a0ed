//! SIGSTOP: a node that is there, keeps its connections, and says nothing.

use std::time::{Duration, Instant};

use crate::harness::raw::Received;
use crate::harness::{Cluster, Frame, Raw, SETTLE, acquire, eventually, release};

use super::ELECTION_TIMEOUT;

/// How long a request may take on a busy machine, beside what is measured.
const SLACK: Duration = Duration::from_secs(1);

/// Waits until a fresh session with a node is refused with one of these reasons.
fn refused(address: &str, reasons: &[&str], within: Duration) {
    eventually("the node refuses", within, || {
        let mut session = Raw::try_connect(address, b"").ok()?;
        session.try_send(acquire("probe", 0, 1, 1)).ok()?;
        match session.receive_reply(within) {
            Received::Frame(Frame::Error(reason)) => {
                assert!(reasons.contains(&reason.as_str()), "{reason}");
                // The connection is kept, and the refusal lasts.
                assert_eq!(session.ask(release("probe", 1)), Frame::Error(reason));
                Some(())
            }
            Received::Frame(Frame::Granted { .. }) => panic!("granted without a quorum"),
            _ => None,
        }
    });
}

#[test]
fn a_leader_without_a_quorum_stops_serving_and_resumes_by_itself() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let address = cluster.nodes[leader].address.clone();
    let mut holder = cluster.session(leader);
    let held = holder.ask(acquire("held", 0, 60, 1)).token();
    let mut waiter = cluster.session(leader);
    waiter.send(acquire("held", 60, 60, 2));
    waiter.expect_nothing_pending();
    let mut undecided = cluster.session(leader);
    undecided.leads();

    let followers = cluster.others(leader);
    let paused = Instant::now();
    for &follower in &followers {
        cluster.nodes[follower].pause();
    }
    undecided.send(acquire("undecided", 60, 60, 3));
    refused(
        &address,
        &["not_active", "no_leader"],
        2 * ELECTION_TIMEOUT + SLACK,
    );
    assert!(paused.elapsed() < 2 * ELECTION_TIMEOUT + SLACK);
    // The waiter was never proposed: refused. The acquire was: closed, without a word.
    assert!(matches!(waiter.reply(), Frame::Error(_) | Frame::Moved(_)));
    undecided.expect_end();

    for &follower in &followers {
        cluster.nodes[follower].resume();
    }
    assert_eq!(
        cluster.ask(&acquire("held", 0, 30, 4)),
        Frame::wait_over(4, "held")
    );
    assert_eq!(
        cluster.ask(&release("held", held)),
        Frame::released(held, "held")
    );
    assert!(cluster.ask(&acquire("new", 0, 30, 5)).token() > held);
    // Nobody got a second answer.
    assert!(!matches!(
        waiter.receive_reply(Duration::ZERO),
        Received::Frame(_)
    ));
}

#[test]
fn a_follower_without_leader_and_quorum_knows_none_and_finds_back() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let followers = cluster.others(leader);
    let (third, other) = (followers[0], followers[1]);
    let held = cluster.ask(&acquire("held", 0, 60, 1)).token();
    cluster.nodes[leader].pause();
    cluster.nodes[other].pause();
    let address = cluster.nodes[third].address.clone();
    refused(&address, &["no_leader"], 2 * ELECTION_TIMEOUT + SLACK);
    cluster.nodes[leader].resume();
    cluster.nodes[other].resume();
    assert_eq!(
        cluster.ask(&release("held", held)),
        Frame::released(held, "held")
    );
    cluster.settle();
}

#[test]
fn a_leader_that_sleeps_through_an_election_follows_and_disturbs_nothing() {
    let mut cluster = Cluster::start(3);
    let old = cluster.settle();
    let mut holder = cluster.session(old);
    let ends = holder.ask(acquire("ends", 0, 60, 1)).token();
    let stays = holder.ask(acquire("stays", 0, 60, 1)).token();
    let mut waiter = cluster.session(old);
    waiter.send(acquire("stays", 120, 60, 2));
    waiter.expect_nothing_pending();

    let mut stale: Vec<_> = (0..16).map(|_| cluster.session(old)).collect();
    for session in &mut stale {
        session.leads();
    }

    cluster.nodes[old].pause();
    let others: Vec<_> = cluster.others(old);
    let new = eventually("another leader", SETTLE, || {
        let leads = |&index: &usize| {
            let node = &cluster.nodes[index];
            node.names_leader().as_ref() == Some(&node.address)
        };
        others.iter().copied().find(leads)
    });
    let mut session = cluster.session(new);
    assert_eq!(
        session.ask(release("ends", ends)),
        Frame::released(ends, "ends")
    );
    let granted = session.ask(acquire("new", 0, 60, 3)).token();
    assert!(granted > stays);
    assert_eq!(
        session.ask(acquire("stays", 0, 60, 3)),
        Frame::wait_over(3, "stays")
    );
    // These wait in the sleeper's socket. When it wakes, `ends` has long been free, but its own
    // table still has it as held: it must not say so.
    for session in &mut stale {
        session.send(acquire("ends", 0, 30, 4));
    }

    cluster.nodes[old].resume();
    for session in &mut stale {
        let received = session.receive_reply(SETTLE);
        let refused = matches!(
            &received,
            Received::Frame(Frame::Moved(_) | Frame::Error(_))
        );
        assert!(
            refused || received == Received::End,
            "from stale state: {received:?}"
        );
    }
    let reply = waiter.reply_within(SETTLE);
    assert!(
        matches!(reply, Frame::Moved(_) | Frame::Error(_)),
        "{reply:?}"
    );
    let address = cluster.nodes[new].address.clone();
    eventually("the old leader follows", SETTLE, || {
        (cluster.nodes[old].names_leader().as_ref() == Some(&address)).then_some(())
    });
    // The same session with the new leader goes on as if nothing had been.
    assert_eq!(
        session.ask(acquire("new", 0, 60, 5)),
        Frame::wait_over(5, "new")
    );
    assert_eq!(
        session.ask(release("stays", stays)),
        Frame::released(stays, "stays")
    );
    assert_eq!(
        session.ask(release("new", granted)),
        Frame::released(granted, "new")
    );
    assert!(session.ask(acquire("new", 0, 60, 6)).token() > granted);
}
