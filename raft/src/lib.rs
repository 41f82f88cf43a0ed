//! Consensus and locks.

pub mod clock;
mod feed;
pub mod lock;

pub use feed::{Activation, Activity, Feed, Leader, Status};
