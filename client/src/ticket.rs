//! A lock that is held.

use std::fmt;
use std::time::{Duration, Instant};

use wire::{Key, Token};

use crate::call::Grant;
use crate::dispatch::RELEASE_PATIENCE;
use crate::{Broker, Error};

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
    /// than one it has seen.
    pub fn token(&self) -> Token {
        self.grant.token
    }

    /// How long the lock is surely held from now on. Counted from before the server granted it, on a
    /// clock that goes on while the machine sleeps.
    pub fn remaining(&self) -> Duration {
        self.grant.remaining()
    }

    /// Until when the lock is surely held, as it looks now. A machine that sleeps makes it earlier,
    /// since an [`Instant`] stands still meanwhile: ask again rather than keep it.
    pub fn valid_until(&self) -> Instant {
        Instant::now() + self.remaining()
    }

    /// Ends the grant. Tried for 5 s, over new connections if need be; dropping the future leaves
    /// the trying to the background.
    pub async fn release(self) -> Result<ReleaseOutcome, Error> {
        let Self { grant, broker } = self;
        let answer = grant.release(Instant::now() + RELEASE_PATIENCE).await;
        drop(broker);
        answer.unwrap_or(Err(Error::Indeterminate))
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
