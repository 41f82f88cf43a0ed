//! Whole nodes, in one process.

mod cluster;
mod failover;
mod founding;
mod link;
mod membership;
mod serving;
