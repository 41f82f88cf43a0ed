//! Nodes as plain processes on loopback, with a TCP proxy before each: needs no root.
//!
//! Node n listens on 127.0.1.n and is known as 127.0.2.n, where the proxy listens and passes on to
//! the node. Who dials is found by its process: the proxy looks up which process has the other end
//! of the connection. So each direction of each link can be shut on its own: bytes wait then (as
//! they do in TCP), and go on when it opens again. Packets can't be lost or doubled here.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
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
    /// What is done to a link now; counts that something was there to be held.
    fn effect(&self, link: Link) -> Option<Effect> {
        let mut effects = lock(&self.effects);
        let on = effects.values_mut().find(|on| on.links.contains(&link))?;
        on.met += 1;
        Some(on.effect)
    }

    /// Who has the other end of a connection: a node, or else a client.
    fn who(&self, remote: SocketAddr) -> End {
        let inode = socket_inode(remote);
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
            let dialler = shared.who(remote);
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
        match shared.effect(link) {
            Some(Effect::Delay) => sleep(Duration::from_millis(fastrand::u64(40..=60))).await,
            Some(Effect::Slow) => {
                let part = u32::try_from(CHUNK_BYTES / count)
                    .unwrap_or(u32::MAX)
                    .max(1);
                sleep(SLOW_CHUNK / part).await;
            }
            Some(_) => {
                while shared.effect(link) == Some(Effect::Drop) {
                    sleep(LOOK).await;
                }
            }
            None => {}
        }
        if to.write_all(&chunk[..count]).await.is_err() {
            return;
        }
    }
    // The other side is told, unless it is gone as well.
    let _ = to.shutdown().await;
}

/// The inode of the socket that is bound to `address` on this machine.
fn socket_inode(address: SocketAddr) -> Option<u64> {
    let SocketAddr::V4(address) = address else {
        return None;
    };
    let wanted = format!(
        "{:08X}:{:04X}",
        u32::from_le_bytes(address.ip().octets()),
        address.port()
    );
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let line = table
        .lines()
        .find(|line| line.split_whitespace().nth(1) == Some(&wanted))?;
    line.split_whitespace().nth(9)?.parse().ok()
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
    use super::*;

    #[tokio::test]
    async fn the_process_at_the_other_end_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _dialler = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (_socket, remote) = listener.accept().await.unwrap();
        let shared = Shared::default();
        assert_eq!(shared.who(remote), End::Clients);
        lock(&shared.inhabitants).insert(2, std::process::id());
        assert_eq!(shared.who(remote), End::Node(2));
    }
}
