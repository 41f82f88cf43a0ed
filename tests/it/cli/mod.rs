//! The command line, as a person or a script meets it.

mod connect;
mod dev;
mod examples;
mod grants;
mod lease_end;
mod lock;
mod outliving;
mod pages;
mod signals;
mod start_errors;
mod surroundings;
mod terminal;
mod version;

use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::process::{Process, children, detached, is_alive, output, show};
use crate::harness::{Cluster, PATIENCE, eventually};

/// The exit codes that scripts rely on, as docs/CLI.md lists them.
mod code {
    pub(super) const USAGE: i32 = 64;
    pub(super) const NO_SERVER: i32 = 69;
    pub(super) const NOT_ACQUIRED: i32 = 75;
    pub(super) const LEASE_OVER: i32 = 76;
    pub(super) const NOT_ALLOWED: i32 = 77;
    pub(super) const NOT_CURRENT: i32 = 79;
    pub(super) const LOCK_LOST: i32 = 80;
    pub(super) const KILLED: i32 = 137;
}

/// A subcommand for these servers, away from any terminal.
fn client(subcommand: &str, addresses: &str, rest: &[&str]) -> Command {
    let mut command = detached();
    command.args([subcommand, "--addrs", addresses]).args(rest);
    command
}

fn lock(addresses: &str, rest: &[&str]) -> Command {
    client("lock", addresses, rest)
}

fn code_of(command: Command) -> i32 {
    let output = output(command, 2 * PATIENCE);
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("it exits by itself: {output:?}"))
}

/// The addresses of all nodes, as one types them.
fn addresses_of(cluster: &Cluster) -> String {
    let addresses: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| node.address.as_str())
        .collect();
    addresses.join(",")
}

/// A command line in the background whose output is watched.
struct Running {
    process: Process,
    _dir: TempDir,
}

impl Running {
    fn start(command: Command) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        Self::start_in(dir, command)
    }

    fn start_in(dir: TempDir, command: Command) -> Self {
        let process = Process::spawn("ticketing", command, &dir.path().join("log"));
        Self { process, _dir: dir }
    }

    /// Waits until a line of the output begins like this; what follows on that line.
    fn said(&self, start: &str) -> String {
        eventually(&format!("{start:?} is said"), 2 * PATIENCE, || {
            let log = self.process.log();
            // A line that is not complete may still grow.
            let complete = log.rsplit_once('\n').map_or("", |(lines, _)| lines);
            let line = complete.lines().find_map(|line| line.strip_prefix(start));
            line.map(|rest| rest.trim().to_owned())
        })
    }

    /// The process whose id was said after this word.
    fn pid(&self, word: &str) -> u32 {
        self.said(word).parse().expect("a process id")
    }

    /// How many lines are exactly this.
    fn count(&self, line: &str) -> usize {
        self.process
            .log()
            .lines()
            .filter(|said| *said == line)
            .count()
    }

    /// The process that guards the command.
    fn keeper(&self) -> u32 {
        let children = children(self.process.pid());
        assert_eq!(children.len(), 1, "it has one child");
        children[0]
    }

    fn code(&mut self) -> i32 {
        let status = self.process.wait(3 * PATIENCE);
        status.code().expect("it exits by itself")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show("the command line", "in the end", &self.process.log());
        }
    }
}

fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process id"), signal).expect("the process is there");
}

fn gone(pids: &[u32]) {
    eventually("they are gone", PATIENCE, || {
        pids.iter().all(|&pid| !is_alive(pid)).then_some(())
    });
}

/// A command that says `NAME PID` and runs until it is killed: signals that ask do not end it.
fn stubborn(name: &str) -> String {
    format!("trap '' TERM INT HUP; echo {name} $$; while :; do sleep 0.05; done")
}

/// The same, with children that stay in its group, lead a group of their own, and have a session of
/// their own.
fn stubborn_family() -> String {
    format!(
        "sh -c \"$GROUP\" & timeout 600 sh -c \"$OTHER\" & setsid sh -c \"$AWAY\" & {}",
        stubborn("command")
    )
}

/// What [`stubborn_family`] needs in its environment.
fn with_family(mut command: Command) -> Command {
    for name in ["GROUP", "OTHER", "AWAY"] {
        command.env(name, stubborn(&name.to_lowercase()));
    }
    command
}

/// The processes of a [`stubborn_family`], once all of them run.
fn family(running: &Running) -> Vec<u32> {
    ["command", "group", "other", "away"]
        .iter()
        .map(|word| running.pid(&format!("{word} ")))
        .collect()
}

/// Long enough for whatever would come although it must not.
const A_MOMENT: Duration = Duration::from_millis(300);
