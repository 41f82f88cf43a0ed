//! The log: a line for what matters, none for a request, few for what strangers do, no secrets.

use std::time::Instant;

use serde_json::Value;

use crate::harness::http::{get, request};
use crate::harness::metrics::Page;
use crate::harness::{Cluster, Frame, Raw, SETTLE, Server, acquire, eventually, release};

const FAILED: &str = "a client failed its handshake";

/// One failed handshake, to its end.
fn fail(server: &Server) {
    let mut stranger = Raw::open(&server.address).expect("it accepts");
    stranger.authenticate("guess").expect("it listens");
    assert_eq!(stranger.frame(), Frame::error("auth_failed"));
    stranger.expect_end();
}

/// The lines about failed handshakes: how many others each stands for.
fn told(server: &Server) -> Vec<u64> {
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains(FAILED));
    let dropped = lines.map(|line| {
        assert!(line.contains("reason=\"auth\"") && line.contains("client=127.0.0.1:"));
        let (_, rest) = line.split_once("dropped=").expect("a count");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().expect("a number")
    });
    dropped.collect()
}

#[test]
fn a_flood_of_failed_handshakes_is_a_line_a_second_with_a_count() {
    const FLOOD: usize = 200;
    let server = Server::single(&["--auth-token", "the right one"]);
    let start = Instant::now();
    for _ in 0..FLOOD {
        fail(&server);
    }
    let seconds = start.elapsed().as_secs();
    let lines = told(&server);
    assert!(
        (1..=seconds + 1).contains(&(lines.len() as u64)),
        "{lines:?} in {seconds} s"
    );
    let series = "ticketing_handshakes_failed_total{reason=\"auth\"}";
    assert_eq!(Page::of(&server.admin).get(series), FLOOD as f64);
    // Sooner or later every one of them is in a line, or in the count of one.
    let mut failures = FLOOD as u64;
    eventually("the next line tells of the others", SETTLE, || {
        let lines = told(&server);
        if lines.iter().sum::<u64>() + lines.len() as u64 == failures {
            return Some(());
        }
        fail(&server);
        failures += 1;
        None
    });
}

#[test]
fn no_secret_is_in_the_log_however_much_is_logged() {
    let secrets = [
        "the clients token",
        "the operators token",
        "the clusters secret",
    ];
    let flags = [
        ["--auth-token", secrets[0]],
        ["--admin-token", secrets[1]],
        ["--cluster-secret", secrets[2]],
    ]
    .concat();
    let mut cluster = Cluster::prepare(crate::harness::gate::shared(), 1, &flags);
    let node = &mut cluster.nodes[0];
    node.set_variable("RUST_LOG", "trace");
    node.start();
    let mut session = Raw::connect_with(&node.address, secrets[0]);
    eventually("it serves", SETTLE, || {
        match session.ask(acquire("job", 0, 30, 1)) {
            Frame::Error(_) => {
                session = Raw::connect_with(&node.address, secrets[0]);
                None
            }
            _ => Some(()),
        }
    });
    fail(node);
    for shown in [format!("Bearer {}", secrets[1]), "Bearer wrong".to_owned()] {
        request("POST", &node.admin, "/v1/leader/transfer", &shown);
    }
    get(&node.admin, "/v1/status");
    node.stop();
    let log = node.log();
    assert!(
        log.contains("TRACE") && log.contains("DEBUG"),
        "it logs much"
    );
    for secret in secrets.iter().chain(&["wrong", "guess"]) {
        assert!(!log.contains(secret), "{secret:?} is in the log");
    }
}

#[test]
fn the_log_is_json_on_request_and_silent_about_requests() {
    let server = Server::single(&["--log-format", "json"]);
    let mut session = Raw::connect(&server.address);
    let lines = |server: &Server| server.log().lines().count();
    get(&server.admin, "/v1/status");
    let before = eventually("it has said that it serves", SETTLE, || {
        server
            .log()
            .contains("admin endpoint")
            .then(|| lines(&server))
    });
    for owner in 0..200 {
        let token = session.ask(acquire("job", 0, 30, owner)).token();
        session.ask(release("job", token));
        get(&server.admin, "/metrics");
    }
    assert_eq!(lines(&server), before);
    for line in server.log().lines() {
        let line: Value = serde_json::from_str(line).expect("every line is JSON");
        for field in ["timestamp", "level", "target"] {
            assert!(line[field].is_string(), "{line}");
        }
        assert!(line["fields"]["message"].is_string(), "{line}");
    }
}
