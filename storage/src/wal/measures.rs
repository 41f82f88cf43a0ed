//! What the IO thread measures of itself.

use crate::measure::{Counter, Durations};

/// Instruments of one open log.
#[derive(Debug, Default)]
pub struct Measures {
    /// Making what was queued durable: writing and syncing, everything that was taken at once.
    pub appends: Durations,
    /// The sync alone.
    pub syncs: Durations,
    /// Bytes that were written, heads of records included.
    pub bytes: Counter,
}
