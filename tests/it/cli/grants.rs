//! `ticketing acquire` and `ticketing release`: locks that outlive the command line.

use std::process::{Command, Stdio};

use super::{client, code, code_of};
use crate::harness::ports::Ports;
use crate::harness::process::output;
use crate::harness::{Cluster, Frame, PATIENCE, Raw, Server, acquire, release};

fn said(command: Command) -> String {
    let output = output(command, PATIENCE);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

#[test]
fn a_leader_that_was_not_given_is_named() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let others: Vec<_> = cluster
        .others(leader)
        .into_iter()
        .map(|other| cluster.nodes[other].address.as_str())
        .collect();
    let leader = &cluster.nodes[leader].address;
    let expected = format!("the leader is at {leader}, which is not among --addrs\n");
    let all = others.join(",");
    for (subcommand, given, rest) in [
        ("lock", others[0], ["--wait", "3", "job", "true"].as_slice()),
        ("acquire", &all, &["--wait", "3", "job"]),
        ("release", others[0], &["job", "1"]),
    ] {
        let output = output(client(subcommand, given, rest), 2 * PATIENCE);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code::NO_SERVER), "{said}");
        assert!(said.ends_with(&expected), "{subcommand}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_lock_stays_held_until_it_is_released_with_its_token() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let follower = cluster.others(leader)[0];
    // Taken by way of one node and released by way of others.
    let here = cluster.nodes[leader].address.clone();
    let there = super::addresses_of(&cluster);
    let text = said(client("acquire", &here, &["--lease", "200", "job"]));
    let lines: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    let names: Vec<_> = lines.iter().map(|(name, _)| *name).collect();
    let expected = [
        "key",
        "token",
        "lease-seconds",
        "remaining-seconds",
        "valid-until",
    ];
    assert_eq!(names, expected, "{text}");
    assert_eq!(lines[0].1, "job");
    let token: u64 = lines[1].1.parse().expect("a number");
    assert_eq!(lines[2].1, "200");
    let remaining: f64 = lines[3].1.parse().expect("a number");
    assert!((180.0..=200.0).contains(&remaining), "{text}");
    assert!(
        lines[4].1.ends_with("Z (wall clock, for information only)"),
        "{text}"
    );

    let mut session = cluster.leader_session();
    assert_eq!(
        session.ask(acquire("job", 0, 30, 1)),
        Frame::wait_over(1, "job")
    );
    assert_eq!(cluster.nodes[follower].names_leader(), Some(here));
    let release = |token: u64| client("release", &there, &["job", &token.to_string()]);
    assert_eq!(code_of(release(token + 1)), code::NOT_CURRENT);
    assert_eq!(said(release(token)), "");
    assert_eq!(code_of(release(token)), code::NOT_CURRENT);
    assert!(session.ask(acquire("job", 0, 30, 2)).token() > token);
}

#[test]
fn json_holds_any_key() {
    let server = Server::single(&[]);
    let key = "a\"b\\\tc/在庫";
    let text = said(client(
        "acquire",
        &server.address,
        &["--output", "json", key],
    ));
    let grant: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(grant["key"], key);
    assert_eq!(grant["token"], 1);
    assert_eq!(grant["lease_seconds"], 30);
    let remaining = grant["remaining_seconds"].as_f64().expect("a number");
    assert!((10.0..=30.0).contains(&remaining), "{text}");
    let until = grant["valid_until_wall_clock"].as_str().expect("a text");
    assert!(until.starts_with("20") && until.ends_with('Z'), "{text}");
    assert_eq!(text.lines().count(), 1);
    let mut session = Raw::connect(&server.address);
    assert_eq!(session.ask(release(key, 1)), Frame::released(1, key));
}

#[test]
fn a_lock_whose_token_nobody_got_is_given_back() {
    let server = Server::single(&[]);
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut command = client("acquire", &server.address, &["job"]);
    command
        .stdout(full.expect("it is there"))
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    Raw::connect(&server.address)
        .ask(acquire("job", 0, 30, 1))
        .token();
}

#[test]
fn exit_codes_tell_what_happened() {
    let server = Server::single(&["--auth-token", "secret"]);
    let with_token = |subcommand: &str, rest: &[&str]| {
        let mut command = client(subcommand, &server.address, rest);
        command.env("TICKETING_AUTH_TOKEN", "secret");
        code_of(command)
    };
    assert_eq!(with_token("acquire", &["job"]), 0);
    assert_eq!(
        with_token("acquire", &["--wait", "0", "job"]),
        code::NOT_ACQUIRED
    );
    let chosen = ["--wait", "0", "--conflict-exit-code", "3", "job"];
    assert_eq!(with_token("acquire", &chosen), 3);
    let mut ports = Ports::reserve(1);
    let nobody = format!("127.0.0.1:{}", ports.next());
    for (subcommand, rest) in [
        ("acquire", &["--wait", "1", "job"][..]),
        ("release", &["job", "1"]),
    ] {
        assert_eq!(
            code_of(client(subcommand, &server.address, rest)),
            code::NOT_ALLOWED
        );
        assert_eq!(code_of(client(subcommand, &nobody, rest)), code::NO_SERVER);
    }
    for wrong in [
        &["a b"][..],
        &[""],
        &["--lease", "0", "job"],
        &["--output", "xml", "job"],
        &[],
    ] {
        assert_eq!(with_token("acquire", wrong), code::USAGE, "{wrong:?}");
    }
    for wrong in [
        &["job"][..],
        &["job", "x"],
        &["job", "-1"],
        &["a b", "1"],
        &["", "1"],
    ] {
        assert_eq!(with_token("release", wrong), code::USAGE, "{wrong:?}");
    }
}
