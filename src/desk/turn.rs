//! What every step of one event's handling needs.

use wire::Reply;

use super::event::{Effect, SessionId};
use super::sessions::Sessions;

/// One event's handling.
pub(super) struct Turn<'a> {
    /// Monotonic time, in nanoseconds.
    pub(super) now: u64,
    pub(super) sessions: &'a mut Sessions,
    pub(super) effects: &'a mut Vec<Effect>,
}

impl Turn<'_> {
    /// Says something to a session that is there.
    pub(super) fn reply(&mut self, id: SessionId, reply: Reply) {
        self.effects.push(Effect::Reply(id, reply));
    }

    /// Tells the session to finish, and forgets it, if its input is over and all is decided.
    pub(super) fn finish_if_done(&mut self, id: SessionId) {
        let finish = self.sessions.get(id).and_then(|session| session.finish(id));
        if let Some(effect) = finish {
            self.sessions.remove(id);
            self.effects.push(effect);
        }
    }
}
