//! `kill -9` of the leader: how long nobody grants, and what survives.

use std::time::{Duration, Instant};

use crate::harness::{Cluster, Frame, PATIENCE, Raw, acquire, median, release};

/// How many leaders are killed.
const ROUNDS: usize = 20;

/// A round in so many also watches a lease that runs while its leader dies.
const LEASE_ROUNDS: usize = 4;

/// The promise: the median time without a leader that grants. With the hint of a broken
/// connection a few tens of milliseconds are usual; the timers alone would take a second.
const GAP_MAX: Duration = Duration::from_millis(300);

const LEASE: Duration = Duration::from_secs(1);

#[test]
fn after_a_killed_leader_another_grants_soon_and_locks_and_tokens_stay() {
    let mut cluster = Cluster::start_alone(3);
    let held: Vec<_> = (0..5).map(|n| format!("held{n}")).collect();
    let mut session = cluster.leader_session();
    let tokens: Vec<_> = held
        .iter()
        .map(|key| session.ask(acquire(key, 0, 250, 1)).token())
        .collect();
    let mut greatest = *tokens.last().expect("five tokens");
    let mut gaps = Vec::new();

    for round in 0..ROUNDS {
        let leader = cluster.settle();
        let running = (round % LEASE_ROUNDS == 0).then(|| {
            let key = format!("lease{round}");
            let mut session = cluster.session(leader);
            let asked = Instant::now();
            greatest = session.ask(acquire(&key, 0, 1, 1)).token();
            (key, asked, Instant::now())
        });
        let survivors = cluster.others(leader);
        let addresses: Vec<_> = survivors
            .iter()
            .map(|&index| cluster.nodes[index].address.clone())
            .collect();
        let mut sessions: Vec<_> = survivors
            .iter()
            .map(|&index| cluster.session(index))
            .collect();
        for session in &mut sessions {
            session.leads();
        }

        let killed = Instant::now();
        cluster.nodes[leader].kill();
        let key = format!("round{round}");
        let (granted_at, token, mut session) = first_grant(sessions, &addresses, &key);
        let gap = granted_at - killed;
        gaps.push(gap);

        assert!(token > greatest, "token {token} after {greatest}");
        greatest = token;
        assert_eq!(
            session.ask(release(&key, token)),
            Frame::released(token, &key)
        );
        for key in &held {
            assert_eq!(
                session.ask(acquire(key, 0, 30, 2)),
                Frame::wait_over(2, key)
            );
        }
        if let Some((key, asked, told)) = running {
            session.send(acquire(&key, 10, 30, 3));
            cluster.nodes[leader].spawn();
            greatest = session.reply_within(PATIENCE).token();
            assert!(
                asked.elapsed() >= LEASE,
                "ended early, after {:?}",
                asked.elapsed()
            );
            let latest = LEASE + gap + Duration::from_secs(1);
            assert!(
                told.elapsed() <= latest,
                "ended late: {:?} > {latest:?}",
                told.elapsed()
            );
        } else {
            cluster.nodes[leader].spawn();
        }
    }

    for (key, token) in held.iter().zip(tokens) {
        assert_eq!(
            cluster.ask(&release(key, token)),
            Frame::released(token, key)
        );
    }
    let middle = median(gaps.clone());
    println!("time without a leader that grants: median {middle:?} of {gaps:?}");
    assert!(middle < GAP_MAX, "median {middle:?} of {gaps:?}");
}

/// Waits on one session with each survivor until one names itself, and acquires there.
fn first_grant(sessions: Vec<Raw>, survivors: &[String], key: &str) -> (Instant, u64, Raw) {
    std::thread::scope(|scope| {
        let watch = |mut session: Raw, own: &String| loop {
            let address = session.leads();
            if address == *own {
                let token = session.ask(acquire(key, 0, 30, 1)).token();
                return Some((Instant::now(), token, session));
            }
            // The other one won. The dead leader's address is no news.
            if survivors.contains(&address) {
                return None;
            }
        };
        let watchers: Vec<_> = sessions
            .into_iter()
            .zip(survivors)
            .map(|(session, own)| scope.spawn(move || watch(session, own)))
            .collect();
        let grants = watchers.into_iter().map(|watcher| watcher.join());
        let granted: Vec<_> = grants
            .filter_map(|grant| grant.expect("both hear of the new leader"))
            .collect();
        granted
            .into_iter()
            .min_by_key(|grant| grant.0)
            .expect("a survivor leads")
    })
}
