//! Why a peer could not be asked.

use std::io;

use super::frame::FrameTooLong;

/// Why a request to a peer has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name does not resolve, or no connection could be made.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address as configured.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The peer, or the handshake with it, took too long.
    #[error("no answer within {0:?}")]
    Timeout(std::time::Duration),
    /// The connection ended before the answer.
    #[error("the connection ended: {0}")]
    Lost(#[from] io::Error),
    /// The peer refuses this node, and says why.
    #[error("refused by the peer: {0}")]
    Refused(String),
    /// The peer could not prove who it is.
    #[error("the peer could not be trusted: {0}")]
    Untrusted(&'static str),
    /// A frame above the cap.
    #[error(transparent)]
    FrameTooLong(#[from] FrameTooLong),
    /// Bytes that do not decode, or an answer to something that was not asked.
    #[error("malformed message: {0}")]
    Malformed(&'static str),
}
