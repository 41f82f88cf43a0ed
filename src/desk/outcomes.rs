//! From what was applied to who hears of it.
//!
//! Outcomes are taken in log order, and each is told at once: so of one session's replies that the
//! table decided an earlier one was decided earlier, which is what a client's probe relies on.

use raft::lock::{Applied, Attempt, Outcome};
use wire::{Key, Reason, Reply, Token};

use super::event::{Effect, SessionId};
use super::sessions::Input;
use super::span::{Asked, Asker, Flight, Span};
use super::turn::Turn;
use super::waiters::{Place, WaiterId};

/// What an acquire came to.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Granted(Token),
    TimedOut,
    Busy,
    /// No token is left, for anybody, ever.
    Exhausted,
}

impl From<Attempt> for Answer {
    fn from(attempt: Attempt) -> Self {
        match attempt {
            Attempt::Granted(grant) => Self::Granted(grant.token),
            Attempt::Held(_) => Self::TimedOut,
            Attempt::KeysFull => Self::Busy,
            Attempt::TokensExhausted => Self::Exhausted,
        }
    }
}

/// What becomes of a waiter whose key is held after all.
enum Sequel {
    /// It goes on waiting at its old place.
    Wait,
    /// It is answered.
    Answer(Answer),
    /// Nobody waits for an answer.
    Drop,
}

impl Span {
    /// A batch was applied. One that is not the oldest in flight (there is none such in this
    /// activity) can't be told from its outcomes; it only moves the mirror's clock.
    pub(super) fn applied(&mut self, origin: u64, applied: Applied, turn: &mut Turn) {
        while let Some((key, held)) = self.keys.end_one(applied.now) {
            self.tally.expired += 1;
            self.tally.held(held.since, turn.now);
            self.admission.keys.leave();
            self.promote(&key);
        }
        let Some(flight) = self.land(origin, &applied) else {
            return;
        };
        assert_eq!(
            flight.asked.len(),
            applied.outcomes.len(),
            "the table answers every command"
        );
        for (asked, outcome) in flight.asked.into_iter().zip(applied.outcomes) {
            match (asked, outcome) {
                (Asked::Try(asker), Outcome::Acquired(attempt)) => self.tried(asker, attempt, turn),
                (Asked::Attempt { key, waiter }, Outcome::Acquired(attempt)) => {
                    self.attempted(&key, waiter, attempt, turn);
                }
                (
                    Asked::Release {
                        session,
                        key,
                        token,
                        next,
                    },
                    outcome,
                ) => {
                    let attempt = self.released(session, &key, token, outcome, turn);
                    if let Some(waiter) = next {
                        let attempt = attempt.expect("a release with a next reports on it");
                        self.attempted(&key, waiter, attempt, turn);
                    } else {
                        self.promote(&key);
                    }
                }
                _ => unreachable!("the table answers an acquire with what it came to"),
            }
        }
    }

    /// The batch in flight that was applied: always the oldest.
    fn land(&mut self, origin: u64, applied: &Applied) -> Option<Flight> {
        let oldest = self.flights.front()?;
        if origin != applied.origin || oldest.sequence != applied.sequence {
            return None;
        }
        self.flights.pop_front()
    }

    /// An acquire without a wait came out.
    fn tried(&mut self, asker: Asker, attempt: Attempt, turn: &mut Turn) {
        self.learn(&asker.key, attempt, turn.now);
        self.admission.acquires.leave();
        if let Some(session) = turn.sessions.get_mut(asker.session) {
            session.tries_proposed -= 1;
        }
        let session = asker.session;
        self.answer(asker, attempt.into(), turn);
        turn.finish_if_done(session);
    }

    /// An acquire for a waiter came out, alone or as the next of a release.
    fn attempted(&mut self, key: &Key, id: WaiterId, attempt: Attempt, turn: &mut Turn) {
        self.learn(key, attempt, turn.now);
        self.keys.entry(key).under_way = None;
        let session = self.waiters.get(id).asker.session;
        if let Some(session) = turn.sessions.get_mut(session) {
            session.waiters_proposed -= 1;
        }
        let sequel = match attempt {
            Attempt::Held(_) => self.sequel_of_held(id, turn),
            other => Sequel::Answer(other.into()),
        };
        match sequel {
            Sequel::Wait => self.wait_on(id),
            Sequel::Answer(answer) => {
                let waiter = self.remove_waiter(id, turn.sessions);
                self.answer(waiter.asker, answer, turn);
            }
            Sequel::Drop => {
                self.remove_waiter(id, turn.sessions);
            }
        }
        turn.finish_if_done(session);
        self.promote(key);
    }

    /// A release came out; what became of its next, if it had one.
    fn released(
        &mut self,
        session: Option<SessionId>,
        key: &Key,
        token: Token,
        outcome: Outcome,
        turn: &mut Turn,
    ) -> Option<Attempt> {
        let (reply, next) = match outcome {
            Outcome::Released { next } => {
                if let Some(held) = self.keys.free(key, token) {
                    self.tally.held(held.since, turn.now);
                    self.admission.keys.leave();
                }
                let key = key.clone();
                (Reply::Released { token, key }, next)
            }
            Outcome::NotCurrent { next } => {
                let key = key.clone();
                (Reply::NotCurrent { token, key }, next)
            }
            Outcome::Acquired(_) => unreachable!("the table answers a release as one"),
        };
        // The desk's own releases have nobody to tell.
        if let Some(id) = session {
            self.releases -= 1;
            if let Some(session) = turn.sessions.get_mut(id) {
                session.releases -= 1;
                turn.reply(id, reply);
            }
            turn.effects.push(Effect::ReleaseSettled);
            turn.finish_if_done(id);
        }
        next
    }

    /// Takes over what an attempt tells of the key.
    fn learn(&mut self, key: &Key, attempt: Attempt, now: u64) {
        let (grant, since) = match attempt {
            Attempt::Granted(grant) => (grant, Some(now)),
            Attempt::Held(grant) => (grant, None),
            Attempt::KeysFull | Attempt::TokensExhausted => return,
        };
        if self.keys.hold(key, grant, since) {
            self.admission.keys.enter();
        }
    }

    fn sequel_of_held(&self, id: WaiterId, turn: &Turn) -> Sequel {
        let waiter = self.waiters.get(id);
        let Some(session) = turn.sessions.get(waiter.asker.session) else {
            return Sequel::Drop;
        };
        let queued = self
            .keys
            .get(&waiter.asker.key)
            .map_or(0, |state| state.queued);
        if session.input != Input::Open {
            Sequel::Drop
        } else if session.refused {
            Sequel::Answer(Answer::Exhausted)
        } else if waiter.deadline <= turn.now {
            Sequel::Answer(Answer::TimedOut)
        } else if waiter.place == Place::InFlight && !self.has_room_in_queue(queued) {
            Sequel::Answer(Answer::Busy)
        } else {
            Sequel::Wait
        }
    }

    /// Back to the old place in the queue, which it never left; from now on as a waiter.
    fn wait_on(&mut self, id: WaiterId) {
        if self.waiters.get(id).place == Place::InFlight {
            self.admission.acquires.leave();
            self.admission.waiters.enter();
            let key = self.waiters.get(id).asker.key.clone();
            self.keys.entry(&key).queued += 1;
        }
        self.waiters.requeue(id);
    }

    /// Tells an acquire's session what it came to. A grant that can't be told is given back.
    fn answer(&mut self, asker: Asker, answer: Answer, turn: &mut Turn) {
        let Asker {
            session: id,
            owner,
            arrived,
            key,
        } = asker;
        let session = turn.sessions.get(id);
        if let Answer::Granted(token) = answer
            && !session.is_some_and(|session| session.takes_grants())
        {
            self.give_back(&key, token);
        }
        let Some(session) = session.filter(|session| session.input != Input::Closed) else {
            return;
        };
        let reply = match answer {
            _ if session.refused => Reply::Error(Reason::NotActive),
            Answer::Granted(token) => {
                self.tally.waited(arrived, turn.now);
                Reply::Granted { token, owner, key }
            }
            Answer::TimedOut => Reply::TimedOut { owner, key },
            Answer::Busy => Reply::Busy { owner, key },
            Answer::Exhausted => {
                self.refuse(id, turn);
                Reply::Error(Reason::NotActive)
            }
        };
        turn.reply(id, reply);
    }

    /// Tokens are exhausted: refuses what else the session has asked for and not proposed. The
    /// refusal is definitive, as it must be: no acquire behind this one is ever granted. What is
    /// proposed is refused when its outcome is here.
    fn refuse(&mut self, id: SessionId, turn: &mut Turn) {
        let Some(session) = turn.sessions.get_mut(id) else {
            return;
        };
        session.refused = true;
        // The intents find the session refused and lapse.
        let tries = std::mem::take(&mut session.tries_pending);
        let waiters = self.unproposed(session);
        for _ in 0..tries + waiters.len() {
            turn.reply(id, Reply::Error(Reason::NotActive));
        }
        for waiter in waiters {
            self.remove_waiter(waiter, turn.sessions);
        }
    }
}
