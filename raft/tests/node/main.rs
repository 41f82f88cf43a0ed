//! Whole nodes, in one process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod failover;
mod founding;
mod link;
mod membership;
mod serving;
mod stopping;
