//! `/v1/locks`: the same on every node, but for who queues where.

use serde_json::Value;

use crate::harness::http::get;
use crate::harness::{Cluster, Raw, SETTLE, Server, acquire, eventually};

fn keys(list: &Value) -> Vec<String> {
    let locks = list["locks"].as_array().expect("a list");
    let key = |lock: &Value| lock["key"].as_str().expect("text").to_owned();
    locks.iter().map(key).collect()
}

fn take(session: &mut Raw, count: usize) {
    for number in 0..count {
        let grant = session.ask(acquire(format!("job/{number:04}"), 0, 100, number as u64));
        assert_eq!(grant.token(), number as u64 + 1);
    }
}

#[test]
fn locks_are_listed_by_prefix_in_order_and_within_a_limit() {
    let server = Server::single(&[]);
    let mut session = Raw::connect(&server.address);
    take(&mut session, 120);
    assert_eq!(session.ask(acquire("other", 0, 30, 1)).token(), 121);
    session.send(acquire("job/0007", 30, 30, 2));

    let ask = |query: &str| get(&server.admin, &format!("/v1/locks{query}"));
    let list = ask("").json();
    assert_eq!(
        (keys(&list).len(), &list["more"]),
        (100, &Value::Bool(true))
    );
    let list = ask("?limit=1000").json();
    assert_eq!(
        (keys(&list).len(), &list["more"]),
        (121, &Value::Bool(false))
    );
    let list = ask("?prefix=job/000&limit=3").json();
    assert_eq!(keys(&list), ["job/0000", "job/0001", "job/0002"]);
    assert_eq!(list["more"], true);
    assert_eq!(keys(&ask("?prefix=ot%68er").json()), ["other"]);
    assert_eq!(keys(&ask("?prefix=nothing").json()), [""; 0]);

    let held = eventually("the waiter", SETTLE, || {
        let list = ask("?prefix=job/0007").json();
        (list["locks"][0]["waiters"] == 1).then(|| list["locks"][0].clone())
    });
    assert_eq!(
        (&held["token"], &held["lease_seconds"]),
        (&8.into(), &100.into())
    );
    let remaining = held["remaining_ms"].as_u64().expect("a number");
    assert!((1..=100_000).contains(&remaining), "{held}");

    for bad in ["?limit=0", "?limit=1001", "?limit=x"] {
        let refused = ask(bad);
        assert_eq!(refused.status, 400, "{bad}");
        assert!(refused.body.contains("1 to 1000"), "{}", refused.body);
    }
}

#[test]
fn every_node_lists_the_locks_of_the_cluster() {
    let mut cluster = Cluster::start(3);
    let mut session = cluster.leader_session();
    take(&mut session, 3);
    for node in &cluster.nodes {
        eventually("the locks", SETTLE, || {
            let list = get(&node.admin, "/v1/locks").json();
            (keys(&list) == ["job/0000", "job/0001", "job/0002"]).then_some(())
        });
    }
}
