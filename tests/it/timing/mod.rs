//! Tests whose result is a time. Each has the machine for itself: see
//! [`gate`](crate::harness::gate).

mod admission;
mod failover;
mod leases;
