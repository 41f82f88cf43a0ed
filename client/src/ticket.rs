//! A lock that is held.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use wire::{Key, Token};

use crate::call::Grant;
use crate::clock::Validity;
use crate::dispatch::RELEASE_PATIENCE;
use crate::{Broker, Error};

/// How often [`Ticket::lease_over`] looks at the clock: its timer stands still while the machine
/// sleeps, the clock does not.
const LEASE_CHECK_EVERY: Duration = Duration::from_secs(1);

/// A lock that this client holds, as long as [`Ticket::remaining`] is not zero. Dropped without
/// [`Ticket::release`] it is released in the background, without a word about the outcome.
#[must_use = "dropping a ticket releases the lock"]
pub struct Ticket {
    grant: Grant,
    /// Keeps the connections open that the release will need.
    broker: Broker,
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a grant that was not current any more did not protect the end of the work"]
pub enum ReleaseOutcome {
    /// The grant was current until now.
    Released,
    /// The grant was over already: its lease ended, or an earlier try of this release whose answer
    /// was lost ended it.
    NotCurrent,
}

impl Ticket {
    pub(crate) fn new(grant: Grant, broker: Broker) -> Self {
        Self { grant, broker }
    }

    /// The lock's name.
    pub fn key(&self) -> &Key {
        &self.grant.key
    }

    /// The fencing token: hand it to whatever the lock protects, which refuses tokens that are less
    /// than one it has seen (see [`fencing`](crate::fencing)).
    pub fn token(&self) -> Token {
        self.grant.token
    }

    /// How long the lock is surely held from now on. Counted from before the server granted it, on a
    /// clock that goes on while the machine sleeps.
    pub fn remaining(&self) -> Duration {
        self.grant.validity.remaining()
    }

    /// Until when the lock is surely held, as it looks now. A machine that sleeps makes it earlier,
    /// since an [`Instant`](std::time::Instant) stands still meanwhile: ask again rather than keep
    /// it.
    pub fn valid_until(&self) -> std::time::Instant {
        std::time::Instant::now() + self.remaining()
    }

    /// Comes back when the lease is over by the client's own clock, so that work can be cancelled
    /// in time. After a sleep of the machine that is noticed within a second of waking. It does not
    /// borrow the ticket, and says nothing of an earlier release.
    pub fn lease_over(&self) -> impl Future<Output = ()> + Send + 'static {
        let validity = self.grant.validity;
        async move { wait_out(validity).await }
    }

    /// Ends the grant. Tried for 5 s, over new connections if need be; dropping the future leaves
    /// the trying to the background.
    ///
    /// # Errors
    ///
    /// [`Error::Indeterminate`] without an answer, [`Error::NotConnected`] if it could surely not
    /// be sent, [`Error::ClientCapacity`], [`Error::Closed`]. The lease ends the grant then.
    pub async fn release(self) -> Result<ReleaseOutcome, Error> {
        let Self { mut grant, broker } = self;
        let dispatcher = broker.dispatcher();
        let deadline = Instant::now() + RELEASE_PATIENCE;
        // Until there is a place for the release, a dropped grant is given back in the background.
        let permit = dispatcher.admit_release(deadline).await?;
        grant.disarm();
        let (key, token) = (grant.key.clone(), grant.token);
        dispatcher.release(key, token, deadline, permit).await
    }

    /// Leaves the lock held and gives its token out: whoever has it may release
    /// ([`Broker::release`]), or the lease ends the grant.
    pub fn detach(mut self) -> Token {
        self.grant.disarm();
        self.grant.token
    }
}

async fn wait_out(validity: Validity) {
    loop {
        let remaining = validity.remaining();
        if remaining.is_zero() {
            return;
        }
        tokio::time::sleep(remaining.min(LEASE_CHECK_EVERY)).await;
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("key", &self.grant.key)
            .field("token", &self.grant.token)
            .field("remaining", &self.remaining())
            .finish()
    }
}
