//! Acquires with a wait, until they are answered.
//!
//! Fault answered: thousands of waiters that vanish at once, or time out one by one. A waiter is
//! removed the moment it is over, from ordered sets, in O(log n) each; nothing is marked for
//! later and nothing is scanned, so no dead waiter costs anybody time or memory.

use std::collections::{BTreeMap, BTreeSet};

use wire::Lease;

use super::span::Asker;

/// One waiter; a later arrival has a greater number, so order of id is order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaiterId(u64);

/// Which of the limits counts an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Acquires in flight: it was put to the lock table straight away.
    InFlight,
    /// Waiters.
    Queued,
}

/// An acquire with a wait that is not answered yet.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) asker: Asker,
    pub(super) lease: Lease,
    /// Monotonic time at which its wait ends in `T`.
    pub(super) deadline: u64,
    pub(super) place: Place,
    /// It is under way: a batch that was taken asks for its grant. It can't end in `T` meanwhile.
    pub(super) proposed: bool,
}

/// All waiters of one activity.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    arrivals: u64,
    records: BTreeMap<WaiterId, Waiter>,
    /// Of those that are not proposed.
    deadlines: BTreeSet<(u64, WaiterId)>,
}

impl Waiters {
    /// Takes in a waiter that has just arrived and is not proposed.
    pub(super) fn insert(&mut self, waiter: Waiter) -> WaiterId {
        let id = WaiterId(self.arrivals);
        self.arrivals += 1;
        self.deadlines.insert((waiter.deadline, id));
        self.records.insert(id, waiter);
        id
    }

    /// The waiter; whoever knows an id of this activity knows one that is there.
    pub(super) fn get(&self, id: WaiterId) -> &Waiter {
        self.records.get(&id).expect("the waiter is not answered")
    }

    /// Its answer is decided.
    pub(super) fn remove(&mut self, id: WaiterId) -> Waiter {
        let waiter = self
            .records
            .remove(&id)
            .expect("a waiter is answered only once");
        self.deadlines.remove(&(waiter.deadline, id));
        waiter
    }

    /// It is under way now.
    pub(super) fn propose(&mut self, id: WaiterId) -> &Waiter {
        let waiter = self
            .records
            .get_mut(&id)
            .expect("the waiter is not answered");
        waiter.proposed = true;
        self.deadlines.remove(&(waiter.deadline, id));
        waiter
    }

    /// It was not granted and waits again, in a queue.
    pub(super) fn requeue(&mut self, id: WaiterId) {
        let waiter = self
            .records
            .get_mut(&id)
            .expect("the waiter is not answered");
        waiter.proposed = false;
        waiter.place = Place::Queued;
        self.deadlines.insert((waiter.deadline, id));
    }

    /// A waiter whose wait is over at `now`.
    pub(super) fn due(&self, now: u64) -> Option<WaiterId> {
        let (deadline, id) = self.deadlines.first()?;
        (*deadline <= now).then_some(*id)
    }

    /// When the next wait is over.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// How many there are, and how many of them have a deadline.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.records.len(), self.deadlines.len())
    }
}
