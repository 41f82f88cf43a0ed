//! `ticketing lock` typed on a terminal: the command behaves as if it had been typed itself.

use super::{A_MOMENT, Running, code, gone};
use crate::harness::process::on_terminal;
use crate::harness::{PATIENCE, Raw, Server, acquire};

const CTRL_C: &str = "\u{3}";
const CTRL_Z: &str = "\u{1a}";

/// Types this to a shell, where `lock` stands for taking the lock `job`.
fn typed(server: &Server, line: &str) -> Running {
    let lock = format!("\"$0\" lock --addrs {}", server.address);
    Running::start(on_terminal(&line.replace("lock", &lock)))
}

#[test]
fn the_command_reads_what_is_typed() {
    let server = Server::single(&[]);
    let mut running = typed(
        &server,
        "lock job -- sh -c 'echo ready; read x; echo got $x; exit 3'",
    );
    running.said("ready");
    running.process.type_in("something\n");
    assert_eq!(running.said("got "), "something");
    assert_eq!(running.code(), 3);
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    let server = Server::single(&[]);
    let script = "trap 'echo; echo interrupted' INT; echo ready; \
                  until read -t 0.05 x; do :; done; echo got $x; exit 4";
    let mut running = typed(
        &server,
        &format!("lock job -- bash -c \"{}\"", script.replace('$', "\\$")),
    );
    running.said("ready");
    running.process.type_in(CTRL_C);
    running.said("interrupted");
    // A second one would be here by then.
    std::thread::sleep(A_MOMENT);
    running.process.type_in("something\n");
    running.said("got ");
    assert_eq!(running.code(), 4);
    let log = running.process.log();
    assert_eq!(log.matches("interrupted").count(), 1, "{log}");
}

#[test]
fn ctrl_c_ends_a_command_that_does_not_mind_it() {
    let server = Server::single(&[]);
    // A shell that waits for a child may miss the signal while it starts it.
    let mut running = typed(
        &server,
        "lock --lease 250 job -- sh -c 'echo pid $$; exec sleep 600'",
    );
    let pid = running.pid("pid ");
    running.process.type_in(CTRL_C);
    assert_eq!(running.code(), 130);
    gone(&[pid]);
    Raw::connect(&server.address)
        .ask(acquire("job", 0, 30, 1))
        .token();
}

#[test]
fn a_command_that_was_stopped_on_the_terminal_goes_on_with_it() {
    let server = Server::single(&[]);
    let line = "lock --lease 250 job -- sh -c 'echo ready; read x; echo got $x; exit 3'; \
                echo stopped; fg; exit";
    let mut running = typed(&server, line);
    running.said("ready");
    running.process.type_in(CTRL_Z);
    running.said("stopped");
    running.process.type_in("something\n");
    assert_eq!(running.said("got "), "something");
    assert_eq!(running.code(), 3);
}

#[test]
fn time_goes_on_for_a_command_that_was_stopped_on_the_terminal() {
    let server = Server::single(&[]);
    let line = "lock --lease 2 --kill-after 0.5 job -- sh -c 'echo pid $$; sleep 600'; \
                echo stopped; read x; fg; exit";
    let mut running = typed(&server, line);
    let pid = running.pid("pid ");
    running.process.type_in(CTRL_Z);
    running.said("stopped");
    gone(&[pid]);
    running.process.type_in("\n");
    assert_eq!(running.code(), code::LEASE_OVER);
}

#[test]
fn a_command_ends_with_its_terminal() {
    let server = Server::single(&[]);
    // Of a line that is one command a shell becomes that command, and it leads the session.
    let line = "lock --lease 250 job -- sh -c 'echo pid $$; exec sleep 600'";
    let mut running = typed(&server, line);
    let pid = running.pid("pid ");
    running.process.kill();
    gone(&[pid]);
    let mut other = Raw::connect(&server.address);
    other.send(acquire("job", 20, 30, 1));
    other.reply_within(2 * PATIENCE).token();
}
