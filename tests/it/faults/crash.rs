//! `kill -9` of every node at once: what was acknowledged is there afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::raw::Received;
use crate::harness::{Cluster, Ending, Frame, PATIENCE, Raw, SETTLE, acquire, eventually, release};

/// Clients that run while the nodes are killed.
const CLIENTS: usize = 6;

/// Acknowledgements that must have been seen before the kill.
const ACKNOWLEDGED_MIN: u64 = 300;

/// What a client knows about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Granted under this token, and no release was sent.
    Held(u64),
    /// Its release was acknowledged, and nothing was sent since.
    Free,
    /// The answer to the last request never came.
    Unknown,
}

#[test]
fn no_acknowledged_grant_or_release_is_lost_when_all_nodes_are_killed_at_once() {
    let mut cluster = Cluster::start(3);
    let mut greatest = 0;
    for round in 0..3 {
        let leader = cluster.leader();
        let (acknowledged, done) = (AtomicU64::new(0), AtomicBool::new(false));
        let known = std::thread::scope(|scope| {
            let _ending = Ending(&done);
            let address = &cluster.nodes[leader].address;
            let (acknowledged, done) = (&acknowledged, &done);
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let prefix = format!("r{round}c{client}");
                    scope.spawn(move || work(Raw::connect(address), &prefix, acknowledged, done))
                })
                .collect();
            eventually("acknowledged requests", SETTLE, || {
                (acknowledged.load(Ordering::Relaxed) >= ACKNOWLEDGED_MIN).then_some(())
            });
            for node in &cluster.nodes {
                node.process().signal(Signal::KILL);
            }
            let known = clients
                .into_iter()
                .map(|client| client.join().expect("it ends quietly"));
            known.collect::<Vec<_>>()
        });
        for node in &mut cluster.nodes {
            node.kill();
        }
        for (_, granted) in &known {
            greatest = greatest.max(*granted);
        }
        cluster.start_all();
        let mut session = cluster.leader_session();
        let mut unknown = 0;
        for (key, known) in known.iter().flat_map(|(known, _)| known) {
            let reply = session.ask(acquire(key, 0, 250, 1));
            match known {
                Known::Held(token) => {
                    assert_eq!(reply, Frame::wait_over(1, key), "held under {token}");
                    assert_eq!(
                        session.ask(release(key, *token)),
                        Frame::released(*token, key)
                    );
                }
                Known::Free => {
                    assert!(reply.token() > greatest, "{reply:?} after {greatest}");
                    session.ask(release(key, reply.token()));
                }
                Known::Unknown => unknown += 1,
            }
        }
        // Each client has one request in flight.
        assert!(unknown <= CLIENTS, "{unknown} requests unanswered");
    }
}

/// Takes key after key and gives back every second one, until the connection breaks. Gives back
/// what it knows, and the greatest token it saw.
fn work(
    mut session: Raw,
    prefix: &str,
    acknowledged: &AtomicU64,
    done: &AtomicBool,
) -> (BTreeMap<String, Known>, u64) {
    let mut known = BTreeMap::new();
    let mut greatest = 0;
    let mut ask = |bytes: Vec<u8>| {
        session.try_send(bytes).ok()?;
        match session.receive_reply(PATIENCE) {
            Received::Frame(frame @ (Frame::Granted { .. } | Frame::Released { .. })) => {
                acknowledged.fetch_add(1, Ordering::Relaxed);
                Some(frame)
            }
            // The kernel closes a killed process's sockets; that may look like an orderly end.
            Received::End | Received::Broken(_) => None,
            other => panic!("expected A or R, got {other:?}"),
        }
    };
    for number in (0..).take_while(|_| !done.load(Ordering::Relaxed)) {
        let key = format!("{prefix}n{number}");
        known.insert(key.clone(), Known::Unknown);
        let Some(granted) = ask(acquire(&key, 0, 250, number)) else {
            break;
        };
        let token = granted.token();
        assert!(token > greatest, "tokens grow: {token} after {greatest}");
        greatest = token;
        if number % 2 == 0 {
            known.insert(key, Known::Held(token));
            continue;
        }
        let Some(_) = ask(release(&key, token)) else {
            break;
        };
        known.insert(key, Known::Free);
    }
    (known, greatest)
}

#[test]
fn a_lease_that_was_running_when_all_nodes_died_does_not_end_early() {
    let mut cluster = Cluster::start(3);
    let mut session = cluster.leader_session();
    let asked = std::time::Instant::now();
    let token = session.ask(acquire("k", 0, 4, 1)).token();
    for node in &mut cluster.nodes {
        node.kill();
    }
    cluster.start_all();
    let mut session = cluster.leader_session();
    session.send(acquire("k", 60, 30, 2));
    let granted = session.reply_within(SETTLE);
    assert!(granted.token() > token);
    assert!(
        asked.elapsed() >= Duration::from_secs(4),
        "early: {:?}",
        asked.elapsed()
    );
}
