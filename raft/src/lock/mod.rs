//! The lock table: pure and deterministic. No I/O, no clock, no randomness, no iteration over
//! hash maps: the same entries in give the same state and the same outcomes on every node.

mod command;

pub use command::{Applied, Attempt, Batch, Command, Grant, Lock, Outcome, Stamp};
