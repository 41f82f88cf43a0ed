//! Save and load one snapshot atomically.
//!
//! The data goes into sled in chunks under a new number and is synced; then the record that names the
//! current snapshot is replaced, which is the one atomic step; then the old chunks are removed. A crash
//! before the step leaves the old snapshot and some chunks that no record names (the next save
//! removes them), a crash after it the new one. A checksum over all of the data shows a damaged
//! chunk, and the length a missing one.
//!
//! The log is purged behind a snapshot. Each purge names the snapshot's number, so that a store whose
//! snapshot is older than its last purge is found at the start, not when the state is missing.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::Error;
use crate::meta::{CHUNK_BYTES, Meta, SNAPSHOT_META_BYTES_MAX, SnapshotRecord};

/// Largest snapshot in bytes.
const SNAPSHOT_BYTES_MAX: usize = 1 << 30;

/// The newest snapshot of the state machine, replaced in one atomic and durable step. Handles share it.
#[derive(Clone, Debug)]
pub struct Snapshots(Arc<Place>);

#[derive(Debug)]
enum Place {
    Memory(Mutex<Option<Stored>>),
    /// The lock is held while chunks are read or replaced.
    Disk(Arc<Meta>, Mutex<()>),
}

/// A snapshot as it was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// What the state machine says about it.
    pub meta: Bytes,
    /// The state.
    pub data: Bytes,
}

impl Snapshots {
    pub(crate) fn in_memory() -> Snapshots {
        Snapshots(Arc::new(Place::Memory(Mutex::default())))
    }

    pub(crate) fn on_disk(meta: Arc<Meta>) -> Snapshots {
        Snapshots(Arc::new(Place::Disk(meta, Mutex::default())))
    }

    /// Makes this the current snapshot. When it returns, the snapshot is durable; until then, and
    /// after an error or a crash, the one before stays current. Blocks on the disk.
    ///
    /// `meta` may have up to 32 KiB, `data` up to 1 GiB.
    pub fn save(&self, meta: &[u8], data: &[u8]) -> Result<(), Error> {
        match &*self.0 {
            Place::Memory(stored) => {
                let new = Stored {
                    meta: Bytes::copy_from_slice(meta),
                    data: Bytes::copy_from_slice(data),
                };
                *stored.lock().unwrap_or_else(PoisonError::into_inner) = Some(new);
                Ok(())
            }
            Place::Disk(store, lock) => {
                let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
                save(store, meta, data)
            }
        }
    }

    /// The current snapshot, its checksum verified. Blocks on the disk.
    pub fn load(&self) -> Result<Option<Stored>, Error> {
        match &*self.0 {
            Place::Memory(stored) => Ok(stored
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()),
            Place::Disk(store, lock) => {
                let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
                load(store)
            }
        }
    }
}

fn save(store: &Meta, meta: &[u8], data: &[u8]) -> Result<(), Error> {
    if meta.len() > SNAPSHOT_META_BYTES_MAX || data.len() > SNAPSHOT_BYTES_MAX {
        let (meta, data) = (meta.len(), data.len());
        return Err(Error::Refused(format!(
            "a snapshot of {meta} and {data} bytes is too large"
        )));
    }
    let before = current(store).map_or(0, |snapshot| snapshot.number);
    let number = before + 1;
    // What an interrupted save left.
    remove_chunks(store, number..=u64::MAX)?;
    store.write(|| {
        for (chunk, bytes) in (0..).zip(data.chunks(CHUNK_BYTES)) {
            store.chunks().insert(key(number, chunk), bytes)?;
        }
        Ok(())
    })?;
    let snapshot = SnapshotRecord {
        number,
        meta: meta.to_vec(),
        bytes: data.len() as u64,
        checksum: crc32fast::hash(data),
    };
    store.change(|record| {
        record.snapshot = Some(snapshot);
        Ok(())
    })?;
    remove_chunks(store, 0..=before)
}

fn load(store: &Meta) -> Result<Option<Stored>, Error> {
    let Some(snapshot) = current(store) else {
        return Ok(None);
    };
    let mut data = Vec::new();
    for chunk in 0..snapshot.bytes.div_ceil(CHUNK_BYTES as u64) {
        // A missing chunk shows as a wrong length below.
        let bytes = store.read(|| store.chunks().get(key(snapshot.number, chunk)))?;
        data.extend_from_slice(bytes.as_deref().unwrap_or_default());
    }
    if data.len() as u64 != snapshot.bytes || crc32fast::hash(&data) != snapshot.checksum {
        let what = format!("the data of snapshot {} is not whole", snapshot.number);
        return Err(Error::corrupted(store.path(), what));
    }
    Ok(Some(Stored {
        meta: snapshot.meta.into(),
        data: data.into(),
    }))
}

fn current(store: &Meta) -> Option<SnapshotRecord> {
    store.record().and_then(|record| record.snapshot.clone())
}

/// Chunks are sorted by snapshot, then by position.
fn key(number: u64, chunk: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&chunk.to_be_bytes());
    key
}

/// Removes the chunks of these snapshots. Nothing refers to them, so it need not be durable.
fn remove_chunks(store: &Meta, numbers: std::ops::RangeInclusive<u64>) -> Result<(), Error> {
    store.read(|| {
        let range = key(*numbers.start(), 0)..=key(*numbers.end(), u64::MAX);
        for chunk in store.chunks().range(range).keys() {
            store.chunks().remove(chunk?)?;
        }
        Ok(())
    })
}
