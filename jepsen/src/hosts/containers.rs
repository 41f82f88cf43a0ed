//! Each node in a container of the project's own compose file, `deploy/compose.yaml`.
//!
//! The file is taken as it is, with its two networks, its volumes, its secrets and its limits; what
//! a run needs besides (addresses that stay, a short election, who may restart whom) is in a second
//! file ([`project`]). The image is what `deploy/Dockerfile` makes, around the binary under test
//! ([`image`]).
//!
//! Clients live in a network namespace of the run's own, with an address on the network `clients`:
//! no rule for packets is ever put where the machine itself lives. The nodes' rules are in the
//! containers' network namespaces. A container gets a new one with every start, and the rules of
//! what is on are put there again.
//!
//! Containers are not this program's children. A guard ([`Guard`]) removes them when the run has
//! ended, whatever way.

mod guard;
mod image;
mod project;

use std::fs::File;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::sleep;

use super::Rules;
use super::rules::{Face, Place, Way};
use crate::cluster::Settings;
use crate::error::{Error, run, words};
use crate::process::Process;
use project::Project;

pub(crate) use guard::{Guard, guard};

/// The nodes that the compose file has.
pub(crate) const NODES: usize = 3;

/// The first node's ports for clients and for the admin endpoint; the others follow.
const FIRST_CLIENT_PORT: usize = 5225;
const FIRST_ADMIN_PORT: usize = 7225;

/// The networks' addresses are these and a number.
const CLIENTS_NET: &str = "10.78.0";
const PEERS_NET: &str = "10.78.1";

/// The last part of the first node's address in both networks, and of the clients'.
const FIRST_HOST: usize = 11;
const CLIENTS_HOST: usize = 254;

/// The bridges of the two networks, as this machine knows them.
const CLIENTS_BRIDGE: &str = "tj-clients";
const PEERS_BRIDGE: &str = "tj-peers";

/// The clients' device, and its other end at the bridge.
const CLIENTS_DEVICE: &str = "clients";
const CLIENTS_PORT: &str = "tj-clients-port";

/// The part of this machine's state that a run has to itself.
pub(super) const UNSHARE: &str = "--net";

/// How long a call of the engine may take; building an image is the longest, and on a busy machine
/// none is short.
const CALL_TIME_MAX: Duration = Duration::from_secs(300);

/// How long it is until an engine that does not answer is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// The hosts of one run.
pub(crate) struct Containers {
    /// The command that is Compose here.
    compose: &'static str,
    project: Option<Project>,
    rules: Rules,
    /// The containers' ids.
    ids: Vec<String>,
}

impl Containers {
    /// Sees whether all is there that is needed. There is nothing yet to be removed.
    pub(crate) async fn create() -> Result<Self, Error> {
        let engine = docker("version").await;
        engine.map_err(|error| Error::of("--hosts containers needs a running docker", error))?;
        let compose = project::compose().await?;
        image::base().await?;
        let places = (0..NODES).map(|node| Place {
            way: None,
            to_nodes: Face::new(&peer_ip(node), ""),
            to_clients: Face::new(&Self::ip(node), ""),
        });
        let clients = Face::new(&format!("{CLIENTS_NET}.{CLIENTS_HOST}"), CLIENTS_DEVICE);
        Ok(Self {
            compose,
            project: None,
            rules: Rules::new(places.collect(), clients),
            ids: Vec::new(),
        })
    }

    /// Makes the containers with their networks and volumes, and starts them all.
    pub(crate) async fn up(&mut self, dir: &Path, settings: &Settings) -> Result<(), Error> {
        let project = Project::of(dir)?;
        project.write(settings)?;
        // A run with the same name may have died together with its guard.
        project.remove().await?;
        image::build(&settings.server, project.image(), project.dir()).await?;
        project.up(self.compose).await?;
        for node in 0..NODES {
            let id = project.container(node).await?;
            self.ids
                .push(id.ok_or_else(|| Error(format!("node {} has no container", node + 1)))?);
        }
        self.project = Some(project);
        attach_clients().await
    }

    /// A node's address for clients.
    pub(crate) fn ip(node: usize) -> String {
        format!("{CLIENTS_NET}.{}", FIRST_HOST + node)
    }

    /// Where clients find a node.
    pub(crate) fn address(node: usize) -> String {
        format!("{}:{}", Self::ip(node), FIRST_CLIENT_PORT + node)
    }

    /// Where a node's admin endpoint is.
    pub(crate) fn admin(node: usize) -> String {
        format!("{}:{}", Self::ip(node), FIRST_ADMIN_PORT + node)
    }

    /// Starts a node that does not run; of one that does, it gives the process.
    pub(crate) async fn start(&mut self, node: usize) -> Result<Process, Error> {
        let id = self.ids[node].clone();
        docker(&format!("start {id}")).await?;
        let pid = docker(&format!("inspect --format {{{{.State.Pid}}}} {id}")).await?;
        // 0: it is gone already.
        let pid = pid.trim().parse().ok().filter(|pid| *pid != 0);
        let network = pid.map(|pid: u32| File::open(format!("/proc/{pid}/ns/net")));
        if let Some(Ok(network)) = network {
            let place = place(node, Way::open(network)).await?;
            self.rules.moved(node, place).await?;
        }
        Ok(Process::new(pid, end(id)))
    }

    /// Where a node's volume is on this machine.
    pub(crate) async fn volume(&self, node: usize) -> Result<PathBuf, Error> {
        let name = self.project()?.volume(node);
        let path = docker(&format!(
            "volume inspect --format {{{{.Mountpoint}}}} {name}"
        ))
        .await?;
        Ok(PathBuf::from(path.trim()))
    }

    /// Writes what a node has said in all its lives to `file`.
    pub(crate) async fn save_log(&self, node: usize, file: &Path) -> Result<(), Error> {
        self.project()?.save_log(node, file).await
    }

    pub(super) fn rules(&mut self) -> &mut Rules {
        &mut self.rules
    }

    fn project(&self) -> Result<&Project, Error> {
        let project = self.project.as_ref();
        project.ok_or_else(|| Error("the containers are not made yet".into()))
    }
}

/// A node's address for the other nodes.
fn peer_ip(node: usize) -> String {
    format!("{PEERS_NET}.{}", FIRST_HOST + node)
}

/// Where a container is that has just been started; which of its devices leads where, it must be
/// asked.
async fn place(node: usize, way: Way) -> Result<Place, Error> {
    let shown = run(&mut way.command("ip -o -4 address show")).await?;
    let face = |ip: &str| Face::new(ip, device(&shown, ip).unwrap_or_default());
    Ok(Place {
        to_nodes: face(&peer_ip(node)),
        to_clients: face(&Containers::ip(node)),
        way: Some(way),
    })
}

/// The device that has an address, one of those that `ip` shows.
fn device<'a>(shown: &'a str, ip: &str) -> Option<&'a str> {
    shown.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (address, _) = words.get(3)?.split_once('/')?;
        (address == ip).then(|| words[1])
    })
}

/// Gives the network namespace that this process is in an address on the containers' network. It
/// goes with this namespace.
async fn attach_clients() -> Result<(), Error> {
    let outside = format!("nsenter --net=/proc/{}/ns/net", parent_id());
    let own = std::process::id();
    for line in [
        "ip link set lo up".to_owned(),
        format!(
            "{outside} ip link add {CLIENTS_PORT} type veth peer name {CLIENTS_DEVICE} netns {own}"
        ),
        format!("{outside} ip link set {CLIENTS_PORT} master {CLIENTS_BRIDGE} up"),
        format!("ip addr add {CLIENTS_NET}.{CLIENTS_HOST}/24 dev {CLIENTS_DEVICE}"),
        format!("ip link set {CLIENTS_DEVICE} up"),
    ] {
        run(&mut words(&line)).await?;
    }
    Ok(())
}

/// Waits for a container's end; how its process ended.
async fn end(id: String) -> String {
    loop {
        let mut command = words(&format!("docker wait {id}"));
        match command.kill_on_drop(true).output().await {
            Ok(output) if output.status.success() => {
                let code = String::from_utf8_lossy(&output.stdout);
                return format!("exit status: {}", code.trim());
            }
            // That the engine can't be asked is no end of the container's process.
            _ => sleep(AGAIN).await,
        }
    }
}

/// Runs a command of the engine, which must succeed; gives back what it said.
async fn docker(line: &str) -> Result<String, Error> {
    call(&mut words(&format!("docker {line}"))).await
}

/// The same for a command that is made already.
async fn call(command: &mut Command) -> Result<String, Error> {
    crate::error::run_within(command, CALL_TIME_MAX).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_of_an_address_is_found() {
        let shown = "1: lo    inet 127.0.0.1/8 scope host lo\n\
                     14: eth1    inet 10.78.0.1/24 brd 10.78.0.255 scope global eth1\n\
                     12: eth0    inet 10.78.0.11/24 brd 10.78.0.255 scope global eth0\n";
        assert_eq!(device(shown, "10.78.0.11"), Some("eth0"));
        assert_eq!(device(shown, "10.78.0.12"), None);
    }
}
