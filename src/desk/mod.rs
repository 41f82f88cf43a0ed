//! The desk: what only the leader knows, as plain data. Events in, effects out, time passed in.

mod event;

use raft::Activity;
use raft::lock::Batch;

pub use event::{Effect, Event, Leadership, SessionId};

/// The limits that the desk keeps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Waiters in one key's queue.
    pub waiters_per_key_max: usize,
    /// Waiters in all queues together; admission closes at 90 % of it.
    pub waiters_max: usize,
    /// Acquires in flight; admission closes at 90 % of it.
    pub acquires_in_flight_max: usize,
}

/// How much of everything the desk has, for metrics and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that are open or not yet told to finish.
    pub sessions: usize,
    /// Queued acquires.
    pub waiters: usize,
    /// Acquires that were handed to the lock table, or will be next, and are not answered.
    pub acquires_in_flight: usize,
    /// Releases that are not settled.
    pub releases_in_flight: usize,
    /// Keys that are held.
    pub active_keys: usize,
    /// Commands that wait for the next batch.
    pub pending: usize,
    /// Batches that were taken and not applied.
    pub batches_in_flight: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Desk {
    origin: u64,
}

impl Desk {
    /// A desk of the process `origin` that serves nobody yet. `own` is this node's client address,
    /// as configured; `None` in single mode, where no `L` and no `M` is ever said.
    pub fn new(origin: u64, own: Option<String>, limits: Limits) -> Self {
        let _ = (own, limits);
        Self { origin }
    }

    /// Takes an event in at `now`, the process's monotonic time in nanoseconds, and adds what is to
    /// be done, in order, to `effects`.
    pub fn handle(&mut self, now: u64, event: Event, effects: &mut Vec<Effect>) {
        let _ = (now, event, effects, self.origin);
    }

    /// What is to be proposed next, with at most `commands_max` commands, stamped at `now` (read
    /// after the last event was taken in); `None` when there is nothing. Hand it over before the
    /// next one is taken, and never a second time.
    pub fn take_batch(&mut self, now: u64, commands_max: usize) -> Option<(Activity, Batch)> {
        let _ = (now, commands_max);
        None
    }

    /// Batches that were taken and not applied yet; 0 after a loss of activity.
    pub fn batches_in_flight(&self) -> usize {
        0
    }

    /// When to send [`Event::Tick`] next, in the same time as `now`; ask again after every event
    /// and every batch.
    pub fn wakeup(&self) -> Option<u64> {
        None
    }

    /// How much there is of everything.
    pub fn counts(&self) -> Counts {
        Counts::default()
    }
}
