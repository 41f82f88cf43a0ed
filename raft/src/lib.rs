//! Consensus and locks.

pub mod clock;
mod entry;
mod feed;
mod format;
pub mod lock;
pub mod node;
pub mod quiet_log;
pub mod state_machine;
pub mod transport;
pub mod type_config;

pub use entry::Entry;
pub use feed::{Activation, Activity, Feed, Leader, Status};
pub use format::FormatError;
pub use node::Node;
pub use storage::measure;
