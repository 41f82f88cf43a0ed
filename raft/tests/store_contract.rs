//! openraft's contract for stores, on the real state machine: with the log and snapshots on disk, and
//! with their twins in memory.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use raft::clock::MonotonicClock;
use raft::state_machine::StateMachine;
use raft::type_config::TypeConfig;
use storage::{LogStore, Options, Storage, memory};
use tempfile::TempDir;

const ORIGIN: u64 = 1;

/// Small, so that the suite crosses from one segment to the next.
const SEGMENT_BYTES: u32 = 64 << 10;

struct OnDisk;

impl StoreBuilder<TypeConfig, LogStore<TypeConfig>, StateMachine, TempDir> for OnDisk {
    async fn build(
        &self,
    ) -> Result<(TempDir, LogStore<TypeConfig>, StateMachine), StorageError<TypeConfig>> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = Options {
            segment_bytes: SEGMENT_BYTES,
            ..Options::default()
        };
        let storage =
            Storage::open(directory.path(), options).expect("an empty directory can be opened");
        let log = storage.log_store().expect("an empty log can be opened");
        let (machine, ..) =
            StateMachine::new(ORIGIN, Arc::new(MonotonicClock), storage.snapshots());
        Ok((directory, log, machine))
    }
}

struct InMemory;

impl StoreBuilder<TypeConfig, memory::LogStore<TypeConfig>, StateMachine> for InMemory {
    async fn build(
        &self,
    ) -> Result<((), memory::LogStore<TypeConfig>, StateMachine), StorageError<TypeConfig>> {
        let snapshots = memory::snapshots();
        let (machine, ..) = StateMachine::new(ORIGIN, Arc::new(MonotonicClock), snapshots);
        Ok(((), memory::LogStore::new(), machine))
    }
}

#[tokio::test]
async fn the_stores_on_disk_keep_the_contract() {
    Suite::test_all(OnDisk).await.unwrap();
}

#[tokio::test]
async fn the_stores_in_memory_keep_the_contract() {
    Suite::test_all(InMemory).await.unwrap();
}
