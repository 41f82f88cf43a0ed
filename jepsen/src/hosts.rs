//! Where nodes and clients live, and what can be done to the links between them.
//!
//! Three kinds of places: network namespaces of our own ([`namespaces`]), containers of the
//! project's compose file ([`containers`]), and, without root, addresses on loopback with a TCP
//! proxy before each node ([`proxies`]).

mod containers;
mod namespaces;
mod proxies;
mod rules;

use std::path::Path;

use tokio::process::Command;

use crate::args::HostsArg;
use crate::cluster::Cluster;
use crate::error::{Error, words};
use rules::Rules;

pub(crate) use containers::{Containers, Guard, NODES as CONTAINERS, guard};
pub(crate) use namespaces::Namespaces;
pub(crate) use proxies::Proxies;

/// Set in the process that runs inside namespaces.
pub(crate) const INSIDE: &str = "TICKETING_JEPSEN_INSIDE";

/// The port that nodes serve clients on.
pub(crate) const CLIENT_PORT: u16 = 5225;

/// The port that nodes serve peers on.
pub(crate) const PEER_PORT: u16 = 6225;

/// The port of a node's admin endpoint. In containers these ports are the compose file's.
pub(crate) const ADMIN_PORT: u16 = 7225;

/// A command that starts this program anew inside namespaces of its own, or `None` if hosts of this
/// kind need none.
pub(crate) fn enter(hosts: HostsArg, arguments: &[String]) -> Result<Option<Command>, Error> {
    let unshare = match hosts {
        HostsArg::Namespaces => namespaces::UNSHARE,
        HostsArg::Containers => containers::UNSHARE,
        HostsArg::Auto | HostsArg::Proxies => return Ok(None),
    };
    let own = std::env::current_exe().map_err(|error| Error::of("finding this program", error))?;
    // The death of this process is the death of all.
    let mut command = words(&format!("setpriv --pdeathsig KILL -- unshare {unshare} --"));
    command.arg(own).args(arguments).env(INSIDE, "1");
    Ok(Some(command))
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// A node, counted from 0.
    Node(usize),
    /// Where all clients are.
    Clients,
}

/// A link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Link {
    pub(crate) from: End,
    pub(crate) to: End,
}

impl Link {
    /// Both directions between two ends.
    pub(crate) fn both(a: End, b: End) -> [Self; 2] {
        [Self { from: a, to: b }, Self { from: b, to: a }]
    }
}

/// What is done to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing gets through.
    Drop,
    /// One packet in five is lost.
    Lose,
    /// 50 ms ± 10.
    Delay,
    /// One packet in four comes 20 ms late, after its successors.
    Reorder,
    /// One packet in three comes twice.
    Duplicate,
    /// 256 kbit/s.
    Slow,
}

/// An effect that is on, to be taken back.
#[derive(Debug)]
#[must_use = "an effect stays on until it is taken back"]
pub(crate) struct Applied(pub(crate) u64);

/// What was seen of an effect from outside.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    pub(crate) count: u64,
    pub(crate) of: &'static str,
}

/// The places of one run.
pub(crate) enum Hosts {
    Namespaces(Namespaces),
    Containers(Containers),
    Proxies(Proxies),
}

impl Hosts {
    /// Its name, as `--hosts` has it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Namespaces(_) => "namespaces",
            Self::Containers(_) => "containers",
            Self::Proxies(_) => "proxies",
        }
    }

    /// The address at which clients know a node.
    pub(crate) fn ip(&self, node: usize) -> String {
        match self {
            Self::Namespaces(_) => Namespaces::ip(node),
            Self::Containers(_) => Containers::ip(node),
            Self::Proxies(_) => Proxies::public_ip(node),
        }
    }

    /// Where clients find a node.
    pub(crate) fn address(&self, node: usize) -> String {
        match self {
            Self::Containers(_) => Containers::address(node),
            _ => format!("{}:{CLIENT_PORT}", self.ip(node)),
        }
    }

    /// The address that a node listens on.
    pub(crate) fn bind_ip(&self, node: usize) -> String {
        match self {
            Self::Proxies(_) => Proxies::private_ip(node),
            _ => self.ip(node),
        }
    }

    /// Where a node's admin endpoint is reached.
    pub(crate) fn admin(&self, node: usize) -> String {
        match self {
            Self::Containers(_) => Containers::admin(node),
            _ => format!("{}:{ADMIN_PORT}", self.bind_ip(node)),
        }
    }

    /// A command that runs `program` on a node's host, which is no container.
    pub(crate) fn command(&self, node: usize, program: &Path) -> Command {
        match self {
            Self::Namespaces(_) => Namespaces::command(node, program),
            _ => Command::new(program),
        }
    }

    /// Tells who runs on a host now: the rootless proxies know senders by their process.
    pub(crate) fn inhabited(&self, node: usize, pid: u32) {
        if let Self::Proxies(proxies) = self {
            proxies.inhabited(node, pid);
        }
    }

    /// Whether links can be made to behave so.
    pub(crate) fn can(&self, effect: Effect) -> bool {
        match self {
            Self::Namespaces(_) | Self::Containers(_) => true,
            Self::Proxies(_) => Proxies::can(effect),
        }
    }

    /// Whether nodes have disks that are file systems of their own.
    pub(crate) fn has_disks(&self) -> bool {
        matches!(self, Self::Namespaces(_))
    }

    /// Whether nodes can run under a wall clock of their own.
    pub(crate) fn has_clocks(&self) -> bool {
        !matches!(self, Self::Containers(_)) && Cluster::can_shift_clocks()
    }

    /// Makes links behave so.
    pub(crate) async fn apply(&mut self, effect: Effect, links: &[Link]) -> Result<Applied, Error> {
        match self {
            Self::Namespaces(namespaces) => namespaces.rules().apply(effect, links).await,
            Self::Containers(containers) => containers.rules().apply(effect, links).await,
            Self::Proxies(proxies) => Ok(proxies.apply(effect, links)),
        }
    }

    /// Takes it back.
    pub(crate) async fn take_back(&mut self, applied: Applied) -> Result<Evidence, Error> {
        match self {
            Self::Namespaces(namespaces) => namespaces.rules().take_back(applied).await,
            Self::Containers(containers) => containers.rules().take_back(applied).await,
            Self::Proxies(proxies) => Ok(proxies.take_back(&applied)),
        }
    }
}
