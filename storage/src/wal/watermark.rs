//! What was acknowledged, kept beside the log.
//!
//! A damaged tail of acknowledged records looks exactly like the torn tail of a write that was never
//! synced, unless something else says how far the sync had come. Records say it of the write before
//! them; of the last write only this file does. It is written after each sync, *before* the callbacks,
//! so whatever was acknowledged before a crash of the process is covered by it.
//!
//! It is not synced each time (that would double the cost of an append). After a power cut it may be
//! old, never too new, because it is only written about what is durable already; then the records'
//! own marks prove everything but the last write. It *is* synced where that would not do: when a new
//! segment begins (else a newest segment that is missing could not be told from one that never was)
//! and when the records in sled change.
//!
//! The file has two slots in different disk blocks, written in turn and checksummed: damage to one
//! leaves the other, which is one sync older.

use std::sync::Arc;

use super::disk::{Blob, Disk};
use crate::Error;

/// Name in the WAL's directory.
pub(crate) const NAME: &str = "watermark";

const SLOT_DISTANCE: u64 = 4096;
const FILE_BYTES: usize = 2 * SLOT_DISTANCE as usize;
const SLOT_BYTES: usize = 36;

/// How far things were durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The segment that was being written.
    pub(crate) segment: u64,
    /// Everything before this offset of it is durable, and all earlier segments.
    pub(crate) offset: u64,
    /// Generation of the records in sled that is durable.
    pub(crate) generation: u64,
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Watermark {
    blob: Arc<dyn Blob>,
    /// Counts the writes; decides which slot is next and which one is newer.
    count: u64,
    mark: Mark,
}

impl Watermark {
    /// Makes the file; the caller syncs the directory.
    pub(crate) fn create(disk: &dyn Disk) -> std::io::Result<Watermark> {
        let blob = disk.create(NAME)?;
        blob.write_at(0, &[0; FILE_BYTES])?;
        let mut watermark = Watermark {
            blob,
            count: 0,
            mark: Mark::default(),
        };
        watermark.update(|_| ())?;
        watermark.sync()?;
        Ok(watermark)
    }

    /// Opens the file and takes the newer of its slots.
    pub(crate) fn open(disk: &dyn Disk) -> Result<Watermark, Error> {
        let path = disk.path(NAME);
        let blob = disk.open(NAME).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::corrupted(&path, "the file is missing"),
            _ => Error::io("open", &path, error),
        })?;
        let newest = [0, SLOT_DISTANCE].into_iter().filter_map(|offset| {
            let mut slot = [0; SLOT_BYTES];
            // A file that is too short has no such slot; the other one may still do.
            blob.read_at(offset, &mut slot).ok()?;
            parse(&slot)
        });
        let Some((count, mark)) = newest.max_by_key(|(count, _)| *count) else {
            return Err(Error::damaged(
                &path,
                0,
                "neither copy of the watermark is whole",
            ));
        };
        Ok(Watermark { blob, count, mark })
    }

    /// What the file says.
    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    /// Writes what is durable by now.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut Mark)) -> std::io::Result<()> {
        let mut mark = self.mark;
        change(&mut mark);
        let count = self.count + 1;
        let mut slot = [0; SLOT_BYTES];
        slot[..8].copy_from_slice(&count.to_le_bytes());
        slot[8..16].copy_from_slice(&mark.segment.to_le_bytes());
        slot[16..24].copy_from_slice(&mark.offset.to_le_bytes());
        slot[24..32].copy_from_slice(&mark.generation.to_le_bytes());
        let checksum = crc32fast::hash(&slot[..32]);
        slot[32..].copy_from_slice(&checksum.to_le_bytes());
        self.blob.write_at((count % 2) * SLOT_DISTANCE, &slot)?;
        (self.count, self.mark) = (count, mark);
        Ok(())
    }

    /// The file, to make it durable without keeping others from writing to it.
    pub(crate) fn blob(&self) -> Arc<dyn Blob> {
        Arc::clone(&self.blob)
    }

    /// Makes the file itself durable.
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        self.blob.sync()
    }
}

fn parse(slot: &[u8; SLOT_BYTES]) -> Option<(u64, Mark)> {
    let number = |at: usize| {
        slot[at..]
            .first_chunk()
            .map(|bytes| u64::from_le_bytes(*bytes))
    };
    let checksum = u32::from_le_bytes(*slot[32..].first_chunk()?);
    let count = number(0)?;
    if checksum != crc32fast::hash(&slot[..32]) || count == 0 {
        return None;
    }
    Some((
        count,
        Mark {
            segment: number(8)?,
            offset: number(16)?,
            generation: number(24)?,
        },
    ))
}
