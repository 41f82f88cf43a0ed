//! `ticketing dev`: three nodes in one command, and nothing left of them afterwards.

use std::net::TcpListener;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::ports::Ports;
use crate::harness::process::{Process, children, detached, is_alive, output, show};
use crate::harness::{PATIENCE, SETTLE, eventually, gate};

/// The command, in the background.
struct Dev {
    process: Process,
    port: u16,
    _dir: TempDir,
    _ports: Ports,
    _gate: gate::Gate,
}

impl Dev {
    /// Starts it and waits until it has introduced itself.
    fn start() -> Self {
        let gate = gate::shared();
        let dir = TempDir::new().expect("a temporary directory");
        let mut ports = Ports::with_default_offsets(3);
        let port = ports.next();
        let mut command = detached();
        command
            .args(["dev", "--port", &port.to_string()])
            .env("TMPDIR", dir.path());
        let process = Process::spawn("dev", command, &dir.path().join("log"));
        let mut dev = Self {
            process,
            port,
            _dir: dir,
            _ports: ports,
            _gate: gate,
        };
        dev.until(" leads");
        dev
    }

    /// Waits for a line.
    fn until(&mut self, part: &str) -> String {
        eventually(&format!("a line with {part:?}"), SETTLE, || {
            let ended = self.process.ended();
            assert!(ended.is_none(), "dev has ended: {ended:?}");
            let log = self.process.log();
            log.lines()
                .find(|line| line.contains(part))
                .map(str::to_owned)
        })
    }

    /// The nodes' process ids.
    fn nodes(&self) -> Vec<u32> {
        children(self.process.pid())
    }

    /// Where it keeps the temporary data.
    fn leftovers(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self._dir.path()).expect("the directory is there");
        let names = entries.map(|entry| entry.expect("it can be read").file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| name != "log")
            .collect()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show("dev", "in the end", &self.process.log());
        }
        // Its nodes end with it; those that do not would be found by the next test's ports.
        for node in self.nodes() {
            if let Some(pid) = i32::try_from(node).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

fn all_gone(nodes: &[u32]) {
    eventually("no node is left", 2 * PATIENCE, || {
        nodes.iter().all(|&pid| !is_alive(pid)).then_some(())
    });
}

#[test]
fn it_starts_three_nodes_reports_an_end_and_stops_all_on_interrupt() {
    let mut dev = Dev::start();
    let nodes = dev.nodes();
    assert_eq!(nodes.len(), 3);
    // The command that it shows works as it is.
    let shown = dev.until("ticketing lock ");
    assert!(
        shown.contains(&format!("127.0.0.1:{}", dev.port)),
        "{shown}"
    );
    let mut shell = std::process::Command::new("sh");
    let line = shown
        .trim()
        .replacen("ticketing", env!("CARGO_BIN_EXE_ticketing"), 1);
    shell.args(["-c", &line]);
    let said = output(shell, SETTLE);
    assert!(said.status.success(), "{said:?}");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "token 1\n");

    let victim = i32::try_from(nodes[1])
        .ok()
        .and_then(Pid::from_raw)
        .expect("a process id");
    kill_process(victim, Signal::KILL).expect("the node is there");
    let reported = dev.until("has ended");
    assert!(reported.contains("signal: 9"), "{reported}");

    dev.process.signal(Signal::INT);
    assert_eq!(dev.process.wait(2 * PATIENCE).code(), Some(0));
    all_gone(&nodes);
    assert_eq!(dev.leftovers(), Vec::<String>::new());
}

#[test]
fn it_stops_in_order_with_its_terminal() {
    let mut dev = Dev::start();
    let nodes = dev.nodes();
    dev.process.signal(Signal::HUP);
    assert_eq!(dev.process.wait(2 * PATIENCE).code(), Some(0));
    all_gone(&nodes);
    assert_eq!(dev.leftovers(), Vec::<String>::new());
}

#[test]
fn its_nodes_do_not_outlive_a_killed_command() {
    let mut dev = Dev::start();
    let nodes = dev.nodes();
    assert_eq!(nodes.len(), 3);
    dev.process.kill();
    all_gone(&nodes);
}

#[test]
fn a_port_that_is_taken_is_named_and_nothing_is_announced() {
    let dir = TempDir::new().expect("a temporary directory");
    for (node, offset, purpose) in [
        (0, 0, "clients"),
        (1, 1_000, "peers"),
        (2, 2_000, "the admin endpoint"),
    ] {
        let mut ports = Ports::with_default_offsets(3);
        let port = ports.next();
        let taken = port + offset + node;
        let _other = TcpListener::bind(("127.0.0.1", taken)).expect("it is free");
        let mut command = detached();
        command
            .args(["dev", "--port", &port.to_string()])
            .env("TMPDIR", dir.path());
        let output = output(command, SETTLE);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let expected = format!("ticketing: port {taken} ({purpose}) can't be used: ");
        assert!(said.starts_with(&expected), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(output.stdout, b"", "{output:?}");
        let left = std::fs::read_dir(dir.path()).expect("it is there").count();
        assert_eq!(left, 0, "data is left");
    }
}

#[test]
fn a_node_that_can_not_start_ends_the_cluster_with_an_error() {
    let dir = TempDir::new().expect("a temporary directory");
    let data = dir.path().join("data");
    // One of the nodes finds a file where it keeps its log.
    std::fs::create_dir_all(data.join("node-2")).expect("it can be made");
    std::fs::write(data.join("node-2/wal"), "").expect("it can be written");
    let mut ports = Ports::with_default_offsets(3);
    let mut command = detached();
    command
        .args(["dev", "--port", &ports.next().to_string(), "--data-dir"])
        .arg(&data);
    let output = output(command, SETTLE);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "ticketing: node 2 ended before the cluster had a leader\n"
    );
}
