//! Tests whose result is a time. Each has the machine for itself: see
//! [`gate`](crate::harness::gate).

mod failover;
mod leases;
