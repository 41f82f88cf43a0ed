//! Why a peer could not be asked.

use std::io;
use std::time::Duration;

use storage::codec;

use super::auth::Refusal;
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
    /// The peer took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The connection failed, or ended inside a message or before an answer.
    #[error("connection lost: {0}")]
    Lost(#[from] io::Error),
    /// One of the two refuses the other.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// The peer could not prove who it is.
    #[error("the peer cannot be trusted: {0}")]
    Untrusted(&'static str),
    /// A frame above the cap.
    #[error(transparent)]
    FrameTooLong(#[from] FrameTooLong),
    /// Bytes that do not decode, or a message that does not belong there.
    #[error("malformed message: {0}")]
    Malformed(&'static str),
    /// The peer got the request and did not serve it.
    #[error("the peer did not serve the request: {0}")]
    Denied(String),
    /// The system's random source failed.
    #[error("no random bytes for a handshake")]
    NoRandomness,
}

impl Error {
    /// An end of the connection where none was due.
    pub(crate) fn cut(what: &'static str) -> Self {
        Error::Lost(io::Error::new(io::ErrorKind::UnexpectedEof, what))
    }

    /// True for what every start goes through: nobody has to look, and the next attempt finds
    /// things changed.
    pub(crate) fn passes_by_itself(&self) -> bool {
        matches!(self, Self::Refused(Refusal::NotReady | Refusal::NoCluster))
    }
}

impl From<codec::Error> for Error {
    fn from(_: codec::Error) -> Self {
        Error::Malformed("does not decode")
    }
}
