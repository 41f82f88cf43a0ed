//! `/metrics`: what moves when something happens, and that nothing else makes the page grow.

use std::time::SystemTime;

use crate::harness::metrics::Page;
use crate::harness::{Cluster, Frame, Raw, SETTLE, Server, acquire, eventually, release};

#[test]
fn requests_are_counted_by_outcome() {
    let server = Server::single(&["--auth-token", "secret"]);
    let before = Page::of(&server.admin);
    assert_eq!(before.get("ticketing_ready"), 1.0);
    assert_eq!(before.get("ticketing_active"), 1.0);

    let mut session = Raw::connect_with(&server.address, "secret");
    let first = session.ask(acquire("a", 0, 30, 1)).token();
    assert_eq!(
        session.ask(acquire("a", 0, 30, 2)),
        Frame::wait_over(2, "a")
    );
    assert_eq!(
        session.ask(release("a", first)),
        Frame::released(first, "a")
    );
    assert_eq!(session.ask(release("a", 7)), Frame::not_released(7, "a"));
    let second = session.ask(acquire("short", 0, 1, 3)).token();
    // The second one to have it waits for the end of the first one's lease.
    assert!(session.ask(acquire("short", 30, 30, 4)).token() > second);
    let mut stranger = Raw::open(&server.address).expect("it accepts");
    assert!(stranger.authenticate("wrong").is_ok());
    assert_eq!(stranger.frame(), Frame::error("auth_failed"));
    stranger.expect_end();
    let mut confused = Raw::connect_with(&server.address, "secret");
    assert_eq!(confused.ask(b"?"), Frame::error("bad_op"));
    confused.expect_end();

    let page = Page::of(&server.admin);
    for (series, value) in [
        ("ticketing_acquires_total{outcome=\"granted\"}", 3.0),
        ("ticketing_acquires_total{outcome=\"timed_out\"}", 1.0),
        ("ticketing_acquires_total{outcome=\"busy\"}", 0.0),
        ("ticketing_releases_total{outcome=\"released\"}", 1.0),
        ("ticketing_releases_total{outcome=\"not_current\"}", 1.0),
        ("ticketing_leases_expired_total", 1.0),
        ("ticketing_active_keys", 1.0),
        ("ticketing_waiters", 0.0),
        ("ticketing_tokens_granted_total", 3.0),
        ("ticketing_acquire_wait_seconds_count", 3.0),
        ("ticketing_acquire_wait_seconds_bucket{le=\"0.5\"}", 2.0),
        ("ticketing_lock_hold_seconds_count", 2.0),
        ("ticketing_lock_hold_seconds_bucket{le=\"0.5\"}", 1.0),
        ("ticketing_handshakes_failed_total{reason=\"auth\"}", 1.0),
        ("ticketing_malformed_frames_total", 1.0),
        ("ticketing_sessions_opened_total", 2.0),
        ("ticketing_admission_closed{gate=\"keys\"}", 0.0),
    ] {
        assert_eq!(page.get(series), value, "{series}");
    }
    eventually("only one connection is left", SETTLE, || {
        (Page::of(&server.admin).get("ticketing_connections") == 1.0).then_some(())
    });
}

#[test]
fn the_process_is_seen_as_others_are() {
    let before = SystemTime::now();
    let server = Server::single(&[]);
    let first = Page::of(&server.admin);
    let crowd: Vec<Raw> = (0..50).map(|_| Raw::connect(&server.address)).collect();
    let second = Page::of(&server.admin);
    let now = SystemTime::now();

    let since_1970 = |time: SystemTime| {
        let age = time.duration_since(SystemTime::UNIX_EPOCH);
        age.expect("a clock that was set").as_secs_f64()
    };
    let start = first.get("process_start_time_seconds");
    // The machine's own start is known to the second.
    assert!(
        (since_1970(before) - 2.0..=since_1970(now) + 2.0).contains(&start),
        "{start} is not about now"
    );
    assert_eq!(second.get("process_start_time_seconds"), start);
    let [open, more] = [&first, &second].map(|page| page.get("process_open_fds"));
    assert!(more >= open + crowd.len() as f64, "{open}, then {more}");
    assert!(second.get("process_max_fds") > more);
    let resident = second.get("process_resident_memory_bytes");
    assert!((1e6..1e10).contains(&resident), "{resident} bytes");
    let [used, later] = [&first, &second].map(|page| page.get("process_cpu_seconds_total"));
    let lived = now.duration_since(before).expect("time goes on");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = lived.as_secs_f64() * cores as f64;
    assert!(
        used > 0.0 && used <= later && later <= most,
        "{used}, {later}, {most}"
    );
}

#[test]
fn admission_is_seen_to_close() {
    let server = Server::single(&["--max-total-waiters", "10"]);
    let mut session = Raw::connect(&server.address);
    session.ask(acquire("held", 0, 100, 1));
    for owner in 0..9 {
        session.send(acquire("held", 60, 30, owner));
    }
    assert_eq!(
        session.ask(acquire("held", 60, 30, 99)),
        Frame::busy(99, "held")
    );
    let page = Page::of(&server.admin);
    assert_eq!(
        page.get("ticketing_admission_closed{gate=\"waiters\"}"),
        1.0
    );
    assert_eq!(page.get("ticketing_acquires_total{outcome=\"busy\"}"), 1.0);
    assert_eq!(page.get("ticketing_waiters"), 9.0);
}

#[test]
fn keys_and_clients_do_not_make_the_page_grow() {
    let server = Server::single(&[]);
    let mut session = Raw::connect(&server.address);
    let before = Page::of(&server.admin);
    for owner in 0..4000 {
        session.send(acquire(format!("key-{owner}"), 0, 250, owner));
        if owner % 200 == 199 {
            for _ in 0..200 {
                session.reply();
            }
        }
    }
    let _crowd: Vec<Raw> = (0..50).map(|_| Raw::connect(&server.address)).collect();
    let after = Page::of(&server.admin);
    assert_eq!(after.get("ticketing_active_keys"), 4000.0);
    assert_eq!(before.names(), after.names());
}

#[test]
fn a_cluster_shows_its_log_its_peers_and_its_snapshots() {
    let mut cluster = Cluster::start_with(3, &["--snapshot-entries", "16"]);
    let leader = cluster.settle();
    let mut session = cluster.session(leader);
    for owner in 0..100 {
        session.ask(acquire(format!("key-{owner}"), 0, 250, owner));
    }
    let page = Page::of(&cluster.nodes[leader].admin);
    assert_eq!(page.get("ticketing_members{kind=\"voter\"}"), 3.0);
    assert_eq!(page.get("ticketing_tokens_granted_total"), 100.0);
    assert!(page.get("ticketing_proposals_applied_total") >= 100.0);
    assert!(page.get("ticketing_log_applied_index") >= 100.0);
    assert!(page.get("ticketing_batch_commands_bucket{le=\"1\"}") >= 100.0);
    for timed in ["log_append", "log_sync", "peer_round_trip"] {
        let count = page.get(&format!("ticketing_{timed}_duration_seconds_count"));
        assert!(count > 100.0, "{timed}: {count}");
    }
    for other in cluster.others(leader) {
        let peer = &cluster.nodes[other].address;
        let age = format!("ticketing_peer_last_contact_seconds{{peer=\"{peer}\"}}");
        assert!(page.get(&age) < 2.0);
        let lag = format!("ticketing_peer_lag_entries{{peer=\"{peer}\"}}");
        assert!(page.get(&lag) < 100.0);
        // A follower decides nothing and sends on.
        let mut session = cluster.session(other);
        session.leads();
        assert!(matches!(
            session.ask(acquire("x", 0, 1, 1)),
            Frame::Moved(_)
        ));
        let page = Page::of(&cluster.nodes[other].admin);
        assert_eq!(page.get("ticketing_refusals_total{reason=\"moved\"}"), 1.0);
        assert_eq!(
            page.get("ticketing_acquires_total{outcome=\"granted\"}"),
            0.0
        );
        assert!(page.get("ticketing_leader_changes_total") >= 1.0);
    }
    eventually("a snapshot", SETTLE, || {
        let page = Page::of(&cluster.nodes[leader].admin);
        let built = page.get("ticketing_snapshot_build_duration_seconds_count");
        (built > 0.0 && page.get("ticketing_snapshot_size_bytes") > 0.0).then_some(())
    });
}
