//! The table of truths: at each fact, every path tells it within two seconds.
//!
//! | fact | `/livez` | `/readyz` | `/v1/status` | `/metrics` |
//! |---|---|---|---|---|
//! | healthy | 200 | 200 everywhere | one leader, named by all; equal hashes at equal indices | has_leader 1, one active |
//! | the leader changed | 200 | 200 on the others | another leader, a greater term | leader_changes grew |
//! | no quorum | 200 | 503 | no leader, nobody active | has_leader 0, active 0: an alert |
//! | a node catches up | 200 | 503 until it has | behind, not ready | ready 0 |

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::http::{Answer, get, request, try_get};
use crate::harness::metrics::Page;
use crate::harness::{Cluster, SETTLE, Server, acquire, eventually};

/// How soon after a fact it must be told.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

/// One row of the table, as a node tells it.
#[derive(Debug)]
struct Told {
    live: u16,
    ready: Answer,
    status: Value,
    metrics: Page,
}

fn ask(node: &Server) -> Told {
    Told {
        live: get(&node.admin, "/livez").status,
        ready: get(&node.admin, "/readyz?verbose"),
        status: get(&node.admin, "/v1/status").json(),
        metrics: Page::of(&node.admin),
    }
}

impl Told {
    fn is_ready(&self) -> bool {
        assert_eq!(self.live, 200, "nothing here makes a node dead: {self:?}");
        self.ready.status == 200
            && self.status["ready"] == true
            && self.metrics.get("ticketing_ready") == 1.0
            && self.metrics.get("ticketing_has_leader") == 1.0
    }

    fn is_not_ready(&self) -> bool {
        assert_eq!(self.live, 200, "nothing here makes a node dead: {self:?}");
        self.ready.status == 503
            && self.status["ready"] == false
            && self.metrics.get("ticketing_ready") == 0.0
    }

    /// Nobody can be named, and an alert on that would fire.
    fn has_no_leader(&self) -> bool {
        self.is_not_ready()
            && self.status["leader"].is_null()
            && self.status["active"] == false
            && self.metrics.get("ticketing_has_leader") == 0.0
            && self.metrics.get("ticketing_active") == 0.0
    }
}

/// Waits, as long as a fact may take to be told, until every node that runs tells it.
fn told_by(what: &str, nodes: &[&Server], truth: impl Fn(&Server, &Told) -> bool) -> Vec<Told> {
    let since = Instant::now();
    loop {
        let told: Vec<Told> = nodes.iter().map(|node| ask(node)).collect();
        let all = nodes
            .iter()
            .zip(&told)
            .all(|(node, told)| truth(node, told));
        if all {
            return told;
        }
        assert!(
            since.elapsed() < TOLD_WITHIN,
            "not told within {TOLD_WITHIN:?}: {what}: {told:#?}"
        );
    }
}

fn running(cluster: &Cluster) -> Vec<&Server> {
    cluster.nodes.iter().filter(|node| node.is_up()).collect()
}

/// The truth about a healthy cluster that `leader` leads.
fn healthy<'a>(leader: &'a Server) -> impl Fn(&Server, &Told) -> bool + 'a {
    move |node, told| {
        let leads = node.address == leader.address;
        let role = if leads { "leader" } else { "follower" };
        told.is_ready()
            && told.status["leader"] == leader.address.as_str()
            && told.status["role"] == role
            && told.status["active"] == leads
            && told.metrics.get("ticketing_active") == f64::from(leads)
            && told
                .metrics
                .get(&format!("ticketing_role{{role=\"{role}\"}}"))
                == 1.0
    }
}

#[test]
fn a_healthy_cluster_and_a_change_of_leader_are_told() {
    let mut cluster = Cluster::start_with(3, &["--admin-token", "operator"]);
    let leader = cluster.settle();
    let told = told_by(
        "healthy",
        &running(&cluster),
        healthy(&cluster.nodes[leader]),
    );
    for (node, told) in cluster.nodes.iter().zip(&told) {
        let status = &told.status;
        assert_eq!(status["mode"], "cluster");
        assert_eq!(status["address"], node.address.as_str());
        assert_eq!(status["cluster_id"], told.status["cluster_id"]);
        assert_eq!(status["cluster_id"].as_str().map(str::len), Some(32));
        assert_eq!(status["node_id"].as_str().map(str::len), Some(16));
        let members = status["members"].as_array().expect("a list");
        let mut known: Vec<_> = members.iter().map(|member| &member["address"]).collect();
        known.sort_by_key(|address| address.as_str());
        let mut nodes: Vec<_> = cluster.nodes.iter().map(|node| &node.address).collect();
        nodes.sort();
        assert_eq!(known, nodes);
        assert!(members.iter().all(|member| member["kind"] == "voter"));
    }
    let term = told[leader].status["term"].as_u64().expect("a number");
    let changes = |told: &Told| told.metrics.get("ticketing_leader_changes_total");
    let changes_before: Vec<f64> = told.iter().map(changes).collect();

    // A planned change, then the death of the new leader.
    let refused = request(
        "POST",
        &cluster.nodes[leader].admin,
        "/v1/leader/transfer",
        "",
    );
    assert_eq!(refused.status, 401);
    let passed = request(
        "POST",
        &cluster.nodes[leader].admin,
        "/v1/leader/transfer",
        "Bearer operator",
    );
    assert_eq!(passed.status, 200, "{passed:?}");
    let named = passed.json()["leader"].as_str().expect("text").to_owned();
    let second = cluster.nodes.iter().position(|node| node.address == named);
    let second = second.expect("a member");
    assert_ne!(second, leader);
    let told = told_by(
        "passed on",
        &running(&cluster),
        healthy(&cluster.nodes[second]),
    );
    assert!(
        told.iter()
            .all(|told| told.status["term"].as_u64() > Some(term))
    );
    for (told, before) in told.iter().zip(changes_before) {
        assert_eq!(changes(told), before + 1.0);
    }
    let follower = request(
        "POST",
        &cluster.nodes[leader].admin,
        "/v1/leader/transfer",
        "Bearer operator",
    );
    assert_eq!(follower.status, 409, "{follower:?}");

    let change = |path: &str| {
        let admin = &cluster.nodes[second].admin;
        request(
            "POST",
            admin,
            &format!("/v1/members/{path}"),
            "Bearer operator",
        )
    };
    let own = told[second].status["node_id"].as_str().expect("text");
    for (path, status, word) in [
        ("0123/promote".to_owned(), 409, "not a member"),
        ("x/promote".to_owned(), 400, "hexadecimal"),
        (format!("{own}/promote"), 409, "is a voter already"),
        (format!("{own}/remove"), 409, "transfer the lead"),
    ] {
        let answer = change(&path);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(answer.body.contains(word), "{path}: {answer:?}");
    }

    cluster.nodes[second].kill();
    assert!(try_get(&cluster.nodes[second].admin, "/livez").is_none());
    told_by("the leader died", &running(&cluster), |_, told| {
        told.is_ready()
            && told.status["leader"] != named.as_str()
            && told.status["leader"].is_string()
    });
}

#[test]
fn a_lost_quorum_is_told_and_so_is_its_return() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    // The leader alone: it must find out by itself. Paused nodes keep their connections.
    let others = cluster.others(leader);
    for &other in &others {
        cluster.nodes[other].pause();
    }
    let alone = [&cluster.nodes[leader]];
    let told = told_by("no quorum, at the leader", &alone, |_, told| {
        told.has_no_leader()
    });
    assert!(told[0].ready.body.contains("[-] leader"), "{told:?}");
    for &other in &others {
        cluster.nodes[other].resume();
    }
    let leader = cluster.settle();
    told_by("back", &running(&cluster), healthy(&cluster.nodes[leader]));

    // A follower alone.
    let others = cluster.others(leader);
    let (follower, third) = (others[0], others[1]);
    cluster.nodes[leader].pause();
    cluster.nodes[third].pause();
    told_by(
        "no leader, at a follower",
        &[&cluster.nodes[follower]],
        |_, told| told.has_no_leader(),
    );
    cluster.nodes[leader].resume();
    cluster.nodes[third].resume();
    let leader = cluster.settle();
    told_by(
        "back again",
        &running(&cluster),
        healthy(&cluster.nodes[leader]),
    );
}

/// Grants and releases, so that there is something to catch up with.
fn work(cluster: &mut Cluster, count: u64) {
    let mut session = cluster.leader_session();
    for owner in 0..count {
        session.send(acquire(format!("key-{owner}"), 0, 250, owner));
    }
    for owner in 0..count {
        let grant = session.reply();
        assert!(grant.token() > owner);
    }
}

/// Watches a node that was just started until it is ready: never before it has what was committed
/// when it started, and never dead.
fn ready_only_when_caught_up(node: &Server, leader: &Server, committed: u64) {
    let mut seen = BTreeMap::new();
    eventually("the node is ready", SETTLE, || {
        // Both from one look: nothing is applied in between.
        let status = try_get(&node.admin, "/v1/status")?.json();
        let applied = status["applied_index"].as_u64();
        let early = status["ready"] == true && applied < Some(committed);
        assert!(!early, "ready at {applied:?}: {seen:?}");
        // In this order: what is applied can only grow between the two.
        let ready = try_get(&node.admin, "/readyz")?;
        let status = get(&node.admin, "/v1/status").json();
        assert_eq!(get(&node.admin, "/livez").status, 200);
        // A lost node and who replaces it have the same address, and the page is sound all the same.
        Page::of(&leader.admin);
        *seen.entry(ready.body.clone()).or_insert(0) += 1;
        if ready.status != 200 {
            assert_eq!(ready.status, 503, "{ready:?}");
            return None;
        }
        let applied = status["applied_index"].as_u64();
        assert!(applied >= Some(committed), "ready at {applied:?}: {seen:?}");
        Some(())
    });
}

#[test]
fn a_node_that_catches_up_is_not_ready_before_it_has() {
    let mut cluster = Cluster::start_with(3, &["--snapshot-entries", "16"]);
    let leader = cluster.settle();
    let behind = cluster.others(leader)[0];
    cluster.nodes[behind].kill();
    work(&mut cluster, 3000);
    let committed = |cluster: &Cluster| {
        let status = get(&cluster.nodes[leader].admin, "/v1/status").json();
        status["applied_index"].as_u64().expect("a number")
    };

    let goal = committed(&cluster);
    cluster.nodes[behind].spawn();
    ready_only_when_caught_up(&cluster.nodes[behind], &cluster.nodes[leader], goal);

    // Likewise without its data: under a new id, by a snapshot, first as a learner.
    cluster.nodes[behind].kill();
    cluster.nodes[behind].wipe();
    let goal = committed(&cluster);
    cluster.nodes[behind].spawn();
    ready_only_when_caught_up(&cluster.nodes[behind], &cluster.nodes[leader], goal);
    told_by(
        "healthy again",
        &running(&cluster),
        healthy(&cluster.nodes[leader]),
    );
}

#[test]
fn equal_indices_have_equal_hashes() {
    let mut cluster = Cluster::start(3);
    let mut session = cluster.leader_session();
    let mut hashes: BTreeMap<u64, String> = BTreeMap::new();
    let mut compared = 0;
    for owner in 0..200 {
        session.ask(acquire(format!("key-{owner}"), 0, 250, owner));
        for node in &cluster.nodes {
            let status = get(&node.admin, "/v1/status").json();
            let index = status["applied_index"].as_u64().expect("a number");
            let hash = status["state_hash"].as_str().expect("text").to_owned();
            assert_eq!(hash.len(), 16);
            if let Some(before) = hashes.insert(index, hash.clone()) {
                assert_eq!(before, hash, "at {index}");
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "only {compared} were compared");
    assert!(hashes.len() > 100, "the state moved: {}", hashes.len());
}
