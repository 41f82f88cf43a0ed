//! Where batches go: into the lock table of this process, or into the log of the cluster.
//!
//! Everything in front of this seam is the same in both modes. What differs is only when a batch's
//! outcomes come back: at once, or in log order through the feed.

use raft::lock::{Applied, Batch, Listing, LockTable, Stamp};
use raft::node::ACTIVE_KEYS_MAX;
use raft::{Activation, Activity, Feed, Status};
use tokio::sync::{mpsc, watch};

use super::Table;

/// Hands batches to consensus.
pub trait Propose: Send + 'static {
    /// Takes `batch` for the log, in order and without blocking. It may be lost: then `activity`
    /// is revoked.
    fn propose(&mut self, activity: Activity, batch: Batch);

    /// Revokes the current activity if at `now` (the driver's clock) it can't be shown any more
    /// that a quorum is there. The status tells of it at once.
    fn expire(&mut self, now: u64);
}

/// What the front end serves.
pub enum Backend {
    /// A lock table that lives as long as the process.
    Single,
    /// A node of a cluster.
    Cluster(Cluster),
}

/// The front end's view of a node.
pub struct Cluster {
    /// This process's random number, on which its batches are told from those of others.
    pub origin: u64,
    /// This node's client address, as configured.
    pub own: String,
    /// Takes batches.
    pub proposer: Box<dyn Propose>,
    /// The apply stream.
    pub feed: mpsc::Receiver<Feed>,
    /// The newest truth about leadership.
    pub status: watch::Receiver<Status>,
}

/// Takes batches, in either mode.
pub(super) enum Sink {
    /// Applied on the spot. Its time counts from `begun_at`, in monotonic nanoseconds.
    Table {
        table: Box<LockTable>,
        begun_at: u64,
    },
    /// On its way through the log.
    Log(Box<dyn Propose>),
}

impl Sink {
    /// An empty table whose time begins at `now`.
    pub(super) fn table(now: u64) -> Self {
        Self::Table {
            table: Box::new(LockTable::new(ACTIVE_KEYS_MAX)),
            begun_at: now,
        }
    }

    /// The table of single mode at `now`.
    pub(super) fn show(&self, now: u64) -> Option<Table> {
        match self {
            Self::Table { table, begun_at } => Some(Table {
                now: Stamp(now.saturating_sub(*begun_at)),
                active_keys: table.active_keys(),
                tokens_granted: table.tokens_granted(),
                state_hash: table.state_hash(),
            }),
            Self::Log(_) => None,
        }
    }

    /// Locks of the table of single mode, as [`LockTable::list`] gives them, at `now`.
    pub(super) fn list(&self, prefix: &str, count_max: usize, now: u64) -> Option<Listing> {
        match self {
            Self::Table { table, begun_at } => {
                let now = Stamp(now.saturating_sub(*begun_at));
                Some(table.list(prefix, count_max, now))
            }
            Self::Log(_) => None,
        }
    }

    /// Hands `batch` over. In single mode that already applies it.
    pub(super) fn propose(&mut self, activity: Activity, batch: Batch) -> Option<Applied> {
        match self {
            Self::Table { table, .. } => Some(table.apply(&batch)),
            Self::Log(proposer) => {
                proposer.propose(activity, batch);
                None
            }
        }
    }

    /// See [`Propose::expire`]. Single mode needs nobody.
    pub(super) fn expire(&mut self, now: u64) {
        if let Self::Log(proposer) = self {
            proposer.expire(now);
        }
    }
}

/// The one activation of single mode: an empty table whose clock starts `now`.
pub(super) fn single_activation(now: u64) -> Activation {
    Activation {
        activity: Activity(1),
        now: Stamp(0),
        moved_at: now,
        active_keys_max: ACTIVE_KEYS_MAX,
        held: Vec::new(),
        #[cfg(feature = "planted-bugs")]
        shadow: LockTable::default(),
    }
}
