//! A node: openraft, its storage, its peers and its lock table, put together.
//!
//! [`Node::start`] runs everything on one thread with a single-threaded runtime of its own: Raft is
//! a chain of small steps, and moving them between threads costs more than it gains. What the rest of
//! the process sees are three things that may be used from any thread: proposals in
//! ([`Node::propose`]), the apply stream out ([`Feed`]), and who leads ([`Status`]).
//!
//! | module | decides |
//! |---|---|
//! | `activation` | when this process may serve as leader |
//! | `catch_up` | when it has what the cluster has committed |
//! | `proposals` | what enters the log, in which order |
//! | `founding` | how a cluster comes to be, exactly once |
//! | `membership` | who belongs to it, and how a node is replaced |
//! | `gate` | whose votes count |
//! | `failover` | when a dead leader is replaced without waiting |
//! | `operator` | what a person may have it do |
//! | `settings` | the numbers that openraft runs with |
//!
//! A node that is dropped stops at once, as if its process had been killed (its sockets close, its
//! data directory is let go); [`Node::shutdown`] is the orderly way.

mod activation;
mod catch_up;
mod control;
mod error;
mod failover;
mod founders;
mod founding;
mod gate;
mod local;
mod measures;
mod membership;
mod operator;
mod overview;
mod proposals;
mod quorum;
mod runtime;
mod settings;

use std::net::TcpListener;
use std::sync::{Arc, Weak};
use std::time::Duration;

use openraft::Raft;
use openraft::async_runtime::watch::WatchReceiver;
use storage::Storage;
use tokio::sync::{mpsc, watch};

pub use error::Error;
pub use measures::Measures;
pub use operator::Refused;
pub use overview::{Member, Overview, Role};
pub use settings::{BATCH_BYTES_MAX, ELECTION_TIMEOUT_MS, HEARTBEAT_MS, SNAPSHOT_ENTRIES};

use crate::clock::Clock;
use crate::feed::{Activity, Feed, Status};
use crate::lock::{Batch, Listing};
use crate::state_machine::{Progress, StateMachine};
use crate::transport::Identity;
use crate::type_config::{Peer, TypeConfig};
use activation::Board;
use local::Local;
use measures::Instruments;
use proposals::Proposals;
use runtime::Stop;

/// The cap on active keys that a new cluster is founded with. Single mode has the same.
pub const ACTIVE_KEYS_MAX: u32 = 65_536;

type RaftHandle = Raft<TypeConfig, StateMachine>;

/// Whether an empty node may found a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Bootstrap {
    /// When all peers are empty too, one founds the cluster.
    #[default]
    Auto,
    /// It waits until a peer belongs to one, and joins it.
    Never,
}

/// What a node is started with.
pub struct Config {
    /// This node's addresses; one of `peers`.
    pub own: Peer,
    /// All founding members, this node included.
    pub peers: Vec<Peer>,
    /// The bound peer port.
    pub listener: TcpListener,
    /// What all nodes of the cluster know and nobody else does.
    pub secret: Vec<u8>,
    /// Whether an empty node may found a cluster.
    pub bootstrap: Bootstrap,
    /// Time between a leader's heartbeats, in milliseconds.
    pub heartbeat_ms: u64,
    /// Longest election timeout, in milliseconds; the shortest is half of it. Also how long a leader
    /// may be without a quorum, and a follower without a leader, before they say so.
    pub election_timeout_ms: u64,
    /// The data directory.
    pub storage: Storage,
    /// How many entries (batches) are between two snapshots.
    pub snapshot_entries: u64,
    /// The clock of leases.
    pub clock: Arc<dyn Clock>,
}

/// A running node.
pub struct Node {
    origin: u64,
    identity: Arc<Identity>,
    election_timeout: Duration,
    raft: RaftHandle,
    board: Arc<Board>,
    proposals: Proposals,
    failure: watch::Receiver<Option<Error>>,
    progress: watch::Receiver<Progress>,
    instruments: Instruments,
    /// The node as its own tasks see it, for as long as they run.
    local: Weak<Local>,
    /// Dropping it stops the node at once.
    stop: watch::Sender<Stop>,
    stopped: watch::Receiver<bool>,
}

impl Node {
    /// Starts a node. Returns as soon as it runs; founding, joining and catching up go on behind.
    /// The receiver is the apply stream.
    pub async fn start(config: Config) -> Result<(Self, mpsc::Receiver<Feed>), Error> {
        if let Some(fault) = founders::fault(&config.own, &config.peers) {
            return Err(Error::Settings(fault));
        }
        let origin = runtime::random_origin()?;
        let election_timeout = Duration::from_millis(config.election_timeout_ms);
        let (stop, stopping) = watch::channel(Stop::No);
        let (stopped_sender, stopped) = watch::channel(false);
        let start = runtime::Start {
            config,
            origin,
            stopping,
        };
        let parts = runtime::spawn(start, stopped_sender).await?;
        let node = Self {
            origin,
            identity: parts.identity,
            election_timeout,
            raft: parts.raft,
            board: parts.board,
            proposals: parts.proposals,
            failure: parts.failure,
            progress: parts.progress,
            instruments: parts.instruments,
            local: parts.local,
            stop,
            stopped,
        };
        Ok((node, parts.feed))
    }

    /// The random number of this process, in every batch that it proposes.
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// Who leads, and which activities are over.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.board.status()
    }

    /// To be asked before anything is answered from what an activity knows: ends it if it can't be
    /// shown that a quorum was heard from within an election timeout of `now` (the configured
    /// clock, nanoseconds). A process that was stopped for a while finds out here, before its
    /// first answer.
    pub fn expire(&self, now: u64) {
        self.board.expire(now);
    }

    /// Proposes `batch` as part of `activity`. Never blocks. Its outcome comes through the apply
    /// stream; if it can't be proposed, or its fate becomes unknown, the activity is revoked. A
    /// batch of a revoked activity is dropped. Not to be called while a value of
    /// [`status`](Self::status) is borrowed.
    pub fn propose(&self, activity: Activity, batch: Batch) {
        self.proposals.batch(activity, batch);
    }

    /// Stops in order: nothing more is proposed, Raft and the transport close, the data directory is
    /// let go. Returns when all of that is done.
    pub async fn shutdown(&self) {
        self.stop.send_replace(Stop::InOrder);
        // An error means that the thread is gone, and that is what is waited for.
        let _ = self.stopped.clone().wait_for(|stopped| *stopped).await;
    }

    /// Resolves when this node must stop, and says why.
    pub async fn failed(&self) -> Error {
        let mut failure = self.failure.clone();
        match failure.wait_for(Option::is_some).await {
            Ok(error) => error.clone().expect("waited for"),
            Err(_) => Error::Consensus("its thread ended".into()),
        }
    }

    /// What there is to say about this node and its cluster.
    pub fn overview(&self) -> Overview {
        // Before the progress: a node that is said to have caught up is shown with what that took.
        let caught_up = self.board.has_caught_up();
        let progress = self.progress.borrow().clone();
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let cluster_id = self.identity.cluster_id();
        Overview {
            caught_up,
            ..Overview::new(cluster_id, &metrics, progress, &self.board)
        }
    }

    /// What the node has measured.
    pub fn measures(&self) -> Measures {
        self.instruments.read()
    }

    /// Returns when the core of Raft has answered, which it does between any two of its steps; false
    /// when it has stopped. One that is stuck on its disk does not answer.
    pub async fn responds(&self) -> bool {
        self.raft.with_raft_state(|_| ()).await.is_ok()
    }

    /// The first `count_max` locks that are held as of the newest applied entry and whose keys begin
    /// with `prefix`, in order of key; `None` when Raft has stopped. Applying waits meanwhile.
    pub async fn locks(&self, prefix: String, count_max: usize) -> Option<Listing> {
        let listing = self.raft.with_state_machine(move |machine| {
            Box::pin(std::future::ready(machine.list(&prefix, count_max)))
        });
        listing.await.ok()
    }
}
