//! Section 5: what a lock is, on a single server and on a cluster's leader alike.

use std::time::{Duration, Instant};

use crate::harness::raw::Received;
use crate::harness::{Cluster, Frame, PATIENCE, Raw, Server, acquire, eventually, release};

/// Tries the rows on a fresh single server and on the leader of a fresh cluster.
fn on_both(rows: impl Fn(&str)) {
    rows(&Server::single(&[]).address);
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    rows(&cluster.nodes[leader].address);
}

#[test]
fn the_rows_about_locks() {
    on_both(|address| {
        tokens_count_from_one_over_all_keys(address);
        request_fields_at_their_edges(address);
        keys_are_bytes(address);
        owners_only_correlate(address);
        releases(address);
        queues_are_first_in_first_out(address);
        frames_in_pieces_and_in_one_packet(address);
        ends_of_sessions(address);
    });
}

fn tokens_count_from_one_over_all_keys(address: &str) {
    let mut raw = Raw::connect(address);
    for (token, key) in [(1, "a"), (2, "b"), (3, "c")] {
        assert_eq!(
            raw.ask(acquire(key, 0, 30, 7)),
            Frame::granted(token, 7, key)
        );
    }
    assert_eq!(raw.ask(release("a", 1)), Frame::released(1, "a"));
    assert_eq!(raw.ask(acquire("a", 0, 30, 7)), Frame::granted(4, 7, "a"));
    for (token, key) in [(4, "a"), (2, "b"), (3, "c")] {
        assert_eq!(raw.ask(release(key, token)), Frame::released(token, key));
    }
}

fn request_fields_at_their_edges(address: &str) {
    let mut raw = Raw::connect(address);
    for wait in [0, 1, 255] {
        for lease in [1, 250] {
            let granted = raw.ask(acquire("edge", wait, lease, 1));
            assert_eq!(granted, Frame::granted(granted.token(), 1, "edge"));
            let token = granted.token();
            assert_eq!(
                raw.ask(release("edge", token)),
                Frame::released(token, "edge")
            );
        }
    }
    // The fixed header may contain newlines: here all of it does.
    let newlines = 0x0A0A_0A0A_0A0A_0A0A;
    let granted = raw.ask(acquire("edge", 10, 10, newlines));
    assert_eq!(granted, Frame::granted(granted.token(), newlines, "edge"));
    let token = granted.token();
    assert_eq!(
        raw.ask(release("edge", newlines)),
        Frame::not_released(newlines, "edge")
    );
    assert_eq!(
        raw.ask(release("edge", token)),
        Frame::released(token, "edge")
    );
    for owner in [0, u64::MAX] {
        let granted = raw.ask(acquire("edge", 0, 30, owner));
        assert_eq!(granted, Frame::granted(granted.token(), owner, "edge"));
        raw.ask(release("edge", granted.token()));
    }
    // PROTOCOL's vectors.
    let vector = b"\x41\x05\x1e\x11\x22\x33\x44\x55\x66\x77\x88order-1\n";
    let granted = raw.ask(vector);
    assert_eq!(
        granted,
        Frame::granted(granted.token(), 0x1122_3344_5566_7788, "order-1")
    );
    raw.ask(release("order-1", granted.token()));
    let vector = b"\x52\0\0\0\0\0\0\0\x0a\xe5\x9c\xa8\xe5\xba\xab\n";
    assert_eq!(raw.ask(vector), Frame::not_released(10, "在庫"));
}

fn keys_are_bytes(address: &str) {
    let mut raw = Raw::connect(address);
    let longest = "k".repeat(128);
    let wide = "é".repeat(64);
    // All different, whatever they look like: composed and decomposed, with and without \r.
    let keys = [
        "x",
        "X",
        "x\t",
        "\t",
        "\0",
        "x\0",
        "\r",
        "x\r",
        "\u{e9}",
        "e\u{301}",
        "\u{a0}",
        "在庫",
        "\u{feff}",
        &longest,
        &longest[1..],
        &wide,
    ];
    let mut tokens = Vec::new();
    for key in keys {
        let granted = raw.ask(acquire(key, 0, 30, 1));
        assert_eq!(granted, Frame::granted(granted.token(), 1, key));
        tokens.push(granted.token());
    }
    for (key, token) in keys.into_iter().zip(tokens) {
        assert_eq!(raw.ask(release(key, token)), Frame::released(token, key));
    }
}

fn owners_only_correlate(address: &str) {
    let mut raw = Raw::connect(address);
    let token = raw.ask(acquire("owned", 0, 30, 5)).token();
    // The same owner on the same session has no claim, and neither has another session with it.
    assert_eq!(
        raw.ask(acquire("owned", 0, 30, 5)),
        Frame::wait_over(5, "owned")
    );
    let mut other = Raw::connect(address);
    assert_eq!(
        other.ask(acquire("owned", 0, 30, 5)),
        Frame::wait_over(5, "owned")
    );
    assert_eq!(
        raw.ask(release("owned", token)),
        Frame::released(token, "owned")
    );
}

fn releases(address: &str) {
    let mut holder = Raw::connect(address);
    let token = holder.ask(acquire("rel", 0, 30, 1)).token();
    let mut other = Raw::connect(address);
    // No token but the current one, from nobody; nor the current one of another key.
    for wrong in [0, token - 1, token + 1, u64::MAX] {
        assert_eq!(
            holder.ask(release("rel", wrong)),
            Frame::not_released(wrong, "rel")
        );
        assert_eq!(
            other.ask(release("rel", wrong)),
            Frame::not_released(wrong, "rel")
        );
    }
    assert_eq!(
        holder.ask(release("other", token)),
        Frame::not_released(token, "other")
    );
    assert_eq!(
        other.ask(acquire("rel", 0, 30, 2)),
        Frame::wait_over(2, "rel")
    );
    // Any session may release with the right token, once.
    assert_eq!(
        other.ask(release("rel", token)),
        Frame::released(token, "rel")
    );
    assert_eq!(
        holder.ask(release("rel", token)),
        Frame::not_released(token, "rel")
    );
    // A late release does not touch the next holder's grant.
    let next = other.ask(acquire("rel", 0, 30, 3)).token();
    assert!(next > token);
    assert_eq!(
        holder.ask(release("rel", token)),
        Frame::not_released(token, "rel")
    );
    assert_eq!(
        holder.ask(acquire("rel", 0, 30, 4)),
        Frame::wait_over(4, "rel")
    );
    assert_eq!(
        other.ask(release("rel", next)),
        Frame::released(next, "rel")
    );
}

fn queues_are_first_in_first_out(address: &str) {
    let mut holder = Raw::connect(address);
    let mut token = holder.ask(acquire("fifo", 0, 30, 0)).token();
    let mut first = Raw::connect(address);
    let mut second = Raw::connect(address);
    // Two sessions in turn; each knows that its request arrived before the next one is sent.
    for owner in 1..=6 {
        let waiter = if owner % 2 == 0 {
            &mut second
        } else {
            &mut first
        };
        waiter.send(acquire("fifo", 30, 30, owner));
        waiter.expect_nothing_pending();
    }
    // With waiters there an immediate try is not served before them.
    assert_eq!(
        holder.ask(acquire("fifo", 0, 30, 99)),
        Frame::wait_over(99, "fifo")
    );
    for owner in 1..=6 {
        assert_eq!(
            holder.ask(release("fifo", token)),
            Frame::released(token, "fifo")
        );
        let waiter = if owner % 2 == 0 {
            &mut second
        } else {
            &mut first
        };
        let granted = waiter.reply();
        assert_eq!(granted, Frame::granted(granted.token(), owner, "fifo"));
        assert!(granted.token() > token);
        token = granted.token();
    }
    assert_eq!(
        holder.ask(release("fifo", token)),
        Frame::released(token, "fifo")
    );
    first.expect_nothing_pending();
    second.expect_nothing_pending();
}

fn frames_in_pieces_and_in_one_packet(address: &str) {
    let mut raw = Raw::connect(address);
    // Byte by byte, with keep-alives before and after.
    for byte in [b"\n\n".to_vec(), acquire("bytes", 0, 30, 1), b"\n".to_vec()].concat() {
        raw.send([byte]);
    }
    let token = raw.reply().token();
    for byte in release("bytes", token) {
        raw.send([byte]);
    }
    assert_eq!(raw.reply(), Frame::released(token, "bytes"));
    // Many in one packet. Replies may come in another order; these are all decided by the table.
    let packet: Vec<u8> = (0..100)
        .flat_map(|owner| [acquire(format!("p{owner}"), 0, 30, owner), b"\n".to_vec()].concat())
        .collect();
    raw.send(packet);
    let mut tokens = Vec::new();
    for owner in 0..100 {
        let granted = raw.reply();
        assert_eq!(
            granted,
            Frame::granted(granted.token(), owner, format!("p{owner}"))
        );
        tokens.push(granted.token());
    }
    assert!(tokens.is_sorted());
    let packet: Vec<u8> = (0..100)
        .flat_map(|n| release(format!("p{n}"), tokens[n]))
        .collect();
    raw.send(packet);
    for (n, token) in tokens.into_iter().enumerate() {
        assert_eq!(raw.reply(), Frame::released(token, format!("p{n}")));
    }
}

fn ends_of_sessions(address: &str) {
    let mut holder = Raw::connect(address);
    let token = holder.ask(acquire("end", 0, 30, 1)).token();

    // A grant that was delivered outlives its session.
    let mut gone = Raw::connect(address);
    let left_behind = gone.ask(acquire("left", 0, 30, 1)).token();
    drop(gone);
    assert_eq!(
        holder.ask(acquire("left", 0, 30, 1)),
        Frame::wait_over(1, "left")
    );
    assert_eq!(
        holder.ask(release("left", left_behind)),
        Frame::released(left_behind, "left")
    );

    // A half-closed session: what is decided is still told, its waiter is gone, then the end.
    let mut half = Raw::connect(address);
    half.send([acquire("end", 30, 30, 2), release("none", 77)].concat());
    half.shut_down();
    assert_eq!(half.reply(), Frame::not_released(77, "none"));
    half.expect_end();

    // Likewise when the connection is dropped. Both ended before the third one's turn.
    let mut dropped = Raw::connect(address);
    dropped.send(acquire("end", 30, 30, 3));
    dropped.expect_nothing_pending();
    drop(dropped);
    let mut third = Raw::connect(address);
    third.send(acquire("end", 30, 30, 4));
    third.expect_nothing_pending();
    assert_eq!(
        holder.ask(release("end", token)),
        Frame::released(token, "end")
    );
    let granted = third.reply();
    assert_eq!(granted, Frame::granted(granted.token(), 4, "end"));
    third.ask(release("end", granted.token()));
}

#[test]
fn a_wait_ends_with_one_t_and_a_lease_hands_on() {
    on_both(|address| {
        let mut holder = Raw::connect(address);
        let mut waiter = Raw::connect(address);
        let start = Instant::now();
        let token = holder.ask(acquire("k", 0, 2, 1)).token();
        waiter.send([acquire("k", 1, 30, 2), acquire("k", 30, 30, 3)].concat());
        assert_eq!(waiter.reply(), Frame::wait_over(2, "k"));
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "{:?}",
            start.elapsed()
        );
        // Never before its two seconds are over, counted from before the grant was asked for.
        let granted = waiter.reply();
        assert!(
            start.elapsed() >= Duration::from_secs(2),
            "{:?}",
            start.elapsed()
        );
        assert_eq!(granted, Frame::granted(granted.token(), 3, "k"));
        assert!(granted.token() > token);
        // The old holder has nothing to release any more, and nobody hears anything twice.
        assert_eq!(
            holder.ask(release("k", token)),
            Frame::not_released(token, "k")
        );
        waiter.expect_nothing_pending();
    });
}

#[test]
fn a_session_that_ends_was_told_of_its_grant_or_has_none() {
    on_both(|address| {
        let mut other = Raw::connect(address);
        for round in 0..50 {
            // The end of input follows the request closely: which of the two is decided first is
            // a race, but not what each outcome means.
            let key = format!("k{round}");
            let mut ending = Raw::connect(address);
            ending.send(acquire(&key, 0, 250, 1));
            ending.shut_down();
            match ending.receive_reply(PATIENCE) {
                Received::Frame(granted) => {
                    let token = granted.token();
                    assert_eq!(granted, Frame::granted(token, 1, &key));
                    assert_eq!(
                        other.ask(release(&key, token)),
                        Frame::released(token, &key)
                    );
                    ending.expect_end();
                }
                Received::End => eventually("the key is free again", PATIENCE, || {
                    let reply = other.ask(acquire(&key, 0, 250, 2));
                    matches!(reply, Frame::Granted { .. }).then_some(())
                }),
                odd => panic!("expected the grant or the end, got {odd:?}"),
            }
        }
    });
}
