//! What the front end has seen since it started.

use raft::measure::Counter;

/// Counts of connections, by what became of them.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that got a slot.
    pub connections: Counter,
    /// Connections that were closed at once because every slot was taken.
    pub turned_away: Counter,
    /// Handshakes that ended because the client did not speak TLS, or not ours.
    pub failed_tls: Counter,
    /// Handshakes that ended because the digest did not match.
    pub failed_auth: Counter,
    /// Handshakes that ended because a line was too long.
    pub failed_line: Counter,
    /// Handshakes that ran into their deadline.
    pub failed_deadline: Counter,
    /// Handshakes that ended with the connection.
    pub failed_lost: Counter,
    /// Sessions that began.
    pub sessions: Counter,
    /// Sessions that were closed for a malformed frame.
    pub malformed: Counter,
    /// Sessions that were closed because they did not read.
    pub slow: Counter,
}
