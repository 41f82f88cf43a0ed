//! What the outgoing side measures.

use storage::measure::{Counter, Durations};

/// Instruments of all connections to peers together.
#[derive(Debug, Default)]
pub struct PeerMeasures {
    /// From handing an append request (a heartbeat is one) to the connection until its answer.
    pub round_trips: Durations,
    /// Dials that came to nothing: refused, unanswered, or another node than the one meant.
    pub dials_failed: Counter,
    /// Append streams, votes and snapshots that ended with an error.
    pub calls_failed: Counter,
}
