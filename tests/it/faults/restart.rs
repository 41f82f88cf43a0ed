//! Planned and unplanned restarts, one node after another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::harness::raw::Received;
use crate::harness::{Cluster, Ending, Frame, PATIENCE, Raw, acquire, eventually, release};

/// How long a node may take to stop when it is asked to.
const STOP_MAX: Duration = Duration::from_secs(10);

#[test]
fn a_rolling_restart_loses_no_lock_and_hardly_interrupts() {
    let mut cluster = Cluster::start(3);
    let keys: Vec<_> = (0..10).map(|n| format!("held{n}")).collect();
    let mut session = cluster.leader_session();
    let tokens: Vec<_> = keys
        .iter()
        .map(|key| session.ask(acquire(key, 0, 250, 1)).token())
        .collect();
    let addresses: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| node.address.clone())
        .collect();

    let done = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let ending = Ending(&done);
        let client = scope.spawn(|| longest_interruption(&addresses, &done));
        for index in 0..3 {
            let asked = Instant::now();
            cluster.nodes[index].ask_to_stop();
            let status = cluster.nodes[index].wait(STOP_MAX);
            assert_eq!(
                status.code(),
                Some(0),
                "{status}, after {:?}",
                asked.elapsed()
            );
            cluster.nodes[index].spawn();
            cluster.settle();
        }
        drop(ending);
        client.join().expect("the client goes on through all of it")
    });
    // Leadership is handed over, so nobody waits for the timers of an election.
    assert!(
        longest < Duration::from_secs(3),
        "interrupted for {longest:?}"
    );

    for (key, token) in keys.iter().zip(tokens) {
        assert_eq!(
            cluster.ask(&acquire(key, 0, 30, 2)),
            Frame::wait_over(2, key)
        );
        assert_eq!(
            cluster.ask(&release(key, token)),
            Frame::released(token, key)
        );
    }
}

/// Takes and releases a key again and again, wherever the leader is; tokens must grow. Gives back
/// the longest time between two grants.
fn longest_interruption(addresses: &[String], done: &AtomicBool) -> Duration {
    let (mut last, mut longest, mut greatest) = (Instant::now(), Duration::ZERO, 0);
    while !done.load(Ordering::Relaxed) {
        for address in addresses {
            let Ok(mut session) = Raw::try_connect(address, b"") else {
                continue;
            };
            // A key of its own for each session: one whose answer was lost may stay held.
            let key = format!("session{greatest}");
            while !done.load(Ordering::Relaxed) && session.try_send(acquire(&key, 0, 1, 1)).is_ok()
            {
                let Received::Frame(Frame::Granted { token, .. }) = session.receive_reply(PATIENCE)
                else {
                    break;
                };
                assert!(token > greatest, "token {token} after {greatest}");
                greatest = token;
                longest = longest.max(last.elapsed());
                last = Instant::now();
                let released = Received::Frame(Frame::released(token, &key));
                if session.try_send(release(&key, token)).is_err()
                    || session.receive_reply(PATIENCE) != released
                {
                    break;
                }
            }
        }
    }
    longest
}

#[test]
fn a_node_that_restarts_at_once_comes_up() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let follower = cluster.others(leader)[0];
    let held = cluster.ask(&acquire("held", 0, 250, 1)).token();
    // Its sessions keep their sides of the connections open over all of it.
    let _open: Vec<_> = (0..20).map(|_| cluster.session(follower)).collect();
    for round in 0..3 {
        if round == 1 {
            assert_eq!(cluster.nodes[follower].stop().code(), Some(0));
        } else {
            cluster.nodes[follower].kill();
        }
        // Nothing is between its end and its start.
        cluster.nodes[follower].spawn();
        cluster.settle();
    }
    // The node is part of the quorum again.
    let third = cluster.others(leader)[1];
    cluster.nodes[third].kill();
    assert_eq!(
        cluster.ask(&release("held", held)),
        Frame::released(held, "held")
    );
}

#[test]
fn a_stop_in_the_middle_of_traffic_answers_or_closes_and_exits_cleanly() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let (granted, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let held: Vec<_> = std::thread::scope(|scope| {
        let _ending = Ending(&done);
        let address = &cluster.nodes[leader].address;
        let (granted, done) = (&granted, &done);
        let clients: Vec<_> = (0..4)
            .map(|client| scope.spawn(move || take_until_refused(address, client, granted, done)))
            .collect();
        eventually("traffic", PATIENCE, || {
            granted.load(Ordering::Relaxed).then_some(())
        });
        cluster.nodes[leader].ask_to_stop();
        clients
            .into_iter()
            .flat_map(|client| client.join().expect("it ends quietly"))
            .collect()
    });
    assert_eq!(cluster.nodes[leader].wait(STOP_MAX).code(), Some(0));
    let mut session = cluster.leader_session();
    for (key, token) in held {
        assert_eq!(
            session.ask(acquire(&key, 0, 30, 1)),
            Frame::wait_over(1, &key)
        );
        assert_eq!(
            session.ask(release(&key, token)),
            Frame::released(token, &key)
        );
    }
}

/// Takes key after key until the node refuses or ends the session; gives back what it was granted.
fn take_until_refused(
    address: &str,
    client: u64,
    granted: &AtomicBool,
    done: &AtomicBool,
) -> Vec<(String, u64)> {
    let mut session = Raw::connect(address);
    let mut held = Vec::new();
    for number in (0..).take_while(|_| !done.load(Ordering::Relaxed)) {
        let key = format!("c{client}n{number}");
        if session.try_send(acquire(&key, 0, 250, number)).is_err() {
            break;
        }
        match session.receive_reply(PATIENCE) {
            Received::Frame(frame @ Frame::Granted { .. }) => {
                held.push((key, frame.token()));
                granted.store(true, Ordering::Relaxed);
            }
            Received::Frame(Frame::Moved(_) | Frame::Error(_)) | Received::End => break,
            other => panic!("expected a refusal or an orderly end, got {other:?}"),
        }
    }
    held
}

#[test]
fn a_single_node_cluster_serves_and_keeps_its_locks() {
    let mut cluster = Cluster::start(1);
    let token = cluster.ask(&acquire("k", 0, 250, 1)).token();
    for round in 0..3 {
        if round == 1 {
            assert_eq!(cluster.nodes[0].stop().code(), Some(0));
        } else {
            cluster.nodes[0].kill();
        }
        cluster.start_all();
        assert_eq!(
            cluster.ask(&acquire("k", 0, 30, 2)),
            Frame::wait_over(2, "k")
        );
    }
    assert_eq!(
        cluster.ask(&release("k", token)),
        Frame::released(token, "k")
    );
    assert_eq!(
        cluster.ask(&acquire("k", 0, 30, 3)),
        Frame::granted(token + 1, 3, "k")
    );
}
