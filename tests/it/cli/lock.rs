//! `ticketing lock`: a command under a lock, for scripts.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::ports::Ports;
use crate::harness::process::{Process, binary, output};
use crate::harness::{Cluster, Frame, PATIENCE, Raw, Server, acquire, eventually, release};

/// The lock was not acquired within the wait.
const NOT_ACQUIRED: i32 = 75;

/// No server answered.
const NO_SERVER: i32 = 69;

/// The token was refused.
const NOT_ALLOWED: i32 = 77;

/// The command line is wrong.
const USAGE: i32 = 64;

fn lock(addresses: &str, rest: &[&str]) -> Command {
    let mut command = binary();
    command.args(["lock", "--addrs", addresses]).args(rest);
    command
}

fn code_of(command: Command) -> i32 {
    let output = output(command, 2 * PATIENCE);
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("it exits by itself: {output:?}"))
}

#[test]
fn the_command_runs_with_its_ticket_in_the_environment() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let script = "echo $TICKETING_KEY $TICKETING_TOKEN $TICKETING_LEASE_SECONDS";
    // Whichever address is given, and all of them.
    let addresses: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| node.address.as_str())
        .collect();
    let follower = cluster.others(leader)[0];
    let orders = [
        addresses.join(","),
        format!("{},{}", addresses[follower], addresses[leader]),
        addresses[leader].to_owned(),
    ];
    for (token, addresses) in (1..).zip(orders) {
        let command = lock(
            &addresses,
            &["--lease", "20", "job", "--", "sh", "-c", script],
        );
        let said = output(command, PATIENCE);
        assert!(said.status.success(), "{said:?}");
        assert_eq!(
            String::from_utf8_lossy(&said.stdout),
            format!("job {token} 20\n")
        );
    }
    // It gave the lock back.
    assert!(
        cluster
            .leader_session()
            .ask(acquire("job", 0, 1, 1))
            .token()
            > 3
    );
    // A dead node among the addresses costs nothing but a refused connection.
    cluster.nodes[leader].kill();
    let command = lock(&addresses_of(&cluster), &["job", "--", "true"]);
    let start = Instant::now();
    assert_eq!(code_of(command), 0);
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "{:?}",
        start.elapsed()
    );
}

fn addresses_of(cluster: &Cluster) -> String {
    let addresses: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| node.address.as_str())
        .collect();
    addresses.join(",")
}

#[test]
fn exit_codes_tell_what_happened() {
    let server = Server::single(&["--auth-token", "secret"]);
    let with_token = |rest: &[&str]| {
        let mut command = lock(&server.address, rest);
        command.env("TICKETING_AUTH_TOKEN", "secret");
        command
    };
    // The command's own code, and 128 + n for a signal.
    assert_eq!(code_of(with_token(&["job", "--", "true"])), 0);
    assert_eq!(code_of(with_token(&["job", "--", "sh", "-c", "exit 3"])), 3);
    assert_eq!(
        code_of(with_token(&["job", "--", "sh", "-c", "kill -9 $$"])),
        137
    );
    // However it ended, the lock is free.
    let mut holder = Raw::connect_with(&server.address, "secret");
    let token = holder.ask(acquire("job", 0, 250, 1)).token();
    assert_eq!(
        code_of(with_token(&["--wait", "0", "job", "--", "true"])),
        NOT_ACQUIRED
    );
    assert_eq!(
        code_of(with_token(&["--wait", "1", "job", "--", "true"])),
        NOT_ACQUIRED
    );
    assert_eq!(
        holder.ask(release("job", token)),
        Frame::released(token, "job")
    );

    assert_eq!(
        code_of(lock(&server.address, &["job", "--", "true"])),
        NOT_ALLOWED
    );
    let mut ports = Ports::reserve(1);
    let nobody = format!("127.0.0.1:{}", ports.next());
    assert_eq!(
        code_of(lock(&nobody, &["--wait", "1", "job", "--", "true"])),
        NO_SERVER
    );
    for wrong in [
        &["--lease", "0", "job", "--", "true"][..],
        &["--lease", "251", "job", "--", "true"],
        &["--wait", "256", "job", "--", "true"],
        &["a b", "--", "true"],
        &["", "--", "true"],
        &["job"],
        &["--no-such-flag", "job", "--", "true"],
    ] {
        assert_eq!(code_of(with_token(wrong)), USAGE, "{wrong:?}");
    }
}

#[test]
fn a_command_runs_only_while_nobody_else_holds_the_lock() {
    let server = Server::single(&[]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("inside");
    let script = format!("mkdir '{0}' && rmdir '{0}'", file.display());
    let codes: Vec<_> = std::thread::scope(|scope| {
        let run = || {
            code_of(lock(
                &server.address,
                &["--wait", "30", "job", "--", "sh", "-c", &script],
            ))
        };
        let runs: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
        runs.into_iter()
            .map(|run| run.join().expect("it ends"))
            .collect()
    });
    // mkdir fails when somebody else is inside.
    assert_eq!(codes, [0; 8]);
}

#[test]
fn a_signal_reaches_the_command_and_the_lock_is_given_back() {
    let server = Server::single(&[]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let command = lock(
        &server.address,
        &["--lease", "250", "job", "--", "sh", "-c", script],
    );
    let mut process = Process::spawn("lock", command, &dir.path().join("log"));
    eventually("the command runs", PATIENCE, || {
        process.log().contains("ready").then_some(())
    });
    let mut other = Raw::connect(&server.address);
    assert_eq!(
        other.ask(acquire("job", 0, 30, 1)),
        Frame::wait_over(1, "job")
    );
    process.signal(Signal::TERM);
    assert_eq!(process.wait(PATIENCE).code(), Some(9), "{}", process.log());
    other.ask(acquire("job", 0, 30, 1)).token();
}
