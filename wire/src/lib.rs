//! The client protocol as data: domain newtypes, frames and the handshake's digest.
//!
//! No sockets, no runtime, no clock. Client and server share this crate, and tests drive it
//! byte by byte.

mod frame;
mod types;

pub use frame::{Acquire, Reason, Release, Reply, Request};
pub use types::{
    KEY_BYTES_MAX, Key, KeyError, LEASE_SECONDS_MAX, Lease, LeaseError, Owner, Token, Wait,
};
