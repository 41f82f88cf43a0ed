//! What a store does in good times: reading, reopening, refusing what makes no sense, bounded files.

use std::time::{Duration, Instant};

use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogStorage, RaftStateMachine};
use openraft::vote::RaftVote;
use openraft::{RaftLogReader, StorageHelper};
use storage::{Error, Options, Storage, memory};

use crate::machine::{self, Config, Log, Machine, append, entry, log_id};
use crate::model::{self, Model};

#[tokio::test]
async fn a_reopened_store_has_everything_time_and_again() {
    let dir = machine::fast_directory();
    let mut model = Model::open(dir.path());
    model.live_a_little().await;
    let mut acknowledged = model.acknowledged.clone();
    drop(model);
    for term in 10..14 {
        let mut model = Model::open(dir.path());
        assert_eq!(model::found(&model.storage).await.unwrap(), acknowledged);
        model.acknowledged = acknowledged;
        model.vote(machine::vote(term, 1)).await;
        let next = model.acknowledged.entries.last_key_value().unwrap().0 + 1;
        model.append(term, next..next + 10).await;
        acknowledged = model.acknowledged.clone();
    }
}

#[tokio::test]
async fn the_node_id_is_random_and_stays() {
    let (dir, other) = (machine::fast_directory(), machine::fast_directory());
    let id = machine::open(dir.path()).unwrap().node_id();
    assert_eq!(machine::open(dir.path()).unwrap().node_id(), id);
    assert_ne!(machine::open(other.path()).unwrap().node_id(), id);
}

#[tokio::test]
async fn the_cluster_id_is_set_once() {
    let dir = machine::fast_directory();
    let storage = machine::open(dir.path()).unwrap();
    assert_eq!(storage.cluster_id(), None);
    storage.set_cluster_id(7).unwrap();
    storage.set_cluster_id(7).unwrap();
    assert!(matches!(storage.set_cluster_id(8), Err(Error::Refused(_))));
    drop(storage);
    assert_eq!(machine::open(dir.path()).unwrap().cluster_id(), Some(7));
}

#[tokio::test]
async fn a_store_is_empty_until_it_has_a_vote_an_entry_or_a_snapshot() {
    let is_empty_after = async |what: &str| {
        let dir = machine::fast_directory();
        let mut model = Model::open(dir.path());
        assert!(model.storage.is_empty());
        match what {
            "cluster id" => model.storage.set_cluster_id(1).unwrap(),
            "value" => model.put(b"value"),
            "vote" => model.vote(machine::vote(1, 1)).await,
            "entry" => model.append(1, 0..1).await,
            "purge" => model.purge(1, 5).await,
            _ => model.snapshot(b"data"),
        }
        let before = model.storage.is_empty();
        drop(model);
        assert_eq!(
            machine::open(dir.path()).unwrap().is_empty(),
            before,
            "{what}, reopened"
        );
        before
    };
    for what in ["cluster id", "value"] {
        assert!(is_empty_after(what).await, "{what}");
    }
    for what in ["vote", "entry", "purge", "snapshot"] {
        assert!(!is_empty_after(what).await, "{what}");
    }
}

#[tokio::test]
async fn a_vote_does_not_go_back_on_disk_or_in_memory() {
    async fn check(mut log: impl RaftLogStorage<Config>) {
        let vote = machine::vote(5, 2);
        log.save_vote(&vote).await.unwrap();
        for worse in [
            machine::vote(4, 3),
            machine::vote(5, 1),
            machine::vote(5, 3),
        ] {
            assert!(log.save_vote(&worse).await.is_err(), "{worse} after {vote}");
        }
        // The leader of the term is another one: no second vote, but the end of the election.
        let committed = RaftVote::from_leader_id(*machine::vote(5, 3).leader_id(), true);
        for better in [vote, committed, machine::vote(6, 1)] {
            log.save_vote(&better).await.unwrap();
        }
        let found = log.get_log_reader().await.read_vote().await.unwrap();
        assert_eq!(found, Some(machine::vote(6, 1)));
    }
    let dir = machine::fast_directory();
    check(
        machine::open(dir.path())
            .unwrap()
            .log_store::<Config>()
            .unwrap(),
    )
    .await;
    check(memory::LogStore::new()).await;
}

#[tokio::test]
async fn a_hole_is_refused_and_changes_nothing() {
    let dir = machine::fast_directory();
    let mut model = Model::open(dir.path());
    model.append(1, 0..3).await;
    for hole in [
        vec![entry(1, 4, 1)],
        vec![entry(1, 2, 1)],
        vec![entry(1, 3, 1), entry(1, 5, 1)],
    ] {
        assert!(append(&mut model.log, hole).await.is_err());
    }
    model.append(1, 3..5).await;
    assert_eq!(
        model::found(&model.storage).await.unwrap(),
        model.acknowledged
    );
}

#[tokio::test]
async fn an_entry_larger_than_a_segment_is_refused_and_the_largest_is_not() {
    let dir = machine::fast_directory();
    let mut log: Log = machine::open(dir.path()).unwrap().log_store().unwrap();
    let mut largest = 0;
    for bytes in (0..2 * machine::SEGMENT_BYTES as usize).step_by(500) {
        let index = (bytes / 500) as u64;
        match append(&mut log, vec![entry(1, index, bytes)]).await {
            Ok(()) => largest = bytes,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
                break;
            }
        }
    }
    assert!((12_000..16_384).contains(&largest), "{largest} bytes fit");
    let last = log
        .get_log_state()
        .await
        .unwrap()
        .last_log_id
        .unwrap()
        .index;
    assert_eq!(
        log.try_get_log_entries(..).await.unwrap().len() as u64,
        last + 1
    );
}

#[tokio::test]
async fn entries_are_readable_before_they_are_durable_and_after_they_left_the_cache() {
    let dir = machine::fast_directory();
    let options = Options {
        segment_bytes: 4 << 20,
        ..Options::default()
    };
    let storage = Storage::open(dir.path(), options).unwrap();
    let mut log: Log = storage.log_store().unwrap();
    let mut reader = log.get_log_reader().await;
    // Four times what the cache keeps.
    let bytes = 256 << 10;
    for index in 0..256 {
        log.append([entry(1, index, bytes)], IOFlushed::noop())
            .await
            .unwrap();
        let read = reader.try_get_log_entries(index..).await.unwrap();
        assert_eq!(read, [entry(1, index, bytes)]);
    }
    for start in [0, 1, 100, 190, 191, 192, 193, 200, 255] {
        let read = reader.try_get_log_entries(start..start + 10).await.unwrap();
        let expected: Vec<_> = (start..(start + 10).min(256))
            .map(|index| entry(1, index, bytes))
            .collect();
        assert!(read == expected, "entries from {start}");
    }
    let limited = reader.limited_get_log_entries(0, 256).await.unwrap();
    assert_eq!(
        limited.len(),
        3,
        "three of {bytes} bytes, with what is around them, fit a read"
    );
    let limited = reader.limited_get_log_entries(254, 256).await.unwrap();
    assert_eq!(limited.len(), 2);
}

#[tokio::test]
async fn the_committed_log_id_survives_a_clean_stop() {
    let dir = machine::fast_directory();
    let mut model = Model::open(dir.path());
    model.append(1, 0..5).await;
    model.log.save_committed(Some(log_id(1, 3))).await.unwrap();
    drop(model);
    let mut log: Log = machine::open(dir.path()).unwrap().log_store().unwrap();
    assert_eq!(log.read_committed().await.unwrap(), Some(log_id(1, 3)));
}

#[tokio::test]
async fn raft_finds_its_state_after_a_restart() {
    let dir = machine::fast_directory();
    let mut model = Model::open(dir.path());
    model.vote(machine::vote(2, 1)).await;
    model.append(1, 0..100).await;
    model.log.save_committed(Some(log_id(1, 90))).await.unwrap();
    drop(model);

    let storage = machine::open(dir.path()).unwrap();
    let mut log: Log = storage.log_store().unwrap();
    let mut machine = Machine::new(storage.snapshots());
    let state = StorageHelper::new(&mut log, &mut machine)
        .with_id(1)
        .get_initial_state()
        .await;
    let state = state.unwrap();
    assert_eq!(
        machine.applied_state().await.unwrap().0,
        Some(log_id(1, 90))
    );
    assert_eq!(*state.vote_ref(), machine::vote(2, 1));
}

#[tokio::test]
async fn two_handles_are_one_log() {
    let dir = machine::fast_directory();
    let storage = machine::open(dir.path()).unwrap();
    let (mut one, mut other): (Log, Log) =
        (storage.log_store().unwrap(), storage.log_store().unwrap());
    append(&mut one, vec![entry(1, 0, 10)]).await.unwrap();
    append(&mut other, vec![entry(1, 1, 10)]).await.unwrap();
    let last = one.try_get_log_entries(..).await.unwrap().pop().unwrap();
    assert_eq!(last.log_id(), log_id(1, 1));
}

#[test]
fn a_second_opening_waits_for_the_first_to_end() {
    let dir = machine::fast_directory();
    let options = Options {
        lock_wait: Duration::from_millis(50),
        ..machine::options()
    };
    let storage = machine::open(dir.path()).unwrap();
    let refused = Storage::open(dir.path(), options).unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");

    let begin = Instant::now();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| machine::open(dir.path()).map(|_| Instant::now()));
        while begin.elapsed() < Duration::from_millis(30) {
            std::thread::yield_now();
        }
        let released = Instant::now();
        drop(storage);
        assert!(second.join().unwrap().unwrap() > released);
    });
}

#[test]
fn an_interrupted_first_start_begins_again() {
    let dir = machine::fast_directory();
    drop(machine::open(dir.path()).unwrap());
    // The record with the identity is the last thing that a first start writes.
    std::fs::remove_dir_all(dir.path().join("sled")).unwrap();
    let untouched = machine::fast_directory();
    model::copy(dir.path(), untouched.path());
    std::fs::write(untouched.path().join("wal/watermark"), b"").unwrap();
    machine::open(untouched.path()).unwrap();
    // A log that was open once is not that of an interrupted first start.
    let error = machine::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::Corrupted { .. }), "{error}");
}

#[tokio::test]
async fn reading_goes_on_while_segments_are_purged_and_recycled() {
    let dir = machine::fast_directory();
    let storage = machine::open(dir.path()).unwrap();
    let mut log: Log = storage.log_store().unwrap();
    let mut reader: Log = storage.log_store().unwrap();
    let reading = tokio::spawn(async move {
        let mut reads = 0;
        loop {
            let entries = reader.try_get_log_entries(..).await.unwrap();
            for (index, found) in entries.iter().map(|entry| (entry.index(), entry)) {
                assert_eq!(*found, model::sized_entry(1, index));
            }
            reads += 1;
            if entries.last().is_some_and(|last| last.index() == 999) {
                return reads;
            }
            tokio::task::yield_now().await;
        }
    });
    for index in 0..1000_u64 {
        append(&mut log, vec![model::sized_entry(1, index)])
            .await
            .unwrap();
        if index % 50 == 49 {
            log.purge(log_id(1, index - 30)).await.unwrap();
        }
    }
    assert!(reading.await.unwrap() > 10);
    drop((log, storage));
    // 30 to 80 entries of 1 KB are live: at most 6 segments; two more are kept ready.
    let names = std::fs::read_dir(dir.path().join("wal")).unwrap();
    let names: Vec<_> = names.map(|file| file.unwrap().file_name()).collect();
    assert!(names.len() <= 10, "{names:?}");
}
