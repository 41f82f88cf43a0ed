//! The official Rust client.
//!
//! ```no_run
//! # use std::time::Duration;
//! # async fn example() -> Result<(), client::Error> {
//! let broker = client::Broker::builder().addresses(["127.0.0.1:5225"]).token("secret").build()?;
//! let ticket = broker
//!     .acquire("order-1")
//!     .wait(Duration::from_secs(5))
//!     .lease(Duration::from_secs(30))
//!     .work_budget(Duration::from_secs(10))
//!     .await?;
//! // The work, with `ticket.token()` as the fencing token of every write.
//! let outcome = ticket.release().await?;
//! # let _ = outcome;
//! # Ok(())
//! # }
//! ```
//!
//! or, with the release and the cancelling at the lease's end taken care of:
//!
//! ```no_run
//! # use std::time::Duration;
//! # async fn example(broker: client::Broker) -> Result<(), client::Error> {
//! let ask = broker.acquire("migration").wait(Duration::from_secs(60));
//! let rows = ask
//!     .with_lock(Duration::from_secs(10), async |ticket| {
//!         println!("migrating under token {}", ticket.token());
//!         42
//!     })
//!     .await?;
//! # assert_eq!(rows, 42);
//! # Ok(())
//! # }
//! ```
//!
//! # How a call travels
//!
//! [`Broker`] checks it and makes one deadline; the dispatcher gives it to the connection of the
//! node that leads, or keeps it until there is one; that connection's session writes it together
//! with what else is there and matches the answer. A call is never in two places, and it is sent a
//! second time only after a definitive answer: this is what the client is for. Where the outcome is
//! unknown it says so ([`Error::Indeterminate`]) and does not guess.
//!
//! Grants that nobody waits for any more (a dropped future, a late answer, a dropped [`Ticket`]) are
//! given back in the background; when even that fails, their lease ends them.
//!
//! # Waiting
//!
//! The wait bounds the whole call. The server is told what is left of it in whole seconds, rounded
//! up, and answers that it is over 100 ms before it is, so a call that went out at once ends with
//! [`Error::Timeout`]. One that could go out only later (no connection, an election) may find its
//! own time over before that answer, and ends with [`Error::Indeterminate`].
//!
//! # Features
//!
//! `blocking`: calls for programs without a runtime. `system-roots`: believes the certificate
//! authorities of the system. `tracing`: events about connections. None is on unless asked for.

#![cfg_attr(
    not(feature = "tracing"),
    allow(unused_variables, reason = "some are there for events only")
)]

mod acquire;
#[cfg(feature = "blocking")]
pub mod blocking;
mod broker;
mod call;
mod clock;
mod dial;
mod dispatch;
mod error;
pub mod fencing;
mod ledger;
mod link;
mod request;
mod routes;
mod session;
#[cfg(test)]
mod tests;
mod ticket;
mod tls;
mod trace;

pub use acquire::{Acquire, DEFAULT_LEASE, DEFAULT_WAIT};
pub use broker::{ADDRESSES_MAX, Broker, Builder};
pub use error::Error;
pub use ticket::{ReleaseOutcome, Ticket};
pub use tls::Tls;
pub use wire::{Key, Token};
