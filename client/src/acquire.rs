//! Asking for a lock: what is asked is checked, gets its one deadline, and is followed to its end.

use std::ops::AsyncFnOnce;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use wire::{Key, LEASE_SECONDS_MAX, Lease, Owner};

use crate::call::{AcquireCall, Call, Grant, seconds_up};
use crate::dispatch::Dispatcher;
use crate::request::judge;
use crate::{Broker, Error, Ticket};

/// The wait of an acquire that names none.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// The lease of an acquire that names none.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// How long an immediate try may take on its way.
const IMMEDIATE_MAX: Duration = Duration::from_secs(5);

/// A lock being asked for.
#[derive(Clone, Copy, Debug)]
#[must_use = "nothing is asked before the work budget is named and awaited"]
pub struct Acquire<'a> {
    broker: &'a Broker,
    key: &'a str,
    wait: Duration,
    lease: Duration,
}

/// What was asked, once it is known to be in order.
struct Asked {
    key: Key,
    lease: Lease,
    immediate: bool,
    deadline: Instant,
}

impl<'a> Acquire<'a> {
    pub(crate) fn new(broker: &'a Broker, key: &'a str) -> Self {
        Self {
            broker,
            key,
            wait: DEFAULT_WAIT,
            lease: DEFAULT_LEASE,
        }
    }

    /// How long the whole call may take, connecting and queueing included: 0 to 255 s, fractions
    /// of a second rounded up. 0 is one immediate try, which may take 5 s on its way.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long the grant lasts at most: 1 to 250 s, fractions of a second rounded up.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Asks for the lock, for work that takes up to `budget`: the critical work, the longest pause
    /// to be expected in it, and its commit or rollback. A grant whose lease does not cover that any
    /// more when it arrives is given back. 0 s to the lease, which is judged rounded up.
    ///
    /// Dropping the future withdraws the request: one that was not sent is gone, one that was is
    /// followed in the background, and its grant, if it comes, is given back.
    ///
    /// # Errors
    ///
    /// Before anything is sent: [`Error::InvalidInput`], [`Error::UnsupportedDuration`],
    /// [`Error::InsufficientLease`]. Not acquired: [`Error::Timeout`], [`Error::Busy`],
    /// [`Error::InsufficientLease`] (the grant was given back), [`Error::ClientCapacity`],
    /// [`Error::Auth`], [`Error::Protocol`], [`Error::Closed`]. Unknown:
    /// [`Error::Indeterminate`].
    pub async fn work_budget(self, budget: Duration) -> Result<Ticket, Error> {
        let asked = self.check(budget)?;
        let deadline = asked.deadline;
        let grant = self.grant(asked).await?;
        // A grant that is not taken is given back as it is dropped.
        judge(Instant::now(), deadline, grant.validity.remaining(), budget)?;
        Ok(Ticket::new(grant, self.broker.clone()))
    }

    /// Asks for the lock as [`Acquire::work_budget`] does, does `work` under it, and releases it.
    ///
    /// The work is cancelled (its future is dropped) when the lease is over by the client's own
    /// clock, so it never runs without the lock, as long as it does not block its thread. What it has
    /// done by then stands: let its writes carry [`Ticket::token`].
    ///
    /// # Errors
    ///
    /// What [`Acquire::work_budget`] says, and [`Error::LeaseOver`] when the work was cancelled.
    /// What became of the release is not told: if it failed, the lease ends the grant.
    pub async fn with_lock<T>(
        self,
        budget: Duration,
        work: impl AsyncFnOnce(&Ticket) -> T,
    ) -> Result<T, Error> {
        let ticket = self.work_budget(budget).await?;
        let over = ticket.lease_over();
        let done = tokio::select! {
            biased;
            () = over => None,
            done = work(&ticket) => Some(done),
        };
        match done {
            Some(done) => {
                let _ = ticket.release().await;
                Ok(done)
            }
            None => Err(Error::LeaseOver),
        }
    }

    fn check(&self, budget: Duration) -> Result<Asked, Error> {
        let started = Instant::now();
        let key = check_key(self.key)?;
        let wait = seconds(self.wait, "wait", 0, u8::MAX)?;
        let lease = seconds(self.lease, "lease", 1, LEASE_SECONDS_MAX)?;
        let budget_seconds = seconds(budget, "work budget", 0, LEASE_SECONDS_MAX)?;
        if budget_seconds > lease {
            return Err(Error::InsufficientLease);
        }
        let patience = match wait {
            0 => IMMEDIATE_MAX,
            wait => Duration::from_secs(wait.into()),
        };
        Ok(Asked {
            key,
            lease: Lease::from_seconds(lease).expect("its range was checked"),
            immediate: wait == 0,
            deadline: started + patience,
        })
    }

    async fn grant(&self, asked: Asked) -> Result<Grant, Error> {
        let dispatcher = self.broker.dispatcher();
        let permit = dispatcher.admit_acquire(asked.deadline).await?;
        let owner = dispatcher.next_owner().ok_or(Error::Closed)?;
        let (reply, answer) = oneshot::channel();
        let mut caller = Caller {
            dispatcher,
            owner,
            answered: false,
        };
        dispatcher.submit(Call::Acquire(AcquireCall {
            owner,
            key: asked.key,
            lease: asked.lease,
            immediate: asked.immediate,
            deadline: asked.deadline,
            reply,
            permit,
        }));
        let answer = answer.await;
        caller.answered = true;
        answer.unwrap_or(Err(Error::Indeterminate))
    }
}

/// Tells the dispatcher when the future that waits for an answer is dropped without it.
struct Caller<'a> {
    dispatcher: &'a Dispatcher,
    owner: Owner,
    answered: bool,
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.dispatcher.abandon(self.owner);
        }
    }
}

pub(crate) fn check_key(key: &str) -> Result<Key, Error> {
    let invalid = |why: String| Err(Error::InvalidInput(why));
    if key.contains('\r') {
        return invalid("a key must not contain a carriage return".into());
    }
    Key::from_bytes(key.as_bytes()).or_else(|error| invalid(error.to_string()))
}

/// The duration in whole seconds, rounded up.
fn seconds(duration: Duration, what: &'static str, min: u8, max: u8) -> Result<u8, Error> {
    let whole = seconds_up(duration).and_then(|seconds| u8::try_from(seconds).ok());
    whole
        .filter(|seconds| (min..=max).contains(seconds))
        .ok_or(Error::UnsupportedDuration { what, min, max })
}
