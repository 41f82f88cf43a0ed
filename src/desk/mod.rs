//! The desk: what only the leader knows, as plain data. Events in, effects out, time passed in; no
//! sockets, no clock, no randomness.
//!
//! The lock table says who holds what. The desk knows who *asks*: the sessions, the queues, what is
//! proposed and not applied yet. It mirrors the table from the outcomes that it is fed in log
//! order, answers at once what the mirror settles, and puts everything else to the table in
//! batches ([`Desk::take_batch`]).
//!
//! # Why the answers are safe
//!
//! - **A grant is told only as a committed outcome.** `A`, `R` and `N` come from an applied batch
//!   and nowhere else, so a leader that was deposed without knowing can't say them. What the mirror
//!   alone settles is only `T`, `B` and who queues.
//! - **Every request is answered once.** An acquire is in exactly one place: a pending command, a
//!   key's queue, or a batch in flight; whoever takes it out answers it. A session that ended is
//!   not answered, and a grant that comes out for it is released by the desk itself.
//! - **Nobody overtakes.** At a key, acquires with a wait keep one place, by arrival, from the
//!   moment they come in until they are answered, and only the first of them is asked for, by one
//!   command at a time.
//! - **Nobody is stranded.** While a key has a queue, the first is under way, or an attempt for it
//!   is pending, or the key is held by the mirror; and whenever one of these ends,
//!   the next begins. A held key ends by a stamp at the latest, and [`Desk::wakeup`] sees to stamps.
//! - **A refusal is definitive.** When activity is lost, a session of which an acquire was proposed
//!   (a waiter as the next of a release included) is closed without a word, because the acquire may
//!   commit later. Of any other session nothing was proposed, and nothing ever will be: all that
//!   belonged to the activity is dropped as a whole, and the session is marked. Every later
//!   request of a marked session is refused, too, even when this node serves again.
//! - **Everything is bounded.** Acquires by their gates, releases by the lane whose places
//!   [`Effect::ReleaseSettled`] gives back, own releases by the number of held keys, sessions by the
//!   listener. What ends is taken out at once, in O(log n).
//!
//! What is deliberately missing: the outboxes, the release lane and the bound on how long a
//! session may take to finish. They belong to whoever owns the sockets.

mod admission;
mod batches;
mod event;
mod keys;
mod leadership;
mod outcomes;
mod requests;
mod sessions;
mod span;
mod tally;
#[cfg(test)]
mod tests;
mod timeline;
mod turn;
mod waiters;

use raft::Activity;
use raft::lock::Batch;
use wire::{Acquire, Key, Reason, Release};

pub use admission::Limits;
pub use event::{Effect, Event, Leadership, SessionId};
pub use tally::Tally;

use sessions::{Input, Sessions};
use span::Span;
use turn::Turn;

/// How much of everything the desk has, for metrics and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that are open, or not yet told to finish.
    pub sessions: usize,
    /// Acquires that are counted as waiters.
    pub waiters: usize,
    /// Acquires that were put to the lock table straight away and are not answered.
    pub acquires_in_flight: usize,
    /// Releases of sessions that are not settled.
    pub releases_in_flight: usize,
    /// Keys that are held, as of the newest applied batch.
    pub active_keys: usize,
    /// Commands that wait for the next batch.
    pub pending: usize,
    /// Batches that were taken and not applied.
    pub batches_in_flight: usize,
    /// Whether new acquires, waiters and keys are turned away, until there is room again.
    pub closed: Closed,
}

/// Which gates of admission are closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// The one of acquires in flight.
    pub acquires: bool,
    /// The one of waiters in all.
    pub waiters: bool,
    /// The one of new keys.
    pub keys: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Desk {
    origin: u64,
    /// This node's client address; `None` in single mode.
    own: Option<String>,
    limits: Limits,
    sessions: Sessions,
    /// What [`Event::Leader`] last said; `None`: nothing yet.
    leadership: Option<Leadership>,
    /// The address that was last pushed, and still holds.
    announced: Option<String>,
    /// Every activity up to this one is over.
    revoked: Activity,
    stopping: bool,
    /// The number of the newest batch; goes on from activity to activity.
    sequence: u64,
    /// There only while the desk is active.
    span: Option<Span>,
    /// What happened so far, while no span counts.
    tally: Tally,
}

impl Desk {
    /// A desk of the process `origin` that serves nobody yet. `own` is this node's client address,
    /// as configured; `None` in single mode, where no `L` and no `M` is ever said.
    pub fn new(origin: u64, own: Option<String>, limits: Limits) -> Self {
        Self {
            origin,
            own,
            limits,
            sessions: Sessions::default(),
            leadership: None,
            announced: None,
            revoked: Activity::default(),
            stopping: false,
            sequence: 0,
            span: None,
            tally: Tally::default(),
        }
    }

    /// Takes an event in at `now`, the process's monotonic time in nanoseconds, and adds what is to
    /// be done, in order, to `effects`.
    pub fn handle(&mut self, now: u64, event: Event, effects: &mut Vec<Effect>) {
        if let Some(span) = &mut self.span {
            span.end_waits(&mut Turn {
                now,
                sessions: &mut self.sessions,
                effects,
            });
        }
        match event {
            Event::Opened(session) => self.opened(session, effects),
            Event::Acquire {
                session,
                arrived,
                acquire,
            } => self.acquire(now, session, arrived, acquire, effects),
            Event::Release { session, release } => self.release(now, session, release, effects),
            Event::InputEnded { session, last } => self.input_ended(now, session, last, effects),
            Event::Closed(session) => self.closed(now, session, effects),
            Event::Undelivered { key, token } => {
                if let Some(span) = &mut self.span {
                    span.give_back(&key, token);
                }
            }
            Event::Activated(activation) => self.activated(activation, effects),
            Event::Applied { activity, applied } => {
                if let Some(span) = &mut self.span
                    && span.activity == activity
                {
                    let mut turn = Turn {
                        now,
                        sessions: &mut self.sessions,
                        effects,
                    };
                    span.applied(self.origin, applied, &mut turn);
                }
            }
            Event::Revoked(activity) => self.revoke(activity, effects),
            Event::Leader(leadership) => {
                self.leadership = Some(leadership);
                self.announce(effects);
            }
            Event::Stopping => {
                self.stopping = true;
                self.lose_activity(effects);
                self.announce(effects);
            }
            Event::Tick => {
                if let Some(span) = &mut self.span {
                    span.stamp_due |= span.stamp_due_at().is_some_and(|due| due <= now);
                }
            }
        }
    }

    /// What is to be proposed next, with at most `commands_max` commands, stamped at `now` (read
    /// after the last event was taken in); `None` when there is nothing. Hand it over before the
    /// next one is taken, and never a second time: a batch under an old stamp would stretch the
    /// argument that stamps rest on.
    pub fn take_batch(&mut self, now: u64, commands_max: usize) -> Option<(Activity, Batch)> {
        let span = self.span.as_mut()?;
        let taken = span.take_batch(
            now,
            commands_max,
            self.origin,
            self.sequence + 1,
            &mut self.sessions,
        )?;
        self.sequence += 1;
        Some(taken)
    }

    /// Batches that were taken and not applied yet; 0 after a loss of activity.
    pub fn batches_in_flight(&self) -> usize {
        self.span.as_ref().map_or(0, |span| span.flights.len())
    }

    /// When to send [`Event::Tick`] next, in the same time as `now`; ask again after every event
    /// and every batch. A tick that came is not asked for again, so whoever can't take a batch just
    /// then doesn't spin.
    pub fn wakeup(&self) -> Option<u64> {
        let span = self.span.as_ref()?;
        let wakeups = [span.waiters.next_deadline(), span.stamp_due_at()];
        wakeups.into_iter().flatten().min()
    }

    /// What happened since the process started.
    pub fn tally(&self) -> &Tally {
        self.span.as_ref().map_or(&self.tally, |span| &span.tally)
    }

    /// Whether requests are served.
    pub fn is_active(&self) -> bool {
        self.span.is_some()
    }

    /// How many acquires queue for `key`.
    pub fn waiters(&self, key: &Key) -> usize {
        let state = self.span.as_ref().and_then(|span| span.keys.get(key));
        state.map_or(0, |state| state.queue.len())
    }

    /// How much there is of everything.
    pub fn counts(&self) -> Counts {
        let sessions = self.sessions.len();
        self.span.as_ref().map_or(
            Counts {
                sessions,
                ..Counts::default()
            },
            |span| Counts {
                sessions,
                waiters: span.admission.waiters.used(),
                acquires_in_flight: span.admission.acquires.used(),
                releases_in_flight: span.releases,
                active_keys: span.keys.held_count(),
                pending: span.pending.len(),
                batches_in_flight: span.flights.len(),
                closed: Closed {
                    acquires: !span.admission.acquires.is_open(),
                    waiters: !span.admission.waiters.is_open(),
                    keys: !span.admission.keys.is_open(),
                },
            },
        )
    }

    fn acquire(
        &mut self,
        now: u64,
        id: SessionId,
        arrived: u64,
        acquire: Acquire,
        effects: &mut Vec<Effect>,
    ) {
        let refusal = self.refusal();
        let Some(session) = self.sessions.asking(id) else {
            return;
        };
        match &mut self.span {
            Some(span) if !session.refused => {
                let mut turn = Turn {
                    now,
                    sessions: &mut self.sessions,
                    effects,
                };
                span.acquire(id, arrived, acquire, &mut turn);
            }
            _ => {
                session.refused = true;
                effects.push(Effect::Reply(id, refusal));
            }
        }
    }

    fn release(&mut self, now: u64, id: SessionId, release: Release, effects: &mut Vec<Effect>) {
        let refusal = self.refusal();
        let Some(session) = self.sessions.asking(id) else {
            effects.push(Effect::ReleaseSettled);
            return;
        };
        match &mut self.span {
            Some(span) if !session.refused => {
                let mut turn = Turn {
                    now,
                    sessions: &mut self.sessions,
                    effects,
                };
                span.release(id, release, &mut turn);
            }
            _ => {
                session.refused = true;
                effects.push(Effect::Reply(id, refusal));
                effects.push(Effect::ReleaseSettled);
            }
        }
    }

    fn input_ended(
        &mut self,
        now: u64,
        id: SessionId,
        last: Option<Reason>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(session) = self.sessions.asking(id) else {
            return;
        };
        session.input = last.map_or(Input::Closed, Input::Malformed);
        let mut turn = Turn {
            now,
            sessions: &mut self.sessions,
            effects,
        };
        if let Some(span) = &mut self.span {
            span.input_ended(id, &mut turn);
        }
        turn.finish_if_done(id);
    }

    fn closed(&mut self, now: u64, id: SessionId, effects: &mut Vec<Effect>) {
        let Some(session) = self.sessions.remove(id) else {
            return;
        };
        if let Some(span) = &mut self.span {
            let mut turn = Turn {
                now,
                sessions: &mut self.sessions,
                effects,
            };
            span.closed(&session, &mut turn);
        }
    }
}
