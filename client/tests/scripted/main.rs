//! The client against a server that follows a script: what it sends when, and what it makes of the
//! answers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod acquire;
mod connection;
mod lease;
mod release;
mod server;
