//! How a cluster comes to be.

use std::time::Duration;

use raft::node::{Bootstrap, Error};

use crate::cluster::{Cluster, Settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_node_founds_its_cluster_and_serves() {
    let mut cluster = Cluster::started(1, Settings::default()).await;
    assert_eq!(cluster.acquire("a").await.token.0, 1);

    drop(cluster.kill(0));
    cluster.start(0).await;
    assert_eq!(
        cluster.acquire("b").await.token.0,
        2,
        "the counter survives a restart"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_empty_nodes_found_one_cluster() {
    let cluster = Cluster::started(3, Settings::default()).await;
    assert_eq!(cluster.acquire("a").await.token.0, 1);
    cluster.until_equal().await;
    let founded: Vec<_> = cluster
        .running()
        .map(|(_, node)| node.overview().cluster_id)
        .collect();
    assert!(founded[0].is_some());
    assert!(founded.iter().all(|id| *id == founded[0]), "{founded:?}");
    for (_, node) in cluster.running() {
        assert_eq!(node.overview().members.len(), 3);
        assert!(node.overview().members.iter().all(|member| member.voter));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_founded_while_a_peer_is_missing() {
    let mut cluster = Cluster::places(3, Settings::default());
    cluster.start(0).await;
    cluster.start(1).await;
    tokio::time::sleep(cluster.settings.election_timeout() * 3).await;
    for (_, node) in cluster.running() {
        assert_eq!(node.overview().members, [], "{}", cluster.show());
        assert_eq!(node.overview().last_log, None, "{}", cluster.show());
    }

    cluster.start(2).await;
    cluster.until_serving().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn different_peer_lists_stop_both_nodes_and_the_message_names_both_lists() {
    let mut cluster = Cluster::places(3, Settings::default());
    let all = cluster.peers();
    let two = all[..2].to_vec();
    cluster.try_start(0, two, Bootstrap::Auto).await.unwrap();
    cluster
        .try_start(1, all.clone(), Bootstrap::Auto)
        .await
        .unwrap();

    for number in 0..2 {
        let failed = cluster.node(number).node.failed();
        let error = tokio::time::timeout(Duration::from_secs(20), failed)
            .await
            .unwrap();
        assert!(matches!(error, Error::PeerLists { .. }), "{error}");
        let message = error.to_string();
        assert!(
            message.contains(&all[2].client),
            "the longer list: {message}"
        );
        assert_eq!(
            message.matches(&all[0].raft).count(),
            2,
            "both lists: {message}"
        );
    }
    for (_, node) in cluster.running() {
        assert_eq!(node.overview().members, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_without_this_node_is_a_settings_error() {
    let mut cluster = Cluster::places(2, Settings::default());
    let other = cluster.peers()[1..].to_vec();
    let error = cluster
        .try_start(0, other, Bootstrap::Auto)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Settings(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_never_a_full_set_of_empty_disks_does_not_start_over() {
    let never = Settings {
        bootstrap: Bootstrap::Never,
        ..Settings::default()
    };
    let mut cluster = Cluster::places(3, never);
    for number in 0..3 {
        cluster.start(number).await;
    }
    tokio::time::sleep(cluster.settings.election_timeout() * 3).await;
    for (number, node) in cluster.running() {
        assert_eq!(node.overview().members, [], "node {number}");
        assert_eq!(node.overview().cluster_id, None, "node {number}");
    }

    // The same disks do found a cluster when they may.
    cluster.settings.bootstrap = Bootstrap::Auto;
    for number in 0..3 {
        drop(cluster.kill(number));
        cluster.start(number).await;
    }
    cluster.until_serving().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_peer_that_may_not_found_holds_up_the_others() {
    let mut cluster = Cluster::places(3, Settings::default());
    let peers = cluster.peers();
    cluster.start(0).await;
    cluster.start(1).await;
    cluster.try_start(2, peers, Bootstrap::Never).await.unwrap();
    tokio::time::sleep(cluster.settings.election_timeout() * 3).await;
    for (number, node) in cluster.running() {
        assert_eq!(node.overview().members, [], "node {number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_founder_that_is_restarted_again_and_again_founds_once() {
    let mut cluster = Cluster::places(3, Settings::default());
    cluster.start(1).await;
    cluster.start(2).await;
    for pause_ms in [0, 20, 40, 80, 120, 160] {
        cluster.start(0).await;
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        drop(cluster.kill(0));
    }
    cluster.start(0).await;
    cluster.acquire("a").await;
    cluster.until_equal().await;
    let founded: Vec<_> = cluster
        .running()
        .map(|(_, node)| node.overview().cluster_id)
        .collect();
    assert!(
        founded[0].is_some() && founded.iter().all(|id| *id == founded[0]),
        "{founded:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_founder_whose_disk_is_lost_while_founding_is_superseded() {
    let mut cluster = Cluster::places(3, Settings::default());
    cluster.start(1).await;
    cluster.start(2).await;
    cluster.start(0).await;
    // Gone as soon as it has begun: it may have promises, a cluster id, even a log.
    cluster
        .until("the founder has a cluster id", |cluster| {
            cluster.node(0).overview().cluster_id
        })
        .await;
    drop(cluster.kill(0));
    cluster.lose_disk(0);
    cluster.start(0).await;
    cluster.acquire("a").await;
    cluster
        .until("all three are voters of one cluster", |cluster| {
            // What only a leader knows of a member differs from node to node.
            let members = |number: usize| {
                let members = cluster.node(number).overview().members.into_iter();
                let members = members.map(|member| (member.id, member.peer, member.voter));
                members.collect::<Vec<_>>()
            };
            let first = members(0);
            let all = cluster
                .running()
                .all(|(number, _)| members(number) == first);
            (all && first.len() == 3 && first.iter().all(|(_, _, voter)| *voter)).then_some(())
        })
        .await;
}

/// Nodes 0 and 1 of three, empty, where 1 has promised itself to 0 and 2 promises nothing yet.
async fn half_promised() -> Cluster {
    let mut cluster = Cluster::places(3, Settings::default());
    let peers = cluster.peers();
    cluster.start(1).await;
    cluster.try_start(2, peers, Bootstrap::Never).await.unwrap();
    cluster.start(0).await;
    cluster
        .until("node 1 has promised itself", |c| {
            c.node(1).overview().cluster_id
        })
        .await;
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promise_passes_to_the_process_that_the_founders_address_reaches() {
    let mut cluster = half_promised().await;
    let promised = cluster.node(1).overview().cluster_id;
    let old = cluster.node(0).overview().node_id;
    drop(cluster.kill(0));
    cluster.lose_disk(0);
    cluster.start(0).await;
    drop(cluster.kill(2));
    cluster.start(2).await;

    cluster.acquire("a").await;
    cluster.until_equal().await;
    for (number, node) in cluster.running() {
        let overview = node.overview();
        assert_eq!(overview.cluster_id, promised, "node {number}");
        assert_eq!(overview.members.len(), 3, "node {number}");
        assert!(
            overview.members.iter().all(|member| member.id != old),
            "node {number}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promise_does_not_pass_to_a_process_that_the_founders_address_does_not_reach() {
    let mut cluster = half_promised().await;
    let peers = cluster.peers();
    let founder = cluster.node(0).overview().node_id;
    let impostor = cluster.add_impostor(0);
    cluster
        .try_start(impostor, peers.clone(), Bootstrap::Auto)
        .await
        .unwrap();
    drop(cluster.kill(0));
    drop(cluster.kill(2));
    cluster
        .try_start(2, peers.clone(), Bootstrap::Auto)
        .await
        .unwrap();
    // Node 2 would promise itself to anybody, but node 1 does not.
    tokio::time::sleep(cluster.settings.election_timeout() * 3).await;
    for (number, node) in cluster.running() {
        assert_eq!(node.overview().members, [], "node {number}");
    }

    // Node 2 has promised itself to the impostor; that passes to who is reached.
    cluster.try_start(0, peers, Bootstrap::Auto).await.unwrap();
    cluster.acquire("a").await;
    let members = cluster.node(1).overview().members;
    assert!(
        members.iter().any(|member| member.id == founder),
        "{members:?}"
    );
    let impostor = cluster.node(impostor).overview().node_id;
    assert!(
        members.iter().all(|member| member.id != impostor),
        "{members:?}"
    );
}
