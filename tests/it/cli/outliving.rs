//! Who outlives whom: nothing of a command is left when its lock is given back or nobody holds it
//! any more.

use rustix::process::Signal;

use super::{
    Running, code, code_of, family, gone, lock, send, stubborn, stubborn_family, with_family,
};
use crate::harness::process::is_alive;
use crate::harness::{Frame, Raw, Server, acquire};

fn start_family(server: &Server) -> Running {
    let script = stubborn_family();
    let rest = ["--lease", "250", "job", "--", "sh", "-c", &script];
    Running::start(with_family(lock(&server.address, &rest)))
}

#[test]
fn nothing_of_a_command_outlives_a_killed_holder() {
    let server = Server::single(&[]);
    let mut running = start_family(&server);
    let mut pids = family(&running);
    pids.push(running.keeper());
    running.process.kill();
    gone(&pids);
    // Nobody could give the lock back: its lease ends it.
    let mut other = Raw::connect(&server.address);
    assert_eq!(
        other.ask(acquire("job", 0, 30, 1)),
        Frame::wait_over(1, "job")
    );
}

#[test]
fn nothing_of_a_command_outlives_a_killed_keeper() {
    let server = Server::single(&[]);
    let mut running = start_family(&server);
    let pids = family(&running);
    send(running.keeper(), Signal::KILL);
    assert_eq!(running.code(), code::KILLED);
    // All of it was gone before the lock was given back.
    assert_eq!(pids.iter().filter(|&&pid| is_alive(pid)).count(), 0);
    Raw::connect(&server.address)
        .ask(acquire("job", 0, 30, 1))
        .token();
}

#[test]
fn the_command_itself_ends_even_if_both_are_killed() {
    let server = Server::single(&[]);
    let script = stubborn("command");
    let rest = ["--lease", "250", "job", "--", "sh", "-c", &script];
    let mut running = Running::start(lock(&server.address, &rest));
    let pid = running.pid("command ");
    let keeper = running.keeper();
    // Stopped, neither can do anything about the other's end.
    running.process.signal(Signal::STOP);
    send(keeper, Signal::STOP);
    running.process.kill();
    send(keeper, Signal::KILL);
    gone(&[pid, keeper]);
}

#[test]
fn what_a_command_leaves_may_finish_while_the_lock_is_held() {
    let server = Server::single(&[]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let go_on = dir.path().join("go-on");
    let script = format!(
        "(while [ ! -e '{}' ]; do sleep 0.05; done; echo finished) & echo left; exit 3",
        go_on.display()
    );
    let rest = patient(&script);
    let mut running = Running::start(lock(&server.address, &rest));
    running.said("left");
    let mut other = Raw::connect(&server.address);
    assert_eq!(
        other.ask(acquire("job", 1, 30, 1)),
        Frame::wait_over(1, "job")
    );
    std::fs::write(&go_on, "").expect("the file can be written");
    assert_eq!(running.code(), 3);
    assert_eq!(running.count("finished"), 1);
    other.ask(acquire("job", 0, 30, 2)).token();
}

#[test]
fn what_a_command_leaves_is_killed_after_its_time() {
    let server = Server::single(&[]);
    let script = "sh -c \"$GROUP\" & timeout 600 sh -c \"$OTHER\" & wait_for() { \
                  until grep -q \"$1\" \"$LOG\"; do sleep 0.05; done; }; \
                  wait_for group; wait_for other; exit 3";
    let rest = ["--kill-after", "0.2", "job", "--", "sh", "-c", script];
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut command = with_family(lock(&server.address, &rest));
    command.env("LOG", dir.path().join("log"));
    let mut running = Running::start_in(dir, command);
    let pids = [running.pid("group "), running.pid("other ")];
    assert_eq!(running.code(), 3);
    assert_eq!(pids.iter().filter(|&&pid| is_alive(pid)).count(), 0);
}

#[test]
fn a_daemon_that_a_command_started_is_left_alone() {
    let server = Server::single(&[]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let script =
        "setsid sh -c \"$AWAY\" & until grep -q away \"$LOG\"; do sleep 0.05; done; exit 3";
    let rest = patient(script);
    let mut command = with_family(lock(&server.address, &rest));
    command.env("LOG", dir.path().join("log"));
    let mut running = Running::start_in(dir, command);
    let daemon = running.pid("away ");
    assert_eq!(running.code(), 3);
    assert!(is_alive(daemon));
    send(daemon, Signal::KILL);
    gone(&[daemon]);
}

#[test]
fn a_lock_inside_a_lock_ends_with_it() {
    let server = Server::single(&[]);
    let script = stubborn("inner");
    let inner = [
        env!("CARGO_BIN_EXE_ticketing"),
        "lock",
        "--addrs",
        &server.address,
        "--lease",
        "250",
        "inside",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let mut rest = vec!["--lease", "250", "job", "--"];
    rest.extend(inner);
    let mut running = Running::start(lock(&server.address, &rest));
    let pid = running.pid("inner ");
    running.process.kill();
    gone(&[pid]);
    // And in the same order as without a lock around it.
    assert_eq!(
        code_of(lock(
            &server.address,
            &["--wait", "0", "inside", "--", "true"]
        )),
        75
    );
}

/// `job` held longer than any test takes, as is the time that leftovers get.
fn patient(script: &str) -> [&str; 9] {
    [
        "--lease",
        "250",
        "--kill-after",
        "100",
        "job",
        "--",
        "sh",
        "-c",
        script,
    ]
}
