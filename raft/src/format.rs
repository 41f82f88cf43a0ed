//! Versioned bytes: what the log and snapshots keep must be told apart from what a later build
//! writes.
//!
//! Every log entry and snapshot begins with one byte that numbers its format. A build refuses a
//! number that it doesn't know, with a line that says so, instead of guessing: a replica that
//! reads an entry in another way than its peers has diverged for good.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why stored or received bytes can't be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Written by a build that this one knows nothing of.
    #[error(
        "{what} has format version {found}, but this build reads only version {known}: \
         start a build that knows version {found}"
    )]
    UnknownVersion {
        /// What the bytes should be.
        what: &'static str,
        /// Their first byte.
        found: u8,
        /// The version that this build reads and writes.
        known: u8,
    },
    /// Not what any build writes.
    #[error("{what} is damaged: {why}")]
    Damaged {
        /// What the bytes should be.
        what: &'static str,
        /// Which check failed.
        why: String,
    },
}

/// One kind of versioned bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// What the bytes are, for messages.
    pub(crate) what: &'static str,
    /// The version that this build reads and writes; never 0, so that zeros are no format.
    pub(crate) version: u8,
}

impl Format {
    /// The version, then `value`.
    pub(crate) fn encode<T: Serialize>(self, value: &T) -> Vec<u8> {
        let mut bytes = vec![self.version];
        storage::codec::encode_into(value, &mut bytes)
            .expect("memory takes all bytes, and our types have only sequences of known length");
        bytes
    }

    /// Takes the version off and reads what is behind it. Allocates no more than in proportion to
    /// `bytes`, whatever they say.
    pub(crate) fn decode<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, FormatError> {
        let body = self.body(bytes)?;
        storage::codec::decode(body, body.len()).map_err(|error| self.damaged(error))
    }

    /// What is behind the version, if it is the known one.
    pub(crate) fn body(self, bytes: &[u8]) -> Result<&[u8], FormatError> {
        match bytes.split_first() {
            None => Err(self.damaged("it is empty")),
            Some((&found, body)) if found == self.version => Ok(body),
            Some((&found, _)) => Err(FormatError::UnknownVersion {
                what: self.what,
                found,
                known: self.version,
            }),
        }
    }

    /// An error that says `why`.
    pub(crate) fn damaged(self, why: impl ToString) -> FormatError {
        FormatError::Damaged {
            what: self.what,
            why: why.to_string(),
        }
    }
}
