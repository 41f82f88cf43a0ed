//! Nodes as plain processes on loopback, with a TCP proxy before each: needs no root.
//!
//! Node n listens on 127.77.1.n and is known as 127.77.2.n, where the proxy listens and passes on to
//! the node. Client ports are dialled by clients. Who dials a peer port is found by its process: the
//! proxy looks up which process has the other end of the connection. So each direction of each link
//! can be shut on its own: bytes wait then (as they do in TCP), and go on when it opens again. Packets
//! can't be lost or doubled here.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use super::{Applied, CLIENT_PORT, Effect, End, Evidence, Link, PEER_PORT};
use crate::error::Error;

/// Bytes that are passed on at once.
const CHUNK_BYTES: usize = 16 * 1024;

/// How long a slow link takes for a full chunk.
const SLOW_CHUNK: Duration = Duration::from_millis(500);

/// How often a shut link is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// The proxies of one run; they end with it.
pub(crate) struct Proxies {
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    /// The process of each node.
    inhabitants: Mutex<BTreeMap<usize, u32>>,
    effects: Mutex<BTreeMap<u64, On>>,
    next: AtomicU64,
}

/// An effect that is on.
struct On {
    effect: Effect,
    links: Vec<Link>,
    /// How many chunks it has met.
    met: u64,
}

impl Proxies {
    /// Starts the proxies of `nodes` nodes.
    pub(crate) async fn create(nodes: usize) -> Result<Self, Error> {
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        for node in 0..nodes {
            for port in [CLIENT_PORT, PEER_PORT] {
                let address = format!("{}:{port}", Self::public_ip(node));
                let listener = TcpListener::bind(&address).await;
                let listener = listener
                    .map_err(|error| Error::of(format!("listening on {address}"), error))?;
                tasks.spawn(serve(listener, node, port, Arc::clone(&shared)));
            }
        }
        Ok(Self {
            shared,
            _tasks: tasks,
        })
    }

    /// Where a node is dialled.
    pub(crate) fn public_ip(node: usize) -> String {
        format!("127.77.2.{}", node + 1)
    }

    /// Where a node listens.
    pub(crate) fn private_ip(node: usize) -> String {
        format!("127.77.1.{}", node + 1)
    }

    pub(super) fn inhabited(&self, node: usize, pid: u32) {
        lock(&self.shared.inhabitants).insert(node, pid);
    }

    pub(super) fn can(effect: Effect) -> bool {
        matches!(effect, Effect::Drop | Effect::Delay | Effect::Slow)
    }

    pub(super) fn apply(&self, effect: Effect, links: &[Link]) -> Applied {
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.shared.effects).insert(
            number,
            On {
                effect,
                links: links.to_vec(),
                met: 0,
            },
        );
        Applied(number)
    }

    pub(super) fn take_back(&self, applied: &Applied) -> Evidence {
        let removed = lock(&self.shared.effects).remove(&applied.0);
        Evidence {
            count: removed.map_or(0, |on| on.met),
            of: "chunks held back",
        }
    }
}

impl Shared {
    /// What is done to a chunk that comes to a link now, by every fault that is on; counts it.
    fn effects(&self, link: Link) -> Vec<Effect> {
        let mut effects = lock(&self.effects);
        let on = effects.values_mut().filter(|on| on.links.contains(&link));
        on.map(|on| {
            on.met += 1;
            on.effect
        })
        .collect()
    }

    fn is_shut(&self, link: Link) -> bool {
        let effects = lock(&self.effects);
        let mut on = effects.values().filter(|on| on.links.contains(&link));
        on.any(|on| on.effect == Effect::Drop)
    }

    /// Who has the other end of a connection to a peer port: a node, or else a client.
    fn who(&self, remote: SocketAddr, own: SocketAddr) -> End {
        let inode = socket_inode(remote, own);
        let inhabitants = lock(&self.inhabitants);
        let node = inhabitants
            .iter()
            .find(|(_, pid)| inode.is_some_and(|inode| has_socket(**pid, inode)));
        node.map_or(End::Clients, |(node, _)| End::Node(*node))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, node: usize, port: u16, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((socket, remote)) = listener.accept().await else {
            sleep(LOOK).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        let target = format!("{}:{port}", Proxies::private_ip(node));
        connections.spawn(async move {
            let dialler = match socket.local_addr() {
                Ok(own) if port == PEER_PORT => {
                    let shared = Arc::clone(&shared);
                    // Tables of the kernel are read; that holds up whoever shares the thread.
                    let looked_up = spawn_blocking(move || shared.who(remote, own)).await;
                    looked_up.unwrap_or(End::Clients)
                }
                _ => End::Clients,
            };
            let there = Link {
                from: dialler,
                to: End::Node(node),
            };
            let back = Link {
                from: End::Node(node),
                to: dialler,
            };
            // A dead node's refusal is told by closing; a live proxy in between is no more honest
            // than that.
            let Ok(inner) = TcpStream::connect(target).await else {
                return;
            };
            let _ = (socket.set_nodelay(true), inner.set_nodelay(true));
            let (outer_read, outer_write) = socket.into_split();
            let (inner_read, inner_write) = inner.into_split();
            tokio::join!(
                pass(outer_read, inner_write, there, &shared),
                pass(inner_read, outer_write, back, &shared),
            );
        });
    }
}

/// Passes bytes on in one direction, as the link lets them.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, link: Link, shared: &Shared) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        hold(count, link, shared).await;
        if to.write_all(&chunk[..count]).await.is_err() {
            return;
        }
    }
    // The other side is told, unless it is gone as well.
    let _ = to.shutdown().await;
}

/// Waits for as long as the faults that are on hold up a chunk of `count` bytes.
async fn hold(count: usize, link: Link, shared: &Shared) {
    for effect in shared.effects(link) {
        match effect {
            Effect::Delay => sleep(Duration::from_millis(fastrand::u64(40..=60))).await,
            Effect::Slow => {
                let part = u32::try_from(CHUNK_BYTES / count).unwrap_or(u32::MAX);
                sleep(SLOW_CHUNK / part.max(1)).await;
            }
            _ => {}
        }
    }
    // Looked at last: a link may have been shut while its bytes were on the way.
    while shared.is_shut(link) {
        sleep(LOOK).await;
    }
}

/// The inode of the socket on this machine that is connected from `local` to `remote`. Many may have
/// the same local address, each with another remote one.
fn socket_inode(local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    let wanted = [table_form(local)?, table_form(remote)?];
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let line = table.lines().find(|line| {
        let ends = line.split_whitespace().skip(1).take(2);
        ends.eq(wanted.iter().map(String::as_str))
    })?;
    line.split_whitespace().nth(9)?.parse().ok()
}

/// An address as the kernel's table has it.
fn table_form(address: SocketAddr) -> Option<String> {
    let SocketAddr::V4(address) = address else {
        return None;
    };
    let ip = u32::from_le_bytes(address.ip().octets());
    Some(format!("{ip:08X}:{:04X}", address.port()))
}

fn has_socket(pid: u32, inode: u64) -> bool {
    let wanted = format!("socket:[{inode}]");
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|target| target.as_os_str() == wanted.as_str())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_process_at_the_other_end_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        let _dialler = TcpStream::connect(own).await.unwrap();
        let (_socket, remote) = listener.accept().await.unwrap();
        let shared = Shared::default();
        assert_eq!(shared.who(remote, own), End::Clients);
        lock(&shared.inhabitants).insert(2, std::process::id());
        assert_eq!(shared.who(remote, own), End::Node(2));
    }

    #[tokio::test]
    async fn a_local_address_that_is_used_twice_is_told_apart() {
        let listeners = [
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        ];
        let first = TcpSocket::new_v4().unwrap();
        first.set_reuseaddr(true).unwrap();
        first.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let local = first.local_addr().unwrap();
        let second = TcpSocket::new_v4().unwrap();
        second.set_reuseaddr(true).unwrap();
        second.bind(local).unwrap();
        let [one, other] = [0, 1].map(|at| listeners[at].local_addr().unwrap());
        let _first = first.connect(one).await.unwrap();
        let _second = second.connect(other).await.unwrap();
        let inodes = [one, other].map(|remote| socket_inode(local, remote));
        assert!(inodes[0].is_some() && inodes[1].is_some(), "{inodes:?}");
        assert_ne!(inodes[0], inodes[1]);
    }

    #[tokio::test]
    async fn a_link_that_is_slow_and_shut_is_shut() {
        let shared = Arc::new(Shared::default());
        let proxies = Proxies {
            shared: Arc::clone(&shared),
            _tasks: JoinSet::new(),
        };
        let link = Link {
            from: End::Node(0),
            to: End::Node(1),
        };
        let _delay = proxies.apply(Effect::Delay, &[link]);
        let shut = proxies.apply(Effect::Drop, &[link]);
        let held = hold(1, link, &shared);
        let mut held = std::pin::pin!(held);
        let patience = Duration::from_millis(200);
        assert!(timeout(patience, held.as_mut()).await.is_err());
        assert!(proxies.take_back(&shut).count > 0);
        held.await;
    }
}
