//! Nodes that lose their disks, and nodes that come back.

use raft::node::Refused;

use crate::cluster::{Cluster, Settings};

fn voters(cluster: &Cluster, number: usize) -> Vec<u64> {
    let members = cluster.node(number).overview().members;
    members
        .iter()
        .filter(|member| member.voter)
        .map(|member| member.id)
        .collect()
}

/// Kills a follower, takes its disk, and waits until the node that comes in its place is a voter.
async fn replace_follower(cluster: &mut Cluster) -> (usize, std::path::PathBuf) {
    let (leader, _) = cluster.until_serving().await;
    let number = (leader + 1) % 3;
    let old = cluster.node(number).overview().node_id;
    drop(cluster.kill(number));
    let lost = cluster.lose_disk(number);
    cluster.start(number).await;
    let new = cluster.node(number).overview().node_id;
    assert_ne!(new, old);
    cluster
        .until(
            "the new id is a voter and the old one is gone, for all",
            |cluster| {
                let all = cluster.running().all(|(other, _)| {
                    let voters = voters(cluster, other);
                    voters.len() == 3 && voters.contains(&new) && !voters.contains(&old)
                });
                all.then_some(())
            },
        )
        .await;
    (number, lost)
}

/// Three founders and, as node 3, one at a new address.
async fn three_and_a_newcomer() -> Cluster {
    let mut cluster = Cluster::places(4, Settings::default());
    let all = cluster.peers();
    let founders = all[..3].to_vec();
    for number in 0..3 {
        let peers = founders.clone();
        cluster
            .try_start(number, peers, Default::default())
            .await
            .unwrap();
    }
    cluster.acquire("a").await;
    cluster.try_start(3, all, Default::default()).await.unwrap();
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_node_comes_back_under_a_new_id_and_is_a_voter() {
    let mut cluster = Cluster::started(3, Settings::default()).await;
    for number in 0..5 {
        cluster.acquire(&format!("k{number}")).await;
    }
    let (number, _) = replace_follower(&mut cluster).await;
    cluster.until_equal().await;
    assert_eq!(cluster.node(number).overview().members.len(), 3);

    // Its vote counts: with it and one more there is a quorum.
    let (leader, _) = cluster.until_serving().await;
    let other = (0..3)
        .find(|n| *n != leader && *n != number)
        .unwrap_or(leader);
    drop(cluster.kill(other));
    assert_eq!(cluster.acquire("next").await.token.0, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_node_that_comes_back_with_its_old_data_is_told_to_stop() {
    let mut cluster = Cluster::started(3, Settings::default()).await;
    cluster.acquire("a").await;
    cluster.until_equal().await;
    let (number, lost) = replace_follower(&mut cluster).await;

    let (leader, _) = cluster.until_serving().await;
    let term = cluster.node(leader).status().term;
    drop(cluster.kill(number));
    cluster.places[number].data = lost;
    cluster.start(number).await;
    let failed = cluster.node(number).node.failed();
    let patience = cluster.settings.election_timeout() * 60;
    let error = tokio::time::timeout(patience, failed).await;
    let error = error.unwrap_or_else(|_| panic!("not refused\n{}", cluster.show()));
    assert!(
        matches!(error, raft::node::Error::Replaced { .. }),
        "{error}"
    );
    assert_eq!(cluster.acquire("b").await.token.0, 2, "the others go on");
    let (leader, _) = cluster.until_serving().await;
    assert_eq!(
        cluster.node(leader).status().term,
        term,
        "and its votes moved nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_is_alive_is_not_replaced() {
    let mut cluster = Cluster::started(3, Settings::default()).await;
    let before = voters(&cluster, 0);
    let (leader, _) = cluster.until_serving().await;
    let number = (leader + 1) % 3;

    // A short absence: the newcomer at its address is turned away for ten election timeouts, and
    // then the old node is there again.
    drop(cluster.kill(number));
    let lost = cluster.lose_disk(number);
    cluster.start(number).await;
    tokio::time::sleep(cluster.settings.election_timeout() * 4).await;
    drop(cluster.kill(number));
    cluster.places[number].data = lost;
    cluster.start(number).await;
    cluster.acquire("a").await;
    cluster.until_equal().await;
    for (other, _) in cluster.running() {
        assert_eq!(voters(&cluster, other), before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_address_becomes_a_learner_and_stays_one() {
    let cluster = three_and_a_newcomer().await;
    cluster.until_equal().await;
    let newcomer = cluster.node(3).overview();
    let members = cluster.node(0).overview().members;
    let learners: Vec<u64> = members
        .iter()
        .filter(|member| !member.voter)
        .map(|member| member.id)
        .collect();
    assert_eq!(learners, [newcomer.node_id]);
    assert_eq!(voters(&cluster, 0).len(), 3);

    // It follows the leader like everybody else, and knows who it is.
    cluster
        .until("the learner names the leader", |c| {
            c.node(3).status().leader
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_gives_a_learner_its_vote_and_takes_a_voter_out() {
    let mut cluster = three_and_a_newcomer().await;
    let id = cluster.node(3).overview().node_id;
    // As a person would: again and again until the learner is there and has caught up.
    cluster
        .until("the learner is promoted", |c| {
            let (leader, _) = c.serving()?;
            let promoted = c.node(leader).node.promote(id);
            (promoted == Ok(()) || promoted == Err(Refused::Voter(id))).then_some(())
        })
        .await;
    cluster
        .until("all have four voters", |c| {
            let all = c.running().all(|(other, _)| voters(c, other).len() == 4);
            all.then_some(())
        })
        .await;

    let (leader, _) = cluster.until_serving().await;
    let out = (leader + 1) % 4;
    let out_id = cluster.node(out).overview().node_id;
    drop(cluster.kill(out));
    cluster
        .until("the voter is taken out", |c| {
            let (leader, _) = c.serving()?;
            let removed = c.node(leader).node.remove(out_id);
            (removed == Ok(()) || removed == Err(Refused::NoMember(out_id))).then_some(())
        })
        .await;
    cluster
        .until("the three others remain", |c| {
            let gone = |other| {
                let voters = voters(c, other);
                voters.len() == 3 && !voters.contains(&out_id)
            };
            c.running().all(|(other, _)| gone(other)).then_some(())
        })
        .await;
    assert_eq!(cluster.acquire("b").await.token.0, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_dies_during_a_replacement_leaves_it_to_the_next() {
    let mut cluster = Cluster::started(3, Settings::default()).await;
    cluster.acquire("a").await;
    cluster.until_equal().await;
    let (leader, _) = cluster.until_serving().await;
    let number = (leader + 1) % 3;
    let old = cluster.node(number).overview().node_id;
    drop(cluster.kill(number));
    cluster.lose_disk(number);
    cluster.start(number).await;
    let new = cluster.node(number).overview().node_id;

    // Each leader dies as soon as it has gone one step further: with the newcomer as a learner,
    // with both as voters, with the newcomer alone.
    let step = |cluster: &Cluster, leader: usize| {
        let members = cluster.node(leader).overview().members;
        let voter = |id: u64| members.iter().any(|member| member.id == id && member.voter);
        let known = members.iter().any(|member| member.id == new);
        (known, voter(new), voter(old))
    };
    let mut seen = Vec::new();
    loop {
        let (leader, now) = cluster
            .until("a leader goes one step further", |cluster| {
                let (leader, _) = cluster.serving()?;
                let now = step(cluster, leader);
                (now.0 && !seen.contains(&now)).then_some((leader, now))
            })
            .await;
        seen.push(now);
        drop(cluster.kill(leader));
        cluster.start(leader).await;
        if now == (true, true, false) {
            break;
        }
    }
    println!("killed leaders at (known, voter, old one a voter) = {seen:?}");
    cluster
        .until("all agree on the final voters", |cluster| {
            let all = cluster.running().all(|(other, _)| {
                let voters = voters(cluster, other);
                voters.len() == 3 && voters.contains(&new) && !voters.contains(&old)
            });
            all.then_some(())
        })
        .await;
    assert_eq!(cluster.acquire("b").await.token.0, 2);
    cluster.until_equal().await;
}
