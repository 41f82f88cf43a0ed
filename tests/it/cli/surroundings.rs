//! Whatever a process is started with and in must not change what it promises.

use rustix::process::Signal;

use std::process::Command;

use super::{Running, code, code_of, family, send, stubborn_family, with_family};
use crate::harness::metrics::Page;
use crate::harness::ports::Ports;
use crate::harness::process::{Process, detached_shell, is_alive};
use crate::harness::{PATIENCE, Raw, SETTLE, Server, acquire, eventually, release};

/// `ticketing lock` of `job` with this command, its children ignored by whoever starts it.
fn childless(server: &Server, command: &str) -> Command {
    detached_shell(&format!(
        "exec env --ignore-signal=CHLD \"$0\" lock --addrs {} --lease 250 job -- {command}",
        server.address
    ))
}

#[test]
fn how_a_command_ends_is_seen_although_children_were_ignored() {
    let server = Server::single(&[]);
    assert_eq!(code_of(childless(&server, "sh -c 'exit 4'")), 4);
    assert_eq!(code_of(childless(&server, "no-such-command")), 127);
}

#[test]
fn nothing_outlives_a_killed_keeper_although_children_were_ignored() {
    let server = Server::single(&[]);
    let mut command = with_family(childless(&server, "sh -c \"$FAMILY\""));
    command.env("FAMILY", stubborn_family());
    let mut running = Running::start(command);
    let pids = family(&running);
    send(running.keeper(), Signal::KILL);
    assert_eq!(running.code(), code::KILLED);
    assert_eq!(pids.iter().filter(|&&pid| is_alive(pid)).count(), 0);
}

/// A single server that a shell starts like this.
fn serves(redirections: &str) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut ports = Ports::reserve(1);
    let port = ports.next();
    let line = format!("exec \"$0\" serve --port {port} {redirections}");
    let mut process = Process::spawn("server", detached_shell(&line), &dir.path().join("log"));
    let address = format!("127.0.0.1:{port}");
    eventually("it accepts connections", SETTLE, || {
        let ended = process.ended();
        assert!(ended.is_none(), "it has ended: {ended:?}");
        Raw::open(&address).ok()
    });
    Raw::connect(&address).ask(acquire("job", 0, 30, 1)).token();
    // The end is something to log as well.
    process.signal(Signal::TERM);
    assert_eq!(process.wait(2 * PATIENCE).code(), Some(0));
}

#[test]
fn a_server_does_not_depend_on_its_log_being_written() {
    serves("2> /dev/full");
}

#[test]
fn a_server_needs_no_standard_streams() {
    serves("<&- >&- 2>&-");
}

#[test]
fn a_command_under_a_lock_needs_no_standard_streams() {
    let server = Server::single(&[]);
    let line = format!(
        "exec \"$0\" lock --addrs {} job -- sh -c 'exit 4' <&- >&- 2>&-",
        server.address
    );
    assert_eq!(code_of(detached_shell(&line)), 4);
    // Nobody hears that either.
    let line = format!(
        "exec \"$0\" lock --addrs {} job -- no-such-command 2> /dev/full",
        server.address
    );
    assert_eq!(code_of(detached_shell(&line)), 127);
}

#[test]
fn a_program_that_was_replaced_during_the_wait_still_runs_its_command() {
    let server = Server::single(&[]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = dir.path().join("ticketing");
    std::fs::copy(env!("CARGO_BIN_EXE_ticketing"), &program).expect("it can be copied");
    let mut holder = Raw::connect(&server.address);
    let token = holder.ask(acquire("job", 0, 250, 1)).token();
    let line = format!(
        "exec {} lock --addrs {} --wait 200 job -- sh -c 'exit 4'",
        program.display(),
        server.address
    );
    let mut running = Running::start(detached_shell(&line));
    eventually("it waits", PATIENCE, || {
        (Page::of(&server.admin).get("ticketing_waiters") == 1.0).then_some(())
    });
    std::fs::remove_file(&program).expect("it is there");
    holder.ask(release("job", token));
    assert_eq!(running.code(), 4);
}
