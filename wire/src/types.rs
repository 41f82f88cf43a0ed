//! Domain newtypes shared by client and server: what a key, a token, an owner, a lease and a wait
//! may be. A value of one of these types is valid by construction, so nothing behind the decoder
//! checks it again.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest key, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 128;

/// Longest lease a grant may have, in seconds; the shortest is 1.
pub const LEASE_SECONDS_MAX: u8 = 250;

/// A lock's name: 1 to [`KEY_BYTES_MAX`] bytes of UTF-8 without space (0x20) and newline (0x0A).
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(Arc<str>);

/// Why bytes are not a [`Key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing there.
    #[error("a key must not be empty")]
    Empty,
    /// Longer than [`KEY_BYTES_MAX`].
    #[error("a key has at most {KEY_BYTES_MAX} bytes")]
    TooLong,
    /// Not UTF-8.
    #[error("a key must be UTF-8")]
    NotUtf8,
    /// Holds a space or a newline.
    #[error("a key must not contain a space or a newline")]
    Separator,
}

impl Key {
    /// Checks `bytes` and makes a key of them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, KeyError> {
        if bytes.is_empty() {
            return Err(KeyError::Empty);
        }
        if bytes.len() > KEY_BYTES_MAX {
            return Err(KeyError::TooLong);
        }
        if bytes.iter().any(|b| matches!(b, b' ' | b'\n')) {
            return Err(KeyError::Separator);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| KeyError::NotUtf8)?;
        Ok(Self(text.into()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as it stands in a frame.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A key is found by its text: both are compared byte by byte.
impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl TryFrom<String> for Key {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        Self::from_bytes(text.as_bytes())
    }
}

impl std::str::FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::from_bytes(text.as_bytes())
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.0.as_ref().to_owned()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The fencing token of one grant. Tokens grow over all keys and are never reused; 0 is never
/// granted, but a client may name it (or any other number) in a release.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A client's correlation number of one request. It has no authority over anything.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Owner(pub u64);

/// How long a grant lasts, in whole seconds: 1 to [`LEASE_SECONDS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Lease(u8);

/// The number is not a lease: 0, or more than [`LEASE_SECONDS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease is 1 to {LEASE_SECONDS_MAX} seconds, not {0}")]
pub struct LeaseError(pub u8);

impl Lease {
    /// A lease of `seconds`.
    pub fn from_seconds(seconds: u8) -> Result<Self, LeaseError> {
        if (1..=LEASE_SECONDS_MAX).contains(&seconds) {
            Ok(Self(seconds))
        } else {
            Err(LeaseError(seconds))
        }
    }

    /// Its length in seconds.
    pub fn seconds(self) -> u8 {
        self.0
    }

    /// Its length in nanoseconds.
    pub fn nanos(self) -> u64 {
        u64::from(self.0) * 1_000_000_000
    }
}

impl TryFrom<u8> for Lease {
    type Error = LeaseError;

    fn try_from(seconds: u8) -> Result<Self, LeaseError> {
        Self::from_seconds(seconds)
    }
}

impl From<Lease> for u8 {
    fn from(lease: Lease) -> Self {
        lease.0
    }
}

/// How long an acquire may stay queued, in whole seconds, 0 to 255; 0 is one immediate try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Wait(pub u8);

impl Wait {
    /// Its length in nanoseconds.
    pub fn nanos(self) -> u64 {
        u64::from(self.0) * 1_000_000_000
    }
}
