//! A connection on which requests are answered in order.

use super::connection::Connection;

/// Answers that may still be owed before a connection counts as dead: that many heartbeats in a row
/// were given up. A slow disk delays a few; dialling again each time would only add to its load.
const OWED_MAX: usize = 3;

/// An authenticated connection and what the peer still owes on it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: Connection,
    /// Answers to come for requests that nobody waits for any more. They come first.
    pub(crate) owed: usize,
}

impl Link {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            owed: 0,
        }
    }

    /// Whether the next request may go out on this connection.
    pub(crate) fn is_usable(&self) -> bool {
        if self.owed == 0 {
            self.connection.is_quiet()
        } else {
            self.owed < OWED_MAX
        }
    }
}
