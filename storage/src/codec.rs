//! The one binary encoding of the workspace: bincode with fixed options.
//!
//! Peers and disks may send anything, so decoding is bounded twice: a slice that is longer than the
//! caller's limit is refused before it is looked at, and bincode itself counts what it reads and what
//! it is told to allocate against the same limit (without one, eight hostile bytes that announce a
//! length make it allocate gigabytes). Trailing bytes are refused: a value that does not fill its
//! frame was written by something else.
//!
//! Integers have fixed width, little endian. Never change an option here without a new version number
//! in every format that uses it. Types whose encoding is empty must not be elements of a sequence:
//! the limit cannot count them.

use bincode::Options;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why bytes could not be made from a value, or a value from bytes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The input is longer than the caller allows.
    #[error("{bytes} bytes where at most {bytes_max} are allowed")]
    TooLong {
        /// Length of the input.
        bytes: usize,
        /// The caller's limit.
        bytes_max: usize,
    },
    /// The bytes are not an encoding of the type, or the value cannot be encoded.
    #[error("not a valid encoding: {0}")]
    Invalid(#[from] bincode::Error),
}

/// Encodes a value into a buffer of its own.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    encode_into(value, &mut bytes)?;
    Ok(bytes)
}

/// Appends the encoding of a value to `bytes`. After an error `bytes` is as it was.
pub fn encode_into<T: Serialize + ?Sized>(value: &T, bytes: &mut Vec<u8>) -> Result<(), Error> {
    let length = bytes.len();
    options()
        .serialize_into(&mut *bytes, value)
        .map_err(|error| {
            bytes.truncate(length);
            Error::Invalid(error)
        })
}

/// Decodes a value that fills `bytes`, which may be at most `bytes_max` long.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], bytes_max: usize) -> Result<T, Error> {
    if bytes.len() > bytes_max {
        return Err(Error::TooLong {
            bytes: bytes.len(),
            bytes_max,
        });
    }
    Ok(options()
        .with_limit(bytes.len() as u64)
        .deserialize(bytes)?)
}

fn options() -> impl Options {
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .reject_trailing_bytes()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn values_come_back_as_they_were() {
        let value = (
            7_u64,
            Bytes::from_static(b"payload"),
            Some("name".to_owned()),
        );
        let bytes = encode(&value).unwrap();
        assert_eq!(
            decode::<(u64, Bytes, Option<String>)>(&bytes, bytes.len()).unwrap(),
            value
        );
    }

    #[test]
    fn trailing_bytes_are_refused() {
        let mut bytes = encode(&7_u64).unwrap();
        bytes.push(0);
        assert!(matches!(decode::<u64>(&bytes, 100), Err(Error::Invalid(_))));
    }

    #[test]
    fn longer_input_than_allowed_is_refused_unread() {
        let bytes = encode(&7_u64).unwrap();
        assert!(matches!(
            decode::<u64>(&bytes, 7),
            Err(Error::TooLong {
                bytes: 8,
                bytes_max: 7
            })
        ));
    }

    #[test]
    fn a_hostile_length_allocates_nothing() {
        for length in [9, 1 << 20, 1 << 31, u64::MAX] {
            let bytes = encode(&length).unwrap();
            assert!(decode::<Bytes>(&bytes, 1 << 30).is_err());
            assert!(decode::<Vec<u64>>(&bytes, 1 << 30).is_err());
            assert!(decode::<String>(&bytes, 1 << 30).is_err());
        }
    }
}
