//! The admin endpoint: health, status, locks and metrics over HTTP, for people and their tools.
//!
//! ```text
//!  probes, scrapers, `ticketing status` ──HTTP──► admin thread ──questions──► desk's task
//!                                                      └──────────────────────► node (Raft)
//! ```
//!
//! # Which faults this answers
//!
//! - *Load here must not be load there.* The endpoint has a thread and a runtime of its own. It asks
//!   the desk's task through a short queue, between two rounds, for copies whose size does not depend
//!   on the number of sessions, waiters or locks; and Raft for a look at its numbers. Whoever asks
//!   much waits in that queue and delays nobody but who asks.
//! - *Clients that stall or flood.* Connections are bounded, each answers one request, its head is
//!   bounded in bytes and time, and so is the whole of it (`listener`).
//! - *A comforting answer of a node that is stuck.* Health is judged from answers that were given for
//!   this very request, never from remembered ones (`look`), and what has to be there for "ready" is
//!   listed in one pure function (`health`).
//! - *Strangers.* Who may see and do what is one pure decision (`access`).
//!
//! Liveness asks one thing only: does the desk's task answer? Nothing about the cluster makes it
//! fail, because restarting a node would cure nothing of that.
//!
//! Left out on purpose: TLS (bind it to loopback, or to a network that only probes and scrapers
//! reach), and anything that changes settings.

mod access;
mod health;
mod listener;
mod locks;
mod look;
mod metrics;
mod routes;
mod status;

use std::net::TcpListener;
use std::sync::Arc;
use std::{io, thread};

use raft::Node;
use tokio::sync::oneshot;

pub use health::Check;
pub use locks::{LOCKS_DEFAULT, LOCKS_MAX, ListedLock, Locks};
pub use status::{Member, MemberKind, Mode, Role, Status};

use crate::config::Secret;
use crate::server::Probe;
use access::Access;
use look::Subject;

/// What the endpoint shows, and to whom.
pub struct Config {
    /// The bound port.
    pub listener: TcpListener,
    /// The bearer token, if there is one.
    pub token: Option<Secret>,
    /// The node; `None` in single mode.
    pub node: Option<Arc<Node>>,
    /// The front end.
    pub probe: Probe,
    /// This node's client address.
    pub address: String,
}

/// The running endpoint; it ends when this is dropped.
pub struct Admin {
    _running: oneshot::Sender<()>,
}

impl Admin {
    /// Serves in a thread of its own.
    pub fn start(config: Config) -> io::Result<Self> {
        config.listener.set_nonblocking(true)?;
        let loopback = config.listener.local_addr()?.ip().is_loopback();
        let subject = Subject {
            node: config.node,
            probe: config.probe,
            address: config.address,
        };
        let routes = routes::router(Access::new(config.token, loopback), subject);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(config.listener)?
        };
        let (running, stopped) = oneshot::channel();
        let serve = async move {
            tokio::select! {
                () = listener::serve(listener, routes) => {}
                // An error is the drop that is waited for.
                _ = stopped => {}
            }
        };
        thread::Builder::new()
            .name("admin".into())
            .spawn(move || runtime.block_on(serve))?;
        Ok(Self { _running: running })
    }
}
