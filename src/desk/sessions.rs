//! What the desk knows of each session.

use std::collections::{BTreeMap, BTreeSet};

use wire::{Reason, Reply};

use super::event::{Effect, SessionId};
use super::waiters::WaiterId;

/// Whether a session may still ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// Requests may come.
    Open,
    /// The client closed its side.
    Closed,
    /// The framing is lost; this is said last.
    Malformed(Reason),
}

/// One session's requests that are not answered, and what was promised to it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) input: Input,
    /// `M`, `E no_leader` or `E not_active` was sent: every later request is refused as well.
    pub(super) refused: bool,
    /// Its acquires with a wait that are not answered.
    pub(super) waiters: BTreeSet<WaiterId>,
    /// How many of `waiters` are proposed.
    pub(super) waiters_proposed: usize,
    /// Acquires without a wait that are in no batch yet.
    pub(super) tries_pending: usize,
    /// Acquires without a wait that are proposed.
    pub(super) tries_proposed: usize,
    /// Releases that are not answered.
    pub(super) releases: usize,
}

impl Session {
    fn new() -> Self {
        Self {
            input: Input::Open,
            refused: false,
            waiters: BTreeSet::new(),
            waiters_proposed: 0,
            tries_pending: 0,
            tries_proposed: 0,
            releases: 0,
        }
    }

    /// Whether an acquire of it was proposed, so that its outcome may come to be without us.
    pub(super) fn is_proposed(&self) -> bool {
        #[cfg(feature = "planted-bugs")]
        if planted::has(planted::Bug::MovedAlthoughProposed) {
            return false;
        }
        self.waiters_proposed + self.tries_proposed > 0
    }

    /// How many requests are not answered.
    pub(super) fn unanswered(&self) -> usize {
        self.waiters.len() + self.tries_pending + self.tries_proposed + self.releases
    }

    /// Whether it can be told of a grant. Nobody waits for one at a closed input, and one after a
    /// refusal would break what the refusal promised.
    pub(super) fn takes_grants(&self) -> bool {
        self.input != Input::Closed && !self.refused
    }

    /// Forgets every request: none of them will be answered any more.
    pub(super) fn forget_requests(&mut self) {
        self.waiters.clear();
        self.waiters_proposed = 0;
        self.tries_pending = 0;
        self.tries_proposed = 0;
        self.releases = 0;
    }

    /// What to do with it if its input is over and all is decided.
    pub(super) fn finish(&self, id: SessionId) -> Option<Effect> {
        let last = match self.input {
            Input::Open => return None,
            Input::Closed => None,
            Input::Malformed(reason) => Some(Reply::Error(reason)),
        };
        (self.unanswered() == 0).then_some(Effect::Finish(id, last))
    }
}

/// All sessions that are open, or are not told to finish yet. Ordered, because some events go
/// through all of them.
#[derive(Debug, Default)]
pub(super) struct Sessions(BTreeMap<SessionId, Session>);

impl Sessions {
    /// A connection came through its handshake.
    pub(super) fn open(&mut self, id: SessionId) {
        self.0.entry(id).or_insert_with(Session::new);
    }

    /// The session is gone; what it was.
    pub(super) fn remove(&mut self, id: SessionId) -> Option<Session> {
        self.0.remove(&id)
    }

    /// The session, if the desk has not forgotten it.
    pub(super) fn get(&self, id: SessionId) -> Option<&Session> {
        self.0.get(&id)
    }

    /// The session, if the desk has not forgotten it.
    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.0.get_mut(&id)
    }

    /// The session, if it may ask.
    pub(super) fn asking(&mut self, id: SessionId) -> Option<&mut Session> {
        self.0
            .get_mut(&id)
            .filter(|session| session.input == Input::Open)
    }

    /// Goes through all sessions in order and forgets those for which `keep` is false.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(SessionId, &mut Session) -> bool) {
        self.0.retain(|id, session| keep(*id, session));
    }

    /// Those that may ask, in order.
    pub(super) fn open_ids(&self) -> impl Iterator<Item = SessionId> {
        self.0
            .iter()
            .filter(|(_, session)| session.input == Input::Open)
            .map(|(id, _)| *id)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
