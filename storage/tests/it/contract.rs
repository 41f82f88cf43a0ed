//! openraft's own test suite of the storage contract, on disk and in memory.

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use storage::memory;
use tempfile::TempDir;

use crate::machine::{self, Config, Log, Machine};

struct OnDisk;

impl StoreBuilder<Config, Log, Machine, TempDir> for OnDisk {
    async fn build(&self) -> Result<(TempDir, Log, Machine), StorageError<Config>> {
        let dir = TempDir::new().expect("a temporary directory");
        let storage = machine::open(dir.path()).expect("a new directory opens");
        let log = storage.log_store().expect("the log is not open yet");
        Ok((dir, log, Machine::new(storage.snapshots())))
    }
}

struct InMemory;

impl StoreBuilder<Config, memory::LogStore<Config>, Machine> for InMemory {
    async fn build(&self) -> Result<((), memory::LogStore<Config>, Machine), StorageError<Config>> {
        Ok((
            (),
            memory::LogStore::new(),
            Machine::new(memory::snapshots()),
        ))
    }
}

#[tokio::test]
async fn the_store_on_disk_keeps_openrafts_contract() {
    Suite::test_all(OnDisk).await.unwrap();
}

#[tokio::test]
async fn the_store_in_memory_keeps_openrafts_contract() {
    Suite::test_all(InMemory).await.unwrap();
}
