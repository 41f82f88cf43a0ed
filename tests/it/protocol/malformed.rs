//! Sections 3 and 4: what a frame may be, and what is said to one that is none.

use std::time::{Duration, Instant};

use crate::harness::raw::Received;
use crate::harness::{Cluster, Frame, Raw, Server, acquire, release};

/// Sends bytes on a fresh session and expects a reason and the end.
fn assert_refused(address: &str, bytes: &[u8], reason: &str) {
    let mut raw = Raw::connect(address);
    raw.send(bytes);
    assert_eq!(
        raw.reply(),
        Frame::error(reason),
        "{}",
        bytes.escape_ascii()
    );
    raw.expect_end();
}

/// Sends the beginning of a frame, ends the sending direction, and expects `bad_request`.
fn assert_unfinished(address: &str, bytes: &[u8]) {
    let mut raw = Raw::connect(address);
    raw.send(bytes);
    raw.shut_down();
    assert_eq!(
        raw.reply(),
        Frame::error("bad_request"),
        "{}",
        bytes.escape_ascii()
    );
    raw.expect_end();
}

/// The rows that hold on every node, whatever its role.
fn malformed_rows(address: &str) {
    bad_ops(address);
    bad_leases(address);
    bad_keys(address);
    long_lines(address);
    unfinished_frames(address);
}

fn bad_ops(address: &str) {
    // Decided on the op byte alone: nothing else is sent.
    for op in [
        b"X", b"\0", b"\xff", b"a", b"r", b"\r", b" ", b"T", b"N", b"M", b"L", b"E", b"B",
    ] {
        assert_refused(address, op, "bad_op");
    }
}

fn bad_leases(address: &str) {
    for lease in [0, 251, 252, 255] {
        assert_refused(address, &acquire("k", 0, lease, 1), "bad_lease");
    }
    // The lease is checked before the key.
    assert_refused(address, &acquire("", 0, 0, 1), "bad_lease");
    assert_refused(address, &acquire("a b", 0, 251, 1), "bad_lease");
}

fn bad_keys(address: &str) {
    let long = "k".repeat(129);
    // 65 characters, but 130 bytes.
    let wide = "é".repeat(65);
    let keys: [&[u8]; 10] = [
        b"",
        long.as_bytes(),
        wide.as_bytes(),
        b" ",
        b"a b",
        b"k ",
        b"\xff",
        b"caf\xc3",
        b"\xed\xa0\x80",
        b"\xc0\x80",
    ];
    for key in keys {
        assert_refused(address, &acquire(key, 0, 30, 1), "bad_key");
        assert_refused(address, &release(key, 1), "bad_key");
    }
}

fn long_lines(address: &str) {
    // With its header an acquire has room for 181 bytes, a release for 183.
    assert_refused(address, &acquire("k".repeat(181), 0, 30, 1), "bad_key");
    assert_refused(address, &release("k".repeat(183), 1), "bad_key");
    // One more is decided without waiting for the end of the line, and before lease and key.
    let long = acquire("k".repeat(182), 0, 0, 1);
    assert_refused(address, &long[..193], "line_too_long");
    assert_refused(address, &long, "line_too_long");
    assert_refused(
        address,
        &release(" ".repeat(184), 1)[..193],
        "line_too_long",
    );
    assert_refused(
        address,
        &acquire("k".repeat(10_000), 0, 30, 1),
        "line_too_long",
    );
}

fn unfinished_frames(address: &str) {
    let whole = acquire("key", 0, 30, 1);
    for length in 1..whole.len() {
        assert_unfinished(address, &whole[..length]);
    }
    let whole = release("key", 1);
    for length in [1, 5, 9, whole.len() - 1] {
        assert_unfinished(address, &whole[..length]);
    }
    // The header is consumed by count: these newlines are part of it, and a byte is missing.
    assert_unfinished(address, b"A\n\n\n\n\n\n\n\n\n");
    // At the limit the line may still end.
    assert_unfinished(address, &acquire("k".repeat(181), 0, 30, 1)[..192]);
}

#[test]
fn malformed_frames_get_their_reason_and_the_end_on_any_node() {
    let server = Server::single(&[]);
    malformed_rows(&server.address);
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    malformed_rows(&cluster.nodes[leader].address);
    let follower = cluster.others(leader)[0];
    malformed_rows(&cluster.nodes[follower].address);
}

#[test]
fn requests_before_a_malformed_frame_are_answered_and_queued_ones_dropped() {
    let server = Server::single(&[]);
    let mut holder = Raw::connect(&server.address);
    let held = holder.ask(acquire("held", 0, 30, 1)).token();

    let mut raw = Raw::connect(&server.address);
    let queued = acquire("held", 30, 30, 2);
    let pipelined = [
        acquire("free", 0, 30, 3),
        queued,
        release("free", 999),
        b"X".to_vec(),
    ]
    .concat();
    raw.send(pipelined);
    let granted = raw.frame();
    assert_eq!(granted, Frame::granted(granted.token(), 3, "free"));
    assert_eq!(raw.frame(), Frame::not_released(999, "free"));
    assert_eq!(raw.frame(), Frame::error("bad_op"));
    raw.expect_end();

    // The queued one is gone: the key is free after its holder's release.
    assert_eq!(
        holder.ask(release("held", held)),
        Frame::released(held, "held")
    );
    assert!(holder.ask(acquire("held", 0, 30, 4)).token() > held);
}

#[test]
fn nothing_after_a_malformed_frame_is_read() {
    let server = Server::single(&[]);
    let mut raw = Raw::connect(&server.address);
    raw.send([acquire("", 0, 30, 1), acquire("k", 0, 30, 2)].concat());
    assert_eq!(raw.frame(), Frame::error("bad_key"));
    raw.expect_end();
    let mut other = Raw::connect(&server.address);
    assert_eq!(other.ask(acquire("k", 0, 30, 3)), Frame::granted(1, 3, "k"));
}

#[test]
fn a_frame_has_five_seconds_from_its_op_byte() {
    let server = Server::single(&[]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut raw = Raw::connect(&server.address);
            // Time between frames does not count: this session is older than its frame.
            raw.expect_nothing_pending();
            raw.send(b"\n\n");
            let start = Instant::now();
            raw.send(b"A");
            assert_late(start, raw.frame());
            raw.expect_end();
        });
        scope.spawn(|| {
            // A byte now and then does not help: the time counts from the op byte.
            let mut raw = Raw::connect(&server.address);
            let start = Instant::now();
            let mut bytes = acquire("k".repeat(128), 0, 30, 1).into_iter();
            loop {
                if raw
                    .try_send([bytes.next().expect("time ends before the frame")])
                    .is_err()
                {
                    break;
                }
                match raw.receive(Duration::from_millis(300)) {
                    Received::Nothing => {}
                    Received::Frame(frame) => {
                        assert_late(start, frame);
                        break;
                    }
                    other => panic!("expected bad_request, got {other:?}"),
                }
            }
            raw.expect_end();
        });
    });
}

fn assert_late(start: Instant, frame: Frame) {
    assert_eq!(frame, Frame::error("bad_request"));
    let took = start.elapsed();
    let expected = Duration::from_millis(4_900)..Duration::from_millis(7_000);
    assert!(expected.contains(&took), "{took:?}");
}
