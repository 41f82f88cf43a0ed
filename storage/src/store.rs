//! One data directory: who this node is, its log and vote, its newest snapshot.

use std::path::Path;
use std::time::Duration;

use openraft::RaftTypeConfig;
use tokio::sync::watch;

use crate::{Error, LogStore, Snapshots};

/// How a data directory is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of a new log segment in bytes. Existing ones keep theirs.
    pub segment_bytes: u32,
    /// How long to wait for another process to let go of the directory.
    pub lock_wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_bytes: 32 << 20,
            lock_wait: Duration::from_secs(10),
        }
    }
}

/// An open data directory. Handles share it; it closes with the last one, log stores included.
#[derive(Clone, Debug)]
pub struct Storage {}

impl Storage {
    /// Opens a data directory, or creates it. Waits for the file lock, recovers the log and verifies
    /// what was acknowledged; makes the random node id at the first start. Blocks on the disk.
    pub fn open(_dir: &Path, _options: Options) -> Result<Storage, Error> {
        unimplemented!("the WAL is not there yet")
    }

    /// This node's id: random, made at the first start, durable before `open` returned it.
    pub fn node_id(&self) -> u64 {
        unimplemented!("the WAL is not there yet")
    }

    /// The cluster that this node belongs to, if it ever did.
    pub fn cluster_id(&self) -> Option<u128> {
        unimplemented!("the WAL is not there yet")
    }

    /// Stores the cluster id durably. Refused if another one is stored. Blocks on the disk.
    pub fn set_cluster_id(&self, _id: u128) -> Result<(), Error> {
        unimplemented!("the WAL is not there yet")
    }

    /// A small durable value, by its name.
    pub fn get(&self, _name: &str) -> Result<Option<Vec<u8>>, Error> {
        unimplemented!("the WAL is not there yet")
    }

    /// Stores a small value durably, replacing the one before. Blocks on the disk.
    pub fn put(&self, _name: &str, _value: &[u8]) -> Result<(), Error> {
        unimplemented!("the WAL is not there yet")
    }

    /// True while there is no vote, no log entry (not even a purged one) and no snapshot.
    pub fn is_empty(&self) -> bool {
        unimplemented!("the WAL is not there yet")
    }

    /// Raft's log and vote. All calls give handles of one log; a second type config is refused.
    pub fn log_store<C: RaftTypeConfig>(&self) -> Result<LogStore<C>, Error> {
        unimplemented!("the WAL is not there yet")
    }

    /// The snapshot store.
    pub fn snapshots(&self) -> Snapshots {
        unimplemented!("the WAL is not there yet")
    }

    /// Becomes `Some(why)` once, when a write or sync failed: nothing is acknowledged after that,
    /// and the process must stop.
    pub fn failed(&self) -> watch::Receiver<Option<String>> {
        unimplemented!("the WAL is not there yet")
    }
}
