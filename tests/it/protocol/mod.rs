//! PROTOCOL.md, row by row.
//!
//! What does not depend on who leads is a function of an address, and is tried on a single
//! server, on a leader and on a follower. Locks are tried on a single server and on a leader.

mod handshake;
mod leader;
mod limits;
mod locks;
mod malformed;
mod quiet;
mod tls;
