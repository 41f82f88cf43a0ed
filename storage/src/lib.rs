//! Durable storage of one node.

pub mod codec;
mod error;
mod log;
pub mod memory;
mod snapshots;
mod store;

pub use error::Error;
pub use log::LogStore;
pub use snapshots::{Snapshots, Stored};
pub use store::{Options, Storage};
