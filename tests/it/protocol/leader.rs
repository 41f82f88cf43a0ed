//! Section 6: who is told to go where.

use std::time::Duration;

use crate::harness::raw::Received;
use crate::harness::{Cluster, Frame, PATIENCE, Raw, SETTLE, Server, acquire, gate, release};

#[test]
fn followers_name_the_leader_and_refuse_for_good() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let address = cluster.nodes[leader].address.clone();
    // Every node says so straight after the handshake, the leader too.
    for index in 0..3 {
        assert_eq!(cluster.session(index).leads(), address);
    }
    for follower in cluster.others(leader) {
        let mut session = cluster.session(follower);
        assert_eq!(session.leads(), address);
        for _ in 0..2 {
            assert_eq!(
                session.ask(acquire("k", 0, 30, 1)),
                Frame::Moved(address.clone())
            );
            assert_eq!(
                session.ask(acquire("k", 30, 30, 1)),
                Frame::Moved(address.clone())
            );
            assert_eq!(session.ask(release("k", 1)), Frame::Moved(address.clone()));
        }
        // One refusal a request, pipelined ones too, and nothing else.
        session.send([acquire("k", 1, 30, 1), b"\n\n".to_vec(), release("k", 1)].concat());
        assert_eq!(session.frame(), Frame::Moved(address.clone()));
        assert_eq!(session.frame(), Frame::Moved(address.clone()));
        session.shut_down();
        session.expect_end();
    }
    // None of it was forwarded.
    let mut session = cluster.leader_session();
    assert_eq!(
        session.ask(acquire("k", 0, 30, 1)),
        Frame::granted(1, 1, "k")
    );
}

#[test]
fn a_change_of_leader_is_pushed_and_a_refused_session_stays_refused() {
    let mut cluster = Cluster::start(3);
    let old = cluster.settle();
    let mut sessions: Vec<_> = cluster
        .others(old)
        .into_iter()
        .map(|index| {
            let mut fresh = cluster.session(index);
            let mut refused = cluster.session(index);
            fresh.leads();
            refused.leads();
            assert!(matches!(
                refused.ask(acquire("k", 0, 30, 1)),
                Frame::Moved(_)
            ));
            (index, fresh, refused)
        })
        .collect();
    assert_eq!(cluster.nodes[old].stop().code(), Some(0));
    let new = cluster.settle();
    let address = cluster.nodes[new].address.clone();
    for (index, fresh, refused) in &mut sessions {
        // Both hear of it on the connection they have; a refusal does not end the pushes.
        for session in [&mut *fresh, &mut *refused] {
            let mut heard = session.leads();
            while heard != address {
                heard = session.leads();
            }
        }
        if *index == new {
            assert_eq!(fresh.ask(acquire("k", 0, 30, 1)), Frame::granted(1, 1, "k"));
            // Definitive for the whole session, although this node leads now.
            assert_eq!(
                refused.ask(acquire("k", 0, 30, 1)),
                Frame::error("not_active")
            );
            assert_eq!(refused.ask(release("k", 1)), Frame::error("not_active"));
        } else {
            assert_eq!(fresh.ask(release("k", 1)), Frame::Moved(address.clone()));
            assert_eq!(refused.ask(release("k", 1)), Frame::Moved(address.clone()));
        }
    }
}

#[test]
fn a_single_server_never_speaks_of_leaders() {
    let server = Server::single(&[]);
    let mut raw = Raw::connect(&server.address);
    raw.send(acquire("k", 0, 30, 1));
    assert_eq!(raw.frame(), Frame::granted(1, 1, "k"));
    raw.send(release("k", 1));
    assert_eq!(raw.frame(), Frame::released(1, "k"));
}

#[test]
fn a_node_without_a_quorum_refuses_and_keeps_the_connection() {
    let mut cluster = Cluster::prepare(gate::shared(), 3, &[]);
    cluster.nodes[0].start();
    let mut session = cluster.session(0);
    for _ in 0..3 {
        let reply = session.ask(acquire("k", 30, 30, 1));
        let refused = [Frame::error("no_leader"), Frame::error("not_active")];
        assert!(refused.contains(&reply), "{reply:?}");
    }
    // The others come; the refused session hears of the leader, and is still refused.
    cluster.start_all();
    assert!(matches!(
        session.receive(SETTLE),
        Received::Frame(Frame::Leads(_))
    ));
    let reply = session.ask(acquire("k", 0, 30, 1));
    assert!(
        matches!(reply, Frame::Moved(_) | Frame::Error(_)),
        "{reply:?}"
    );
}

#[test]
fn addresses_are_announced_byte_for_byte() {
    let mut cluster = Cluster::prepare(gate::shared(), 1, &[]);
    let node = &mut cluster.nodes[0];
    let port = node.address.rsplit(':').next().expect("a port").to_owned();
    let written = format!("LocalHost:{port}");
    node.set_flag("--cluster-self", &written);
    node.set_flag(
        "--cluster-peers",
        &format!("{written}={}", node.peer_address),
    );
    node.start();
    let mut session = Raw::connect(&node.address);
    assert_eq!(session.frame_within(SETTLE), Frame::Leads(written));
    assert_eq!(
        session.ask(acquire("k", 0, 30, 1)),
        Frame::granted(1, 1, "k")
    );
}

#[test]
fn a_waiter_of_a_leader_that_steps_down_is_refused_and_a_holder_keeps_its_lock() {
    let mut cluster = Cluster::start(3);
    let old = cluster.settle();
    let mut holder = cluster.session(old);
    let mut waiter = cluster.session(old);
    let token = holder.ask(acquire("k", 0, 60, 1)).token();
    waiter.send(acquire("k", 60, 60, 2));
    waiter.expect_nothing_pending();
    cluster.nodes[old].ask_to_stop();
    // Nothing of the waiter's was proposed, so it is told that it is refused.
    let reply = waiter.reply_within(Duration::from_secs(5));
    assert!(
        matches!(reply, Frame::Moved(_) | Frame::Error(_)),
        "{reply:?}"
    );
    waiter.expect_end_within(PATIENCE);
    assert_eq!(cluster.nodes[old].wait(PATIENCE).code(), Some(0));
    assert_eq!(
        cluster.ask(&acquire("k", 0, 30, 3)),
        Frame::wait_over(3, "k")
    );
    assert_eq!(
        cluster.ask(&release("k", token)),
        Frame::released(token, "k")
    );
}
