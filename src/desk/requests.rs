//! What sessions ask, and what is known at once.
//!
//! An acquire is answered without the log only when the mirror knows enough: its key is held and
//! nothing is on its way that could free it, or others wait there. Everything else is put to the
//! table. At a key, acquires with a wait are asked for one at a time, in order of arrival: whoever
//! comes while one is on its way queues behind it, so that no later acquire can reach the log first.

use wire::{Acquire, Key, Release, Reply, Token, Wait};

use super::event::SessionId;
use super::sessions::{Input, Session};
use super::span::{Asker, Intent, Span};
use super::turn::Turn;
use super::waiters::{Place, Waiter, WaiterId};

/// How much before its limit a wait ends in `T`, in nanoseconds: the reply is to reach the client
/// before the client's own deadline.
const WAIT_MARGIN_NANOS: u64 = 100_000_000;

/// What becomes of an acquire that has just arrived.
enum Verdict {
    TimedOut,
    Busy,
    /// Put to the table, once.
    Try,
    /// Into the key's queue; put to the table straight away if it is the first.
    Wait(Place),
}

impl Span {
    /// An acquire of a session that may ask.
    pub(super) fn acquire(
        &mut self,
        id: SessionId,
        arrived: u64,
        acquire: Acquire,
        turn: &mut Turn,
    ) {
        let deadline = wait_deadline(arrived, acquire.wait);
        let verdict = self.judge(turn.now, deadline, &acquire);
        let Acquire {
            lease, owner, key, ..
        } = acquire;
        let asker = Asker {
            session: id,
            owner,
            arrived,
            key,
        };
        match verdict {
            Verdict::TimedOut => {
                let Asker { owner, key, .. } = asker;
                turn.reply(id, Reply::TimedOut { owner, key });
            }
            Verdict::Busy => {
                let Asker { owner, key, .. } = asker;
                turn.reply(id, Reply::Busy { owner, key });
            }
            Verdict::Try => {
                if let Some(session) = turn.sessions.get_mut(id) {
                    session.tries_pending += 1;
                }
                self.admission.acquires.enter();
                self.pending.push_back(Intent::Try { asker, lease });
            }
            Verdict::Wait(place) => {
                let key = asker.key.clone();
                let waiter = self.insert_waiter(Waiter {
                    asker,
                    lease,
                    deadline,
                    place,
                    proposed: false,
                });
                if let Some(session) = turn.sessions.get_mut(id) {
                    session.waiters.insert(waiter);
                }
                self.promote(&key);
            }
        }
    }

    fn judge(&self, now: u64, deadline: u64, acquire: &Acquire) -> Verdict {
        let state = self.keys.get(&acquire.key);
        let held = state.is_some_and(|state| state.held.is_some());
        let held_fast = state.is_some_and(|state| state.is_held_fast());
        let asked_for = state.is_some_and(|state| !state.queue.is_empty());
        let queued = state.map_or(0, |state| state.queued);
        let verdict = if acquire.wait == Wait(0) {
            // Behind a release a try is worth its while, unless somebody is before it.
            if held_fast || queued > 0 || held && asked_for {
                Verdict::TimedOut
            } else {
                Verdict::Try
            }
        } else if deadline <= now {
            Verdict::TimedOut
        } else if held_fast || asked_for {
            Verdict::Wait(Place::Queued)
        } else {
            Verdict::Wait(Place::InFlight)
        };
        let is_new_key = !held && !asked_for;
        let has_room = match verdict {
            Verdict::Wait(Place::Queued) => self.has_room_in_queue(queued),
            Verdict::Try | Verdict::Wait(Place::InFlight) => {
                self.admission.acquires.is_open() && (!is_new_key || self.admission.keys.is_open())
            }
            Verdict::TimedOut | Verdict::Busy => true,
        };
        if has_room { verdict } else { Verdict::Busy }
    }

    /// Whether one more may join a queue that has `queued` waiters.
    pub(super) fn has_room_in_queue(&self, queued: usize) -> bool {
        queued < self.admission.waiters_per_key_max && self.admission.waiters.is_open()
    }

    /// A release of a session that may ask: always put to the table, whatever its token.
    pub(super) fn release(&mut self, id: SessionId, release: Release, turn: &mut Turn) {
        let Release { token, key } = release;
        if let Some(session) = turn.sessions.get_mut(id) {
            session.releases += 1;
        }
        self.releases += 1;
        self.mark_releasing(&key, token);
        self.pending.push_back(Intent::Release {
            session: Some(id),
            key,
            token,
        });
    }

    /// A release of `token` is on its way: whoever asks behind it may be granted.
    pub(super) fn mark_releasing(&mut self, key: &Key, token: Token) {
        if let Some(state) = self.keys.get_mut(key)
            && let Some(held) = &mut state.held
            && held.grant.token == token
        {
            held.releasing = true;
        }
    }

    /// Ends every wait that is over.
    pub(super) fn end_waits(&mut self, turn: &mut Turn) {
        while let Some(id) = self.waiters.due(turn.now) {
            let Asker {
                session,
                owner,
                key,
                ..
            } = self.remove_waiter(id, turn.sessions).asker;
            turn.reply(session, Reply::TimedOut { owner, key });
            turn.finish_if_done(session);
        }
    }

    /// The session asks no more: drops what nobody waits for any longer. What is proposed stays
    /// until its outcome is known, and after malformed input so does what needs no waiting.
    pub(super) fn input_ended(&mut self, id: SessionId, turn: &mut Turn) {
        let Some(session) = turn.sessions.get_mut(id) else {
            return;
        };
        let malformed = matches!(session.input, Input::Malformed(_));
        if !malformed {
            // The intents find the session's input closed and lapse.
            session.tries_pending = 0;
        }
        for waiter in self.unproposed(session) {
            if !(malformed && self.waiters.get(waiter).place == Place::InFlight) {
                self.remove_waiter(waiter, turn.sessions);
            }
        }
    }

    /// The session is gone: its waiters go. What is proposed stays until its outcome is known.
    pub(super) fn closed(&mut self, session: &Session, turn: &mut Turn) {
        for waiter in self.unproposed(session) {
            self.remove_waiter(waiter, turn.sessions);
        }
    }

    /// The session's acquires with a wait that are in no batch.
    pub(super) fn unproposed(&self, session: &Session) -> Vec<WaiterId> {
        let is_unproposed = |id: &WaiterId| !self.waiters.get(*id).proposed;
        let ids = session.waiters.iter().copied();
        ids.filter(is_unproposed).collect()
    }
}

/// When a wait that began at `arrived` ends in `T`.
fn wait_deadline(arrived: u64, wait: Wait) -> u64 {
    arrived.saturating_add(wait.nanos().saturating_sub(WAIT_MARGIN_NANOS))
}
