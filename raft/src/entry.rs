//! What one log entry says.
//!
//! An entry is encoded once, by the process that proposes it; log, network and `apply` share those
//! bytes. They carry a format version: a node that meets an entry of an unknown version stops with
//! a clear line, because a replica that skips an entry has diverged.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Activity;
use crate::format::{Format, FormatError};
use crate::lock::Batch;
use crate::type_config::Payload;

const FORMAT: Format = Format {
    what: "a log entry",
    version: 1,
};

/// The content of a log entry that this crate proposes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// Commands to the lock table.
    Batch(Batch),
    /// A leader's own entry in its term: once it has applied it, it knows everything that was
    /// committed before, and may serve.
    Activate {
        /// The random number of the proposing process.
        origin: u64,
        /// The span that begins.
        activity: Activity,
        /// The cap on active keys that the proposing build would choose. The first one in the log
        /// counts for good.
        active_keys_max: u32,
    },
}

impl Entry {
    /// The bytes for the log.
    pub fn encode(&self) -> Payload {
        Payload(Bytes::from(FORMAT.encode(self)))
    }

    /// Reads what [`encode`](Self::encode) wrote. Any other bytes are an error, never a panic.
    pub fn decode(payload: &Payload) -> Result<Self, FormatError> {
        FORMAT.decode(&payload.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::{Key, Lease, Token};

    use super::*;
    use crate::lock::{Command, Stamp};

    fn activate() -> Entry {
        Entry::Activate {
            origin: 7,
            activity: Activity(3),
            active_keys_max: 65_536,
        }
    }

    fn batch() -> Entry {
        let key: Key = "job".parse().unwrap();
        let lease = Lease::from_seconds(30).unwrap();
        let commands = vec![
            Command::Acquire {
                key: key.clone(),
                lease,
            },
            Command::Release {
                key: key.clone(),
                token: Token(9),
                next: Some(lease),
            },
            Command::Release {
                key,
                token: Token(0),
                next: None,
            },
        ];
        Entry::Batch(Batch {
            origin: u64::MAX,
            sequence: 1,
            stamp: Stamp(5),
            commands,
        })
    }

    #[test]
    fn entries_come_back_as_they_were() {
        for entry in [activate(), batch()] {
            assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
        }
    }

    #[test]
    fn an_unknown_version_is_named() {
        let mut bytes = activate().encode().0.to_vec();
        bytes[0] = 9;
        let error = Entry::decode(&Payload(bytes.into())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a log entry has format version 9, but this build reads only version 1: \
             start a build that knows version 9"
        );
    }

    #[test]
    fn an_entry_cut_short_or_grown_is_damaged() {
        let whole = batch().encode().0;
        for length in 0..whole.len() {
            let error = Entry::decode(&Payload(whole.slice(..length))).unwrap_err();
            assert!(
                matches!(error, FormatError::Damaged { .. }),
                "{length} bytes: {error}"
            );
        }
        let grown = Payload([whole.as_ref(), b"x"].concat().into());
        assert!(matches!(
            Entry::decode(&grown),
            Err(FormatError::Damaged { .. })
        ));
    }

    #[test]
    fn a_lease_of_zero_does_not_come_out_of_the_log() {
        let whole = batch().encode().0.to_vec();
        let mut found = 0;
        for position in 0..whole.len() {
            if whole[position] == 30 {
                let mut bytes = whole.clone();
                bytes[position] = 0;
                assert!(Entry::decode(&Payload(bytes.into())).is_err());
                found += 1;
            }
        }
        assert_eq!(found, 2, "both leases were tried");
    }

    proptest! {
        #[test]
        fn random_bytes_are_refused_or_read_but_never_panic(mut bytes: Vec<u8>) {
            let _ = Entry::decode(&Payload(bytes.clone().into()));
            bytes.insert(0, FORMAT.version);
            let _ = Entry::decode(&Payload(bytes.into()));
        }
    }
}
