//! The one way into the log.
//!
//! Batches and activations pass through one bounded queue and one task, in order, each for the term
//! that it was made for: [`activation`](super::activation) says why the order matters. Raft answers
//! each proposal when it is applied or when it is lost. Outcomes do not travel this way (the apply
//! stream carries them, in log order); only failures matter here, and each ends its activity.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use openraft::impls::ProgressResponder;
use storage::measure::Counter;
use tokio::sync::mpsc;

use super::activation::{Board, Span};
use super::settings::BATCH_BYTES_MAX;
use super::{ACTIVE_KEYS_MAX, RaftHandle};
use crate::entry::Entry;
use crate::feed::Activity;
use crate::lock::Batch;
use crate::type_config::Payload;

/// Most proposals that wait for the task. The desk has a handful of batches in flight, so a full
/// queue means that Raft stands still.
const QUEUE_MAX: usize = 256;

/// An entry to propose, and the activity that it belongs to.
struct Proposal {
    activity: Activity,
    payload: Payload,
}

/// The entrance: cheap to clone, usable from any thread, never blocks.
#[derive(Clone)]
pub(super) struct Proposals {
    queue: mpsc::Sender<Proposal>,
    board: Arc<Board>,
    origin: u64,
}

/// The other end of [`Proposals`].
pub(super) struct Proposer {
    queue: mpsc::Receiver<Proposal>,
    board: Arc<Board>,
    counts: Arc<ProposalCounts>,
}

/// What became of the entries that this process proposed.
#[derive(Debug, Default)]
pub(super) struct ProposalCounts {
    /// Handed to Raft.
    pub(super) proposed: Counter,
    /// Applied.
    pub(super) applied: Counter,
    /// Handed to Raft and lost.
    pub(super) lost: Counter,
    /// Refused by Raft, or dropped because their activity was over.
    pub(super) refused: Counter,
}

/// Makes the queue.
pub(super) fn proposals(
    board: Arc<Board>,
    origin: u64,
    counts: Arc<ProposalCounts>,
) -> (Proposals, Proposer) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let proposals = Proposals {
        queue: sender,
        board: Arc::clone(&board),
        origin,
    };
    (
        proposals,
        Proposer {
            queue: receiver,
            board,
            counts,
        },
    )
}

impl Proposals {
    /// Proposes `batch` if `activity` is not over.
    pub(super) fn batch(&self, activity: Activity, batch: Batch) {
        if self.board.term_of(activity).is_none() {
            return;
        }
        // Encoded here, on the caller's thread: the thread of Raft has enough to do.
        let payload = Entry::Batch(batch).encode();
        if payload.0.len() > BATCH_BYTES_MAX {
            tracing::error!(
                bytes = payload.0.len(),
                "a batch above {BATCH_BYTES_MAX} bytes"
            );
            self.board.revoke(activity);
            return;
        }
        self.push(Proposal { activity, payload });
    }

    /// Proposes the entry with which an activity begins.
    pub(super) fn activate(&self, span: Span) {
        let entry = Entry::Activate {
            origin: self.origin,
            activity: span.activity,
            active_keys_max: ACTIVE_KEYS_MAX,
        };
        self.push(Proposal {
            activity: span.activity,
            payload: entry.encode(),
        });
    }

    fn push(&self, proposal: Proposal) {
        let activity = proposal.activity;
        if self.queue.try_send(proposal).is_err() {
            self.board.revoke(activity);
        }
    }
}

impl Proposer {
    /// Hands proposals to Raft until every [`Proposals`] is gone.
    pub(super) async fn run(mut self, raft: RaftHandle) {
        let mut pending = FuturesUnordered::new();
        loop {
            tokio::select! {
                proposal = self.queue.recv() => {
                    let Some(Proposal { activity, payload }) = proposal else { return };
                    // Looked up here and not when it was queued: what was queued for an activity
                    // that ended meanwhile must not come behind the next activation.
                    let Some(term) = self.board.term_of(activity) else {
                        self.counts.refused.add_one();
                        continue;
                    };
                    let (responder, done) = ProgressResponder::complete_only();
                    let write = raft.write(payload).with_leader(term).responder(responder);
                    if write.await.is_err() {
                        self.counts.refused.add_one();
                        self.board.revoke(activity);
                        continue;
                    }
                    self.counts.proposed.add_one();
                    pending.push(async move { (activity, matches!(done.await, Ok(Ok(_)))) });
                }
                Some((activity, applied)) = pending.next() => {
                    if applied {
                        self.counts.applied.add_one();
                    } else {
                        self.counts.lost.add_one();
                        self.board.revoke(activity);
                    }
                }
            }
        }
    }
}
