//! Who may serve, and what becomes of what was granted.

use std::time::{Duration, Instant};

use raft::Activity;

use crate::cluster::{Cluster, Settings, acquire_command};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_survive_a_restart_of_all_nodes_at_once() {
    let mut cluster = Cluster::started(3, Settings::default()).await;
    for number in 0..10 {
        cluster.acquire(&format!("k{number}")).await;
    }
    for number in 0..3 {
        drop(cluster.kill(number));
    }
    for number in 0..3 {
        cluster.start(number).await;
    }
    assert_eq!(cluster.acquire("next").await.token.0, 11);
    let (number, _) = cluster.until_serving().await;
    let held = cluster
        .node(number)
        .activations()
        .last()
        .unwrap()
        .held
        .len();
    assert_eq!(held, 10, "the desk is told of what was held before");
    cluster.until_equal().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_name_the_leader_and_the_leader_names_itself() {
    let cluster = Cluster::started(3, Settings::default()).await;
    let (number, _) = cluster.until_serving().await;
    let client = cluster.places[number].peer.client.clone();
    cluster
        .until("all name the leader", |cluster| {
            let named = |status: raft::Status| status.leader.is_some_and(|l| l.client == client);
            cluster
                .running()
                .all(|(_, node)| named(node.status()))
                .then_some(())
        })
        .await;
    for (other, node) in cluster.running() {
        assert_eq!(node.status().leading, other == number);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_follower_stops_naming_the_dead_leader_within_two_election_timeouts() {
    let mut cluster = Cluster::started(3, Settings::default()).await;
    let (leader, _) = cluster.until_serving().await;
    let follower = (leader + 1) % 3;
    let other = (leader + 2) % 3;
    cluster
        .until("it knows the leader", |c| c.node(follower).status().leader)
        .await;

    let killed = Instant::now();
    drop(cluster.kill(other));
    drop(cluster.kill(leader));
    let limit = cluster.settings.election_timeout() * 2;
    cluster
        .within(limit, "it knows no leader", |c| {
            c.node(follower).status().leader.is_none().then_some(())
        })
        .await;
    println!("forgot the leader after {:?}", killed.elapsed());
    // And it stays so: a minority elects nobody.
    tokio::time::sleep(limit).await;
    assert_eq!(cluster.node(follower).status().leader, None);
    assert_eq!(cluster.node(follower).serving(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_quorum_stops_serving_and_serves_again_in_the_same_term() {
    let mut cluster = Cluster::started(3, Settings::default()).await;
    // Elections are allowed to interfere (the restarted nodes' timers run), so it takes a few
    // rounds at most until the old leader is the first to reach them.
    for round in 1.. {
        let (leader, activity) = cluster.until_serving().await;
        let term = cluster.node(leader).status().term;
        let others = [(leader + 1) % 3, (leader + 2) % 3];
        let limit = cluster.settings.election_timeout() * 2;
        for other in others {
            drop(cluster.kill(other));
        }
        cluster
            .within(limit, "the leader stops serving", |c| {
                c.node(leader).is_over(activity).then_some(())
            })
            .await;
        assert!(
            cluster.node(leader).status().leading,
            "Raft has it as leader still"
        );
        // What is proposed for the activity that is over does not reach the log.
        let sequence = cluster
            .node(leader)
            .propose(activity, acquire_command("late"));

        for other in others {
            cluster.start(other).await;
        }
        let (next, again) = cluster.until_serving().await;
        cluster.acquire(&format!("round-{round}")).await;
        assert_eq!(cluster.node(leader).outcome(sequence), None, "dropped");
        if next == leader && cluster.node(leader).status().term == term {
            assert!(again > activity);
            // Not even now, in the same term, with a quorum, does the old activity get anything in.
            let stale = cluster
                .node(leader)
                .propose(activity, acquire_command("stale"));
            cluster.acquire("fresh").await;
            assert_eq!(cluster.node(leader).outcome(stale), None, "dropped");
            break;
        }
        assert!(round < 10, "never in the same term\n{}", cluster.show());
    }
    cluster.until_equal().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn activities_of_a_node_only_grow_and_are_fed_in_order() {
    let mut cluster = Cluster::started(3, Settings::default()).await;
    for _ in 0..3 {
        let (leader, _) = cluster.until_serving().await;
        assert!(
            cluster.node(leader).node.hand_over().await,
            "{}",
            cluster.show()
        );
        // A node that handed over serves no more in this process.
        assert_eq!(cluster.node(leader).serving(), None);
        drop(cluster.kill(leader));
        cluster.start(leader).await;
        cluster.acquire(&format!("after-{leader}-{}", rand())).await;
    }
    for (_, node) in cluster.running() {
        let fed: Vec<Activity> = node.activations().iter().map(|a| a.activity).collect();
        assert!(fed.is_sorted_by(|a, b| a < b), "{fed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_hands_over_in_less_than_an_election_timeout() {
    let cluster = Cluster::started(3, Settings::default()).await;
    cluster.acquire("a").await;
    let (leader, activity) = cluster.until_serving().await;
    let before = Instant::now();
    assert!(
        cluster.node(leader).node.hand_over().await,
        "{}",
        cluster.show()
    );
    let (next, _) = cluster
        .until("another node serves", |c| {
            c.serving().filter(|(number, _)| *number != leader)
        })
        .await;
    let took = before.elapsed();
    println!("handed over in {took:?}");
    assert!(took < cluster.settings.election_timeout(), "{took:?}");
    assert!(cluster.node(leader).is_over(activity));
    assert_ne!(next, leader);
    assert_eq!(cluster.acquire("b").await.token.0, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_lead_hands_over_at_once_and_a_lone_leader_cannot() {
    let cluster = Cluster::started(3, Settings::default()).await;
    let (leader, _) = cluster.until_serving().await;
    assert!(cluster.node((leader + 1) % 3).node.hand_over().await);

    let single = Cluster::started(1, Settings::default()).await;
    assert!(!single.node(0).node.hand_over().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_lets_the_port_and_the_data_go() {
    let mut cluster = Cluster::started(3, Settings::default()).await;
    cluster.acquire("a").await;
    for number in 0..3 {
        let node = cluster.kill(number);
        let before = Instant::now();
        node.node.shutdown().await;
        assert!(before.elapsed() < Duration::from_secs(5));
        std::net::TcpListener::bind(&cluster.places[number].peer.raft).unwrap();
        drop(node);
        cluster.start(number).await;
        cluster.until_serving().await;
    }
    assert_eq!(cluster.acquire("b").await.token.0, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lags_behind_the_purged_log_gets_a_snapshot() {
    let settings = Settings {
        snapshot_entries: 40,
        ..Settings::default()
    };
    let mut cluster = Cluster::started(3, settings).await;
    let (leader, _) = cluster.until_serving().await;
    let away = (leader + 1) % 3;
    cluster.until_equal().await;
    drop(cluster.kill(away));
    for number in 0..200 {
        cluster.acquire(&format!("k{number}")).await;
    }
    let purged = cluster
        .until("the leader purges what the node that is away needs", |c| {
            let (leader, _) = c.serving()?;
            c.node(leader)
                .overview()
                .purged
                .filter(|purged| *purged > 100)
        })
        .await;
    cluster.start(away).await;
    cluster.until_equal().await;
    let overview = cluster.node(away).overview();
    assert!(
        overview.snapshot >= Some(purged),
        "by snapshot: {overview:?}"
    );

    // It starts from that snapshot and its log again.
    drop(cluster.kill(away));
    cluster.start(away).await;
    cluster.until_equal().await;
    assert_eq!(cluster.node(away).overview().progress.tokens_granted, 200);
}

fn rand() -> u32 {
    getrandom::u32().unwrap()
}
