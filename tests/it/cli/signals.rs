//! Signals to `ticketing lock`: they are the command's, or end the wait for the lock.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use rustix::process::{Pid, Signal, getpgid};

use super::{A_MOMENT, Running, lock, send};
use crate::harness::process::detached_shell;
use crate::harness::{Frame, PATIENCE, Raw, Server, acquire, release};

/// What an acquire of `job` looks like, from afar.
const ACQUIRE: &[u8] = b"AWLOOOOOOOOjob\n";

const ALL: [(Signal, &str); 6] = [
    (Signal::TERM, "TERM"),
    (Signal::INT, "INT"),
    (Signal::HUP, "HUP"),
    (Signal::QUIT, "QUIT"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
];

/// Says each signal that comes, and ends with 9 on the last one.
fn listener(name: &str) -> String {
    let traps: Vec<_> = ALL[..5]
        .iter()
        .map(|(_, signal)| format!("trap 'echo {name} {signal}' {signal};"))
        .collect();
    format!(
        "{} trap 'echo {name} USR2; exit 9' USR2; echo {name} ready; while :; do sleep 0.05; done",
        traps.join(" ")
    )
}

#[test]
fn they_reach_all_of_the_command_once_and_the_lock_is_given_back() {
    let server = Server::single(&[]);
    // Shells start background jobs with INT and QUIT ignored for good, so the child is no shell's.
    let script = format!(
        "timeout 600 sh -c \"$OTHER\" & sh -c \"$CHILD\" & {}",
        listener("command")
    );
    let rest = ["--lease", "250", "job", "--", "sh", "-c", &script];
    let mut command = lock(&server.address, &rest);
    command
        .env("CHILD", listener("child"))
        .env("OTHER", listener("other"));
    let mut running = Running::start(command);
    for name in ["command", "child", "other"] {
        running.said(&format!("{name} ready"));
    }
    let mut other = Raw::connect(&server.address);
    assert_eq!(
        other.ask(acquire("job", 0, 30, 1)),
        Frame::wait_over(1, "job")
    );
    for (signal, name) in ALL {
        running.process.signal(signal);
        running.said(&format!("command {name}"));
        if name != "INT" && name != "QUIT" {
            running.said(&format!("child {name}"));
            running.said(&format!("other {name}"));
        }
    }
    assert_eq!(running.code(), 9);
    for (_, name) in ALL {
        assert_eq!(running.count(&format!("command {name}")), 1, "{name}");
    }
    other.ask(acquire("job", 0, 30, 1)).token();
}

#[test]
fn the_keeper_heeds_no_signals_but_those_of_the_holder() {
    let server = Server::single(&[]);
    let script = listener("command");
    let rest = ["--lease", "250", "job", "--", "sh", "-c", &script];
    let mut running = Running::start(lock(&server.address, &rest));
    running.said("command ready");
    for (signal, _) in ALL {
        send(running.keeper(), signal);
    }
    // On its way through both processes this one comes after those.
    running.process.signal(Signal::USR2);
    assert_eq!(running.code(), 9);
    for (_, name) in &ALL[..5] {
        assert_eq!(running.count(&format!("command {name}")), 0, "{name}");
    }
}

#[test]
fn a_command_without_a_terminal_leads_a_group_of_its_own() {
    let server = Server::single(&[]);
    let script = "echo pid $$; exec sleep 600";
    let rest = ["--lease", "250", "job", "--", "sh", "-c", script];
    let mut running = Running::start(lock(&server.address, &rest));
    let command = Pid::from_raw(running.said("pid ").parse().expect("a process id"));
    assert_eq!(getpgid(command).ok(), command);
    running.process.signal(Signal::TERM);
    assert_eq!(running.code(), 128 + 15);
}

#[test]
fn a_command_that_a_signal_ends_is_reported_as_shells_do() {
    let server = Server::single(&[]);
    for (signal, _) in ALL {
        let script = "echo ready; while :; do sleep 0.05; done";
        let rest = ["--lease", "250", "job", "--", "sh", "-c", script];
        let mut running = Running::start(lock(&server.address, &rest));
        running.said("ready");
        running.process.signal(signal);
        assert_eq!(running.code(), 128 + signal.as_raw(), "{signal:?}");
    }
}

/// A server that lets one client in, reads its acquire of `job`, and never answers.
struct Silent(TcpListener);

impl Silent {
    fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").expect("a port is free"))
    }

    fn address(&self) -> String {
        self.0.local_addr().expect("it is bound").to_string()
    }

    /// Waits until an acquire was read; its owner.
    fn acquire(&self) -> (TcpStream, [u8; 8]) {
        let (mut stream, _) = self.0.accept().expect("a client comes");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("it can be set");
        stream.write_all(b"SHA-256 aB3dEf_g\n").expect("it reads");
        let mut digest_and_frame = [0; 44 + ACQUIRE.len()];
        stream.read_exact(&mut digest_and_frame).expect("it asks");
        let frame = &digest_and_frame[44..];
        assert_eq!((frame[0], &frame[11..]), (b'A', &b"job\n"[..]));
        (stream, frame[3..11].try_into().expect("eight bytes"))
    }
}

#[test]
fn during_the_wait_they_end_it_and_the_place_in_the_queue_is_given_up() {
    for (signal, _) in ALL {
        let server = Silent::new();
        let rest = ["--wait", "200", "job", "--", "echo", "started"];
        let mut running = Running::start(lock(&server.address(), &rest));
        let (mut stream, _) = server.acquire();
        running.process.signal(signal);
        assert_eq!(running.code(), 128 + signal.as_raw(), "{signal:?}");
        assert_eq!(running.count("started"), 0);
        // A server removes the waiters of a connection that ends.
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the connection ends");
        assert_eq!(rest, b"");
    }
}

#[test]
fn a_grant_that_crosses_a_signal_is_given_back() {
    let server = Silent::new();
    let rest = ["--wait", "200", "job", "--", "sleep", "600"];
    let mut running = Running::start(lock(&server.address(), &rest));
    let (mut stream, owner) = server.acquire();
    running.process.signal(Signal::TERM);
    // Time for the signal to be seen first. Should it not be, it ends the command instead, and all
    // that follows is the same.
    std::thread::sleep(A_MOMENT);
    let token = 7_u64.to_be_bytes();
    let grant = [b"A", &token[..], &owner, b"job\n"].concat();
    stream.write_all(&grant).expect("it reads");
    // Releases of token 0 may come before it.
    let mut said: Vec<u8> = Vec::new();
    let release = release("job", 7);
    while !said.windows(release.len()).any(|bytes| bytes == release) {
        let mut bytes = [0; 64];
        let count = stream.read(&mut bytes).expect("it speaks");
        assert_ne!(count, 0, "it went away with the lock");
        said.extend(&bytes[..count]);
    }
    // The answer to a release looks like the release.
    stream.write_all(&release).expect("it reads");
    assert_eq!(running.code(), 128 + Signal::TERM.as_raw());
}

#[test]
fn what_was_ignored_at_the_start_stays_ignored() {
    let server = Server::single(&[]);
    let script = "echo ready; while :; do sleep 0.05; done";
    let line = format!(
        "trap '' HUP; exec \"$0\" lock --addrs {} --lease 250 job -- sh -c '{script}'",
        server.address
    );
    let mut running = Running::start(detached_shell(&line));
    running.said("ready");
    running.process.signal(Signal::HUP);
    std::thread::sleep(A_MOMENT);
    assert!(running.process.ended().is_none());
    running.process.signal(Signal::TERM);
    assert_eq!(running.code(), 128 + 15);
}
