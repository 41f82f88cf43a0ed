//! Where nodes and clients live, and what can be done to the links between them.
//!
//! Two kinds of places: network namespaces of our own ([`namespaces`]), and, without root,
//! addresses on loopback with a TCP proxy before each node ([`proxies`]).

mod namespaces;
mod proxies;

use std::path::Path;

use tokio::process::Command;

use crate::error::Error;

pub(crate) use namespaces::{INSIDE, Namespaces, enter};
pub(crate) use proxies::Proxies;

/// The port that nodes serve clients on.
pub(crate) const CLIENT_PORT: u16 = 5225;

/// The port that nodes serve peers on.
pub(crate) const PEER_PORT: u16 = 6225;

/// The port of a node's admin endpoint.
pub(crate) const ADMIN_PORT: u16 = 7225;

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
    Proxies(Proxies),
}

impl Hosts {
    /// Its name, as `--hosts` has it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Namespaces(_) => "namespaces",
            Self::Proxies(_) => "proxies",
        }
    }

    /// The address at which clients and peers know a node.
    pub(crate) fn ip(&self, node: usize) -> String {
        match self {
            Self::Namespaces(_) => Namespaces::ip(node),
            Self::Proxies(_) => Proxies::public_ip(node),
        }
    }

    /// The address that a node listens on.
    pub(crate) fn bind_ip(&self, node: usize) -> String {
        match self {
            Self::Namespaces(_) => Namespaces::ip(node),
            Self::Proxies(_) => Proxies::private_ip(node),
        }
    }

    /// Where a node's admin endpoint is reached.
    pub(crate) fn admin_ip(&self, node: usize) -> String {
        match self {
            Self::Proxies(_) => Proxies::private_ip(node),
            _ => self.ip(node),
        }
    }

    /// A command that runs `program` on a node's host.
    pub(crate) fn command(&self, node: usize, program: &Path) -> Command {
        match self {
            Self::Namespaces(_) => Namespaces::command(node, program),
            Self::Proxies(_) => Command::new(program),
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
            Self::Namespaces(_) => true,
            Self::Proxies(_) => Proxies::can(effect),
        }
    }

    /// Whether nodes have disks that are file systems of their own.
    pub(crate) fn has_disks(&self) -> bool {
        matches!(self, Self::Namespaces(_))
    }

    /// Makes links behave so.
    pub(crate) async fn apply(&mut self, effect: Effect, links: &[Link]) -> Result<Applied, Error> {
        match self {
            Self::Namespaces(namespaces) => namespaces.rules().apply(effect, links).await,
            Self::Proxies(proxies) => Ok(proxies.apply(effect, links)),
        }
    }

    /// Takes it back.
    pub(crate) async fn take_back(&mut self, applied: Applied) -> Result<Evidence, Error> {
        match self {
            Self::Namespaces(namespaces) => namespaces.rules().take_back(applied).await,
            Self::Proxies(proxies) => Ok(proxies.take_back(&applied)),
        }
    }
}
