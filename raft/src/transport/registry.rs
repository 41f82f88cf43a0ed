//! Which leaders feed this node right now.

use super::Vote;

/// The last append stream of a leader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnded {
    /// The committed vote that the stream carried last.
    pub vote: Vote,
}
