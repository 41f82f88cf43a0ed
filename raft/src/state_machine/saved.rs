//! The one current snapshot on the disk, and who may replace it.
//!
//! A snapshot is built beside applying and may still be on its way to the disk when the leader
//! sends a newer one. Written last, the older one would become the current one, below a log that
//! was purged behind the newer: after a restart the node could not come up again. So writers take
//! turns, and one that finds a newer snapshot there leaves it.
//!
//! Everything here that reads, writes or encodes runs on the blocking pool.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use storage::Snapshots;
use storage::measure::{Counter, Durations};

use super::LogId;
use crate::format::Format;
use crate::lock::{Image, LockTable};
use crate::type_config::TypeConfig;

const META_FORMAT: Format = Format {
    what: "a snapshot's description",
    version: 1,
};

/// The current snapshot. Handles share it.
#[derive(Clone)]
pub(super) struct Saved {
    snapshots: Snapshots,
    /// Log id of the current snapshot, as far as this process has read or written one. What was
    /// there at the start is older than anything that is built, so it need not be known.
    newest: Arc<Mutex<Option<LogId>>>,
    measures: Arc<SnapshotMeasures>,
}

/// What snapshots have cost, and how many there were.
#[derive(Debug, Default)]
pub struct SnapshotMeasures {
    /// Encoding and writing one of this node's own.
    pub builds: Durations,
    /// Snapshots that came from a leader and were installed.
    pub received: Counter,
    /// Size of the newest one that was written, in bytes.
    pub newest_bytes: AtomicU64,
}

impl Saved {
    pub(super) fn new(snapshots: Snapshots) -> Self {
        Self {
            snapshots,
            newest: Arc::default(),
            measures: Arc::default(),
        }
    }

    /// What has been measured.
    pub(super) fn measures(&self) -> Arc<SnapshotMeasures> {
        Arc::clone(&self.measures)
    }

    /// The current snapshot.
    pub(super) async fn load(&self) -> io::Result<Option<SnapshotOf<TypeConfig, Bytes>>> {
        let saved = self.clone();
        blocking(move || saved.read()).await
    }

    /// Encodes the image and makes it the current snapshot, unless a newer one has come meanwhile.
    pub(super) async fn build(
        &self,
        meta: SnapshotMetaOf<TypeConfig>,
        image: Arc<Image>,
    ) -> io::Result<Bytes> {
        let saved = self.clone();
        blocking(move || {
            let begun = Instant::now();
            let data = Bytes::from(image.encode());
            let mut newest = saved.newest();
            if *newest <= meta.last_log_id {
                saved.write(&mut newest, &meta, &data)?;
            }
            saved.measures.builds.observe(begun.elapsed());
            Ok(data)
        })
        .await
    }

    /// Makes a snapshot that was received the current one, and decodes it. One that can't be
    /// decoded replaces nothing. The current one itself, installed at a start, is not written again.
    pub(super) async fn receive(
        &self,
        meta: SnapshotMetaOf<TypeConfig>,
        data: Bytes,
    ) -> io::Result<LockTable> {
        let saved = self.clone();
        blocking(move || {
            let table = LockTable::decode(&data).map_err(io::Error::other)?;
            let mut newest = saved.newest();
            if newest.is_none() || *newest != meta.last_log_id {
                saved.write(&mut newest, &meta, &data)?;
                saved.measures.received.add_one();
            }
            Ok(table)
        })
        .await
    }

    fn read(&self) -> io::Result<Option<SnapshotOf<TypeConfig, Bytes>>> {
        let mut newest = self.newest();
        let Some(stored) = self.snapshots.load().map_err(io::Error::other)? else {
            return Ok(None);
        };
        let meta: SnapshotMetaOf<TypeConfig> =
            META_FORMAT.decode(&stored.meta).map_err(io::Error::other)?;
        *newest = meta.last_log_id;
        Ok(Some(SnapshotOf::<TypeConfig, Bytes> {
            meta,
            snapshot: stored.data,
        }))
    }

    fn write(
        &self,
        newest: &mut Option<LogId>,
        meta: &SnapshotMetaOf<TypeConfig>,
        data: &[u8],
    ) -> io::Result<()> {
        self.snapshots
            .save(&META_FORMAT.encode(meta), data)
            .map_err(io::Error::other)?;
        *newest = meta.last_log_id;
        let bytes = data.len() as u64;
        self.measures.newest_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Held while the disk is read or written: that is what makes writers take turns.
    fn newest(&self) -> MutexGuard<'_, Option<LogId>> {
        // A panic while it was held left either the old or the new id, both of which are true.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `work` where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}
