//! The bytes of a lock table: versioned, checksummed, and the same for equal tables.
//!
//! Layout: format version (1 byte), the body, CRC-32 of both (4 bytes, little-endian). The
//! checksum finds bytes that changed on their way from another node or on the disk, which keep
//! checksums of their own as well; what it lets through by chance or by malice is caught by
//! checking everything that is true of each table (`check`), so that a decoded table is one that
//! `apply` could have made. The heap of deadlines and the state hash are not written: they follow
//! from the locks.
//!
//! Taking an [`Image`] costs one reference count per lock and is done between two entries; encoding it
//! takes longer and needs the table no more.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wire::{Key, Lease, Token};

use super::command::{Grant, Stamp};
use super::deadlines::Deadlines;
use super::fingerprint::Fingerprint;
use super::{Held, LockTable, STAMP_MAX};
use crate::format::{Format, FormatError};

const FORMAT: Format = Format {
    what: "a snapshot",
    version: 1,
};

/// Bytes of the checksum at the end.
const CHECKSUM_BYTES: usize = 4;

/// A lock table as it was at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    now: Stamp,
    tokens_granted: u64,
    active_keys_max: Option<u32>,
    /// In order of key.
    locks: Vec<HeldKey>,
}

/// One held lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HeldKey {
    key: Key,
    token: Token,
    deadline: Stamp,
    lease: Lease,
}

impl Image {
    /// The bytes: equal for equal tables.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = FORMAT.encode(self);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }
}

impl LockTable {
    /// The table as it is now, to be encoded while the table goes on.
    pub fn image(&self) -> Image {
        let held_key = |(key, held): (&Key, &Held)| HeldKey {
            key: key.clone(),
            token: held.grant.token,
            deadline: held.grant.deadline,
            lease: held.lease,
        };
        Image {
            now: self.now,
            tokens_granted: self.tokens_granted,
            active_keys_max: self.active_keys_max,
            locks: self.locks.iter().map(held_key).collect(),
        }
    }

    /// Reads what [`Image::encode`] wrote. Other bytes are an error, never a panic, and memory is
    /// taken only in proportion to them.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        // An unknown version may well have another checksum, so it is told first.
        FORMAT.body(bytes)?;
        let (sealed, checksum) = bytes
            .split_last_chunk::<CHECKSUM_BYTES>()
            .ok_or_else(|| FORMAT.damaged("it ends too early"))?;
        if crc32fast::hash(sealed) != u32::from_le_bytes(*checksum) {
            return Err(FORMAT.damaged("its checksum does not match"));
        }
        let image: Image = FORMAT.decode(sealed)?;
        check(&image).map_err(|why| FORMAT.damaged(why))?;
        Ok(image.into())
    }
}

/// What is true of every table that `apply` made.
fn check(image: &Image) -> Result<(), &'static str> {
    if image.now > STAMP_MAX {
        return Err("its cluster time is past the end");
    }
    if image.locks.len() > image.active_keys_max.unwrap_or(0) as usize {
        return Err("it has more keys than its cap");
    }
    if !image.locks.is_sorted_by(|a, b| a.key < b.key) {
        return Err("its keys are not in order");
    }
    let mut tokens: Vec<Token> = image.locks.iter().map(|lock| lock.token).collect();
    tokens.sort_unstable();
    if !tokens.is_sorted_by(|a, b| a < b) {
        return Err("two keys have one token");
    }
    if tokens.first().is_some_and(|token| token.0 == 0)
        || tokens
            .last()
            .is_some_and(|token| token.0 > image.tokens_granted)
    {
        return Err("a token was never granted");
    }
    // `now` is at most STAMP_MAX, so adding a lease to it does not wrap.
    let runs = |lock: &HeldKey| {
        lock.deadline > image.now && lock.deadline.0 <= image.now.0 + lock.lease.nanos()
    };
    if !image.locks.iter().all(runs) {
        return Err("a deadline is not within its lease");
    }
    Ok(())
}

impl From<Image> for LockTable {
    fn from(image: Image) -> Self {
        let mut fingerprint = Fingerprint::default();
        let deadlines = Deadlines::from_live(image.locks.iter().map(|lock| {
            (
                Grant {
                    token: lock.token,
                    deadline: lock.deadline,
                },
                lock.key.clone(),
            )
        }));
        let locks = image.locks.into_iter().map(|lock| {
            let grant = Grant {
                token: lock.token,
                deadline: lock.deadline,
            };
            let held = Held {
                grant,
                lease: lock.lease,
            };
            fingerprint.add(&lock.key, &held);
            (lock.key, held)
        });
        let locks: BTreeMap<Key, Held> = locks.collect();
        let tokens_granted = image.tokens_granted;
        #[cfg(feature = "planted-bugs")]
        let tokens_granted = if planted::has(planted::Bug::SnapshotWithoutCounter) {
            locks.len() as u64
        } else {
            tokens_granted
        };
        Self {
            now: image.now,
            tokens_granted,
            active_keys_max: image.active_keys_max,
            locks,
            deadlines,
            fingerprint,
        }
    }
}
