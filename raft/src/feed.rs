//! What a node tells the desk beside it: the apply stream, and who leads.
//!
//! Two channels, because they answer two questions. The *feed* is ordered with the log: an
//! activation and the outcomes after it come exactly as the state machine went through them. The
//! *status* is the newest truth about leadership and may skip what is already history; a loss of
//! activity is told there because no log entry announces it.

use serde::{Deserialize, Serialize};

use crate::lock::{Applied, Lock, Stamp};

/// One continuous span in which this process serves as leader. Each new one has a greater number;
/// losing the lead, a new term, or a quorum not heard from within an election timeout ends it for
/// good, even when this node goes on (or comes back) in the same term.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Activity(pub u64);

/// One message of the apply stream, in log order.
#[derive(Clone, Debug)]
pub enum Feed {
    /// This process may serve from here on: an entry that it proposed itself in its term has been
    /// applied, so every earlier stamp, lock and token is known. Until it, nothing is fed.
    Activated(Activation),
    /// A batch was applied while `activity` was the newest one.
    Applied {
        /// The span that the batch belongs to.
        activity: Activity,
        /// What it did.
        applied: Applied,
    },
}

/// The state from which a leader's desk starts.
#[derive(Clone, Debug)]
pub struct Activation {
    /// The span that begins.
    pub activity: Activity,
    /// Cluster time of the table.
    pub now: Stamp,
    /// This process's monotonic clock ([`Clock`](crate::clock::Clock), nanoseconds) when it applied
    /// the entry that last moved `now`. Cluster time of the new leader is `now` plus what has passed
    /// since then: never ahead of real time, so no lease ends early.
    pub moved_at: u64,
    /// The replicated cap on active keys.
    pub active_keys_max: u32,
    /// Every lock that is held, in order of token.
    pub held: Vec<Lock>,
    /// The whole table, for a desk that does not wait for the log.
    #[cfg(feature = "planted-bugs")]
    pub shadow: crate::lock::LockTable,
}

/// The newest truth about leadership, as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Who leads, with the client address from `CLUSTER_PEERS`, byte for byte. `None`: unknown.
    pub leader: Option<Leader>,
    /// True while this node believes that it leads (active or not).
    pub leading: bool,
    /// The current term.
    pub term: u64,
    /// Every activity up to and including this one is over. It never goes back, so a watcher that
    /// misses intermediate values still learns of each loss.
    pub revoked: Activity,
}

/// The leader of a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its node id.
    pub id: u64,
    /// Its client address, `host:port`, as configured.
    pub client: String,
}
