//! Whole nodes, in one process.

mod cluster;
mod failover;
mod founding;
mod membership;
mod serving;
