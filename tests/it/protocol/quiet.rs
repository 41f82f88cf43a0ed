//! Time that passes without a byte: in the handshake it is bounded, after it it is not.

use std::time::{Duration, Instant};

use crate::harness::raw::Received;
use crate::harness::{Raw, Server, release};

/// What the handshake has, from accept.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Scheduling on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

#[test]
fn a_silent_handshake_ends_after_ten_seconds_and_a_quiet_session_never() {
    let server = Server::single(&[]);
    let start = Instant::now();
    let mut session = Raw::connect(&server.address);
    session.expect_nothing_pending();

    let mut silent = Raw::open(&server.address).expect("the server listens");
    silent.nonce();
    // Neither half a line nor a steady trickle buys time.
    let mut half = Raw::open(&server.address).expect("the server listens");
    half.nonce();
    half.send(b"WvDLEd0VIA9c");
    let mut trickle = Raw::open(&server.address).expect("the server listens");
    trickle.nonce();

    loop {
        if trickle.try_send(b"x").is_err() {
            break;
        }
        match trickle.receive(Duration::from_millis(250)) {
            Received::Nothing => assert!(start.elapsed() < HANDSHAKE + SLACK, "still open"),
            Received::End | Received::Broken(_) => break,
            Received::Frame(frame) => panic!("the end comes without a word, got {frame:?}"),
        }
    }
    assert!(
        start.elapsed() + Duration::from_millis(100) > HANDSHAKE,
        "{:?}",
        start.elapsed()
    );
    silent.expect_end_within(SLACK);
    half.expect_end_within(SLACK);
    assert!(start.elapsed() < HANDSHAKE + SLACK, "{:?}", start.elapsed());

    session.expect_nothing_pending();
    session.send([&b"\n\n\n"[..], &release("fence", 0)].concat());
    session.reply();
}
