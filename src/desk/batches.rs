//! From what is pending to the next batch.
//!
//! Who is asked for is settled here, at the last moment: the first in the queue now, not the first
//! when the reason to ask came up. From here on a waiter is under way.

use raft::Activity;
use raft::lock::{Batch, Command};
use wire::{Key, Lease, Token};

use super::event::SessionId;
use super::sessions::Sessions;
use super::span::{Asked, Asker, Flight, Intent, Span};
use super::waiters::WaiterId;

impl Span {
    /// The next batch, if there is anything to ask or to stamp.
    pub(super) fn take_batch(
        &mut self,
        now: u64,
        commands_max: usize,
        origin: u64,
        sequence: u64,
        sessions: &mut Sessions,
    ) -> Option<(Activity, Batch)> {
        let mut commands = Vec::new();
        let mut asked = Vec::new();
        while commands.len() < commands_max
            && let Some(intent) = self.pop_pending()
        {
            if let Some((command, who)) = self.settle(intent, sessions) {
                commands.push(command);
                asked.push(who);
            }
        }
        if commands.is_empty() && !self.stamp_due {
            return None;
        }
        self.stamp_due = false;
        self.flights.push_back(Flight { sequence, asked });
        let batch = Batch {
            origin,
            sequence,
            stamp: self.timeline.stamp(now),
            commands,
        };
        Some((self.activity, batch))
    }

    /// What an intent comes to now; `None` if the reason for it is gone.
    fn settle(&mut self, intent: Intent, sessions: &mut Sessions) -> Option<(Command, Asked)> {
        match intent {
            Intent::Try { asker, lease } => self.settle_try(asker, lease, sessions),
            Intent::Attempt(key) => self.settle_attempt(key, sessions),
            Intent::Release {
                session,
                key,
                token,
            } => self.settle_release(session, key, token, sessions),
        }
    }

    fn settle_try(
        &mut self,
        asker: Asker,
        lease: Lease,
        sessions: &mut Sessions,
    ) -> Option<(Command, Asked)> {
        let session = sessions.get_mut(asker.session);
        let Some(session) = session.filter(|session| session.takes_grants()) else {
            self.admission.acquires.leave();
            return None;
        };
        session.tries_pending -= 1;
        session.tries_proposed += 1;
        let key = asker.key.clone();
        Some((Command::Acquire { key, lease }, Asked::Try(asker)))
    }

    fn settle_attempt(&mut self, key: Key, sessions: &mut Sessions) -> Option<(Command, Asked)> {
        let state = self.keys.get_mut(&key)?;
        state.attempt_pending = false;
        if std::mem::take(&mut state.place_kept) {
            self.admission.acquires.leave();
        }
        let Some(waiter) = state.next() else {
            // Everybody went, or the first goes as the next of a release in this very batch.
            self.keys.tidy(&key);
            return None;
        };
        let lease = self.put_under_way(&key, waiter, sessions);
        let asked = Asked::Attempt {
            key: key.clone(),
            waiter,
        };
        Some((Command::Acquire { key, lease }, asked))
    }

    /// The waiter's grant is asked for; no `T` from here until the outcome is known.
    fn put_under_way(&mut self, key: &Key, id: WaiterId, sessions: &mut Sessions) -> Lease {
        self.keys.entry(key).under_way = Some(id);
        let waiter = self.waiters.propose(id);
        if let Some(session) = sessions.get_mut(waiter.asker.session) {
            session.waiters_proposed += 1;
        }
        waiter.lease
    }

    fn settle_release(
        &mut self,
        session: Option<SessionId>,
        key: Key,
        token: Token,
        sessions: &mut Sessions,
    ) -> Option<(Command, Asked)> {
        let state = self.keys.get(&key);
        let state = state.filter(|state| state.is_current(token));
        if session.is_none() && state.is_none() {
            // The grant that was to be given back has ended by itself.
            return None;
        }
        let next = state.and_then(|state| state.next());
        self.mark_releasing(&key, token);
        let lease = next.map(|waiter| self.put_under_way(&key, waiter, sessions));
        let asked = Asked::Release {
            session,
            key: key.clone(),
            token,
            next,
        };
        let command = Command::Release {
            key,
            token,
            next: lease,
        };
        Some((command, asked))
    }
}
