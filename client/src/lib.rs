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
//! How a call travels: [`Broker`] checks it and makes one deadline; the dispatcher gives it to the
//! connection of the node that leads, or keeps it until there is one; that connection's session
//! writes it together with what else is there and matches the answer. A call is never in two
//! places, and it is sent a second time only after a definitive answer: this is what the client is
//! for. Where the outcome is unknown it says so ([`Error::Indeterminate`]) and does not guess.
//!
//! Grants that nobody waits for any more (a dropped future, a late answer, a dropped [`Ticket`]) are
//! given back in the background; when even that fails, their lease ends them.

mod broker;
mod call;
mod clock;
mod dial;
mod dispatch;
mod error;
mod ledger;
mod link;
mod routes;
mod session;
mod ticket;
mod tls;

pub use broker::{ADDRESSES_MAX, Acquire, Broker, Builder, DEFAULT_LEASE, DEFAULT_WAIT};
pub use error::Error;
pub use ticket::{ReleaseOutcome, Ticket};
pub use tls::Tls;
pub use wire::{Key, Token};
