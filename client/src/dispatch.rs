//! Where calls wait for a connection, and which one they get.
//!
//! The dispatcher is the one thing that callers and connections share. Its lock is held for a few
//! steps of plain data, never across an await, and nothing with a destructor of its own is dropped
//! under it. A call that cannot go anywhere waits here, with its deadline; each event that could
//! change that (a connection, a leader, the end of a pause) sends the waiting calls on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, watch};
use wire::{AuthToken, Key, Owner, Token};

use crate::call::{Call, Limit, Permit, ReleaseCall};
use crate::routes::{Choice, Command, Down, Routes};
use crate::{Error, Tls};

/// How many acquires may be under way at once in one client, waiting ones included.
pub(crate) const ACQUIRES_MAX: usize = 16_384;

/// How many compensating releases may be under way at once; over that, leases take care.
pub(crate) const COMPENSATIONS_MAX: usize = 4_096;

/// How long a release is tried, reconnects included.
pub(crate) const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

/// How fine the deadlines of calls are that wait for a connection.
const TICK: Duration = Duration::from_millis(5);

/// What connections are made with.
pub(crate) struct Settings {
    pub(crate) auth_token: AuthToken,
    pub(crate) tls: Option<Tls>,
    pub(crate) probing: bool,
}

/// See the module.
pub(crate) struct Dispatcher {
    pub(crate) settings: Settings,
    state: Mutex<State>,
    /// Something happened that the keeper should look at.
    stirred: Notify,
    /// One for each address: dial now.
    kicks: Vec<Notify>,
    closing: watch::Sender<bool>,
    owners: AtomicU64,
    acquires: Limit,
    compensations: Limit,
}

struct State {
    routes: Routes,
    /// Calls without a connection, oldest first.
    waiting: VecDeque<Call>,
}

impl Dispatcher {
    pub(crate) fn new(addresses: Vec<String>, settings: Settings, acquires_max: usize) -> Self {
        Self {
            settings,
            kicks: addresses.iter().map(|_| Notify::new()).collect(),
            state: Mutex::new(State {
                routes: Routes::new(addresses),
                waiting: VecDeque::new(),
            }),
            stirred: Notify::new(),
            closing: watch::Sender::new(false),
            owners: AtomicU64::new(1),
            acquires: Limit::new(acquires_max),
            compensations: Limit::new(COMPENSATIONS_MAX),
        }
    }

    /// The next owner; `None` for ever once they are used up.
    pub(crate) fn next_owner(&self) -> Option<Owner> {
        let next = |owner: u64| owner.checked_add(1);
        let taken = self
            .owners
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.ok().map(Owner)
    }

    /// A place for one more acquire.
    pub(crate) fn admit(&self) -> Option<Permit> {
        self.acquires.take()
    }

    /// Sends a call on its way.
    pub(crate) fn submit(&self, call: Call) {
        if let Call::Acquire(acquire) = &call
            && acquire.is_abandoned()
        {
            return;
        }
        if self.is_closed() && matches!(call, Call::Acquire(_)) {
            return end(call, Error::Closed);
        }
        let (rejected, waits) = {
            let mut state = self.state();
            let rejected = if state.waiting.is_empty() {
                state.place(call, Instant::now())
            } else {
                // Those that came before go first.
                state.waiting.push_back(call);
                None
            };
            (rejected, !state.waiting.is_empty())
        };
        if waits {
            self.stirred.notify_one();
        }
        if let Some((call, error)) = rejected {
            end(call, error);
        }
    }

    /// The caller of an acquire went away before it was answered.
    pub(crate) fn abandon(&self, owner: Owner) {
        let abandoned = {
            let mut state = self.state();
            for session in state.routes.sessions() {
                let _ = session.send(Command::Abandon(owner));
            }
            let place = state
                .waiting
                .iter()
                .position(|call| matches!(call, Call::Acquire(acquire) if acquire.owner == owner));
            place.and_then(|index| state.waiting.remove(index))
        };
        drop(abandoned);
    }

    /// Gives a grant back that nobody wants, if there is room for that.
    pub(crate) fn compensate(&self, key: Key, token: Token) {
        if let Some(permit) = self.compensations.take() {
            self.submit(Call::Release(ReleaseCall {
                key,
                token,
                deadline: Instant::now() + RELEASE_PATIENCE,
                sent: false,
                reply: None,
                _permit: Some(permit),
            }));
        }
    }

    /// Whether any connection is open.
    pub(crate) fn is_connected(&self) -> bool {
        self.state().routes.sessions().next().is_some()
    }

    pub(crate) fn address(&self, index: usize) -> String {
        self.state().routes.address(index).to_owned()
    }

    pub(crate) fn up(&self, index: usize, session: UnboundedSender<Command>) {
        self.state().routes.up(index, session, Instant::now());
        self.stirred.notify_one();
    }

    pub(crate) fn down(&self, index: usize, why: Down) {
        self.state().routes.down(index, why);
        self.stirred.notify_one();
    }

    pub(crate) fn named(&self, from: usize, address: &str) {
        let leader = self.state().routes.named(from, address);
        if let Some(leader) = leader {
            tracing::debug!(address, "leader");
            self.kicks[leader].notify_one();
        }
        self.stirred.notify_one();
    }

    pub(crate) fn leaderless(&self) {
        self.state().routes.leaderless();
    }

    pub(crate) fn served(&self, index: usize) {
        self.state().routes.served(index);
        self.stirred.notify_one();
    }

    /// Someone says that the node at this address leads, so it is worth dialling.
    pub(crate) async fn kicked(&self, index: usize) {
        self.kicks[index].notified().await;
    }

    /// From here on no acquire is taken; sessions settle their releases and end.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closing.borrow()
    }

    /// Comes back once [`Dispatcher::close`] was called.
    pub(crate) async fn closed(&self) {
        let mut closing = self.closing.subscribe();
        // The sender lives as long as `self`.
        let _ = closing.wait_for(|closing| *closing).await;
    }

    /// Looks after the waiting calls until the dispatcher is closed.
    pub(crate) async fn keep(self: Arc<Self>) {
        let closed = self.closed();
        tokio::pin!(closed);
        loop {
            let next = self.tick(Instant::now());
            let pause = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut closed => break,
                () = self.stirred.notified() => {}
                () = pause => {}
            }
        }
        let waiting = {
            let mut state = self.state();
            for session in state.routes.sessions() {
                let _ = session.send(Command::Close);
            }
            std::mem::take(&mut state.waiting)
        };
        for call in waiting {
            end(call, Error::Closed);
        }
    }

    /// Sends on what can go, ends what is over; when to look again.
    fn tick(&self, now: Instant) -> Option<Instant> {
        let (ended, next) = {
            let mut state = self.state();
            let mut ended = Vec::new();
            for call in std::mem::take(&mut state.waiting) {
                if deadline(&call) <= now {
                    ended.push((call, Error::Timeout));
                } else {
                    ended.extend(state.place(call, now));
                }
            }
            let deadlines = state.waiting.iter().map(deadline).min();
            let pause = match state.routes.choose(now) {
                Choice::Wait(until) if deadlines.is_some() => until,
                _ => None,
            };
            let next = deadlines
                .map(|next| next.max(now + TICK))
                .into_iter()
                .chain(pause)
                .min();
            (ended, next)
        };
        for (call, error) in ended {
            end(call, error);
        }
        next
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is a single step, so a panic elsewhere leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Hands `call` to a session or lets it wait; gives it back if it can never go anywhere.
    fn place(&mut self, call: Call, now: Instant) -> Option<(Call, Error)> {
        match self.routes.choose(now) {
            Choice::Session(session) => {
                if let Err(refused) = session.send(Command::Call(call))
                    && let Command::Call(call) = refused.0
                {
                    self.waiting.push_back(call);
                }
                None
            }
            Choice::Wait(_) => {
                self.waiting.push_back(call);
                None
            }
            Choice::Nowhere(Down::Protocol) => Some((call, Error::Protocol)),
            Choice::Nowhere(Down::Auth | Down::Unreachable) => Some((call, Error::Auth)),
        }
    }
}

fn deadline(call: &Call) -> Instant {
    match call {
        Call::Acquire(acquire) => acquire.deadline,
        Call::Release(release) => release.deadline,
    }
}

/// Ends a call that no session has. Nothing of an acquire was sent then; of a release perhaps.
fn end(call: Call, error: Error) {
    match (call, error) {
        (Call::Acquire(acquire), error) => acquire.answer(Err(error)),
        (Call::Release(release), Error::Timeout) => release.give_up(),
        (Call::Release(release), _) if release.sent => release.give_up(),
        (Call::Release(release), error) => release.answer(Err(error)),
    }
}
