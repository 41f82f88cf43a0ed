//! The composition root: the one module that names every part. It opens storage, starts the node of
//! the cluster, puts the front end before it, and takes all of it down in order.
//!
//! # Order of start
//!
//! The data directory comes first: its lock waits for a predecessor that is still stopping, whose
//! ports are therefore free afterwards. The peer port comes before the client port, so that a node
//! that clients can reach is always part of its cluster's conversation. All ports are bound before
//! anything is served, so a port that is taken is an error of the start.
//!
//! # Order of stop
//!
//! 1. The front end accepts nobody any more and lets what is under way come to its end.
//! 2. A leader hands its lead over, so that the cluster serves on while this process is still here.
//! 3. Sessions are told where to go, flushed and closed.
//! 4. The node stops and lets the data directory go.
//!
//! A failure of the node skips all that: what a disk that failed would still acknowledge can't be
//! believed, so the process ends at once.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use raft::clock::MonotonicClock;
use raft::lock::Batch;
use raft::node::Bootstrap;
use raft::type_config::Peer;
use raft::{Activity, Node};
use storage::{Options, Storage};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use wire::AuthToken;

use crate::admin::{self, Admin};
use crate::config::{self, Config, PeerAddress};
use crate::desk::Limits;
use crate::driver::{Backend, Cluster, Propose};
use crate::server::{Server, ServerConfig, TlsError, acceptor};

/// Acquires handed to the lock table or to consensus and not yet answered, in all connections
/// together.
const ACQUIRES_IN_FLIGHT_MAX: usize = 4096;

/// How long a planned stop may take in all.
const STOP_TIME_MAX: Duration = Duration::from_millis(9_500);

/// Why a server could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The asynchronous runtime or its signals could not be set up.
    #[error("the runtime could not start: {0}")]
    Runtime(io::Error),
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {purpose}: {error}")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// Clients, peers or the admin endpoint.
        purpose: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The data directory cannot be used.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// The node of the cluster failed.
    #[error(transparent)]
    Node(#[from] raft::node::Error),
    /// The front end failed, which is a defect in it.
    #[error("the front end failed; its log says why")]
    FrontEnd,
}

/// Runs a server until SIGTERM or SIGINT, or until it fails.
pub async fn run(config: Config) -> Result<(), Error> {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let mut signals = Signals::new().map_err(Error::Runtime)?;
    let tls = match &config.tls {
        Some(files) => Some(acceptor(&files.cert, &files.key)?),
        None => None,
    };
    let node = match &config.cluster {
        Some(cluster) => Some(start_node(config.bind, cluster).await?),
        None => None,
    };
    let listener = listen(SocketAddr::new(config.bind, config.port), "clients").await?;
    let admin_listener = match &config.admin {
        Some(admin) => Some(listen(admin.address, "the admin endpoint").await?),
        None => None,
    };
    let (node, backend) = match node {
        Some((node, backend)) => (Some(node), backend),
        None => (None, Backend::Single),
    };
    let mut server =
        Server::start(listener, server_config(&config, tls), backend).map_err(Error::Runtime)?;
    let mode = if node.is_some() { "cluster" } else { "single" };
    tracing::info!(address = %server.local_addr(), mode, "serving clients");
    let _admin = match admin_listener {
        Some(listener) => Some(start_admin(listener, &config, &server, node.clone())?),
        None => None,
    };
    tokio::select! {
        signal = signals.next() => tracing::info!(signal, "stopping"),
        error = failure(node.as_deref()) => return Err(error.into()),
        () = server.failed() => return Err(Error::FrontEnd),
    }
    if timeout(STOP_TIME_MAX, stop(server, node)).await.is_err() {
        tracing::warn!("the stop took too long and was cut short");
    }
    Ok(())
}

async fn stop(server: Server, node: Option<Arc<Node>>) {
    server.quiesce().await;
    if let Some(node) = &node
        && !node.hand_over().await
    {
        tracing::info!("nobody took the lead over in time");
    }
    server.stop().await;
    if let Some(node) = node {
        node.shutdown().await;
    }
}

/// Why the node must stop; never resolves in single mode.
async fn failure(node: Option<&Node>) -> raft::node::Error {
    match node {
        Some(node) => node.failed().await,
        None => std::future::pending().await,
    }
}

async fn start_node(
    bind: IpAddr,
    cluster: &config::Cluster,
) -> Result<(Arc<Node>, Backend), Error> {
    let dir = cluster.data_dir.clone();
    let opened = tokio::task::spawn_blocking(move || Storage::open(&dir, Options::default())).await;
    let storage = opened.map_err(|error| Error::Runtime(error.into()))??;
    let address = SocketAddr::new(bind, cluster.own.raft_port());
    let listener = listen(address, "peers")
        .await?
        .into_std()
        .map_err(Error::Runtime)?;
    let bootstrap = if cluster.bootstrap {
        Bootstrap::Auto
    } else {
        Bootstrap::Never
    };
    let (node, feed) = Node::start(raft::node::Config {
        own: peer(&cluster.own),
        peers: cluster.peers.iter().map(peer).collect(),
        listener,
        secret: cluster.secret.0.clone(),
        bootstrap,
        heartbeat_ms: cluster.heartbeat_ms,
        election_timeout_ms: cluster.election_timeout_ms,
        storage,
        snapshot_entries: cluster.snapshot_entries,
        clock: Arc::new(MonotonicClock),
    })
    .await?;
    let node = Arc::new(node);
    let backend = Backend::Cluster(Cluster {
        origin: node.origin(),
        own: cluster.own.client.clone(),
        proposer: Box::new(Log(Arc::clone(&node))),
        feed,
        status: node.status(),
    });
    Ok((node, backend))
}

fn start_admin(
    listener: TcpListener,
    config: &Config,
    server: &Server,
    node: Option<Arc<Node>>,
) -> Result<Admin, Error> {
    let address = listener.local_addr().map_err(Error::Runtime)?;
    let own = config.cluster.as_ref().map(|c| c.own.client.clone());
    let admin = Admin::start(admin::Config {
        listener: listener.into_std().map_err(Error::Runtime)?,
        token: config.admin.as_ref().and_then(|admin| admin.token.clone()),
        node,
        probe: server.probe().clone(),
        address: own.unwrap_or_else(|| server.local_addr().to_string()),
    })
    .map_err(Error::Runtime)?;
    tracing::info!(%address, "serving the admin endpoint");
    Ok(admin)
}

/// Batches go to the node's log.
struct Log(Arc<Node>);

impl Propose for Log {
    fn propose(&mut self, activity: Activity, batch: Batch) {
        self.0.propose(activity, batch);
    }

    fn expire(&mut self, now: u64) {
        self.0.expire(now);
    }
}

fn peer(address: &PeerAddress) -> Peer {
    Peer {
        client: address.client.clone(),
        raft: address.raft.clone(),
    }
}

fn server_config(config: &Config, tls: Option<tokio_rustls::TlsAcceptor>) -> ServerConfig {
    ServerConfig {
        tokens: config
            .tokens
            .iter()
            .map(|token| AuthToken::new(token.0.clone()))
            .collect(),
        tls,
        connections_max: config.limits.connections,
        limits: Limits {
            waiters_per_key_max: config.limits.waiters_per_key,
            waiters_max: config.limits.waiters,
            acquires_in_flight_max: ACQUIRES_IN_FLIGHT_MAX,
        },
        clock: Arc::new(MonotonicClock),
    }
}

async fn listen(address: SocketAddr, purpose: &'static str) -> Result<TcpListener, Error> {
    let refused = |error| Error::Listen {
        address,
        purpose,
        error,
    };
    TcpListener::bind(address).await.map_err(refused)
}

/// The signals that ask for a planned stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one; its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
