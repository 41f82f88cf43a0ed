//! The desk, the lock table, and a log between them that moves only when it is told to.

use std::collections::VecDeque;

use raft::lock::{Applied, Batch, Command, LockTable, Stamp};
use raft::{Activation, Activity};

use crate::desk::{Desk, Effect, Event, Leadership, Limits};

/// The process whose desk is under test.
pub(super) const ORIGIN: u64 = 7;

/// Another process that led meanwhile.
const FOREIGN_ORIGIN: u64 = 8;

/// Limits that no script reaches by accident.
pub(super) const ROOMY: Limits = Limits {
    waiters_per_key_max: 2_048,
    waiters_max: 16_384,
    acquires_in_flight_max: 4_096,
};

/// One cluster, seen from one process.
pub(super) struct World {
    pub(super) desk: Desk,
    pub(super) table: LockTable,
    active_keys_max: u32,
    /// Batches that were taken and not applied.
    pub(super) log: VecDeque<(Activity, Batch)>,
    /// Monotonic nanoseconds.
    pub(super) now: u64,
    /// When the table last moved.
    moved_at: u64,
    /// The newest activity that there was.
    pub(super) activity: Activity,
    pub(super) active: bool,
}

impl World {
    /// Nobody leads yet.
    pub(super) fn new(own: Option<&str>, limits: Limits, active_keys_max: u32) -> Self {
        Self {
            desk: Desk::new(ORIGIN, own.map(str::to_owned), limits),
            table: LockTable::new(active_keys_max),
            active_keys_max,
            log: VecDeque::new(),
            now: 0,
            moved_at: 0,
            activity: Activity(0),
            active: false,
        }
    }

    /// What the desk makes of `event`.
    pub(super) fn handle(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.desk.handle(self.now, event, &mut effects);
        effects
    }

    /// A new activity, after all that is in the log: that is where an activation stands.
    pub(super) fn activate(&mut self) -> Vec<Effect> {
        for (_, batch) in std::mem::take(&mut self.log) {
            self.apply_batch(&batch);
        }
        self.activity.0 += 1;
        self.active = true;
        self.handle(Event::Activated(Activation {
            activity: self.activity,
            now: self.table.now(),
            moved_at: self.moved_at,
            active_keys_max: self.active_keys_max,
            held: self.table.held(),
        }))
    }

    /// The activity is over.
    pub(super) fn revoke(&mut self) -> Vec<Effect> {
        self.active = false;
        self.handle(Event::Revoked(self.activity))
    }

    /// Who leads, as the status says.
    pub(super) fn leader(&mut self, leadership: Leadership) -> Vec<Effect> {
        self.handle(Event::Leader(leadership))
    }

    /// Takes a batch into the log.
    pub(super) fn take(&mut self, commands_max: usize) -> Option<Batch> {
        let (activity, batch) = self.desk.take_batch(self.now, commands_max)?;
        self.log.push_back((activity, batch.clone()));
        Some(batch)
    }

    /// Applies the oldest batch of the log and feeds the desk.
    pub(super) fn apply(&mut self) -> Option<(Batch, Applied, Vec<Effect>)> {
        let (activity, batch) = self.log.pop_front()?;
        let applied = self.apply_batch(&batch);
        let effects = self.handle(Event::Applied {
            activity,
            applied: applied.clone(),
        });
        Some((batch, applied, effects))
    }

    /// The newest `count` batches of the log never commit.
    pub(super) fn lose(&mut self, count: usize) {
        self.log.truncate(self.log.len().saturating_sub(count));
    }

    /// What another leader has done meanwhile.
    pub(super) fn apply_foreign(&mut self, stamp: Stamp, commands: Vec<Command>) -> Applied {
        self.apply_batch(&Batch {
            origin: FOREIGN_ORIGIN,
            sequence: 1,
            stamp,
            commands,
        })
    }

    fn apply_batch(&mut self, batch: &Batch) -> Applied {
        let before = self.table.now();
        let applied = self.table.apply(batch);
        if self.table.now() > before {
            self.moved_at = self.now;
        }
        applied
    }
}
