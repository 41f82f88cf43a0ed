//! Which leaders feed this node right now.
//!
//! The node answers another's "have you lost the leader, too?" from here, and learns here that it
//! lost the leader itself. A leader holds several connections to a node (replication, heartbeats);
//! only the end of the last one is reported, so that replacing one of them looks like nothing.
//! Both are hints: a leader behind a cut cable keeps its streams until the kernel gives them up, and
//! an end proves nothing about the leader. No safety argument rests on them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::Vote;

/// Reports that may wait for the node; more are dropped, since the oldest says the same.
const ENDED_QUEUED_MAX: usize = 64;

/// The last append stream of a leader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnded {
    /// The committed vote that the stream carried last.
    pub vote: Vote,
}

/// Counts the open append streams of each committed vote.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    /// By term and leader. At most one key for each connection.
    live: Arc<Mutex<BTreeMap<(u64, u64), usize>>>,
    ended: mpsc::Sender<StreamEnded>,
}

impl Registry {
    pub(crate) fn new() -> (Self, mpsc::Receiver<StreamEnded>) {
        let (ended, receiver) = mpsc::channel(ENDED_QUEUED_MAX);
        (
            Self {
                live: Arc::default(),
                ended,
            },
            receiver,
        )
    }

    /// Counts a stream in until the guard is dropped.
    pub(crate) fn enter(&self, vote: Vote) -> LiveStream {
        *self.lock().entry(key(&vote)).or_default() += 1;
        LiveStream {
            registry: self.clone(),
            vote,
        }
    }

    pub(crate) fn has_live_stream(&self, vote: &Vote) -> bool {
        vote.committed && self.lock().contains_key(&key(vote))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(u64, u64), usize>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(vote: &Vote) -> (u64, u64) {
    (vote.leader_id.term, vote.leader_id.voted_for)
}

/// An open append stream of a leader.
#[derive(Debug)]
pub(crate) struct LiveStream {
    registry: Registry,
    vote: Vote,
}

impl LiveStream {
    pub(crate) fn vote(&self) -> &Vote {
        &self.vote
    }
}

impl Drop for LiveStream {
    fn drop(&mut self) {
        let mut live = self.registry.lock();
        let Some(count) = live.get_mut(&key(&self.vote)) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            live.remove(&key(&self.vote));
            let _ = self
                .registry
                .ended
                .try_send(StreamEnded { vote: self.vote });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(term: u64, leader: u64) -> Vote {
        Vote::new_committed(term, leader)
    }

    #[test]
    fn only_the_end_of_the_last_stream_is_reported() {
        let (registry, mut ended) = Registry::new();
        let replication = registry.enter(vote(3, 7));
        let heartbeats = registry.enter(vote(3, 7));
        drop(replication);
        assert!(registry.has_live_stream(&vote(3, 7)));
        assert!(ended.try_recv().is_err());
        drop(heartbeats);
        assert!(!registry.has_live_stream(&vote(3, 7)));
        assert_eq!(ended.try_recv(), Ok(StreamEnded { vote: vote(3, 7) }));
    }

    #[test]
    fn streams_of_other_votes_do_not_count() {
        let (registry, _ended) = Registry::new();
        let _live = registry.enter(vote(3, 7));
        assert!(!registry.has_live_stream(&vote(4, 7)));
        assert!(!registry.has_live_stream(&vote(3, 8)));
        assert!(!registry.has_live_stream(&Vote::new(3, 7)));
    }

    #[test]
    fn a_full_queue_of_reports_blocks_nobody() {
        let (registry, mut ended) = Registry::new();
        for term in 0..1000 {
            drop(registry.enter(vote(term, 7)));
        }
        let mut reports = 0;
        while ended.try_recv().is_ok() {
            reports += 1;
        }
        assert_eq!(reports, ENDED_QUEUED_MAX);
    }
}
