//! A node that lost its disk: it comes back as somebody else, and what it was stays away.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::harness::raw::Received;
use crate::harness::{Cluster, Frame, Raw, acquire, eventually, release};

use super::ELECTION_TIMEOUT;

/// The old id must be silent for ten election timeouts before it is replaced, and then there is a
/// catch-up and a membership change.
const REPLACED: Duration = Duration::from_secs(40);

/// A copy of a data directory, to be put back later.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the directory is writable");
    for entry in fs::read_dir(from).expect("the directory is there") {
        let entry = entry.expect("the directory can be read");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("it has a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("the file can be copied");
        }
    }
}

/// True if the cluster grants with `absent` killed, that is, without its vote: a grant is an entry
/// that a quorum has. The node is started again in any case.
fn grants_without(cluster: &mut Cluster, absent: usize, attempt: u64) -> bool {
    cluster.nodes[absent].kill();
    // What was asked for and never answered may be held later: each question has a new key.
    let mut question = 0;
    let killed = Instant::now();
    let mut granted = false;
    while killed.elapsed() < 3 * ELECTION_TIMEOUT && !granted {
        granted = cluster.others(absent).into_iter().any(|index| {
            let Ok(mut session) = Raw::try_connect(&cluster.nodes[index].address, b"") else {
                return false;
            };
            question += 1;
            let key = format!("quorum{attempt}.{question}");
            session.try_send(acquire(&key, 0, 1, 1)).is_ok()
                && matches!(
                    session.receive_reply(Duration::from_millis(500)),
                    Received::Frame(Frame::Granted { .. })
                )
        });
    }
    cluster.nodes[absent].start();
    granted
}

#[test]
fn a_wiped_node_becomes_a_voter_again_while_the_cluster_serves_and_its_old_id_never_does() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let wiped = cluster.others(leader)[0];
    let third = cluster.others(leader)[1];
    let held = cluster.ask(&acquire("held", 0, 250, 1)).token();
    let lost = cluster.ask(&acquire("released", 0, 250, 1)).token();

    cluster.nodes[wiped].kill();
    let kept = cluster.dir().join("kept");
    copy(cluster.nodes[wiped].data_dir(), &kept);
    cluster.nodes[wiped].wipe();
    // What happens now, the old disk does not know.
    assert_eq!(
        cluster.ask(&release("released", lost)),
        Frame::released(lost, "released")
    );
    let mut greatest = cluster.ask(&acquire("later", 0, 250, 1)).token();
    cluster.nodes[wiped].spawn();

    // The cluster serves all the time while the newcomer waits for the old id's silence.
    let mut session = cluster.leader_session();
    let start = Instant::now();
    let mut voter = false;
    while !voter {
        assert!(start.elapsed() < REPLACED, "the wiped node is no voter");
        let key = format!("probe{greatest}");
        let granted = session.ask(acquire(&key, 0, 30, 1)).token();
        assert!(granted > greatest);
        greatest = granted;
        session.ask(release(&key, granted));
        // The newcomer names the leader once the log reaches it, a little before it is a voter.
        let follows = cluster.nodes[wiped].names_leader().is_some();
        // Before that, this would only take the quorum away.
        if follows && start.elapsed() > 10 * ELECTION_TIMEOUT {
            voter = grants_without(&mut cluster, third, greatest);
            cluster.settle();
            session = cluster.leader_session();
        }
    }

    // With the leader dead, the newcomer and the third are the quorum: nothing is forgotten.
    let leader = cluster.settle();
    let survivors = cluster.others(leader);
    cluster.nodes[leader].kill();
    assert_eq!(
        cluster.ask(&acquire("held", 0, 30, 2)),
        Frame::wait_over(2, "held")
    );
    assert_eq!(
        cluster.ask(&release("held", held)),
        Frame::released(held, "held")
    );
    let granted = cluster.ask(&acquire("released", 0, 250, 2)).token();
    assert!(granted > greatest, "token {granted} after {greatest}");
    cluster.nodes[leader].start();
    cluster.settle();

    // The old disk comes back. It has votes and entries of an id that is no member any more: it
    // must not serve, and not disturb those who do.
    assert!(survivors.contains(&wiped) || leader == wiped);
    if cluster.nodes[wiped].is_up() {
        cluster.nodes[wiped].kill();
    }
    cluster.nodes[wiped].wipe();
    copy(&kept, cluster.nodes[wiped].data_dir());
    let leader = cluster.settle();
    cluster.nodes[wiped].spawn();
    let mut session = cluster.session(leader);
    let start = Instant::now();
    while start.elapsed() < 4 * ELECTION_TIMEOUT {
        let key = format!("after{greatest}");
        greatest = session.ask(acquire(&key, 0, 1, 1)).token();
        let address = &cluster.nodes[wiped].address;
        if let Ok(mut old) = Raw::try_connect(address, b"")
            && old.try_send(acquire("released", 0, 1, 9)).is_ok()
        {
            let reply = old.receive_reply(Duration::from_millis(200));
            let refused = !matches!(
                &reply,
                Received::Frame(Frame::Granted { .. } | Frame::WaitOver { .. })
            );
            assert!(refused, "the old id serves: {reply:?}");
        }
    }
    assert_eq!(
        session.ask(release("released", granted)),
        Frame::released(granted, "released")
    );
    let _ = eventually("the session is undisturbed", ELECTION_TIMEOUT, || {
        Some(session.ask(acquire("last", 0, 30, 1)).token())
    });
}
