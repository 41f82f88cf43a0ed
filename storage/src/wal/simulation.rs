//! Power cuts and failing disks, thousands of times.
//!
//! [`Sim`] is a disk in memory that knows what is durable. A cut keeps each unsynced sector (512 bytes)
//! or not, by the toss of a coin, and the unsynced renames and creations up to some point. It happens
//! at any operation of any thread, several times in the life of one log. After each, the log must open,
//! and its state must be that of some prefix of the operations, at least all that were completed.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::disk::{Blob, Disk};
use super::record::{Op, Vote};
use super::segment::SEGMENT_BYTES_MIN;
use super::watermark::NAME;
use super::{Completion, Job, Wal, create, is_used, segment};
use crate::failure::Failure;

const SECTOR_BYTES: usize = 512;
const STORE: u128 = 7;
const ROUNDS: u64 = 150;

/// SplitMix64.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// A file: what is durable, what a reader sees, and the writes that make the difference.
#[derive(Clone, Debug, Default)]
struct Inode {
    durable: Vec<u8>,
    seen: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

/// A change of the directory.
#[derive(Clone, Debug)]
enum Change {
    Link(String, u64),
    Rename(String, String),
    Unlink(String),
}

type Names = BTreeMap<String, u64>;

#[derive(Debug)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: Names,
    durable_names: Names,
    unsynced: Vec<Change>,
    operations: u64,
    random: Random,
    /// The operation at which power is cut (or the process is killed), and what that leaves.
    cut_at: u64,
    kill: bool,
    cut: Option<Cut>,
    /// The operation that fails.
    fail_at: u64,
    completed: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Cut {
    disk: Sim,
    /// Operations of the log that were completed when the power was cut.
    completed: u64,
}

/// The simulated disk.
#[derive(Clone, Debug)]
struct Sim(Arc<Mutex<State>>);

impl Sim {
    fn new(seed: u64) -> Sim {
        Sim::with(BTreeMap::new(), BTreeMap::new(), Random(seed))
    }

    fn with(inodes: BTreeMap<u64, Inode>, names: Names, random: Random) -> Sim {
        Sim(Arc::new(Mutex::new(State {
            inodes,
            durable_names: names.clone(),
            names,
            unsynced: Vec::new(),
            operations: 0,
            random,
            cut_at: u64::MAX,
            kill: false,
            cut: None,
            fail_at: u64::MAX,
            completed: Arc::default(),
        })))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Cuts the power at the operation after so many more.
    fn cut_after(&self, operations: u64) {
        let mut state = self.state();
        state.cut_at = state.operations + operations + 1;
    }

    /// Lets the operation after so many more fail.
    fn fail_after(&self, operations: u64) {
        let mut state = self.state();
        state.fail_at = state.operations + operations + 1;
    }

    /// What the cut left; cuts now if it has not come yet.
    fn cut(&self) -> Cut {
        let mut state = self.state();
        match state.cut.take() {
            Some(cut) => cut,
            None => state.cut_power(),
        }
    }
}

impl State {
    /// Counts an operation.
    fn step(&mut self) -> io::Result<()> {
        self.operations += 1;
        if self.operations == self.cut_at {
            self.cut = Some(if self.kill {
                self.kill()
            } else {
                self.cut_power()
            });
        }
        match self.operations == self.fail_at {
            true => Err(io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }

    /// A kill leaves everything as the kernel has it.
    fn kill(&mut self) -> Cut {
        let completed = self.completed.load(Ordering::SeqCst);
        let names = self.names.clone();
        let disk = Sim::with(self.inodes.clone(), names, self.random.clone());
        let mut state = disk.state();
        state.durable_names = self.durable_names.clone();
        state.unsynced = self.unsynced.clone();
        drop(state);
        Cut { disk, completed }
    }

    fn cut_power(&mut self) -> Cut {
        // Before anything else: what is completed later may be lost.
        let completed = self.completed.load(Ordering::SeqCst);
        let mut random = self.random.clone();
        let mut names = self.durable_names.clone();
        let kept = random.below(self.unsynced.len() as u64 + 1) as usize;
        self.unsynced[..kept]
            .iter()
            .for_each(|change| apply(&mut names, change));
        // Some cuts lose everything, some nothing.
        let odds = random.below(3);
        let mut inodes = self.inodes.clone();
        for inode in inodes.values_mut() {
            for (offset, bytes) in std::mem::take(&mut inode.unsynced) {
                for (offset, sector) in sectors(offset, &bytes) {
                    if random.below(2) + odds >= 2 {
                        write(&mut inode.durable, offset, sector);
                    }
                }
            }
            inode.seen = inode.durable.clone();
        }
        Cut {
            disk: Sim::with(inodes, names, random),
            completed,
        }
    }
}

/// The parts of a write by sector.
fn sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let length = (SECTOR_BYTES - (offset + at) % SECTOR_BYTES).min(rest.len());
        at += length;
        Some((offset + at - length, &rest[..length]))
    })
}

fn write(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    file.resize(file.len().max(offset + bytes.len()), 0);
    file[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn apply(names: &mut Names, change: &Change) {
    match change {
        Change::Link(name, inode) => drop(names.insert(name.clone(), *inode)),
        Change::Unlink(name) => drop(names.remove(name)),
        Change::Rename(from, to) => {
            let inode = names.remove(from).expect("renames follow what they rename");
            names.insert(to.clone(), inode);
        }
    }
}

impl Disk for Sim {
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/sim").join(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn Blob>> {
        let mut state = self.state();
        let inode = state.inodes.keys().next_back().map_or(1, |last| last + 1);
        state.inodes.insert(inode, Inode::default());
        state.change(Change::Link(name.to_owned(), inode))?;
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            inode,
        }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Blob>> {
        let inode = self.state().names.get(name).copied();
        let inode = inode.ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            inode,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.state()
            .change(Change::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.state().change(Change::Unlink(name.to_owned()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        for change in std::mem::take(&mut state.unsynced) {
            apply(&mut state.durable_names, &change);
        }
        Ok(())
    }
}

impl State {
    fn change(&mut self, change: Change) -> io::Result<()> {
        apply(&mut self.names, &change);
        self.unsynced.push(change);
        self.step()
    }
}

#[derive(Debug)]
struct SimFile {
    disk: Sim,
    inode: u64,
}

impl SimFile {
    fn with<T>(&self, call: impl FnOnce(&mut Inode) -> T) -> T {
        let mut state = self.disk.state();
        call(state.inodes.get_mut(&self.inode).expect("inodes stay"))
    }
}

impl Blob for SimFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.with(|inode| inode.seen.len() as u64))
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.with(|inode| {
            let part = inode
                .seen
                .get(offset as usize..)
                .and_then(|rest| rest.get(..bytes.len()));
            bytes.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|inode| {
            write(&mut inode.seen, offset as usize, bytes);
            inode.unsynced.push((offset as usize, bytes.to_vec()));
        });
        self.disk.state().step()
    }

    fn sync(&self) -> io::Result<()> {
        // A cut at this step is one in the middle of the sync.
        let stepped = self.disk.state().step();
        self.with(|inode| match &stepped {
            Ok(()) => {
                inode.unsynced.clear();
                inode.durable = inode.seen.clone();
            }
            // The kernel gives up on the dirty pages: they stay readable and are never written.
            Err(_) => inode.unsynced.clear(),
        });
        stepped
    }
}

/// What operations add up to, written down a second time and as simply as possible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    votes: u64,
    entries: BTreeMap<u64, Bytes>,
    purged: Option<u64>,
    next: u64,
}

impl Model {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Vote(vote) => self.votes = vote.number,
            Op::Entry { index, bytes } => {
                self.entries.insert(*index, Bytes::copy_from_slice(bytes));
                self.next = index + 1;
            }
            Op::Truncate { next } => {
                self.entries.split_off(next);
                self.next = *next;
            }
            Op::Purge { index, .. } => {
                self.entries = self.entries.split_off(&(index + 1));
                self.purged = Some(*index);
            }
            Op::Committed(_) => {}
        }
    }

    /// What a log has.
    fn of(wal: &Wal) -> Model {
        let state = wal.recovered();
        let range = state
            .entries
            .map_or(0..0, |entries| entries.first..entries.next);
        let located = wal.locate(range.start, range.end, usize::MAX).unwrap();
        let entries = located.iter().zip(range.clone());
        Model {
            votes: state.vote.as_ref().map_or(0, |vote| vote.number),
            entries: entries
                .map(|(entry, index)| (index, entry.read(index).unwrap().into()))
                .collect(),
            purged: state.purged.as_ref().map(|purged| purged.index),
            next: range.end,
        }
    }

    /// An operation that makes sense here; its content is unlike any other's.
    fn next_op(&self, random: &mut Random) -> Op {
        let first = self.purged.map_or(0, |purged| purged + 1);
        let live = self.next.saturating_sub(first);
        match random.below(20) {
            0 => Op::Vote(Vote {
                number: self.votes + 1,
                bytes: vec![1; 20],
            }),
            1 if live > 2 => Op::Truncate {
                next: self.next - 1 - random.below(live.min(5)),
            },
            2 | 3 if live > 20 => {
                let index = first + random.below(live - 5);
                Op::Purge {
                    index,
                    id: vec![2; 16],
                    snapshot: 0,
                    oldest: 0,
                }
            }
            _ => {
                // Few sizes, so that records of different lives often begin at the same places.
                let bytes = [60, 60, 500, 3_000][random.below(4) as usize];
                let content = (0..bytes).map(|_| random.below(256) as u8).collect();
                Op::Entry {
                    index: self.next,
                    bytes: content,
                }
            }
        }
    }
}

/// One span between two cuts: the operations submitted, as models after each of them.
struct Life {
    disk: Sim,
    models: Vec<Model>,
    results: Receiver<io::Result<()>>,
    failure: Failure,
}

/// Opens the log and runs random operations on it until `stop` says so.
fn live(
    disk: Sim,
    start: Model,
    random: &mut Random,
    mut stop: impl FnMut(&State) -> bool,
) -> Life {
    let failure = Failure::new();
    let wal = Wal::open(
        Arc::new(disk.clone()),
        STORE,
        SEGMENT_BYTES_MIN,
        failure.clone(),
    );
    let wal = wal.expect("the start was opened before");
    let completed = Arc::clone(&disk.state().completed);
    let (results, receiver) = std::sync::mpsc::channel();
    let mut models = vec![start];
    let mut waiting = 0;
    while !stop(&disk.state()) {
        let mut ops = Vec::new();
        for _ in 0..=random.below(3) {
            let mut model = models.last().unwrap().clone();
            let op = model.next_op(random);
            model.apply(&op);
            models.push(model);
            ops.push(op);
        }
        if random.below(4) == 0 {
            wal.queue().set_committed(vec![3; 16]);
        }
        let count = ops.len() as u64;
        let (results, completed) = (results.clone(), Arc::clone(&completed));
        let done = Completion::new(move |result| {
            if result.is_ok() {
                completed.fetch_add(count, Ordering::SeqCst);
            }
            results.send(result).unwrap();
        });
        if wal.queue().submit(Job { ops, done }).is_err() {
            break;
        }
        waiting += 1;
        // Different numbers under way make different batches.
        while waiting > random.below(6) {
            if receiver.recv().unwrap().is_err() {
                return Life {
                    disk,
                    models,
                    results: receiver,
                    failure,
                };
            }
            waiting -= 1;
        }
    }
    drop(wal);
    Life {
        disk,
        models,
        results: receiver,
        failure,
    }
}

/// Opens what is left and finds which of the models it is.
fn reopen(disk: &Sim, life: &Life, completed: u64, what: &str) -> Model {
    let wal = Wal::open(
        Arc::new(disk.clone()),
        STORE,
        SEGMENT_BYTES_MIN,
        Failure::new(),
    );
    let wal = wal.unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = Model::of(&wal);
    assert!(
        life.models[completed as usize..].contains(&found),
        "{what}: {completed} of {} operations were completed; found {} votes, entries to {}",
        life.models.len() - 1,
        found.votes,
        found.next,
    );
    found
}

/// Removes the newest segment that was begun: the log is refused, or nothing completed was in it.
fn lose_newest(disk: &Sim, life: &Life, completed: u64, what: &str) {
    let disk = {
        let state = disk.state();
        Sim::with(state.inodes.clone(), state.names.clone(), Random(0))
    };
    let begun = |name: &String| {
        let number = segment::number(name)?;
        let mut bytes = vec![0; SEGMENT_BYTES_MIN as usize];
        disk.open(name).unwrap().read_at(0, &mut bytes).unwrap();
        segment::Head::parse(&bytes, number).map(|_| number)
    };
    let newest = disk.list().unwrap().iter().filter_map(begun).max();
    disk.remove(&segment::name(newest.expect("one is always there")))
        .unwrap();
    let opened = Wal::open(Arc::new(disk), STORE, SEGMENT_BYTES_MIN, Failure::new());
    if let Ok(wal) = opened {
        let found = Model::of(&wal);
        assert!(life.models[completed as usize..].contains(&found), "{what}");
    }
}

fn new_disk(seed: u64) -> Sim {
    let disk = Sim::new(seed);
    create(&disk, STORE, SEGMENT_BYTES_MIN).unwrap();
    disk
}

#[test]
fn a_power_cut_leaves_all_that_was_completed_and_nothing_that_never_was() {
    for seed in 0..ROUNDS {
        let mut random = Random(seed);
        let mut disk = new_disk(seed);
        let mut model = Model::default();
        for cut in 0..6 {
            disk.cut_after(random.below(150));
            let life = live(disk, model, &mut random, |state| state.cut.is_some());
            let Cut {
                disk: left,
                completed,
            } = life.disk.cut();
            let what = format!("seed {seed}, cut {cut}");
            lose_newest(&left, &life, completed, &what);
            model = reopen(&left, &life, completed, &what);
            disk = left;
        }
    }
}

#[test]
fn a_second_cut_in_the_middle_of_a_recovery_changes_nothing() {
    for seed in 0..ROUNDS {
        let mut random = Random(seed + 1_000);
        let disk = new_disk(seed);
        disk.cut_after(20 + random.below(100));
        let life = live(disk, Model::default(), &mut random, |state| {
            state.cut.is_some()
        });
        let Cut {
            disk: left,
            completed,
        } = life.disk.cut();
        left.cut_after(random.below(8));
        let first = reopen(&left, &life, completed, &format!("seed {seed}"));
        let second = reopen(
            &left.cut().disk,
            &life,
            completed,
            &format!("seed {seed}, again"),
        );
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn the_second_half_of_a_torn_write_does_not_come_back() {
    let disk = new_disk(1);
    let open = || {
        Wal::open(
            Arc::new(disk.clone()),
            STORE,
            SEGMENT_BYTES_MIN,
            Failure::new(),
        )
        .unwrap()
    };
    let write = |wal: &Wal, indices: std::ops::Range<u64>, content: u8| {
        let bytes = vec![content; 600];
        let entry = |index| Op::Entry {
            index,
            bytes: bytes.clone(),
        };
        let (done, durable) = std::sync::mpsc::channel();
        let done = Completion::new(move |result| done.send(result).unwrap());
        wal.queue()
            .submit(Job {
                ops: indices.map(entry).collect(),
                done,
            })
            .unwrap();
        durable.recv().unwrap().unwrap();
    };
    let wal = open();
    write(&wal, 0..1, 1);
    let watermark = disk.open(NAME).unwrap();
    let mut before = vec![0; watermark.length().unwrap() as usize];
    watermark.read_at(0, &mut before).unwrap();
    write(&wal, 1..3, 2);
    let lost = wal.live().index.position(1).unwrap();
    drop(wal);

    // A power cut in the middle of the second write that kept only its second record.
    watermark.write_at(0, &before).unwrap();
    let segment = disk.open(&segment::name(lost.segment)).unwrap();
    segment.write_at(lost.offset.into(), &[0; 100]).unwrap();
    let wal = open();
    assert_eq!(Model::of(&wal).next, 1);
    // Of the same size, so it ends where the record after the lost one begins.
    write(&wal, 1..2, 3);
    drop(wal);
    let found = Model::of(&open());
    assert_eq!((found.next, found.entries[&1][0]), (2, 3));
}

#[test]
fn what_is_handed_out_after_a_kill_survives_a_power_cut() {
    for seed in 0..ROUNDS {
        let mut random = Random(seed + 3_000);
        let disk = new_disk(seed);
        disk.state().kill = true;
        disk.cut_after(20 + random.below(100));
        let life = live(disk, Model::default(), &mut random, |state| {
            state.cut.is_some()
        });
        let Cut {
            disk: left,
            completed,
        } = life.disk.cut();
        let handed_out = reopen(&left, &life, completed, &format!("seed {seed}"));
        let found = reopen(
            &left.cut().disk,
            &life,
            completed,
            &format!("seed {seed}, again"),
        );
        assert_eq!(found, handed_out, "seed {seed}");
    }
}

#[test]
fn a_cut_while_the_log_is_made_leaves_nothing_that_counts() {
    for at in 0..40 {
        for seed in 0..10 {
            let disk = Sim::new(seed);
            disk.cut_after(at);
            create(&disk, STORE, SEGMENT_BYTES_MIN).unwrap();
            let left = disk.cut().disk;
            assert!(!is_used(&left).unwrap(), "operation {at}, seed {seed}");
            create(&left, STORE, SEGMENT_BYTES_MIN).unwrap();
            Wal::open(Arc::new(left), STORE, SEGMENT_BYTES_MIN, Failure::new()).unwrap();
        }
    }
}

#[test]
fn nothing_is_completed_after_a_failure() {
    for seed in 0..ROUNDS {
        let mut random = Random(seed + 2_000);
        let disk = new_disk(seed);
        // Later than the opening, which would be refused.
        disk.fail_after(20 + random.below(100));
        let mut failed = None;
        let life = live(disk.clone(), Model::default(), &mut random, |state| {
            // Failing to prepare a segment is no harm yet, and tried again.
            failed = failed.or((state.operations >= state.fail_at).then_some(state.operations));
            failed.is_some_and(|at| state.operations > at + 60)
        });
        let completed = disk.state().completed.load(Ordering::SeqCst);
        if life.failure.check().is_err() {
            let mut rest = life.results.try_iter().skip_while(Result::is_ok);
            assert!(
                rest.all(|result| result.is_err()),
                "seed {seed}: completed later"
            );
        }
        reopen(&disk.cut().disk, &life, completed, &format!("seed {seed}"));
    }
}

#[test]
fn the_log_takes_a_bounded_number_of_files() {
    let disk = new_disk(1);
    let mut random = Random(1);
    let mut model = Model::default();
    for _ in 0..20 {
        let mut operations = 0;
        let life = live(disk.clone(), model, &mut random, |_| {
            operations += 1;
            operations > 200
        });
        model = life.models.into_iter().next_back().unwrap();
        let live_bytes: usize = model.entries.values().map(|entry| entry.len() + 50).sum();
        // Live entries, one segment half used at each end, one prepared, one spare, the watermark.
        let files_max = live_bytes / SEGMENT_BYTES_MIN as usize + 6;
        let wal = Wal::open(
            Arc::new(disk.clone()),
            STORE,
            SEGMENT_BYTES_MIN,
            Failure::new(),
        );
        drop(wal.unwrap());
        let files = disk.list().unwrap();
        assert!(files.len() <= files_max, "{files_max} would do: {files:?}");
    }
}
