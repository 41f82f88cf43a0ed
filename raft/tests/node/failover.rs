//! A leader that is gone.

use std::time::{Duration, Instant};

use raft::Activity;

use crate::cluster::{Cluster, Settings};

/// How often failover is measured.
const ROUNDS: usize = 20;

fn defaults() -> Settings {
    Settings {
        heartbeat_ms: 100,
        election_timeout_ms: 1000,
        ..Settings::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_without_waiting_for_the_election_timeout() {
    let mut cluster = Cluster::started(3, defaults()).await;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let token = cluster.acquire(&format!("before-{round}")).await.token;
        cluster.until_equal().await;
        let (leader, _) = cluster.until_serving().await;
        let killed = Instant::now();
        drop(cluster.kill(leader));
        cluster.until_serving().await;
        times.push(killed.elapsed());
        assert!(cluster.acquire(&format!("after-{round}")).await.token > token);
        cluster.start(leader).await;
    }
    times.sort();
    let median = times[ROUNDS / 2];
    println!("failover: median {median:?} of {times:?}");
    // By the timers alone it would be the leader's lease and half an election timeout: 1.4 s.
    assert!(median < Duration::from_millis(700), "{times:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_restarts_at_once_costs_no_grant() {
    let mut cluster = Cluster::started(3, defaults()).await;
    let mut last = 0;
    for round in 0..5 {
        let token = cluster.acquire(&format!("k{round}")).await.token.0;
        assert!(token > last);
        last = token;
        let (leader, _) = cluster.until_serving().await;
        drop(cluster.kill(leader));
        cluster.start(leader).await;
    }
    cluster.acquire("end").await;
    cluster.until_equal().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_comes_and_goes_does_not_move_the_leader() {
    let mut cluster = Cluster::started(3, defaults()).await;
    cluster.acquire("a").await;
    cluster.until_equal().await;
    let (leader, activity) = cluster.until_serving().await;
    let term = cluster.node(leader).status().term;
    for round in 0..6 {
        let follower = (leader + 1 + round % 2) % 3;
        drop(cluster.kill(follower));
        cluster.start(follower).await;
        cluster.acquire(&format!("k{round}")).await;
        cluster.until_equal().await;
    }
    assert_eq!(
        cluster.node(leader).serving(),
        Some(activity),
        "{}",
        cluster.show()
    );
    assert_eq!(cluster.node(leader).status().term, term);
}

/// Ends the streams to `follower` while the leader's port refuses everybody: for that follower all
/// looks as if the leader's process were gone.
async fn alarm(cluster: &mut Cluster, leader: usize, follower: usize) {
    cluster.link(leader).refuse().await;
    cluster.link(follower).cut();
    // Longer than a failover takes, shorter than the timers.
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.link(leader).accept().await;
}

fn leads_on(cluster: &Cluster, leader: usize, activity: Activity, term: u64) {
    assert_eq!(
        cluster.node(leader).serving(),
        Some(activity),
        "{}",
        cluster.show()
    );
    for (_, node) in cluster.running() {
        assert_eq!(node.overview().term, term, "{}", cluster.show());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_alone_loses_the_leader_does_not_depose_it() {
    let mut cluster = Cluster::started_with_links(3, defaults()).await;
    cluster.acquire("a").await;
    cluster.until_equal().await;
    let (leader, activity) = cluster.until_serving().await;
    let term = cluster.node(leader).status().term;
    for _ in 0..5 {
        alarm(&mut cluster, leader, (leader + 1) % 3).await;
        leads_on(&cluster, leader, activity, term);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn false_alarms_of_two_followers_in_turn_do_not_depose_the_leader() {
    let mut cluster = Cluster::started_with_links(3, defaults()).await;
    cluster.acquire("a").await;
    cluster.until_equal().await;
    let (leader, activity) = cluster.until_serving().await;
    let term = cluster.node(leader).status().term;
    for round in 0..6 {
        alarm(&mut cluster, leader, (leader + 1 + round % 2) % 3).await;
        leads_on(&cluster, leader, activity, term);
    }
}
