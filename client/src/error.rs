//! What can go wrong with a call, told apart by what a caller would do about it.

use std::io;

/// Why a call did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The wait is over; the lock was not acquired.
    #[error("the wait is over")]
    Timeout,
    /// The server is at one of its limits; the lock was not acquired.
    #[error("the server is busy")]
    Busy,
    /// The request may have reached a server, and what became of it is unknown. An acquire may have
    /// been granted (its lease ends it); a release may have been done.
    #[error("the outcome is unknown")]
    Indeterminate,
    /// The lease does not cover the work budget: as asked, or what was left of it when the grant
    /// arrived. In the second case the grant is given back.
    #[error("the lease does not cover the work budget")]
    InsufficientLease,
    /// A duration is out of its range; nothing was sent.
    #[error("{what} must be {min} to {max} seconds")]
    UnsupportedDuration {
        /// Which duration.
        what: &'static str,
        /// The shortest one, in seconds.
        min: u8,
        /// The longest one, in seconds.
        max: u8,
    },
    /// Something other than a duration is wrong with what was asked; nothing was sent.
    #[error("{0}")]
    InvalidInput(String),
    /// No server accepts the auth token.
    #[error("the auth token was refused")]
    Auth,
    /// The lease ended while work was done under it; the work was cancelled where it stood.
    #[error("the lease ended before the work did")]
    LeaseOver,
    /// No connection in time; surely nothing was sent.
    #[error("no server could be reached")]
    NotConnected,
    /// The broker is closed.
    #[error("the client is closed")]
    Closed,
    /// Too many calls at once in this client, until the call's time was over; nothing was sent.
    #[error("too many calls at once")]
    ClientCapacity,
    /// What answers at the addresses does not speak the protocol.
    #[error("the server does not speak the protocol")]
    Protocol,
    /// Something outside could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    /// Whether it is sure that the call changed nothing that lasts, and never will. After anything
    /// else the lock may be held, by nobody who knows of it, until its lease ends.
    pub fn is_definitive(&self) -> bool {
        !matches!(self, Self::Indeterminate | Self::LeaseOver)
    }
}
