//! The lock table as a replicated state machine: openraft's trait on one side, [`LockTable`],
//! [`Snapshots`] and the [`Feed`] on the other. No rule about locks is made here.
//!
//! # Why no lease ends early
//!
//! Let S be a stamp, and let real(S) be the moment at which the leader of the time read its clock for it.
//! The claim: for any two stamps S1, S2 of one log, S2 behind S1, real(S2) - real(S1) is not less
//! than S2 - S1. Cluster time may stand still, but it never runs ahead of real time. As a grant's
//! deadline is a whole lease after the stamp that it was made under, and the client began to count
//! before that stamp was read, no lease then ends before the client's own count.
//!
//! - *Under one leader* stamps are a base plus monotonic time since the base was taken, read after
//!   the last command is in the batch and handed over in order. The claim is what monotonic means.
//! - *Across leaders* the new base is [`Activation::now`], say S1, plus the time since
//!   [`Activation::moved_at`], when this process applied the entry that brought S1. It applied it
//!   after it was stamped, so moved_at is not before real(S1), and the base is at most S1 plus the
//!   real time since real(S1). A replay after a restart and an installed snapshot count from when
//!   *this process* went through them: later still, so a lease gets longer, never shorter. For the
//!   same reason the clock is read after the entry came, for each entry that moves `now` anew.
//! - *Nothing is missing below the base.* It is taken when an `Activate` entry of this very process
//!   is applied, and every batch of the span is proposed after that, in the same term. So what is
//!   before such a batch in the log is known when its stamp is read, and stamps do not go back in
//!   the log. (Were the base taken earlier, a later grant could get an older stamp than an entry
//!   before it, and its lease would end early by the difference. The table keeps the greatest stamp
//!   all the same.) Taking the furthest clock ever seen instead would be wrong: a timeline that a
//!   deposed leader went on with alone would end the leases of the newer one early.
//!
//! What remains are the rates at which clocks of different hosts tick (see [`clock`](crate::clock)).
//!
//! # Why only the right process acts
//!
//! Every node applies every entry, but the desk beside this state machine may only act on entries of
//! the span it serves. `Speaker` feeds it nothing before this process's own activation (found by
//! its random origin, so not even the same node after a restart takes it for its own), and nothing
//! from another term or after somebody else's activation. A snapshot that is installed ends the
//! span as well: what it contains was never seen entry by entry.
//!
//! # Why replicas stay equal
//!
//! An entry that can't be read, or whose version is unknown, is an error of `apply`, which stops the node:
//! a replica that skips an entry has diverged. The table lives in memory; after a restart it is the
//! last snapshot plus the entries behind it. Snapshots replace each other only by newer ones
//! (`Saved`), are checked before they replace anything, and are on the disk before the log behind
//! them is purged, because openraft purges only what a finished snapshot holds.
//!
//! # What may take long
//!
//! Taking the image of a full table (65,536 keys) happens between two entries and takes about 10 ms
//! of CPU; encoding (20 to 40 ms, 3 to 10 MB) and writing it do not hold up applying: they run on
//! the blocking pool, and so does decoding a received one. The list of what is held, once for each
//! activation, takes about 15 ms, and 65,536 leases that end at once take 40 ms: less than a
//! heartbeat's interval each.
//!
//! The feed is bounded. When the desk does not keep up, applying waits for it: it is this
//! process's own leader desk, and nothing else would slow down its proposals. So whoever holds the
//! receiver must go on reading or drop it, also while the node is stopping.

mod saved;
mod speaker;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::OptionalSend;
use openraft::entry::EntryPayload;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::type_config::alias::{
    EntryOf, LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf,
};
use storage::Snapshots;
use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::entry::Entry;
use crate::feed::{Activation, Feed};
use crate::lock::{Image, Listing, LockTable, Stamp};
use crate::type_config::{Payload, TypeConfig};
use saved::Saved;
pub use saved::SnapshotMeasures;
use speaker::Speaker;

/// So many messages may wait for the desk. Batches in flight are few, so it takes a desk that does
/// not run at all to fill this.
pub const FEED_MESSAGES_MAX: usize = 256;

/// Id of a log entry.
pub type LogId = LogIdOf<TypeConfig>;

/// The replicated state machine of one process.
pub struct StateMachine {
    table: LockTable,
    last_applied: Option<LogId>,
    membership: StoredMembershipOf<TypeConfig>,
    /// Nanoseconds of `clock` when this process last saw the table's cluster time move.
    moved_at: u64,
    clock: Arc<dyn Clock>,
    speaker: Speaker,
    feed: mpsc::Sender<Feed>,
    saved: Saved,
    progress: watch::Sender<Progress>,
    /// Cluster time when this process came to lead, and its clock then.
    #[cfg(feature = "planted-bugs")]
    led: Option<(Stamp, u64)>,
}

/// How far this node has applied the log, and to what effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last entry that was applied; `None` on an empty disk.
    pub last_applied: Option<LogId>,
    /// Cluster time of the table.
    pub now: Stamp,
    /// How many keys are held.
    pub active_keys: usize,
    /// How many grants were ever made, which is also the newest token.
    pub tokens_granted: u64,
    /// Equal on two nodes with the same `last_applied`, or one of them has diverged.
    pub state_hash: u64,
    /// Why this replica cannot go on: an entry that it could not apply. What openraft reports may be
    /// only a consequence of it.
    pub fault: Option<String>,
}

impl StateMachine {
    /// An empty state machine, which openraft then brings up to date from `snapshots` and the log.
    ///
    /// `origin` is the process's random number: batches and activations that carry it are its own.
    /// Returns with it the apply stream for the desk, and how far applying has come.
    pub fn new(
        origin: u64,
        clock: Arc<dyn Clock>,
        snapshots: Snapshots,
    ) -> (Self, mpsc::Receiver<Feed>, watch::Receiver<Progress>) {
        let (feed, feed_receiver) = mpsc::channel(FEED_MESSAGES_MAX);
        let (progress, progress_receiver) = watch::channel(Progress::default());
        let machine = Self {
            table: LockTable::default(),
            last_applied: None,
            membership: StoredMembershipOf::<TypeConfig>::default(),
            moved_at: clock.now(),
            clock,
            speaker: Speaker::new(origin),
            feed,
            saved: Saved::new(snapshots),
            progress,
            #[cfg(feature = "planted-bugs")]
            led: None,
        };
        (machine, feed_receiver, progress_receiver)
    }

    /// What snapshots have cost.
    pub fn snapshot_measures(&self) -> Arc<SnapshotMeasures> {
        self.saved.measures()
    }

    /// See [`LockTable::list`]. Cluster time is taken to have gone on since it last moved here.
    pub fn list(&self, prefix: &str, count_max: usize) -> Listing {
        let passed = self.clock.now().saturating_sub(self.moved_at);
        let now = Stamp(self.table.now().0.saturating_add(passed));
        self.table.list(prefix, count_max, now)
    }

    /// One entry, and the message to the desk that comes of it.
    fn apply_entry(&mut self, entry: EntryOf<TypeConfig>) -> io::Result<Option<Feed>> {
        let log_id = entry.log_id;
        let message = match entry.payload {
            EntryPayload::Blank => None,
            EntryPayload::Normal(payload) => self.apply_payload(log_id, &payload)?,
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembershipOf::<TypeConfig>::new(Some(log_id), membership);
                None
            }
        };
        self.last_applied = Some(log_id);
        Ok(message)
    }

    fn apply_payload(&mut self, log_id: LogId, payload: &Payload) -> io::Result<Option<Feed>> {
        let term = log_id.committed_leader_id().term;
        let entry = Entry::decode(payload)
            .map_err(|error| io::Error::other(format!("cannot apply {log_id}: {error}")))?;
        match entry {
            Entry::Batch(batch) => {
                #[cfg(feature = "planted-bugs")]
                let batch = self.as_ex_leader(term, batch);
                let before = self.table.now();
                let applied = self.table.apply(&batch);
                if self.table.now() > before {
                    self.moved_at = self.clock.now();
                }
                let serving = self.speaker.serving(term);
                Ok(serving.map(|activity| Feed::Applied { activity, applied }))
            }
            Entry::Activate {
                origin,
                activity,
                active_keys_max,
            } => {
                self.table.fix_active_keys_max(active_keys_max);
                #[cfg(feature = "planted-bugs")]
                if planted::has(planted::Bug::HalfLeaseOnFailover) {
                    self.table.halve_leases();
                }
                let own = self.speaker.activate(term, origin, activity);
                #[cfg(feature = "planted-bugs")]
                if own {
                    self.led = Some((self.table.now(), self.moved_at));
                }
                Ok(own.then(|| {
                    Feed::Activated(Activation {
                        activity,
                        now: self.table.now(),
                        moved_at: self.moved_at,
                        // Set two lines above at the latest.
                        active_keys_max: self.table.active_keys_max().unwrap_or(active_keys_max),
                        held: self.table.held(),
                        #[cfg(feature = "planted-bugs")]
                        shadow: self.table.clone(),
                    })
                }))
            }
        }
    }

    /// The batch as a node takes it that led before and goes on to end leases by its own clock.
    #[cfg(feature = "planted-bugs")]
    fn as_ex_leader(&self, term: u64, mut batch: crate::lock::Batch) -> crate::lock::Batch {
        if planted::has(planted::Bug::ExpiryOnExLeader)
            && let Some((now, at)) = self.led
            && self.speaker.serving(term).is_none()
        {
            let own = Stamp(now.0 + self.clock.now().saturating_sub(at));
            batch.stamp = batch.stamp.max(own);
        }
        batch
    }

    /// Shows how far applying has come. Once for each run of entries: nobody needs it more often.
    fn publish(&self) {
        self.progress.send_replace(Progress {
            last_applied: self.last_applied,
            now: self.table.now(),
            active_keys: self.table.active_keys(),
            tokens_granted: self.table.tokens_granted(),
            state_hash: self.table.state_hash(),
            fault: None,
        });
    }

    fn snapshot_meta(&self) -> SnapshotMetaOf<TypeConfig> {
        SnapshotMetaOf::<TypeConfig> {
            last_log_id: self.last_applied,
            last_membership: self.membership.clone(),
        }
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    /// All of a snapshot: at most 65,536 keys, so less than 20 MB.
    type SnapshotData = Bytes;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(
        &mut self,
    ) -> io::Result<(Option<LogId>, StoredMembershipOf<TypeConfig>)> {
        Ok((self.last_applied, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            let message = self.apply_entry(entry);
            if let Err(error) = &message {
                self.progress
                    .send_modify(|progress| progress.fault = Some(error.to_string()));
            }
            if let Some(message) = message? {
                // Nobody receives any more when the process is about to stop; the replica goes on.
                let _ = self.feed.send(message).await;
            }
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        self.publish();
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder {
            meta: self.snapshot_meta(),
            image: Arc::new(self.table.image()),
            saved: self.saved.clone(),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<TypeConfig>,
        snapshot: Bytes,
    ) -> io::Result<()> {
        let bytes = snapshot.len();
        self.table = self.saved.receive(meta.clone(), snapshot).await?;
        let index = meta.last_log_id.map_or(0, |id| id.index());
        tracing::info!(index, bytes, "installed a snapshot from the leader");
        self.last_applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.moved_at = self.clock.now();
        self.speaker.fall_silent();
        self.publish();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<TypeConfig, Bytes>>> {
        self.saved.load().await
    }
}

/// The state at one log id, to be written while applying goes on.
pub struct SnapshotBuilder {
    meta: SnapshotMetaOf<TypeConfig>,
    image: Arc<Image>,
    saved: Saved,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<TypeConfig, Bytes>> {
        let snapshot = self
            .saved
            .build(self.meta.clone(), self.image.clone())
            .await?;
        Ok(SnapshotOf::<TypeConfig, Bytes> {
            meta: self.meta.clone(),
            snapshot,
        })
    }
}
