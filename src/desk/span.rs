//! What belongs to one activity, and ends with it.
//!
//! A loss of activity drops this as a whole: no waiter, no pending command and no batch in flight
//! of an old activity can be answered, proposed or matched by a later one, because nothing of it
//! is left.

use std::collections::VecDeque;

use raft::lock::Lock;
use raft::{Activation, Activity};
use wire::{Key, Lease, Owner, Token};

use super::admission::{Admission, Limits};
use super::event::SessionId;
use super::keys::Keys;
use super::sessions::Sessions;
use super::tally::Tally;
use super::timeline::Timeline;
use super::waiters::{Place, Waiter, WaiterId, Waiters};

/// A queue of pending commands with fewer places than this is never shrunk.
const PENDING_KEPT: usize = 1024;

/// Who asks for which key.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) session: SessionId,
    pub(super) owner: Owner,
    /// Monotonic time of the request, in nanoseconds.
    pub(super) arrived: u64,
    pub(super) key: Key,
}

/// Something to ask the lock table in one of the next batches. Whom it is about is settled only
/// when the batch is taken: until then a waiter may still go, or get its `T`.
#[derive(Debug)]
pub(super) enum Intent {
    /// An acquire without a wait.
    Try { asker: Asker, lease: Lease },
    /// An acquire for whoever is first in the key's queue by then.
    Attempt(Key),
    /// A release; without a session it is one of the desk's own, of a grant that nobody was told of.
    Release {
        session: Option<SessionId>,
        key: Key,
        token: Token,
    },
}

/// One command of a batch in flight: who is to hear of its outcome.
#[derive(Debug)]
pub(super) enum Asked {
    Try(Asker),
    Attempt {
        key: Key,
        waiter: WaiterId,
    },
    Release {
        session: Option<SessionId>,
        key: Key,
        token: Token,
        next: Option<WaiterId>,
    },
}

/// A batch in flight.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) sequence: u64,
    pub(super) asked: Vec<Asked>,
}

/// The state of one activity.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) activity: Activity,
    pub(super) keys: Keys,
    pub(super) waiters: Waiters,
    pub(super) admission: Admission,
    pub(super) timeline: Timeline,
    /// In order of arrival. Bounded by the gate of acquires (tries), the keys that have a record
    /// (attempts and own releases: one a key) and the release lane.
    pub(super) pending: VecDeque<Intent>,
    /// In order of sequence, which is the order of the log.
    pub(super) flights: VecDeque<Flight>,
    /// Releases of sessions that are not settled.
    pub(super) releases: usize,
    /// A stamp is due, whether there are commands or not.
    pub(super) stamp_due: bool,
    /// Goes on from activity to activity.
    pub(super) tally: Tally,
}

impl Span {
    pub(super) fn new(activation: Activation, limits: Limits, tally: Tally) -> Self {
        let mut keys = Keys::default();
        for Lock { key, grant } in &activation.held {
            keys.hold(key, *grant, None);
        }
        let active_keys_max = activation.active_keys_max as usize;
        Self {
            activity: activation.activity,
            admission: Admission::new(limits, active_keys_max, keys.held_count()),
            keys,
            waiters: Waiters::default(),
            timeline: Timeline::new(activation.now, activation.moved_at),
            pending: VecDeque::new(),
            flights: VecDeque::new(),
            releases: 0,
            stamp_due: false,
            tally,
        }
    }

    /// Takes an acquire in as the last of its key's queue.
    pub(super) fn insert_waiter(&mut self, waiter: Waiter) -> WaiterId {
        let key = waiter.asker.key.clone();
        let place = waiter.place;
        let id = self.waiters.insert(waiter);
        let state = self.keys.entry(&key);
        state.queue.insert(id);
        match place {
            Place::InFlight => self.admission.acquires.enter(),
            Place::Queued => {
                state.queued += 1;
                self.admission.waiters.enter();
            }
        }
        id
    }

    /// Takes out an acquire whose answer is decided.
    pub(super) fn remove_waiter(&mut self, id: WaiterId, sessions: &mut Sessions) -> Waiter {
        let waiter = self.waiters.remove(id);
        if let Some(session) = sessions.get_mut(waiter.asker.session) {
            session.waiters.remove(&id);
        }
        let state = self.keys.entry(&waiter.asker.key);
        state.queue.remove(&id);
        match waiter.place {
            Place::InFlight if !waiter.proposed && !state.place_kept => state.place_kept = true,
            Place::InFlight => self.admission.acquires.leave(),
            Place::Queued => {
                state.queued -= 1;
                self.admission.waiters.leave();
            }
        }
        self.keys.tidy(&waiter.asker.key);
        waiter
    }

    /// Sees to it that nobody is stranded: if the key is not held for long, somebody queues, and
    /// nobody is asked for yet, the first is. Called after everything that may have freed the key
    /// or brought back whoever was under way.
    pub(super) fn promote(&mut self, key: &Key) {
        let Some(state) = self.keys.get_mut(key) else {
            return;
        };
        if state.next().is_some() && !state.is_held_fast() && !state.attempt_pending {
            state.attempt_pending = true;
            self.pending.push_back(Intent::Attempt(key.clone()));
        }
        self.keys.tidy(key);
    }

    /// Ends a grant that nobody was told of, unless it has ended or is being released anyway. So
    /// there is at most one such release per held key, and it needs no admission.
    pub(super) fn give_back(&mut self, key: &Key, token: Token) {
        #[cfg(feature = "planted-bugs")]
        if planted::has(planted::Bug::VanishedKeepsGrant) {
            return;
        }
        let Some(state) = self.keys.get_mut(key) else {
            return;
        };
        if let Some(held) = &mut state.held
            && held.grant.token == token
            && !held.releasing
        {
            held.releasing = true;
            self.tally.given_back += 1;
            self.pending.push_back(Intent::Release {
                session: None,
                key: key.clone(),
                token,
            });
        }
    }

    /// When the next stamp is due, unless that is known already or nothing is held.
    pub(super) fn stamp_due_at(&self) -> Option<u64> {
        if self.stamp_due || self.keys.held_count() == 0 {
            return None;
        }
        let end = self.keys.first_end_after(self.timeline.last());
        Some(self.timeline.due_at(end))
    }

    /// The next pending command; gives memory back after a crowd.
    pub(super) fn pop_pending(&mut self) -> Option<Intent> {
        let intent = self.pending.pop_front();
        let capacity = self.pending.capacity();
        if capacity > PENDING_KEPT && self.pending.len() < capacity / 8 {
            self.pending.shrink_to(capacity / 4);
        }
        intent
    }
}
