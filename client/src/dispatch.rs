//! Where calls wait for a connection, and which one they get.
//!
//! The dispatcher is the one thing that callers and connections share. Its lock is held for a few
//! steps of plain data, never across an await, and nothing with a destructor of its own is dropped
//! under it. A call that cannot go anywhere waits here, with its deadline; each event that could
//! change that (a connection, a leader, the end of a pause) sends the waiting calls on.
//!
//! Everything that waits here or in a session has a place under one of three limits, so none of the
//! queues needs one of its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use wire::{AuthToken, Key, Owner, Token};

use crate::call::{Call, Permit, ReleaseCall};
use crate::clock::Clock;
use crate::dial::Transport;
use crate::routes::{Choice, Command, Down, Routes};
use crate::{Error, ReleaseOutcome, trace};

/// How many acquires may be under way at once in one client unless set, waiting ones included.
pub(crate) const ACQUIRES: usize = 1_024;

/// The most that can be set.
pub(crate) const ACQUIRES_MAX: usize = 16_384;

/// How many releases that somebody waits for may be under way at once.
pub(crate) const RELEASES_MAX: usize = 16_384;

/// How many releases may be under way in the background at once; over that, leases take care.
pub(crate) const COMPENSATIONS_MAX: usize = 512;

/// How long a release is tried, reconnects included.
pub(crate) const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

/// How long closing takes at most.
pub(crate) const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// How fine the deadlines of calls are that wait for a connection, and how often a broker that is
/// being closed looks whether it is done.
const TICK: Duration = Duration::from_millis(5);

/// What a broker is made with.
pub(crate) struct Settings {
    pub(crate) auth_token: AuthToken,
    pub(crate) transport: Transport,
    pub(crate) probing: bool,
    pub(crate) acquires_max: usize,
    pub(crate) clock: Clock,
    /// What the pauses between dials are spread by.
    pub(crate) random: fn() -> u32,
}

/// How far a broker's life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    /// No acquire is taken any more; releases are settled.
    Closing,
    /// Everything ends.
    Done,
}

/// See the module.
pub(crate) struct Dispatcher {
    pub(crate) settings: Settings,
    state: Mutex<State>,
    /// Something happened that the keeper should look at.
    stirred: Notify,
    /// A connection or the word about the leader changed.
    changed: watch::Sender<()>,
    /// One for each address: dial now.
    kicks: Vec<Notify>,
    phase: watch::Sender<Phase>,
    /// How many tasks work for this broker.
    tasks: watch::Sender<usize>,
    owners: AtomicU64,
    acquires: Arc<Semaphore>,
    releases: Arc<Semaphore>,
    compensations: Arc<Semaphore>,
}

struct State {
    routes: Routes,
    /// Calls without a connection, oldest first.
    waiting: VecDeque<Call>,
}

/// One of the tasks that work for a broker; it counts until it is dropped.
pub(crate) struct Working(Arc<Dispatcher>);

impl Working {
    pub(crate) fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.0
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.tasks.send_modify(|tasks| *tasks -= 1);
    }
}

impl Dispatcher {
    pub(crate) fn new(addresses: Vec<String>, settings: Settings) -> Self {
        Self {
            kicks: addresses.iter().map(|_| Notify::new()).collect(),
            state: Mutex::new(State {
                routes: Routes::new(addresses),
                waiting: VecDeque::new(),
            }),
            stirred: Notify::new(),
            changed: watch::Sender::new(()),
            phase: watch::Sender::new(Phase::Open),
            tasks: watch::Sender::new(0),
            owners: AtomicU64::new(1),
            acquires: Arc::new(Semaphore::new(settings.acquires_max)),
            releases: Arc::new(Semaphore::new(RELEASES_MAX)),
            compensations: Arc::new(Semaphore::new(COMPENSATIONS_MAX)),
            settings,
        }
    }

    /// Counts one more task.
    pub(crate) fn working(self: &Arc<Self>) -> Working {
        self.tasks.send_modify(|tasks| *tasks += 1);
        Working(Arc::clone(self))
    }

    /// The next owner; `None` for ever once they are used up.
    pub(crate) fn next_owner(&self) -> Option<Owner> {
        let next = |owner: u64| owner.checked_add(1);
        let taken = self
            .owners
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.ok().map(Owner)
    }

    /// Lets the owners go on from there.
    #[cfg(test)]
    pub(crate) fn set_next_owner(&self, owner: u64) {
        self.owners.store(owner, Ordering::Relaxed);
    }

    /// A place for one more acquire, as soon as there is one.
    pub(crate) async fn admit_acquire(&self, deadline: Instant) -> Result<Permit, Error> {
        admit(&self.acquires, deadline).await
    }

    /// A place for one more release, as soon as there is one.
    pub(crate) async fn admit_release(&self, deadline: Instant) -> Result<Permit, Error> {
        admit(&self.releases, deadline).await
    }

    /// Sends a call on its way.
    pub(crate) fn submit(&self, call: Call) {
        if let Call::Acquire(acquire) = &call
            && acquire.is_abandoned()
        {
            return;
        }
        let refused_from = match call {
            Call::Acquire(_) => Phase::Closing,
            Call::Release(_) => Phase::Done,
        };
        if self.phase() >= refused_from {
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
            state.routes.tell_all(|| Command::Abandon(owner));
            let place = state
                .waiting
                .iter()
                .position(|call| matches!(call, Call::Acquire(acquire) if acquire.owner == owner));
            place.and_then(|index| state.waiting.remove(index))
        };
        drop(abandoned);
    }

    /// Releases and tells the outcome.
    pub(crate) async fn release(
        &self,
        key: Key,
        token: Token,
        deadline: Instant,
        permit: Permit,
    ) -> Result<ReleaseOutcome, Error> {
        let (reply, answer) = oneshot::channel();
        self.submit(Call::Release(ReleaseCall {
            key,
            token,
            deadline,
            sent: false,
            reply: Some(reply),
            _permit: permit,
        }));
        answer.await.unwrap_or(Err(Error::Indeterminate))
    }

    /// Gives a grant back that nobody wants, if there is room for that.
    pub(crate) fn compensate(&self, key: Key, token: Token) {
        let Ok(permit) = Arc::clone(&self.compensations).try_acquire_owned() else {
            trace::warn!(%key, %token, "too many releases, this one is left to its lease");
            return;
        };
        self.submit(Call::Release(ReleaseCall {
            key,
            token,
            deadline: Instant::now() + RELEASE_PATIENCE,
            sent: false,
            reply: None,
            _permit: permit,
        }));
    }

    /// Whether any connection is open.
    pub(crate) fn is_connected(&self) -> bool {
        self.state().routes.is_connected()
    }

    pub(crate) fn unlisted_leader(&self) -> Option<String> {
        self.state().routes.unlisted().map(str::to_owned)
    }

    /// Comes back once a call could be sent.
    pub(crate) async fn ready(&self, deadline: Instant) -> Result<(), Error> {
        let mut changed = self.changed.subscribe();
        loop {
            if self.phase() > Phase::Open {
                return Err(Error::Closed);
            }
            let now = Instant::now();
            let again = match self.state().routes.choose(now) {
                Choice::Session(_) => return Ok(()),
                Choice::Nowhere(why) => return Err(why.into()),
                Choice::Wait(until) => until,
            };
            if now >= deadline {
                return Err(Error::NotConnected);
            }
            // When the time is up, or something changed, it looks again.
            let wake = again.map_or(deadline, |again| again.min(deadline));
            let _ = timeout_at(wake, changed.changed()).await;
        }
    }

    pub(crate) fn address(&self, index: usize) -> String {
        self.state().routes.address(index).to_owned()
    }

    pub(crate) fn up(&self, index: usize, session: UnboundedSender<Command>) {
        self.state().routes.up(index, session, Instant::now());
        self.stir();
    }

    pub(crate) fn down(&self, index: usize, why: Down) {
        self.state().routes.down(index, why);
        self.stir();
    }

    pub(crate) fn named(&self, from: usize, address: &str) {
        let leader = self.state().routes.named(from, address);
        self.take_lead(leader, address);
    }

    pub(crate) fn moved(&self, from: usize, address: &str) {
        let leader = self.state().routes.moved(from, address);
        self.take_lead(leader, address);
    }

    /// The index is that of an address that did not lead before.
    fn take_lead(&self, leader: Option<usize>, address: &str) {
        if let Some(leader) = leader {
            trace::debug!(address, "leader");
            self.kicks[leader].notify_one();
        }
        self.stir();
    }

    pub(crate) fn leaderless(&self) {
        self.state().routes.leaderless();
    }

    pub(crate) fn served(&self, index: usize) {
        self.state().routes.served(index);
        self.stir();
    }

    fn stir(&self) {
        self.stirred.notify_one();
        self.changed.send_replace(());
    }

    /// Someone says that the node at this address leads, so it is worth dialling.
    pub(crate) async fn kicked(&self, index: usize) {
        self.kicks[index].notified().await;
    }

    /// From here on no acquire is taken; what is under way is settled, then everything ends.
    pub(crate) fn close(&self) {
        self.acquires.close();
        self.advance(Phase::Closing);
        self.stir();
    }

    /// Comes back when everything has ended.
    pub(crate) async fn closed(&self) {
        let mut tasks = self.tasks.subscribe();
        // The sender lives as long as `self`; the keeper ends everything in time.
        let _ = timeout(CLOSE_PATIENCE, tasks.wait_for(|tasks| *tasks == 0)).await;
    }

    fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let later = phase > *now;
            *now = phase.max(*now);
            later
        });
    }

    /// Whether no acquire is taken any more.
    #[cfg(test)]
    pub(crate) fn is_closing(&self) -> bool {
        self.phase() >= Phase::Closing
    }

    /// Whether everything ends.
    pub(crate) fn is_done(&self) -> bool {
        self.phase() == Phase::Done
    }

    /// Comes back once everything ends.
    pub(crate) async fn done(&self) {
        self.reached(Phase::Done).await;
    }

    async fn reached(&self, phase: Phase) {
        let mut phases = self.phase.subscribe();
        // The sender lives as long as `self`.
        let _ = phases.wait_for(|now| *now >= phase).await;
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.acquires.available_permits() == self.settings.acquires_max
            && self.releases.available_permits() == RELEASES_MAX
            && self.compensations.available_permits() == COMPENSATIONS_MAX
    }

    /// Looks after the waiting calls, and then after the end.
    pub(crate) async fn keep(&self) {
        let closing = self.reached(Phase::Closing);
        tokio::pin!(closing);
        loop {
            let next = self.tick(Instant::now());
            tokio::select! {
                biased;
                () = &mut closing => break,
                () = self.stirred.notified() => {}
                () = sleep_until(next) => {}
            }
        }
        self.withdraw();
        let last = Instant::now() + CLOSE_PATIENCE;
        while !self.is_idle() && Instant::now() < last {
            self.tick(Instant::now());
            tokio::time::sleep(TICK).await;
        }
        self.releases.close();
        self.advance(Phase::Done);
        // Whoever comes up after this sees that it is done.
        let waiting = {
            let mut state = self.state();
            state.routes.tell_all(|| Command::End);
            std::mem::take(&mut state.waiting)
        };
        for call in waiting {
            end(call, Error::Closed);
        }
    }

    /// Ends the acquires that wait, here and in the sessions.
    fn withdraw(&self) {
        let acquires = {
            let mut state = self.state();
            state.routes.tell_all(|| Command::Close);
            let (acquires, releases) = std::mem::take(&mut state.waiting)
                .into_iter()
                .partition::<VecDeque<_>, _>(|call| matches!(call, Call::Acquire(_)));
            state.waiting = releases;
            acquires
        };
        for call in acquires {
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
            Choice::Nowhere(why) => Some((call, why.into())),
        }
    }
}

async fn admit(limit: &Arc<Semaphore>, deadline: Instant) -> Result<Permit, Error> {
    match timeout_at(deadline, Arc::clone(limit).acquire_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) => Err(Error::Closed),
        Err(_) => Err(Error::ClientCapacity),
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
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
        (Call::Acquire(acquire), error) => drop(acquire.answer(Err(error))),
        (Call::Release(release), Error::Timeout) => release.give_up(),
        (Call::Release(release), _) if release.sent => release.give_up(),
        (Call::Release(release), error) => release.answer(Err(error)),
    }
}
