//! What an operator may have a cluster do, over HTTP, with a held lock all the while.

use serde_json::Value;

use crate::harness::http::{Answer, get, request, try_get};
use crate::harness::metrics::Page;
use crate::harness::{Cluster, Frame, Raw, SETTLE, Server, acquire, eventually, release};

const TOKEN: &str = "operator";

/// The default election timeout.
const ELECTION_MS: u64 = 1000;

fn start() -> Cluster {
    Cluster::start_with(3, &["--admin-token", TOKEN])
}

fn post(node: &Server, path: &str) -> Answer {
    request("POST", &node.admin, path, &format!("Bearer {TOKEN}"))
}

/// Asks for a change of the membership until nothing that passes is in its way.
fn change(leader: &Server, path: &str) {
    eventually("a change is begun", SETTLE, || {
        let answer = post(leader, path);
        let passes = ["has not caught up", "another change"];
        if answer.status == 409 && passes.iter().any(|reason| answer.body.contains(reason)) {
            return None;
        }
        let begun = (answer.status, answer.body.trim());
        assert_eq!(begun, (202, "the change is under way"));
        Some(())
    });
}

fn status(node: &Server) -> Option<Value> {
    Some(try_get(&node.admin, "/v1/status")?.json())
}

fn node_id(node: &Server) -> String {
    let status = get(&node.admin, "/v1/status").json();
    status["node_id"].as_str().expect("text").to_owned()
}

/// Kind and address of every member that a node knows.
fn members(node: &Server) -> Vec<(String, String)> {
    let status = get(&node.admin, "/v1/status").json();
    let members = status["members"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let member = |member: &Value| (text(&member["kind"]), text(&member["address"]));
    members.map(member).collect()
}

/// A session with the one of `nodes` that serves now.
fn serving(cluster: &Cluster, nodes: &[usize]) -> Raw {
    let nodes = nodes.iter().map(|node| &cluster.nodes[*node]);
    eventually("one of them serves", SETTLE, || {
        let active = |node: &&Server| status(node).is_some_and(|status| status["active"] == true);
        Raw::try_connect(&nodes.clone().find(active)?.address, b"").ok()
    })
}

/// Asks until a node that serves has decided.
fn decided(cluster: &Cluster, nodes: &[usize], ask: &[u8]) -> Frame {
    eventually("a decision", SETTLE, || {
        match serving(cluster, nodes).ask(ask) {
            Frame::Moved(_) | Frame::Error(_) => None,
            frame => Some(frame),
        }
    })
}

#[test]
fn a_lead_that_its_heir_does_not_take_is_taken_up_again_and_no_lock_is_lost() {
    let mut cluster = start();
    let held = cluster.ask(&acquire("held", 0, 250, 1)).token();
    // Whoever is chosen is stopped, and was heard from a moment ago.
    eventually("a transfer to a stopped node", SETTLE, || {
        let leader = cluster.settle();
        let others = cluster.others(leader);
        for &other in &others {
            cluster.nodes[other].pause();
        }
        let answer = post(&cluster.nodes[leader], "/v1/leader/transfer");
        for &other in &others {
            cluster.nodes[other].resume();
        }
        assert_eq!(answer.status, 409, "{answer:?}");
        (answer.body.trim() == "nobody took the lead over in time; there is a new election")
            .then_some(())
    });
    let all = [0, 1, 2];
    assert_eq!(
        decided(&cluster, &all, &acquire("held", 0, 30, 2)),
        Frame::wait_over(2, "held")
    );
    assert!(decided(&cluster, &all, &acquire("new", 0, 30, 3)).token() > held);
    assert_eq!(
        decided(&cluster, &all, &release("held", held)),
        Frame::released(held, "held")
    );
}

#[test]
fn a_lead_is_not_given_up_when_nobody_is_there_to_take_it() {
    let mut cluster = start();
    let held = cluster.ask(&acquire("held", 0, 250, 1)).token();
    let leader = cluster.settle();
    let others = cluster.others(leader);
    for &other in &others {
        cluster.nodes[other].pause();
    }
    let leading = &cluster.nodes[leader];
    eventually("nobody was heard from lately", SETTLE, || {
        let status = status(leading)?;
        let others = status["members"].as_array().expect("a list").iter();
        let mut silences = others.filter_map(|member| member["last_contact_ms"].as_u64());
        silences.all(|silence| silence > ELECTION_MS).then_some(())
    });
    let answer = post(leading, "/v1/leader/transfer");
    assert_eq!(
        (answer.status, answer.body.trim()),
        (409, "no other voter was heard from lately")
    );
    assert_eq!(status(leading).expect("it answers")["role"], "leader");
    for &other in &others {
        cluster.nodes[other].resume();
    }
    let all = [0, 1, 2];
    assert_eq!(
        decided(&cluster, &all, &acquire("held", 0, 30, 2)),
        Frame::wait_over(2, "held")
    );
    assert_eq!(
        decided(&cluster, &all, &release("held", held)),
        Frame::released(held, "held")
    );
}

#[test]
fn a_member_is_taken_out_and_another_one_gets_its_vote() {
    let mut cluster = start();
    let held = cluster.ask(&acquire("held", 0, 250, 1)).token();
    let leader = cluster.settle();
    let leaving = cluster.others(leader)[0];
    let id = node_id(&cluster.nodes[leaving]);
    let path = |id: &str, what: &str| format!("/v1/members/{id}/{what}");
    for what in ["promote", "remove"] {
        let unasked = request("POST", &cluster.nodes[leader].admin, &path(&id, what), "");
        assert_eq!(unasked.status, 401, "{what}: {unasked:?}");
    }

    cluster.nodes[leaving].kill();
    change(&cluster.nodes[leader], &path(&id, "remove"));
    let address = cluster.nodes[leaving].address.clone();
    eventually("it is no member", SETTLE, || {
        let members = members(&cluster.nodes[leader]);
        let gone = members.iter().all(|(_, member)| *member != address);
        gone.then(|| assert_eq!(members.len(), 2, "{members:?}"))
    });

    // Its address comes back with an empty disk, and with nobody to replace.
    cluster.nodes[leaving].wipe();
    cluster.nodes[leaving].spawn();
    let learner = ("learner".to_owned(), address.clone());
    eventually("it is a learner", SETTLE, || {
        members(&cluster.nodes[leader])
            .contains(&learner)
            .then_some(())
    });
    let ready = get(&cluster.nodes[leaving].admin, "/readyz?verbose");
    assert_eq!(ready.status, 503, "{ready:?}");
    let new_id = node_id(&cluster.nodes[leaving]);
    assert_ne!(new_id, id);
    change(&cluster.nodes[leader], &path(&new_id, "promote"));
    eventually("it is a voter and ready", SETTLE, || {
        let voter = ("voter".to_owned(), address.clone());
        let ready = try_get(&cluster.nodes[leaving].admin, "/readyz")?;
        (ready.status == 200 && members(&cluster.nodes[leader]).contains(&voter)).then_some(())
    });
    Page::of(&cluster.nodes[leader].admin);

    // Its vote counts: with it and without the third one there is a quorum.
    let leader = cluster.settle();
    let third = cluster
        .others(leader)
        .into_iter()
        .find(|&node| node != leaving);
    let third = third.unwrap_or(leader);
    cluster.nodes[third].kill();
    let freed = cluster.ask(&release("held", held));
    assert_eq!(freed, Frame::released(held, "held"));
    assert!(cluster.ask(&acquire("held", 0, 30, 2)).token() > held);
}
