//! A command that works longer than its lease: it has ended when the lease has.

use std::process::Command;

use rustix::process::Signal;

use super::{
    Running, code, code_of, family, gone, lock, send, stubborn, stubborn_family, with_family,
};
use crate::harness::process::{binary, output};
use crate::harness::{Frame, PATIENCE, Raw, Server, acquire, eventually, release};

/// What is said when the lock was lost first.
const LOST: &str = "was lost while the command ran";

/// A lease that leaves one second for the work, with half a second to clean up.
const SHORT: [&str; 4] = ["--lease", "2", "--kill-after", "0.5"];

fn short(server: &Server, script: &str) -> Command {
    let mut rest = SHORT.to_vec();
    rest.extend(["job", "--", "sh", "-c", script]);
    lock(&server.address, &rest)
}

#[test]
fn a_command_that_does_not_want_to_end_is_killed_with_all_that_it_started() {
    let server = Server::single(&[]);
    let command = with_family(short(&server, &stubborn_family()));
    let mut running = Running::start(command);
    let pids = family(&running);
    assert_eq!(running.code(), code::LEASE_OVER);
    gone(&pids);
    // The lock was still ours then, and was given back.
    let log = running.process.log();
    assert!(!log.contains(LOST), "{log}");
    assert!(
        log.contains("the lease of \"job\" ended before the command did"),
        "{log}"
    );
    Raw::connect(&server.address)
        .ask(acquire("job", 0, 30, 1))
        .token();
}

#[test]
fn a_command_is_asked_first_and_so_is_what_it_started() {
    let server = Server::single(&[]);
    let asked =
        |name| format!("trap 'echo {name} asked; exit 0' TERM; while :; do sleep 0.05; done");
    let mut command = short(
        &server,
        &format!(
            "sh -c \"$CHILD\" & timeout 600 sh -c \"$OTHER\" & {}",
            asked("command")
        ),
    );
    command
        .env("CHILD", asked("child"))
        .env("OTHER", asked("other"));
    let mut running = Running::start(command);
    // Its own code does not count: it was stopped.
    assert_eq!(running.code(), code::LEASE_OVER);
    for line in ["command asked", "child asked", "other asked"] {
        assert_eq!(running.count(line), 1, "{line}: {}", running.process.log());
    }
}

#[test]
fn a_stopped_command_is_ended_too() {
    let server = Server::single(&[]);
    let script = "trap 'echo asked; exit 0' TERM; echo pid $$; while :; do sleep 0.05; done";
    let mut running = Running::start(short(&server, script));
    send(running.pid("pid "), Signal::STOP);
    assert_eq!(running.code(), code::LEASE_OVER);
    assert_eq!(running.count("asked"), 1, "it could clean up");
}

#[test]
fn without_a_server_for_the_whole_lease_the_command_still_ends() {
    let mut server = Server::single(&[]);
    let mut running = Running::start(short(&server, &stubborn("command")));
    let pid = running.pid("command ");
    server.kill();
    assert_eq!(running.code(), code::LEASE_OVER);
    gone(&[pid]);
    assert!(running.process.log().contains("ends with its lease"));
}

#[test]
fn the_holder_of_the_lock_may_be_stopped() {
    let server = Server::single(&[]);
    let mut running = Running::start(with_family(short(&server, &stubborn_family())));
    let pids = family(&running);
    let keeper = running.keeper();
    running.process.signal(Signal::STOP);
    // It can't have been told to go on, and its command has ended all the same.
    gone(&pids);
    gone(&[keeper]);
    assert!(running.process.ended().is_none());
    running.process.signal(Signal::CONT);
    assert_eq!(running.code(), code::LEASE_OVER);
}

#[test]
fn the_keeper_may_be_stopped() {
    let server = Server::single(&[]);
    let mut running = Running::start(with_family(short(&server, &stubborn_family())));
    let pids = family(&running);
    send(running.keeper(), Signal::STOP);
    assert_eq!(running.code(), code::LEASE_OVER);
    gone(&pids);
}

#[test]
fn a_command_that_may_outlive_its_lease_is_warned_about() {
    let server = Server::single(&[]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let go_on = dir.path().join("go-on");
    let script = format!(
        "while [ ! -e '{}' ]; do sleep 0.05; done; exit 5",
        go_on.display()
    );
    let rest = [
        "--lease",
        "1",
        "--on-lease-end",
        "warn",
        "job",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let mut running = Running::start(lock(&server.address, &rest));
    eventually("the warning", PATIENCE, || {
        let log = running.process.log();
        log.contains("others may hold the lock").then_some(())
    });
    // They may indeed.
    let mut other = Raw::connect(&server.address);
    other.send(acquire("job", 10, 30, 1));
    other.reply_within(2 * PATIENCE).token();
    std::fs::write(&go_on, "").expect("the file can be written");
    assert_eq!(running.code(), code::LOCK_LOST);
    let log = running.process.log();
    assert!(log.contains(LOST), "{log}");
    assert!(log.contains("its lease was over"), "{log}");
    assert!(log.contains("ended with 5"), "{log}");
}

#[test]
fn a_lock_that_another_released_is_no_success() {
    let server = Server::single(&[]);
    let script = "echo token $TICKETING_TOKEN; read -r _";
    let mut command = lock(&server.address, &["job", "--", "sh", "-c", script]);
    command.stdin(std::process::Stdio::piped());
    let mut running = Running::start(command);
    let token = running.said("token ").parse().expect("a number");
    let mut other = Raw::connect(&server.address);
    let released = Frame::released(token, "job");
    assert_eq!(other.ask(release("job", token)), released);
    // The command ends well.
    running.process.type_in("go\n");
    assert_eq!(running.code(), code::LOCK_LOST);
    let log = running.process.log();
    assert!(log.contains(LOST), "{log}");
    assert!(log.contains("released by another"), "{log}");
    assert!(log.contains("ended with 0"), "{log}");
}

/// Runs the last step before a command by itself, as a keeper does.
fn launch(parent: u32, lease_end: &str, ending: &str, file: &str) -> Command {
    let mut command = binary();
    command
        .args(["lock-launch", "--parent", &parent.to_string()])
        .args([
            "--lease-end",
            lease_end,
            "--ending",
            ending,
            "--",
            "touch",
            file,
        ]);
    command
}

#[test]
fn no_command_starts_after_its_lease() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("started");
    let name = file.to_string_lossy();
    let me = std::process::id();
    // The clocks of this machine are far beyond the first nanosecond and far from the last one.
    let (past, future) = ("1,1", "9999999999999999999,9999999999999999999");
    for lease_end in [
        past,
        &format!("1,{}", &future[..19]),
        &format!("{},1", &future[..19]),
    ] {
        assert_eq!(code_of(launch(me, lease_end, "0", &name)), code::LEASE_OVER);
    }
    // Nor one whose keeper is gone.
    assert_eq!(code_of(launch(me + 1, future, "0", &name)), 1);
    assert!(!file.exists());
    let started = output(launch(me, future, "5.5", &name), PATIENCE);
    assert!(started.status.success() && file.exists(), "{started:?}");
}
