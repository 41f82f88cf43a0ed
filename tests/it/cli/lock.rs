//! `ticketing lock`: a command under a lock, for scripts.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Running, addresses_of, code, code_of, lock};
use crate::harness::ports::Ports;
use crate::harness::process::{contained, output};
use crate::harness::{Cluster, Frame, PATIENCE, Raw, Server, acquire, release};

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
    // As shells say that there is no such command, or none that can be executed.
    assert_eq!(code_of(with_token(&["job", "--", "no-such-command"])), 127);
    assert_eq!(code_of(with_token(&["job", "--", "/etc/passwd"])), 126);
    // However it ended, the lock is free.
    let mut holder = Raw::connect_with(&server.address, "secret");
    let token = holder.ask(acquire("job", 0, 250, 1)).token();
    assert_eq!(
        code_of(with_token(&["--wait", "0", "job", "--", "true"])),
        code::NOT_ACQUIRED
    );
    let chosen = [
        "--wait",
        "0",
        "--conflict-exit-code",
        "3",
        "job",
        "--",
        "true",
    ];
    assert_eq!(code_of(with_token(&chosen)), 3);
    assert_eq!(
        code_of(with_token(&["--wait", "1", "job", "--", "true"])),
        code::NOT_ACQUIRED
    );
    assert_eq!(
        holder.ask(release("job", token)),
        Frame::released(token, "job")
    );

    assert_eq!(
        code_of(lock(&server.address, &["job", "--", "true"])),
        code::NOT_ALLOWED
    );
    let mut ports = Ports::reserve(1);
    let nobody = format!("127.0.0.1:{}", ports.next());
    assert_eq!(
        code_of(lock(&nobody, &["--wait", "1", "job", "--", "true"])),
        code::NO_SERVER
    );
    for wrong in [
        &["--lease", "0", "job", "--", "true"][..],
        &["--lease", "251", "job", "--", "true"],
        &["--wait", "256", "job", "--", "true"],
        &["a b", "--", "true"],
        &["", "--", "true"],
        &["job"],
        // The end of the command does not fit, or the work does not.
        &["--lease", "5", "job", "--", "true"],
        &["--lease", "10", "--kill-after", "9.5", "job", "--", "true"],
        &["--lease", "10", "--work-budget", "4.6", "job", "--", "true"],
        &["--kill-after", "-1", "job", "--", "true"],
        &["--kill-after", "soon", "job", "--", "true"],
        &["--on-lease-end", "shrug", "job", "--", "true"],
        &["--conflict-exit-code", "256", "job", "--", "true"],
        &["--no-such-flag", "job", "--", "true"],
    ] {
        assert_eq!(code_of(with_token(wrong)), code::USAGE, "{wrong:?}");
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
fn a_command_does_not_notice_that_the_leader_is_killed() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let go_on = dir.path().join("go-on");
    let script = format!(
        "echo ready; while [ ! -e '{}' ]; do sleep 0.05; done; echo finished; exit 5",
        go_on.display()
    );
    let rest = ["--lease", "250", "job", "--", "sh", "-c", &script];
    let mut running = Running::start(lock(&addresses_of(&cluster), &rest));
    running.said("ready");
    cluster.nodes[leader].kill();
    cluster.settle();
    let mut other = cluster.leader_session();
    assert_eq!(
        other.ask(acquire("job", 0, 30, 1)),
        Frame::wait_over(1, "job")
    );
    std::fs::write(&go_on, "").expect("the file can be written");
    assert_eq!(running.code(), 5);
    // The new leader knew the grant and ended it.
    assert_eq!(running.count("finished"), 1);
    assert_eq!(running.process.log(), "ready\nfinished\n");
    other.ask(acquire("job", 0, 30, 2)).token();
}

/// How soon the end of a command is seen; by the clock alone it would be after a tenth of a second.
const AT_ONCE: Duration = Duration::from_millis(50);

#[test]
fn the_end_of_a_command_is_seen_at_once() {
    let server = Server::single(&[]);
    let end = || {
        let said = output(
            lock(&server.address, &["job", "--", "date", "+%s%N"]),
            PATIENCE,
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let text = String::from_utf8_lossy(&said.stdout);
        let ended = text.trim().parse().map(Duration::from_nanos);
        let now = now.expect("it is later than 1970");
        now.saturating_sub(ended.expect("a number of nanoseconds"))
    };
    // The machine may be busy in any of them.
    let soonest = (0..10).map(|_| end()).min().expect("there are some");
    assert!(soonest < AT_ONCE, "{soonest:?}");
}

#[test]
fn in_a_container_what_the_command_leaves_is_seen_as_well() {
    let server = Server::single(&[]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("left");
    let mut command = contained();
    command
        .args(["lock", "--addrs", &server.address, "job", "--", "sh", "-c"])
        .arg("(sleep 1; touch \"$LEFT\") & exit 4")
        .env("LEFT", &file);
    let said = output(command, PATIENCE);
    assert_eq!(said.status.code(), Some(4), "{said:?}");
    // The namespace ends with its first process: had that not waited, there were no file.
    assert!(file.exists(), "{said:?}");
}
