//! Section 2: the auth handshake.

use std::collections::BTreeSet;
use std::fs;

use crate::harness::raw::digest;
use crate::harness::{Cluster, Frame, Raw, Server, acquire, gate, release};

/// A session that is let in is not told so: the first thing it hears answers its first request.
fn assert_let_in(raw: &mut Raw) {
    let reply = raw.ask(release("fence", 0));
    let in_charge = reply == Frame::not_released(0, "fence");
    assert!(in_charge || matches!(reply, Frame::Moved(_)), "{reply:?}");
}

/// What is answered to a line instead of a digest.
fn assert_refused(address: &str, line: &[u8], reason: &str) {
    let mut raw = Raw::open(address).expect("the server listens");
    raw.nonce();
    raw.send(line);
    assert_eq!(raw.frame(), Frame::error(reason), "{}", line.escape_ascii());
    raw.expect_end();
}

/// The rows that hold on every node, whatever its role; its tokens are `secret` and `pässwörd`.
fn handshake_rows(address: &str) {
    for token in ["secret", "pässwörd"] {
        assert_let_in(&mut Raw::connect_with(address, token));
    }
    // The digest and the first frames may come in one packet.
    let mut raw = Raw::open(address).expect("the server listens");
    let nonce = raw.nonce();
    let mut bytes = digest("secret", &nonce).into_bytes();
    bytes.push(b'\n');
    bytes.extend(release("fence", 0));
    raw.send(bytes);
    assert!(!matches!(raw.reply(), Frame::Error(_)));

    for token in [
        "",
        "secre",
        "secret ",
        "Secret",
        "passwort",
        "secretpässwörd",
    ] {
        let mut raw = Raw::connect_with(address, token);
        assert_eq!(raw.frame(), Frame::error("auth_failed"), "token {token:?}");
        raw.expect_end();
    }
    // A right digest for the nonce of another connection.
    let stale = Raw::open(address).expect("the server listens").nonce();
    assert_refused(
        address,
        format!("{}\n", digest("secret", &stale)).as_bytes(),
        "auth_failed",
    );

    assert_refused(address, b"\n", "auth_failed");
    assert_refused(address, &[&[b'x'; 256][..], b"\n"].concat(), "auth_failed");
    // Decided as soon as it is too long: nobody waits for the end of the line.
    assert_refused(address, &[b'x'; 257], "line_too_long");
    assert_refused(address, &[b'\0'; 5_000], "line_too_long");
}

#[test]
fn the_digest_of_the_harness_is_the_protocols() {
    let vectors = [
        (
            "secret",
            "aB3dEf_g",
            "WvDLEd0VIA9cVatiwxXYXRGMDSXw0ibHllLgAMBffdg",
        ),
        (
            "",
            "AAAAAAAA",
            "w0q2q7eyu1lbwlw7OIyHL9HVdYGaj1XMaJUQKF4hI4U",
        ),
        (
            "pässwörd",
            "-_09azAZ",
            "uJyfwnCcGRpOQEKURI_TCbgJ761iDgnoVrpYtKov6_8",
        ),
    ];
    for (token, nonce, expected) in vectors {
        assert_eq!(digest(token, nonce.as_bytes()), expected);
    }
}

#[test]
fn either_of_two_tokens_is_let_in_and_nothing_else_on_any_node() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("tokens");
    fs::write(&file, "secret\npässwörd\n").expect("the directory is writable");
    let flags = ["--auth-token-file", file.to_str().expect("a plain path")];

    let server = Server::single(&flags);
    handshake_rows(&server.address);

    let mut cluster = Cluster::prepare(gate::shared(), 3, &flags);
    cluster.nodes.iter_mut().for_each(Server::start);
    for node in &cluster.nodes {
        handshake_rows_of_starting_node(&node.address);
    }
}

/// On a node of which it is not known whether it serves yet: let in is whoever gets any answer
/// but a refusal of the handshake.
fn handshake_rows_of_starting_node(address: &str) {
    for token in ["secret", "pässwörd"] {
        let reply = Raw::connect_with(address, token).ask(release("fence", 0));
        assert!(
            reply != Frame::error("auth_failed"),
            "token {token:?}: {reply:?}"
        );
    }
    let mut raw = Raw::connect_with(address, "");
    assert_eq!(raw.frame(), Frame::error("auth_failed"));
    raw.expect_end();
    assert_refused(address, &[b'x'; 257], "line_too_long");
}

#[test]
fn the_line_is_compared_byte_for_byte() {
    let server = Server::single(&["--auth-token", "secret"]);
    let spoil: [fn(String) -> String; 5] = [
        |right| format!("{right}\r\n"),
        |right| format!(" {right}\n"),
        |right| format!("{right}=\n"),
        |right| format!("{}\n", &right[..42]),
        |right| format!("{}\n", right.to_uppercase()),
    ];
    for spoil in spoil {
        let mut raw = Raw::open(&server.address).expect("the server listens");
        let right = digest("secret", &raw.nonce());
        raw.send(spoil(right));
        assert_eq!(raw.frame(), Frame::error("auth_failed"));
        raw.expect_end();
    }
}

#[test]
fn a_server_without_a_token_challenges_and_expects_the_empty_one() {
    let server = Server::single(&[]);
    assert_let_in(&mut Raw::connect_with(&server.address, ""));
    let mut raw = Raw::connect_with(&server.address, "anything");
    assert_eq!(raw.frame(), Frame::error("auth_failed"));
    raw.expect_end();
}

#[test]
fn every_connection_has_its_own_nonce() {
    let server = Server::single(&[]);
    let nonces: BTreeSet<_> = (0..200)
        .map(|_| {
            Raw::open(&server.address)
                .expect("the server listens")
                .nonce()
        })
        .collect();
    assert_eq!(nonces.len(), 200);
    for nonce in nonces {
        assert_eq!(nonce.len(), 8);
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        assert!(nonce.iter().all(fits), "{}", nonce.escape_ascii());
    }
}

#[test]
fn a_token_rotates_without_downtime() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("tokens");
    fs::write(&file, "new-token\nold-token\n").expect("the directory is writable");
    let server = Server::single(&["--auth-token-file", file.to_str().expect("a plain path")]);
    let mut old = Raw::connect_with(&server.address, "old-token");
    let mut new = Raw::connect_with(&server.address, "new-token");
    let token = old.ask(acquire("k", 0, 30, 1)).token();
    assert_eq!(new.ask(release("k", token)), Frame::released(token, "k"));
}
