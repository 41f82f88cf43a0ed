//! Consensus and locks.

pub mod clock;
mod feed;
pub mod lock;
pub mod transport;
pub mod type_config;

pub use feed::{Activation, Activity, Feed, Leader, Status};
