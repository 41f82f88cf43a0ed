//! A child process acknowledges and is killed, again and again in one directory; nothing that it
//! acknowledged may be missing.
//!
//! A kill leaves the page cache, so this shows the order of acknowledging and writing, the recovery and
//! the watermark, not the syncs: `syscalls.rs` shows those.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use openraft::RaftLogReader;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use openraft::vote::RaftLeaderId;
use storage::Storage;

use crate::child::{self, say};
use crate::machine::{self, Config, Log, log_id};
use crate::model::{self, Acknowledged};
use crate::random::Random;

const ROUNDS: u64 = 120;
pub(crate) const CHILD: &str = "crash::child_that_acknowledges";
/// Appends that the child has under way at a time.
const APPENDS: usize = 4;
/// Entries between two snapshots.
const SNAPSHOT_ENTRIES: u64 = 50;

#[test]
fn nothing_acknowledged_is_missing_after_a_kill() {
    let dir = machine::fast_directory();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut random = Random(5);
    let mut told = Told::default();
    for round in 0..ROUNDS {
        let mut child = child::start(child::plain(), CHILD, dir.path());
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        if round % 4 == 0 {
            // Somewhere in the opening, or soon after.
            std::thread::sleep(Duration::from_micros(random.below(30_000)));
        } else {
            let lines = lines.by_ref().take(random.below(60) as usize);
            lines.for_each(|line| told.listen(&line));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said before the kill reached it counts too.
        lines.for_each(|line| told.listen(&line));

        let storage = machine::open(dir.path()).unwrap_or_else(|error| panic!("{round}: {error}"));
        let found = runtime.block_on(model::found(&storage)).unwrap();
        told.check(round, &storage, &found);
    }
    assert!(
        told.entries.len() > 1,
        "the children acknowledged something: {told:?}"
    );
    assert!(
        told.snapshot > SNAPSHOT_ENTRIES,
        "and took snapshots: {told:?}"
    );
}

/// What the children said.
#[derive(Debug, Default)]
pub(crate) struct Told {
    node_id: Option<u64>,
    /// The term of the newest vote.
    vote: u64,
    /// Terms of the acknowledged entries, by index.
    entries: BTreeMap<u64, u64>,
    /// The last index of the newest snapshot.
    snapshot: u64,
}

impl Told {
    pub(crate) fn listen(&mut self, line: &str) {
        let words = child::said(line).split(' ').collect::<Vec<_>>();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words[0] {
            "vote" => self.vote = number(1),
            // From now on what is after it may be there or not.
            "truncating" => drop(self.entries.split_off(&(number(1) + 1))),
            "entries" => {
                self.entries
                    .extend((number(1)..number(2)).map(|index| (index, number(3))));
            }
            "snapshot" => self.snapshot = number(1),
            _ => {}
        }
    }

    pub(crate) fn check(&mut self, round: u64, storage: &Storage, found: &Acknowledged) {
        assert_eq!(
            *self.node_id.get_or_insert(storage.node_id()),
            found.node_id
        );
        let term = found
            .vote
            .as_ref()
            .map_or(0, |vote| vote.leader_id().term());
        assert!(term >= self.vote, "{round}: {term} in {self:?}");
        let snapshot = found.snapshot.as_ref().map_or(0, |data| number(data));
        assert!(snapshot >= self.snapshot, "{round}: {snapshot} in {self:?}");
        let purged = found.purged.map_or(0, |purged| purged.index);
        assert!(purged <= snapshot, "{round}: {purged} in {self:?}");
        // What is purged is in the snapshot.
        self.entries = self.entries.split_off(&(purged + 1));
        for (index, term) in &self.entries {
            let found = found.entries.get(index).map(|(term, _)| term);
            assert_eq!(found, Some(term), "{round}: entry {index} in {self:?}");
        }
    }
}

fn number(data: &[u8]) -> u64 {
    u64::from_le_bytes(*data.first_chunk().unwrap())
}

/// Not a test: what [`nothing_acknowledged_is_missing_after_a_kill`] kills.
#[test]
#[ignore = "runs in a child process"]
fn child_that_acknowledges() {
    let Some(dir) = child::directory() else {
        return;
    };
    let storage = machine::open(&dir).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(acknowledge(storage));
}

async fn acknowledge(storage: Storage) {
    let mut log: Log = storage.log_store().unwrap();
    let vote = log.read_vote().await.unwrap();
    let term = vote.map_or(0, |vote| vote.leader_id().term()) + 1;
    log.save_vote(&machine::vote(term, 1)).await.unwrap();
    say(&format!("vote {term}"));

    let state = log.get_log_state().await.unwrap();
    let mut next = state.last_log_id.map_or(1, |last| last.index + 1);
    let purged = state.last_purged_log_id.map_or(0, |purged| purged.index);
    if let Some(kept) = next.checked_sub(4).filter(|kept| *kept > purged) {
        let kept = log
            .try_get_log_entries(kept..=kept)
            .await
            .unwrap()
            .remove(0)
            .log_id;
        say(&format!("truncating {}", kept.index));
        log.truncate_after(Some(kept)).await.unwrap();
        next = kept.index + 1;
    }
    let mut snapshot = purged;
    loop {
        let first = next;
        let mut under_way = Vec::new();
        for count in 1..=APPENDS as u64 {
            let indices = next..next + count;
            let entries = indices.clone().map(|index| model::sized_entry(term, index));
            let (done, durable) = Config::oneshot();
            log.append(entries, IOFlushed::signal(done)).await.unwrap();
            under_way.push((indices.clone(), durable));
            next = indices.end;
        }
        for (indices, durable) in under_way {
            durable.await.unwrap().unwrap();
            say(&format!("entries {} {} {term}", indices.start, indices.end));
        }
        log.save_committed(Some(log_id(term, first))).await.unwrap();
        if first > snapshot + SNAPSHOT_ENTRIES {
            snapshot = first;
            let mut data = snapshot.to_le_bytes().to_vec();
            data.resize(20_000, 0);
            storage.snapshots().save(b"", &data).unwrap();
            say(&format!("snapshot {snapshot}"));
            log.purge(log_id(term, snapshot)).await.unwrap();
        }
    }
}
