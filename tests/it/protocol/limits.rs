//! Section 7: every limit, what is over it, and where it opens again.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::harness::raw::Received;
use crate::harness::{Cluster, Frame, PATIENCE, Raw, Server, acquire, eventually, release};

#[test]
fn waiters_per_key_are_counted_per_key_and_exactly() {
    let server = Server::single(&["--max-waiters", "3"]);
    let mut holder = Raw::connect(&server.address);
    let token = holder.ask(acquire("k", 0, 60, 0)).token();
    let other = holder.ask(acquire("other", 0, 60, 0)).token();
    let mut sessions: Vec<_> = (1..=3)
        .map(|owner| {
            let mut waiter = Raw::connect(&server.address);
            waiter.send(acquire("k", 60, 60, owner));
            waiter.expect_nothing_pending();
            waiter
        })
        .collect();
    let mut late = Raw::connect(&server.address);
    assert_eq!(late.ask(acquire("k", 60, 60, 4)), Frame::busy(4, "k"));
    // An immediate try is never queued, so it is no waiter; another key has room.
    assert_eq!(late.ask(acquire("k", 0, 60, 5)), Frame::wait_over(5, "k"));
    late.send(acquire("other", 60, 60, 6));
    late.expect_nothing_pending();
    assert_eq!(
        holder.ask(release("other", other)),
        Frame::released(other, "other")
    );
    assert_eq!(late.reply(), Frame::granted(other + 1, 6, "other"));
    // There is no hysteresis: one that is served makes room for one,
    assert_eq!(holder.ask(release("k", token)), Frame::released(token, "k"));
    let token = sessions[0].reply().token();
    late.send(acquire("k", 60, 60, 7));
    late.expect_nothing_pending();
    assert_eq!(late.ask(acquire("k", 60, 60, 8)), Frame::busy(8, "k"));
    // and so does one that goes away.
    drop(sessions.remove(1));
    eventually("room for a waiter", PATIENCE, || {
        let mut probe = Raw::connect(&server.address);
        probe.send([acquire("k", 60, 60, 9), release("fence", 0)].concat());
        (probe.reply() == Frame::not_released(0, "fence")).then_some(())
    });
    // The order among those that stayed is theirs.
    assert_eq!(holder.ask(release("k", token)), Frame::released(token, "k"));
    assert_eq!(sessions[1].reply(), Frame::granted(token + 1, 3, "k"));
}

#[test]
fn waiters_in_all_close_at_nine_tenths_and_open_below_three_quarters() {
    let server = Server::single(&["--max-total-waiters", "20"]);
    let mut holder = Raw::connect(&server.address);
    let keys = ["a", "b"];
    let mut tokens = keys.map(|key| holder.ask(acquire(key, 0, 60, 0)).token());
    let mut waiter = Raw::connect(&server.address);
    // 18 of 20 are admitted, over all keys together; then it is closed.
    for owner in 0..18 {
        waiter.send(acquire(keys[owner as usize % 2], 60, 60, owner));
    }
    waiter.expect_nothing_pending();
    let mut probe = Raw::connect(&server.address);
    let mut assert_closed = |owner: u64| {
        assert_eq!(
            probe.ask(acquire("a", 60, 60, owner)),
            Frame::busy(owner, "a")
        );
        assert_eq!(
            probe.ask(acquire("b", 60, 60, owner)),
            Frame::busy(owner, "b")
        );
    };
    assert_closed(100);
    // Serving one makes one fewer. 17, 16 and 15 are not below three quarters yet.
    for (served, left) in [(0, 17), (1, 16), (2, 15), (3, 14)] {
        let at = served % 2;
        let released = holder.ask(release(keys[at], tokens[at]));
        assert_eq!(released, Frame::released(tokens[at], keys[at]));
        tokens[at] = waiter.reply().token();
        if left > 14 {
            assert_closed(100 + left);
        }
    }
    // At 14 it is open again, and up to 18 are admitted.
    for owner in 200..204 {
        waiter.send(acquire("a", 60, 60, owner));
    }
    waiter.expect_nothing_pending();
    assert_closed(300);
    // What is no new waiter is served all the time.
    let free = probe.ask(acquire("free", 60, 60, 1)).token();
    assert_eq!(
        probe.ask(release("free", free)),
        Frame::released(free, "free")
    );
}

#[test]
fn one_connection_too_many_is_closed_before_any_byte() {
    let server = Server::single(&["--max-connections", "4"]);
    let mut sessions: Vec<_> = (0..3).map(|_| Raw::connect(&server.address)).collect();
    for session in &mut sessions {
        session.expect_nothing_pending();
    }
    // A connection in its handshake occupies a slot.
    let mut silent = Raw::open(&server.address).expect("the server listens");
    silent.nonce();
    for _ in 0..10 {
        let mut late = Raw::open(&server.address).expect("the server listens");
        assert_eq!(late.receive(Duration::from_secs(2)), Received::End);
    }
    for session in &mut sessions {
        session.expect_nothing_pending();
    }
    drop(silent);
    let mut fourth = eventually("a slot", PATIENCE, || {
        let mut raw = Raw::try_connect(&server.address, b"").ok()?;
        raw.try_send(release("fence", 0)).ok()?;
        let reply = raw.receive(PATIENCE);
        (reply == Received::Frame(Frame::not_released(0, "fence"))).then_some(raw)
    });
    fourth.expect_nothing_pending();
}

/// A client whose kernel takes little on its behalf.
fn narrow_session(address: &str) -> Raw {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket
        .set_recv_buffer_size(4_096)
        .expect("a small buffer is allowed");
    let target: SocketAddr = address.parse().expect("an address with a port");
    socket.connect(&target.into()).expect("the server listens");
    let mut raw = Raw::over(socket.into()).expect("the socket takes its options");
    raw.authenticate(b"").expect("the handshake works");
    raw
}

#[test]
fn a_client_that_does_not_read_is_closed_and_delays_nobody() {
    let server = Server::single(&[]);
    let slow = narrow_session(&server.address);
    let mut writer = slow.writer();
    writer
        .set_write_timeout(Some(PATIENCE))
        .expect("a timeout can be set");
    let burst: Vec<u8> = (0..1_000)
        .flat_map(|_| release("k".repeat(128), 1))
        .collect();
    let start = Instant::now();
    std::thread::scope(|scope| {
        // It stalls when all the buffers between are full, and fails when the server closes.
        let cut = scope.spawn(|| while writer.write_all(&burst).is_ok() {});
        let mut other = Raw::connect(&server.address);
        while !cut.is_finished() {
            let asked = Instant::now();
            let token = other.ask(acquire("k", 0, 30, 1)).token();
            assert_eq!(other.ask(release("k", token)), Frame::released(token, "k"));
            assert!(
                asked.elapsed() < Duration::from_secs(1),
                "{:?}",
                asked.elapsed()
            );
            assert!(
                start.elapsed() < 2 * PATIENCE,
                "the slow client is still connected"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert!(
        start.elapsed() < PATIENCE,
        "not closed but timed out: {:?}",
        start.elapsed()
    );
}

/// Sends `count` requests without waiting and reads their replies at the same time.
fn pipeline(address: &str, count: u64) {
    let mut raw = Raw::connect(address);
    let mut writer = raw.writer();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let bytes: Vec<u8> = (0..count)
                .flat_map(|owner| acquire(format!("pipe{owner}"), 0, 30, owner))
                .collect();
            writer
                .write_all(&bytes)
                .expect("the server takes all of it");
        });
        let mut granted = 0;
        for _ in 0..count {
            match raw.reply() {
                Frame::Granted { .. } => granted += 1,
                Frame::Busy { .. } => {}
                other => panic!("expected A or B, got {other:?}"),
            }
        }
        // At least what may be in flight at once is served.
        assert!(
            granted >= 3_000.min(count),
            "{granted} of {count} were granted"
        );
    });
    raw.expect_nothing_pending();
}

#[test]
fn a_client_that_pipelines_ten_thousand_and_reads_is_never_cut_off() {
    let server = Server::single(&[]);
    pipeline(&server.address, 10_000);
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    pipeline(&cluster.nodes[leader].address, 10_000);
}

#[test]
fn releases_beyond_their_lane_are_delayed_and_never_refused() {
    let server = Server::single(&[]);
    let mut raw = Raw::connect(&server.address);
    let mut writer = raw.writer();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let bytes: Vec<u8> = (0..10_000).flat_map(|token| release("k", token)).collect();
            writer
                .write_all(&bytes)
                .expect("the server takes all of it");
        });
        // In the order in which they were sent.
        for token in 0..10_000 {
            assert_eq!(raw.frame(), Frame::not_released(token, "k"));
        }
    });
}

/// Sends a request for each number and expects the same kind of reply to each.
fn each(raw: &mut Raw, numbers: std::ops::Range<u64>, request: impl Fn(u64) -> Vec<u8>) -> u64 {
    // Fewer at a time than may be in flight.
    let mut last = 0;
    let numbers: Vec<_> = numbers.collect();
    for chunk in numbers.chunks(1_000) {
        raw.send(
            chunk
                .iter()
                .flat_map(|&number| request(number))
                .collect::<Vec<_>>(),
        );
        for _ in chunk {
            match raw.reply() {
                Frame::Granted { token, .. } | Frame::Released { token, .. } => last = token,
                other => panic!("expected A or R, got {other:?}"),
            }
        }
    }
    last
}

#[test]
fn active_keys_close_at_nine_tenths_and_open_below_three_quarters() {
    let mut cluster = Cluster::start(1);
    let mut raw = cluster.leader_session();
    // 90 % of 65,536, rounded up; the tokens count them.
    let admitted = 58_983;
    let key = |number: u64| format!("k{number}");
    let last = each(&mut raw, 1..admitted + 1, |n| acquire(key(n), 0, 250, n));
    assert_eq!(last, admitted);
    assert_eq!(raw.ask(acquire("new", 0, 30, 1)), Frame::busy(1, "new"));
    assert_eq!(raw.ask(acquire("new", 30, 30, 1)), Frame::busy(1, "new"));
    // A key that is held is not new.
    assert_eq!(
        raw.ask(acquire(key(1), 0, 30, 1)),
        Frame::wait_over(1, key(1))
    );
    // It opens when fewer than 49,152 are left, not before.
    let release_of = |number: u64| release(key(number), number);
    each(&mut raw, 49_153..admitted + 1, release_of);
    assert_eq!(raw.ask(acquire("new", 0, 30, 1)), Frame::busy(1, "new"));
    each(&mut raw, 49_152..49_153, release_of);
    assert_eq!(
        raw.ask(acquire("new", 0, 30, 1)),
        Frame::granted(admitted + 1, 1, "new")
    );
}
