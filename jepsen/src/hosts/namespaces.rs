//! Each node in a network namespace of its own, on a bridge; the clients at another address of that
//! bridge.
//!
//! Nothing is left behind, whatever way a run ends: [`super::enter`] starts the run anew inside namespaces
//! for network, mounts and processes, which the kernel takes down with the last process in them;
//! and the first process in them is killed with the one that started it.

use std::path::Path;

use tokio::process::Command;

use super::rules::{Face, Place, Rules, Way};
use crate::error::{Error, run, words};

/// The part of this machine's state that a run has to itself; what is in it dies with its first
/// process.
pub(super) const UNSHARE: &str = "--net --mount --pid --fork --kill-child --mount-proc";

/// What the host of node 0 is called; the others follow.
const NAME: &str = "tj";

/// The network device at a node, and the one that the clients have.
const NODE_DEVICE: &str = "eth0";
const CLIENTS_DEVICE: &str = "tjbr";

/// The clients' own address.
const CLIENTS_IP: &str = "10.77.0.254";

/// The hosts of one run.
pub(crate) struct Namespaces {
    rules: Rules,
}

impl Namespaces {
    /// Makes the bridge and `nodes` hosts.
    pub(crate) async fn create(nodes: usize) -> Result<Self, Error> {
        // What `ip netns` mounts stays in this mount namespace.
        run(&mut words("mkdir -p /run/netns")).await?;
        run(&mut words("mount -t tmpfs tmpfs /run/netns")).await?;
        run(&mut words("ip link set lo up")).await?;
        for line in [
            format!("ip link add {CLIENTS_DEVICE} type bridge"),
            format!("ip addr add {CLIENTS_IP}/24 dev {CLIENTS_DEVICE}"),
            format!("ip link set {CLIENTS_DEVICE} up"),
        ] {
            run(&mut words(&line)).await?;
        }
        for node in 0..nodes {
            let (name, ip) = (name(node), Self::ip(node));
            for line in [
                format!("ip netns add {name}"),
                format!("ip link add {name}v type veth peer name {NODE_DEVICE} netns {name}"),
                format!("ip link set {name}v master {CLIENTS_DEVICE} up"),
                format!("ip -n {name} addr add {ip}/24 dev {NODE_DEVICE}"),
                format!("ip -n {name} link set {NODE_DEVICE} up"),
                format!("ip -n {name} link set lo up"),
            ] {
                run(&mut words(&line)).await?;
            }
        }
        let place = |node| {
            let face = Face::new(&Self::ip(node), NODE_DEVICE);
            Place {
                way: Some(Way::network(&network(node))),
                to_nodes: face.clone(),
                to_clients: face,
            }
        };
        let clients = Face::new(CLIENTS_IP, CLIENTS_DEVICE);
        let rules = Rules::new((0..nodes).map(place).collect(), clients);
        Ok(Self { rules })
    }

    /// A node's address.
    pub(crate) fn ip(node: usize) -> String {
        format!("10.77.0.{}", node + 1)
    }

    /// A command in a node's namespace. Only the network is another one, so that file systems can
    /// come and go under a running node.
    pub(crate) fn command(node: usize, program: &Path) -> Command {
        let mut command = words(&format!("nsenter --net={}", network(node)));
        command.arg(program);
        command
    }

    pub(super) fn rules(&mut self) -> &mut Rules {
        &mut self.rules
    }
}

fn name(node: usize) -> String {
    format!("{NAME}{node}")
}

/// The file of a node's network namespace.
fn network(node: usize) -> String {
    format!("/run/netns/{}", name(node))
}
