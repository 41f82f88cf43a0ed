//! The ways in which the service is run for real: containers, and pods whose addresses change.

mod compose;
mod liveness;
mod monitoring;
mod names;
mod pods;
mod stateful_set;
