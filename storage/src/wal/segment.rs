//! Segments: files of a fixed size, numbered from 1.
//!
//! | name | is |
//! |---|---|
//! | `0000000000000007.log` | segment 7; without a valid head it is prepared and not used yet |
//! | `….spare` | a purged segment that waits to become a new one |
//! | `….tmp` | a segment whose zero-filling is not finished |
//!
//! A file gets its `.log` name only when all its bytes are allocated and written once (zeros, or the
//! records of its earlier life), so writing a record later changes nothing but data and an fdatasync
//! has no metadata to commit. The head is written and synced alone, before any record: a segment
//! without a whole head therefore has no records either, and can be used afresh under its number.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::disk::{Blob, Disk};
use super::index::State;
use super::record::{self, HEADER_BYTES, Kind, Place};
use crate::{Error, codec};

/// Smallest segment, in bytes.
pub(crate) const SEGMENT_BYTES_MIN: u32 = 16 << 10;
/// Largest segment, in bytes: recovery reads one at a time into memory.
pub(crate) const SEGMENT_BYTES_MAX: u32 = 256 << 20;
/// Longest head, in bytes: everything in it is small.
pub(crate) const HEAD_BYTES_MAX: usize = 2 << 10;

const MAGIC: [u8; 8] = *b"TICKLOG\0";
/// What is written at a time when a file is filled with zeros.
const ZEROS_BYTES: usize = 1 << 20;

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Its number.
    pub(crate) number: u64,
    /// Its size.
    pub(crate) bytes: u32,
    /// Its file.
    pub(crate) blob: Arc<dyn Blob>,
}

/// The payload of a segment's first record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    magic: [u8; 8],
    /// Which store it belongs to.
    pub(crate) store: u128,
    /// Its number, once more.
    pub(crate) number: u64,
    /// Its size.
    pub(crate) bytes: u32,
    /// The state of the log before the segment's first operation.
    pub(crate) state: State,
}

impl Head {
    /// The head of a new segment.
    pub(crate) fn new(store: u128, number: u64, bytes: u32, state: State) -> Head {
        Head {
            magic: MAGIC,
            store,
            number,
            bytes,
            state,
        }
    }

    /// The record of this head.
    pub(crate) fn record(&self, sequence: u64) -> Vec<u8> {
        let payload = codec::encode(self).expect("a head is plain data");
        let mut bytes = Vec::new();
        let place = Place {
            segment: self.number,
            sequence,
            synced: 0,
        };
        record::write_head(&mut bytes, place, &payload);
        assert!(
            bytes.len() <= HEAD_BYTES_MAX,
            "what a head carries is checked to be small"
        );
        bytes
    }

    /// The head of segment `number` with its sequence and its length in bytes, if it is whole.
    pub(crate) fn parse(bytes: &[u8], number: u64) -> Option<(Head, u64, usize)> {
        let bytes = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
        let record = record::read(bytes, number).filter(|record| record.kind == Kind::Head)?;
        let head: Head = codec::decode(record.payload, HEAD_BYTES_MAX).ok()?;
        (head.magic == MAGIC && head.number == number).then_some((
            head,
            record.sequence,
            record.bytes(),
        ))
    }
}

/// The name of a segment.
pub(crate) fn name(number: u64) -> String {
    format!("{number:016x}.log")
}

/// The name of a segment that was purged.
pub(crate) fn spare_name(number: u64) -> String {
    format!("{number:016x}.spare")
}

/// The number in a segment's name.
pub(crate) fn number(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(".log")?, 16).ok()?;
    (self::name(number) == name).then_some(number)
}

/// The largest entry that a new segment has room for, in bytes.
pub(crate) fn entry_bytes_max(segment_bytes: u32) -> usize {
    segment_bytes as usize - HEAD_BYTES_MAX - HEADER_BYTES - 16
}

/// Makes a file of zeros and gives it its name when it is whole. Blocks; `go_on` is asked after each
/// part and ends the work early with `None`.
pub(crate) fn create(
    disk: &dyn Disk,
    number: u64,
    bytes: u32,
    mut go_on: impl FnMut(&dyn Blob) -> std::io::Result<bool>,
) -> Result<Option<Segment>, Error> {
    let name = name(number);
    let temporary = format!("{number:016x}.tmp");
    let failed = |error| Error::io("prepare", &disk.path(&name), error);
    let blob = disk.create(&temporary).map_err(failed)?;
    let zeros = vec![0; ZEROS_BYTES.min(bytes as usize)];
    let mut offset = 0;
    while offset < bytes as usize {
        let part = zeros.len().min(bytes as usize - offset);
        blob.write_at(offset as u64, &zeros[..part])
            .map_err(failed)?;
        offset += part;
        if !go_on(&*blob).map_err(failed)? {
            return Ok(None);
        }
    }
    // All of it is durable before it has the name of a segment, else a power cut could leave a
    // segment that is too short and looks damaged.
    blob.sync().map_err(failed)?;
    disk.rename(&temporary, &name).map_err(failed)?;
    disk.sync().map_err(failed)?;
    Ok(Some(Segment {
        number,
        bytes,
        blob,
    }))
}
