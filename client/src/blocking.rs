//! The client for programs without a runtime: the same broker, whose calls block their thread.
//!
//! ```no_run
//! # use std::time::Duration;
//! # fn example() -> Result<(), client::Error> {
//! let broker = client::Broker::builder().addresses(["127.0.0.1:5225"]).build_blocking()?;
//! let ticket = broker
//!     .acquire("nightly-report")
//!     .lease(Duration::from_secs(60))
//!     .work_budget(Duration::from_secs(20))?;
//! // The work, with `ticket.token()` as the fencing token of every write.
//! let outcome = ticket.release()?;
//! broker.close();
//! # let _ = outcome;
//! # Ok(())
//! # }
//! ```
//!
//! Connections are served by one thread of the broker's own. A call from inside an asynchronous
//! runtime would block that runtime and is refused with [`Error::InvalidInput`].

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{self, Runtime};
use wire::Token;

use crate::{Builder, Error, ReleaseOutcome};

/// The runtime, shared by the broker's clones and its tickets.
#[derive(Debug)]
struct Background(Option<Runtime>);

impl Background {
    fn run<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let runtime = self.0.as_ref().expect("it is taken only as it is dropped");
        if runtime::Handle::try_current().is_ok() {
            return Err(Error::InvalidInput(
                "the blocking client is called inside an asynchronous runtime".into(),
            ));
        }
        runtime.block_on(future)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Waiting for its thread could block an asynchronous runtime, which is not allowed.
            runtime.shutdown_background();
        }
    }
}

/// A client of one server or cluster, see [`crate::Broker`]. When the last clone and the last
/// ticket are gone its thread ends at once: call [`Broker::close`] before, if releases may be under
/// way in the background.
#[derive(Clone, Debug)]
pub struct Broker {
    broker: crate::Broker,
    background: Arc<Background>,
}

impl Builder {
    /// As [`Builder::build`], for a program without a runtime.
    ///
    /// # Errors
    ///
    /// As [`Builder::build`], and [`Error::Io`] if no thread can be started.
    pub fn build_blocking(self) -> Result<Broker, Error> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ticketing-client")
            .enable_all()
            .build()?;
        let broker = {
            let _inside = runtime.enter();
            self.build()?
        };
        Ok(Broker {
            broker,
            background: Arc::new(Background(Some(runtime))),
        })
    }
}

impl Broker {
    /// See [`crate::Broker::acquire`].
    pub fn acquire<'a>(&'a self, key: &'a str) -> Acquire<'a> {
        Acquire {
            asked: self.broker.acquire(key),
            background: &self.background,
        }
    }

    /// See [`crate::Broker::try_acquire`].
    pub fn try_acquire<'a>(&'a self, key: &'a str) -> Acquire<'a> {
        self.acquire(key).wait(Duration::ZERO)
    }

    /// See [`crate::Broker::release`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release(&self, key: &str, token: Token) -> Result<ReleaseOutcome, Error> {
        self.background.run(self.broker.release(key, token))
    }

    /// See [`crate::Broker::wait_ready`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn wait_ready(&self, patience: Duration) -> Result<(), Error> {
        self.background.run(self.broker.wait_ready(patience))
    }

    /// See [`crate::Broker::close`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] inside an asynchronous runtime.
    pub fn close(&self) -> Result<(), Error> {
        self.background.run(async {
            self.broker.close().await;
            Ok(())
        })
    }
}

/// A lock being asked for, see [`crate::Acquire`].
#[derive(Clone, Copy, Debug)]
#[must_use = "nothing is asked before the work budget is named"]
pub struct Acquire<'a> {
    asked: crate::Acquire<'a>,
    background: &'a Arc<Background>,
}

impl Acquire<'_> {
    /// See [`crate::Acquire::wait`].
    pub fn wait(mut self, wait: Duration) -> Self {
        self.asked = self.asked.wait(wait);
        self
    }

    /// See [`crate::Acquire::lease`].
    pub fn lease(mut self, lease: Duration) -> Self {
        self.asked = self.asked.lease(lease);
        self
    }

    /// See [`crate::Acquire::work_budget`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn work_budget(self, budget: Duration) -> Result<Ticket, Error> {
        let ticket = self.background.run(self.asked.work_budget(budget))?;
        Ok(Ticket {
            ticket,
            background: Arc::clone(self.background),
        })
    }
}

/// A lock that this client holds; what it tells is told by [`crate::Ticket`].
#[derive(Debug)]
#[must_use = "dropping a ticket releases the lock"]
pub struct Ticket {
    ticket: crate::Ticket,
    background: Arc<Background>,
}

impl Ticket {
    /// See [`crate::Ticket::release`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release(self) -> Result<ReleaseOutcome, Error> {
        self.background.run(self.ticket.release())
    }

    /// See [`crate::Ticket::detach`].
    pub fn detach(self) -> Token {
        self.ticket.detach()
    }
}

impl Deref for Ticket {
    type Target = crate::Ticket;

    fn deref(&self) -> &crate::Ticket {
        &self.ticket
    }
}
