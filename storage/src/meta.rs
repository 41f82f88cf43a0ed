//! Who this node is, small named values, the copy of the vote: one record in sled.
//!
//! **One record.** Everything small is in a single value with a checksum and a generation that grows
//! with each write, so it is whole and new or it is found out. sled alone would not tell: it drops
//! what it cannot read at the end of its log, and a node whose newest values have vanished looks like
//! one that never had them. The generation is also in the WAL's
//! [watermark](crate::wal::Watermark), synced: a record older than that is refused.
//!
//! **One helper.** sled's own `flush` is not an fsync (it is `sync_file_range`: a power cut loses
//! everything flushed), and its background flush is off. Every write goes through [`Meta::write`], which
//! flushes and then syncs the file `db`. Values that sled would put into blob files, which nobody
//! syncs, are avoided: see [`CHUNK_BYTES`].
//!
//! **Panics.** sled panics on some damaged files. Each call is caught and becomes an error.
//!
//! **The copy of the vote.** A vote that goes back elects two leaders, so it is kept twice. The WAL is
//! first, and its sync alone makes a vote acknowledged; the copy follows in the background and nobody
//! waits for it, because a vote is in the path of every failover. Nothing is weakened by that: the
//! copy is not what survives a crash (the WAL's record is, synced), it is what shows that the WAL has
//! lost something. Votes are numbered. At start, with w the number in the WAL and c that of the copy:
//!
//! - c ≤ w: the WAL has every vote that was copied; if it was killed before copying, c < w. The WAL's
//!   vote counts, which is the greater one.
//! - c > w: the WAL has lost a vote that it had synced, and whatever was written with it. Taking the copy
//!   over would hide that entries are missing too: the store is refused.
//!
//! A loss is missed only if the WAL loses its very last write, by damage, in the few milliseconds
//! before the copy is synced, *and* the watermark is stale by a power cut in those same milliseconds.

use std::collections::BTreeMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::wal::{Vote, Watermark};
use crate::{Error, codec};

/// Bytes of a snapshot's data in one sled value. sled puts what does not fit four times into one of its
/// segments of 512 KiB into blob files, and it rewrites nodes of up to 17 values as a whole: seventeen
/// of these must fit into 128 KiB.
pub(crate) const CHUNK_BYTES: usize = 4 << 10;
/// Longest encoded record in bytes; it is alone in its node.
const RECORD_BYTES_MAX: usize = 64 << 10;
/// Bytes of all named values and their names.
const VALUES_BYTES_MAX: usize = 16 << 10;
/// Longest description of a snapshot, in bytes.
pub(crate) const SNAPSHOT_META_BYTES_MAX: usize = 32 << 10;

const RECORD_KEY: &str = "record";
const CHUNKS_TREE: &str = "snapshot chunks";
const CACHE_BYTES: u64 = 16 << 20;
/// How often a sled directory is tried that another handle has not let go of.
const LOCK_POLL: Duration = Duration::from_millis(20);

/// What the record says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Grows by one with each write.
    pub(crate) generation: u64,
    /// This node's id.
    pub(crate) node_id: u64,
    /// Ties the WAL to this record: the directories of two nodes cannot be mixed.
    pub(crate) store: u128,
    /// The cluster that the node belongs to.
    pub(crate) cluster_id: Option<u128>,
    /// The copy of the vote.
    pub(crate) vote: Option<Vote>,
    /// The current snapshot.
    pub(crate) snapshot: Option<SnapshotRecord>,
    /// Small values by name.
    pub(crate) values: BTreeMap<String, Vec<u8>>,
}

/// Describes the current snapshot, whose data is in chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotRecord {
    /// Counts the snapshots of this store, from 1; part of the chunks' keys.
    pub(crate) number: u64,
    /// What the state machine says about it.
    pub(crate) meta: Vec<u8>,
    /// Length of the data.
    pub(crate) bytes: u64,
    /// CRC-32 of the data.
    pub(crate) checksum: u32,
}

/// The open sled directory.
#[derive(Debug)]
pub(crate) struct Meta {
    path: PathBuf,
    db: sled::Db,
    chunks: sled::Tree,
    /// sled's file, to sync it.
    file: File,
    /// The durable record; `None` until the first one is written.
    record: Mutex<Option<Arc<Record>>>,
    /// Held while the record is changed, which takes as long as its sync.
    writing: Mutex<()>,
    watermark: OnceLock<Arc<Mutex<Watermark>>>,
    failure: Failure,
}

impl Meta {
    /// Opens the directory, or creates it, and reads the record.
    pub(crate) fn open(path: &Path, wait: Duration, failure: Failure) -> Result<Meta, Error> {
        let db = open_sled(path, Instant::now() + wait)?;
        let chunks = guarded(path, || db.open_tree(CHUNKS_TREE))?;
        let record = guarded(path, || db.get(RECORD_KEY))?;
        let record = record.map(|bytes| parse(path, &bytes)).transpose()?;
        let db_path = path.join("db");
        let file = File::open(&db_path).map_err(|error| Error::io("open", &db_path, error))?;
        // The file itself may be new.
        let directory = File::open(path).and_then(|directory| directory.sync_all());
        directory.map_err(|error| Error::io("sync", path, error))?;
        Ok(Meta {
            path: path.to_owned(),
            db,
            chunks,
            file,
            record: Mutex::new(record.map(Arc::new)),
            writing: Mutex::new(()),
            watermark: OnceLock::new(),
            failure,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Record>>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record as it is durable, if there is one. Does not wait for writes.
    pub(crate) fn record(&self) -> Option<Arc<Record>> {
        self.lock().clone()
    }

    /// Writes the first record.
    pub(crate) fn create(&self, node_id: u64, store: u128) -> Result<(), Error> {
        self.store(Record {
            generation: 1,
            node_id,
            store,
            cluster_id: None,
            vote: None,
            snapshot: None,
            values: BTreeMap::new(),
        })
    }

    /// Compares the record with the watermark, and keeps the watermark up to date from now on.
    pub(crate) fn attach(&self, watermark: Arc<Mutex<Watermark>>) -> Result<(), Error> {
        let known = watermark
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .mark()
            .generation;
        let generation = self.lock().as_ref().map_or(0, |record| record.generation);
        if generation < known {
            let what = format!("the record is of generation {generation}, {known} was durable");
            return Err(Error::corrupted(&self.path, what));
        }
        self.watermark
            .set(watermark)
            .expect("a watermark is attached once");
        self.note(generation)
            .map_err(|error| Error::io("note a write to", &self.path, error))
    }

    /// Changes the record, or leaves it if `change` refuses. When it returns, the change is durable;
    /// after another error it is unknown whether it is, and the store has failed.
    pub(crate) fn change(
        &self,
        change: impl FnOnce(&mut Record) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let record = self
            .record()
            .expect("the first record is written at the start");
        let mut record = Record::clone(&record);
        change(&mut record)?;
        record.generation += 1;
        self.store(record)
    }

    /// Stores a named value. All of them may have [`VALUES_BYTES_MAX`] bytes.
    pub(crate) fn put(&self, name: &str, value: &[u8]) -> Result<(), Error> {
        self.change(|record| {
            record.values.insert(name.to_owned(), value.to_owned());
            let bytes: usize = record
                .values
                .iter()
                .map(|(name, value)| name.len() + value.len())
                .sum();
            if bytes > VALUES_BYTES_MAX {
                return Err(Error::Refused(format!(
                    "{bytes} bytes of values, with {name:?}"
                )));
            }
            Ok(())
        })
    }

    fn store(&self, record: Record) -> Result<(), Error> {
        let mut bytes = codec::encode(&record).expect("a record is plain data");
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        assert!(
            bytes.len() <= RECORD_BYTES_MAX,
            "each part of the record is checked to be small"
        );
        self.write(|| self.db.insert(RECORD_KEY, bytes.as_slice()).map(|_| ()))?;
        self.note(record.generation)
            .map_err(|error| self.fail(Error::io("note a write to", &self.path, error)))?;
        *self.lock() = Some(Arc::new(record));
        Ok(())
    }

    /// The one way to write to sled: when it returns, the write is durable.
    pub(crate) fn write(&self, write: impl FnOnce() -> sled::Result<()>) -> Result<(), Error> {
        self.failure.check()?;
        guarded(&self.path, || {
            write().and_then(|()| self.db.flush().map(|_| ()))
        })
        .and_then(|()| {
            self.file
                .sync_data()
                .map_err(|error| Error::io("sync", &self.path.join("db"), error))
        })
        .map_err(|error| self.fail(error))
    }

    /// Reads from sled.
    pub(crate) fn read<T>(&self, read: impl FnOnce() -> sled::Result<T>) -> Result<T, Error> {
        guarded(&self.path, read)
    }

    /// Where the chunks of snapshots are.
    pub(crate) fn chunks(&self) -> &sled::Tree {
        &self.chunks
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Says durably which generation is durable.
    fn note(&self, generation: u64) -> std::io::Result<()> {
        // The first record is written before there is a WAL.
        let Some(watermark) = self.watermark.get() else {
            return Ok(());
        };
        let mut watermark = watermark.lock().unwrap_or_else(PoisonError::into_inner);
        watermark.update(|mark| mark.generation = generation)?;
        let blob = watermark.blob();
        // Appends write to the watermark too and must not wait for this sync.
        drop(watermark);
        blob.sync()
    }

    fn fail(&self, error: Error) -> Error {
        self.failure.set(&error.to_string());
        error
    }
}

/// sled syncs its file when its last handle is dropped, and panics if that fails, as it does on a disk
/// that is gone. What was acknowledged is synced long before, so there is nothing to lose: one handle
/// is then never dropped, in a process that is about to end.
impl Drop for Meta {
    fn drop(&mut self) {
        // An error is told once to each handle of a file: ours may have had it already, sled's not.
        if self.failure.check().is_err() || self.file.sync_all().is_err() {
            std::mem::forget(self.db.clone());
        }
    }
}

fn open_sled(path: &Path, deadline: Instant) -> Result<sled::Db, Error> {
    let config = sled::Config::new()
        .path(path)
        .cache_capacity(CACHE_BYTES)
        .flush_every_ms(None);
    loop {
        match guarded(path, || config.open()) {
            // Another handle in this process may still be letting go: sled unlocks its file from a
            // thread of its own, some time after the last handle is dropped.
            Err(Error::Io { source, .. })
                if source.to_string().contains("could not acquire lock")
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(LOCK_POLL);
            }
            result => return result,
        }
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Record, Error> {
    let damaged = || Error::corrupted(path, "the record is not whole");
    let (record, checksum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
    if u32::from_le_bytes(*checksum) != crc32fast::hash(record) {
        return Err(damaged());
    }
    codec::decode(record, RECORD_BYTES_MAX).map_err(|_| damaged())
}

/// Calls sled; its errors and panics become ours.
fn guarded<T>(path: &Path, call: impl FnOnce() -> sled::Result<T>) -> Result<T, Error> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Io(error))) => Err(Error::io("use", path, error)),
        Ok(Err(error)) => Err(Error::corrupted(path, error.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(Error::corrupted(
                path,
                text.unwrap_or_else(|| "sled panicked".to_owned()),
            ))
        }
    }
}
