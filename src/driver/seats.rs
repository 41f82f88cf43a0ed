//! Where replies go: every session's outbox, and which of them are to be woken.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::{Key, Reply, Token};

use super::Outbox;
use crate::desk::SessionId;

/// All sessions that are not gone.
#[derive(Default)]
pub(super) struct Seats {
    seats: BTreeMap<SessionId, Seat>,
    /// Those that got something since they were last woken, each once.
    touched: Vec<SessionId>,
}

struct Seat {
    outbox: Arc<Outbox>,
    touched: bool,
    /// It was told to close: the desk does not know it any more.
    ended: bool,
}

impl Seats {
    /// A session opened.
    pub(super) fn open(&mut self, session: SessionId, outbox: Arc<Outbox>) {
        let seat = Seat {
            outbox,
            touched: false,
            ended: false,
        };
        self.seats.insert(session, seat);
    }

    /// A session is gone.
    pub(super) fn remove(&mut self, session: SessionId) {
        self.seats.remove(&session);
    }

    /// Whether the session may still be served.
    pub(super) fn is_served(&self, session: SessionId) -> bool {
        self.seats.get(&session).is_some_and(|seat| !seat.ended)
    }

    /// Says `reply`. If that is not possible any more and it is a grant, gives it back.
    pub(super) fn say(&mut self, session: SessionId, reply: Reply) -> Option<(Key, Token)> {
        let unsaid = match self.touch(session) {
            Some(seat) => seat.outbox.push(reply).err()?,
            None => reply,
        };
        match unsaid {
            Reply::Granted { key, token, .. } => Some((key, token)),
            _ => None,
        }
    }

    /// Has the session write what it has, then `last`, and close.
    pub(super) fn end(&mut self, session: SessionId, last: Option<Reply>) {
        if let Some(seat) = self.touch(session) {
            seat.outbox.finish(last);
            seat.ended = true;
        }
    }

    /// Has all sessions write what they have and close.
    pub(super) fn end_all(&mut self) {
        let sessions: Vec<SessionId> = self.seats.keys().copied().collect();
        for session in sessions {
            self.end(session, None);
        }
    }

    /// Wakes whoever got something.
    pub(super) fn wake_touched(&mut self) {
        for session in self.touched.drain(..) {
            if let Some(seat) = self.seats.get_mut(&session) {
                seat.touched = false;
                seat.outbox.wake();
            }
        }
    }

    fn touch(&mut self, session: SessionId) -> Option<&mut Seat> {
        let seat = self.seats.get_mut(&session)?;
        if !std::mem::replace(&mut seat.touched, true) {
            self.touched.push(session);
        }
        Some(seat)
    }
}
