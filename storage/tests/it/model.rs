//! What a store has acknowledged, and the check that it still has it.

use std::collections::BTreeMap;
use std::path::Path;

use openraft::RaftLogReader;
use openraft::entry::RaftEntry;
use openraft::storage::RaftLogStorage;
use openraft::type_config::alias::LogIdOf;
use storage::Storage;

use crate::machine::{self, Config, Entry, Log, Vote, append, entry, log_id};

/// Everything that a caller was told is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) node_id: u64,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) vote: Option<Vote>,
    pub(crate) purged: Option<LogIdOf<Config>>,
    /// Term and size of each entry, by index.
    pub(crate) entries: BTreeMap<u64, (u64, usize)>,
    pub(crate) snapshot: Option<Vec<u8>>,
}

/// A store and what it acknowledged so far.
pub(crate) struct Model {
    pub(crate) storage: Storage,
    pub(crate) log: Log,
    pub(crate) acknowledged: Acknowledged,
}

impl Model {
    pub(crate) fn open(dir: &Path) -> Model {
        let storage = machine::open(dir).expect("an undamaged directory opens");
        let log = storage.log_store().expect("the log opens");
        let acknowledged = Acknowledged {
            node_id: storage.node_id(),
            ..Acknowledged::default()
        };
        Model {
            storage,
            log,
            acknowledged,
        }
    }

    pub(crate) async fn vote(&mut self, vote: Vote) {
        self.log.save_vote(&vote).await.unwrap();
        self.acknowledged.vote = Some(vote);
    }

    /// Appends `indices` in one go; the sizes differ.
    pub(crate) async fn append(&mut self, term: u64, indices: std::ops::Range<u64>) {
        let entries = indices
            .clone()
            .map(|index| sized_entry(term, index))
            .collect();
        append(&mut self.log, entries).await.unwrap();
        let appended = indices.map(|index| (index, (term, size(index))));
        self.acknowledged.entries.extend(appended);
    }

    pub(crate) async fn truncate_after(&mut self, term: u64, index: u64) {
        self.log
            .truncate_after(Some(log_id(term, index)))
            .await
            .unwrap();
        self.acknowledged.entries.split_off(&(index + 1));
    }

    pub(crate) async fn purge(&mut self, term: u64, index: u64) {
        self.log.purge(log_id(term, index)).await.unwrap();
        self.acknowledged.entries = self.acknowledged.entries.split_off(&(index + 1));
        self.acknowledged.purged = Some(log_id(term, index));
    }

    pub(crate) fn put(&mut self, value: &[u8]) {
        self.storage.put("value", value).unwrap();
        self.acknowledged.value = Some(value.to_vec());
    }

    pub(crate) fn snapshot(&mut self, data: &[u8]) {
        self.storage.snapshots().save(b"meta", data).unwrap();
        self.acknowledged.snapshot = Some(data.to_vec());
    }

    /// Many segments, several votes, a truncation, a purge behind a snapshot, then more of all.
    pub(crate) async fn live_a_little(&mut self) {
        self.put(b"old");
        self.vote(machine::vote(1, 1)).await;
        for index in 0..60 {
            self.append(1, index..index + 1).await;
        }
        self.vote(machine::vote(2, 1)).await;
        self.truncate_after(1, 50).await;
        self.append(2, 51..100).await;
        self.snapshot(&[7; 10_000]);
        self.purge(1, 30).await;
        self.append(2, 100..110).await;
        self.vote(machine::vote(3, 2)).await;
        self.put(b"new");
        for index in 110..122 {
            self.append(3, index..index + 1).await;
        }
    }
}

/// An entry whose size comes from its index.
pub(crate) fn sized_entry(term: u64, index: u64) -> Entry {
    entry(term, index, size(index))
}

/// Sizes from some bytes to two thousand.
fn size(index: u64) -> usize {
    (index * 377 % 2000) as usize + 1
}

/// What a store that opens has.
pub(crate) async fn found(storage: &Storage) -> Result<Acknowledged, String> {
    let mut log: Log = storage.log_store().map_err(|error| error.to_string())?;
    let text = |error: std::io::Error| error.to_string();
    let state = log.get_log_state().await.map_err(text)?;
    let entries = log.try_get_log_entries(..).await.map_err(text)?;
    let mut acknowledged = Acknowledged {
        node_id: storage.node_id(),
        value: storage.get("value").map_err(|error| error.to_string())?,
        vote: log.read_vote().await.map_err(text)?,
        purged: state.last_purged_log_id,
        entries: BTreeMap::new(),
        snapshot: storage
            .snapshots()
            .load()
            .map_err(|error| error.to_string())?
            .map(|stored| stored.data.to_vec()),
    };
    assert_eq!(
        state.last_log_id,
        entries
            .last()
            .map(RaftEntry::log_id)
            .or(acknowledged.purged)
    );
    for found in entries {
        let (index, term) = (found.index(), **found.log_id().committed_leader_id());
        let bytes = size(index);
        assert_eq!(
            found,
            entry(term, index, bytes),
            "the content of entry {index}"
        );
        acknowledged.entries.insert(index, (term, bytes));
    }
    Ok(acknowledged)
}

/// Copies a directory as it is at this moment, which is what a kill would leave.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let path = file.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            match std::fs::copy(&path, &target) {
                // The background thread has just given a prepared segment its name.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}

/// The segments of a store, oldest first, as paths in its directory.
pub(crate) fn segments(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir.join("wal")).unwrap();
    let names = names.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut segments: Vec<_> = names
        .filter(|name| name.ends_with(".log"))
        .map(|name| format!("wal/{name}"))
        .collect();
    segments.sort();
    segments
}
