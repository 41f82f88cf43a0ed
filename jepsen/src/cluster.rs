//! The nodes: processes of the binary under test, on their hosts and disks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::Disk;
use crate::error::Error;
use crate::history::{Recorder, What};
use crate::hosts::{CLIENT_PORT, Hosts, INSIDE, PEER_PORT};
use crate::pki::Identity;
use crate::process::Process;

/// What clients prove to know.
pub(crate) const AUTH_TOKEN: &str = "jepsen-clients-know-this";

/// What peers prove to know.
pub(crate) const CLUSTER_SECRET: &str = "jepsen-peers-know-this";

/// What the observer proves to know.
pub(crate) const ADMIN_TOKEN: &str = "jepsen-the-observer-knows-this";

/// The nodes' election timeout in milliseconds.
pub(crate) const ELECTION_MS: u64 = 1000;

/// The library that shifts a process's wall clock.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// How all nodes are started.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The binary under test.
    pub(crate) server: PathBuf,
    /// Log entries between two snapshots.
    pub(crate) snapshot_entries: u64,
    /// The certificate, when clients use TLS.
    pub(crate) identity: Option<Identity>,
    /// Whether nodes run under a wall clock that can be shifted.
    pub(crate) shifted_clocks: bool,
    /// The planted bug, for a binary that has them.
    pub(crate) bug: Option<String>,
}

impl Settings {
    /// Those that are a variable's value, wherever nodes run.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("CLUSTER_ELECTION_TIMEOUT_MS", ELECTION_MS.to_string()),
            ("SNAPSHOT_ENTRIES", self.snapshot_entries.to_string()),
        ];
        if let Some(bug) = &self.bug {
            variables.push(("TICKETING_PLANTED_BUG", bug.clone()));
        }
        variables
    }
}

/// The nodes of one run.
pub(crate) struct Cluster {
    pub(crate) hosts: Hosts,
    pub(crate) nodes: Vec<Node>,
    settings: Settings,
    recorder: Arc<Recorder>,
}

/// One node.
pub(crate) struct Node {
    /// Its client address.
    pub(crate) address: String,
    pub(crate) disk: Disk,
    process: Option<Process>,
    /// How often it was started.
    pub(crate) life: u64,
    log: PathBuf,
    clock: PathBuf,
    /// Its end is nobody's fault but ours.
    pub(crate) may_end: bool,
}

impl Cluster {
    /// Everything but the processes. `dir` is for data and logs.
    pub(crate) async fn prepare(
        mut hosts: Hosts,
        count: usize,
        dir: &Path,
        settings: Settings,
        recorder: Arc<Recorder>,
    ) -> Result<Self, Error> {
        if let Hosts::Containers(containers) = &mut hosts {
            containers.up(dir, &settings).await?;
        }
        let mut nodes = Vec::new();
        for index in 0..count {
            let root = dir.join(format!("node-{}", index + 1));
            let disk = match &hosts {
                Hosts::Namespaces(_) => Disk::image(&root).await?,
                Hosts::Containers(containers) => Disk::directory(containers.volume(index).await?),
                Hosts::Proxies(_) => Disk::directory(root.join("data")),
            };
            nodes.push(Node {
                address: hosts.address(index),
                disk,
                process: None,
                life: 0,
                log: dir.join(format!("node-{}.log", index + 1)),
                clock: dir.join(format!("node-{}.clock", index + 1)),
                may_end: false,
            });
        }
        Ok(Self {
            hosts,
            nodes,
            settings,
            recorder,
        })
    }

    /// The client addresses, in order.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.address.clone()).collect()
    }

    /// Starts a node that does not run.
    pub(crate) async fn start(&mut self, index: usize) -> Result<(), Error> {
        let process = match &mut self.hosts {
            Hosts::Containers(containers) => containers.start(index).await?,
            _ => self.spawn(index)?,
        };
        let node = &mut self.nodes[index];
        node.process = Some(process);
        node.may_end = node.disk.is_full();
        node.life += 1;
        Ok(())
    }

    /// Starts a node as a child of this process.
    fn spawn(&self, index: usize) -> Result<Process, Error> {
        let peers: Vec<String> = (0..self.nodes.len())
            .map(|node| {
                let ip = self.hosts.ip(node);
                format!("{ip}:{CLIENT_PORT}={ip}:{PEER_PORT}")
            })
            .collect();
        let bind = self.hosts.bind_ip(index);
        let mut command = self.hosts.command(index, &self.settings.server);
        let node = &self.nodes[index];
        let failed = |error| Error::of(format!("starting {}", node.address), error);
        let log = File::options().create(true).append(true).open(&node.log);
        let log = log.map_err(failed)?;
        command
            .arg("serve")
            .args(["--bind", &bind])
            .args(["--port", &CLIENT_PORT.to_string()])
            .args(["--cluster-self", &node.address])
            .args(["--cluster-peers", &peers.join(",")])
            .arg("--data-dir")
            .arg(node.disk.data_dir())
            .env("AUTH_TOKEN", AUTH_TOKEN)
            .env("CLUSTER_SECRET", CLUSTER_SECRET)
            .env("ADMIN_BIND", self.hosts.admin(index))
            .env("ADMIN_TOKEN", ADMIN_TOKEN)
            .envs(self.settings.variables())
            .env_remove(INSIDE)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .kill_on_drop(true);
        if let Some(identity) = &self.settings.identity {
            command.args(["--tls-cert".as_ref(), identity.certificate.as_os_str()]);
            command.args(["--tls-key".as_ref(), identity.key.as_os_str()]);
        }
        if self.settings.shifted_clocks {
            if !node.clock.exists() {
                fs::write(&node.clock, "+0\n").map_err(failed)?;
            }
            command
                .env("LD_PRELOAD", FAKETIME)
                .env("FAKETIME_TIMESTAMP_FILE", &node.clock)
                .env("FAKETIME_CACHE_DURATION", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let child = command.spawn().map_err(failed)?;
        if let Some(pid) = child.id() {
            self.hosts.inhabited(index, pid);
        }
        Ok(Process::child(child))
    }

    /// Starts every node that does not run, and says so of those that ended by themselves.
    pub(crate) async fn start_all(&mut self) -> Result<(), Error> {
        self.bury();
        for index in 0..self.nodes.len() {
            if !self.nodes[index].runs() {
                self.start(index).await?;
            }
        }
        Ok(())
    }

    /// Notes the nodes that ended by themselves.
    pub(crate) fn bury(&mut self) {
        for node in &mut self.nodes {
            if let Some(how) = node.process.as_mut().and_then(Process::ended) {
                node.process = None;
                if !node.may_end {
                    let node = node.address.clone();
                    self.recorder.write(What::Died { node, how });
                }
            }
        }
    }

    /// Sees to it that [`Node::said`] knows all.
    pub(crate) async fn collect_logs(&self) -> Result<(), Error> {
        if let Hosts::Containers(containers) = &self.hosts {
            for (index, node) in self.nodes.iter().enumerate() {
                containers.save_log(index, &node.log).await?;
            }
        }
        Ok(())
    }

    /// Whether the wall clocks of nodes can be shifted on this machine.
    pub(crate) fn can_shift_clocks() -> bool {
        Path::new(FAKETIME).exists()
    }
}

impl Node {
    /// Whether its process is there, as far as is known.
    pub(crate) fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// SIGKILL; whether the process is gone then.
    pub(crate) async fn kill(&mut self) -> bool {
        match self.process.take() {
            Some(process) => process.kill().await,
            None => false,
        }
    }

    /// SIGTERM; how the process ended and how long that took.
    pub(crate) async fn terminate(&mut self) -> Option<(String, Duration)> {
        Some(self.process.take()?.terminate().await)
    }

    /// SIGSTOP; whether the kernel shows the process as stopped then.
    pub(crate) async fn pause(&self) -> bool {
        match &self.process {
            Some(process) => process.pause().await,
            None => false,
        }
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        if let Some(process) = &self.process {
            process.resume();
        }
    }

    /// Shifts its wall clock; whether its process runs under a clock that can be shifted.
    pub(crate) fn shift_clock(&self, seconds: f64) -> Result<bool, Error> {
        // In one step: the process reads the file whenever it likes.
        let new = self.clock.with_extension("new");
        fs::write(&new, format!("{seconds:+.3}\n"))
            .and_then(|()| fs::rename(&new, &self.clock))
            .map_err(|error| Error::of("shifting a clock", error))?;
        let process = self.process.as_ref();
        let maps = process.and_then(|process| process.shown("maps"));
        Ok(maps.is_some_and(|maps| maps.contains("faketime")))
    }

    /// Everything it has said in all its lives.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}
