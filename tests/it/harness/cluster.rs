//! Servers under test: a single one, or a cluster of them.

use std::fs;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::gate::{self, Gate};
use super::ports::Ports;
use super::process::{self, Process, binary};
use super::raw::{Frame, Raw, Received};
use super::{PATIENCE, SETTLE, eventually};

/// How long one node may take to say whom it follows, while all are being asked in turn.
const GLANCE: Duration = Duration::from_millis(200);

/// One server process and what it takes to start it again.
#[derive(Debug)]
pub(crate) struct Server {
    /// Client address, `host:port`.
    pub(crate) address: String,
    /// Peer address; empty in single mode.
    pub(crate) peer_address: String,
    /// Where its admin endpoint is asked, `host:port`.
    pub(crate) admin: String,
    name: String,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    data_dir: PathBuf,
    log: PathBuf,
    process: Option<Process>,
    _single: Option<(TempDir, Ports, Gate)>,
}

impl Server {
    /// A single server that accepts connections.
    pub(crate) fn single(flags: &[&str]) -> Self {
        Self::single_behind(gate::shared(), "127.0.0.1", flags)
    }

    /// A single server in a test that has the machine alone.
    pub(crate) fn single_alone(flags: &[&str]) -> Self {
        Self::single_behind(gate::alone(), "127.0.0.1", flags)
    }

    /// A single server whose admin endpoint is open beyond loopback.
    pub(crate) fn single_with_open_admin(flags: &[&str]) -> Self {
        Self::single_behind(gate::shared(), "0.0.0.0", flags)
    }

    fn single_behind(gate: Gate, admin_ip: &str, flags: &[&str]) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let mut ports = Ports::reserve(2);
        let (port, admin) = (ports.next(), ports.next());
        let flags = flags.iter().map(|flag| (*flag).to_owned());
        let mut server = Self {
            address: format!("127.0.0.1:{port}"),
            peer_address: String::new(),
            admin: format!("127.0.0.1:{admin}"),
            name: "single server".to_owned(),
            flags: flags
                .chain(["--port".to_owned(), port.to_string()])
                .collect(),
            environment: admin_bind(&format!("{admin_ip}:{admin}")),
            data_dir: dir.path().join("data"),
            log: dir.path().join("log"),
            process: None,
            _single: Some((dir, ports, gate)),
        };
        server.start();
        server
    }

    /// Starts the process and waits until it accepts connections.
    pub(crate) fn start(&mut self) {
        self.spawn();
        let what = format!("{} accepts connections", self.name);
        eventually(&what, SETTLE, || {
            self.assert_running();
            Raw::open(&self.address).ok()
        });
    }

    /// Starts the process, no more.
    pub(crate) fn spawn(&mut self) {
        assert!(self.process.is_none(), "{} runs already", self.name);
        let mut command = binary();
        command
            .arg("serve")
            .args(&self.flags)
            .envs(self.environment.iter().cloned());
        self.process = Some(Process::spawn(&self.name, command, &self.log));
    }

    /// The running process.
    pub(crate) fn process(&self) -> &Process {
        self.process
            .as_ref()
            .unwrap_or_else(|| panic!("{} does not run", self.name))
    }

    fn process_mut(&mut self) -> &mut Process {
        self.process
            .as_mut()
            .unwrap_or_else(|| panic!("{} does not run", self.name))
    }

    /// Fails when the process has ended by itself.
    pub(crate) fn assert_running(&mut self) {
        let ended = self.process_mut().ended();
        assert!(ended.is_none(), "{} has ended: {ended:?}", self.name);
    }

    /// True when the process was started and has ended by itself, or by another's doing.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.process_mut().ended().is_some()
    }

    /// True between a start and the end that the harness gave it.
    pub(crate) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// `kill -9`, and its end.
    pub(crate) fn kill(&mut self) {
        self.process_mut().kill();
        self.process = None;
    }

    /// SIGSTOP: it is there, and silent.
    pub(crate) fn pause(&self) {
        self.process().signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        self.process().signal(Signal::CONT);
    }

    /// SIGTERM, without waiting.
    pub(crate) fn ask_to_stop(&self) {
        self.process().signal(Signal::TERM);
    }

    /// Waits for the end of a process that was asked to stop or has a reason of its own.
    pub(crate) fn wait(&mut self, within: Duration) -> ExitStatus {
        let status = self.process_mut().wait(within);
        self.process = None;
        status
    }

    /// SIGTERM, and how it ended.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.ask_to_stop();
        self.wait(PATIENCE)
    }

    /// Everything it has said in all its lives.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Where it keeps its data.
    pub(crate) fn data_dir(&self) -> &std::path::Path {
        &self.data_dir
    }

    /// Deletes its data; it must not run.
    pub(crate) fn wipe(&self) {
        assert!(self.process.is_none(), "{} runs", self.name);
        fs::remove_dir_all(&self.data_dir).expect("the data directory is there");
    }

    /// The command line it is started with.
    pub(crate) fn flags(&self) -> &[String] {
        &self.flags
    }

    /// Replaces a flag's value for the next start.
    pub(crate) fn set_flag(&mut self, flag: &str, value: &str) {
        let at = self.flags.iter().position(|known| known == flag);
        let at = at.unwrap_or_else(|| panic!("{flag} is not among {:?}", self.flags));
        value.clone_into(&mut self.flags[at + 1]);
    }

    /// Sets an environment variable for the next start.
    pub(crate) fn set_variable(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Whom a new session is told to be the leader within a short time.
    pub(crate) fn names_leader(&self) -> Option<String> {
        let mut session = Raw::try_connect(&self.address, b"").ok()?;
        match session.receive(GLANCE) {
            Received::Frame(Frame::Leads(address)) => Some(address),
            _ => None,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let state = match self.process.as_mut().map(Process::ended) {
                Some(None) => "was running".to_owned(),
                Some(Some(status)) => format!("had ended by itself ({status})"),
                None => "did not run".to_owned(),
            };
            let name = format!("{} ({})", self.name, self.address);
            process::show(&name, &state, &self.log());
        }
    }
}

/// The setting that puts the admin endpoint there. In the environment, so that a test can say
/// otherwise with a flag.
fn admin_bind(address: &str) -> Vec<(String, String)> {
    vec![("ADMIN_BIND".to_owned(), address.to_owned())]
}

/// A cluster of server processes with default settings.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// Its nodes, in the order of the peer list.
    pub(crate) nodes: Vec<Server>,
    dir: TempDir,
    _ports: Ports,
    _gate: Gate,
}

impl Cluster {
    /// Starts `size` nodes and waits until all of them name one leader.
    pub(crate) fn start(size: u16) -> Self {
        Self::start_with(size, &[])
    }

    /// Likewise, with more flags for each node.
    pub(crate) fn start_with(size: u16, flags: &[&str]) -> Self {
        let mut cluster = Self::prepare(gate::shared(), size, flags);
        cluster.start_all();
        cluster
    }

    /// Likewise, with the machine for this test alone.
    pub(crate) fn start_alone(size: u16) -> Self {
        let mut cluster = Self::prepare(gate::alone(), size, &[]);
        cluster.start_all();
        cluster
    }

    /// Everything but the processes.
    pub(crate) fn prepare(gate: Gate, size: u16, flags: &[&str]) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let mut ports = Ports::reserve(3 * size);
        let addresses: Vec<_> = (0..size).map(|_| (ports.next(), ports.next())).collect();
        let mut admins = (0..size).map(|_| format!("127.0.0.1:{}", ports.next()));
        let peers: Vec<_> = addresses
            .iter()
            .map(|(client, peer)| format!("127.0.0.1:{client}=127.0.0.1:{peer}"))
            .collect();
        let node = |(index, (client, peer)): (usize, &(u16, u16))| {
            let admin = admins.next().expect("one for each node");
            let name = format!("node-{}", index + 1);
            let data_dir = dir.path().join(&name);
            let address = format!("127.0.0.1:{client}");
            let own = [
                ("--port", client.to_string()),
                ("--cluster-self", address.clone()),
                ("--cluster-peers", peers.join(",")),
                ("--data-dir", data_dir.display().to_string()),
            ];
            let own = own
                .into_iter()
                .flat_map(|(flag, value)| [flag.to_owned(), value]);
            Server {
                address,
                peer_address: format!("127.0.0.1:{peer}"),
                log: dir.path().join(format!("{name}.log")),
                name,
                flags: own
                    .chain(flags.iter().map(|flag| (*flag).to_owned()))
                    .collect(),
                environment: admin_bind(&admin),
                admin,
                data_dir,
                process: None,
                _single: None,
            }
        };
        let nodes = addresses.iter().enumerate().map(node).collect();
        Self {
            nodes,
            dir,
            _ports: ports,
            _gate: gate,
        }
    }

    /// Starts every node that does not run and waits until all name one leader.
    pub(crate) fn start_all(&mut self) {
        for node in &mut self.nodes {
            if !node.is_up() {
                node.spawn();
            }
        }
        self.settle();
    }

    /// Waits until every node that runs names the same leader; gives back which it is.
    pub(crate) fn settle(&mut self) -> usize {
        eventually("all nodes name one leader", SETTLE, || {
            let leader = self.look_for_leader()?;
            let up = self.nodes.iter().filter(|node| node.is_up());
            let address = Some(self.nodes[leader].address.clone());
            up.map(Server::names_leader)
                .all(|named| named == address)
                .then_some(leader)
        })
    }

    /// Waits until a node that runs names itself, which it does only once it can serve.
    pub(crate) fn leader(&mut self) -> usize {
        eventually("a node names itself the leader", SETTLE, || {
            self.look_for_leader()
        })
    }

    fn look_for_leader(&mut self) -> Option<usize> {
        for node in self.nodes.iter_mut().filter(|node| node.is_up()) {
            node.assert_running();
        }
        let leads =
            |node: &Server| node.is_up() && node.names_leader().as_ref() == Some(&node.address);
        self.nodes.iter().position(leads)
    }

    /// The nodes that run and are not `leader`.
    pub(crate) fn others(&self, leader: usize) -> Vec<usize> {
        let all = 0..self.nodes.len();
        all.filter(|&index| index != leader && self.nodes[index].is_up())
            .collect()
    }

    /// A session with the leader. It has been told who leads.
    pub(crate) fn leader_session(&mut self) -> Raw {
        let leader = self.leader();
        self.session(leader)
    }

    /// A session with one node.
    pub(crate) fn session(&self, index: usize) -> Raw {
        Raw::connect(&self.nodes[index].address)
    }

    /// Asks node after node until one gives a definitive answer to `request` that is no refusal,
    /// however often leadership moves meanwhile.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Frame {
        self.ask_within(request, SETTLE)
    }

    /// Likewise, within a time. A request whose answer was lost is sent again: it must bear that.
    pub(crate) fn ask_within(&mut self, request: &[u8], within: Duration) -> Frame {
        let deadline = Instant::now() + within;
        eventually("a node that answers", within, || {
            let leader = self.look_for_leader()?;
            let mut session = Raw::try_connect(&self.nodes[leader].address, b"").ok()?;
            session.try_send(request).ok()?;
            let left = deadline.saturating_duration_since(Instant::now());
            match session.receive_reply(left) {
                Received::Frame(Frame::Moved(_) | Frame::Error(_)) => None,
                Received::Frame(frame) => Some(frame),
                _ => None,
            }
        })
    }

    /// A directory that lives as long as the cluster.
    pub(crate) fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }
}
