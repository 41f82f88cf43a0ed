//! Opens a log: tells a torn tail from damage.
//!
//! **The question.** Reading stops somewhere: at zeros, at records of an earlier life, at bytes that are
//! no record. Was the rest never acknowledged (a crash in the middle of a write), or has it been lost?
//! Dropping acknowledged records would let this node vote twice or forget what it promised a leader;
//! refusing after every crash would be useless. So the log is cut only where nothing proves that more
//! had been durable. Proofs are:
//!
//! 1. the [`watermark`]: it covers all that was acknowledged before a crash of the
//!    process, and after a power cut what was acknowledged when it last reached the disk by itself;
//! 2. a later record of the same segment that says `synced` beyond the gap: each write tells how far
//!    the write before it had come, so after a power cut everything but the last write is proven;
//! 3. the head of a later segment: it is written only when all before it is durable.
//!
//! What remains is the last write before a *power cut*, if the *disk* then also damages it: nothing
//! short of a second copy could tell that from a write that never ended.
//!
//! **What must be there.** The newest segment says which one is the oldest needed; all between must exist
//! and be read up to the record before the next one's head. A file of another size than its head says
//! is damaged. The sequence of the records has no gap, each head's state equals what the records before
//! it add up to, and in the end the position of every live entry is known.
//!
//! **Strays.** A power cut may keep the second half of the last write and lose the first. Records of the
//! lost half must not come back when new records happen to end where an old one begins: so they are
//! overwritten with zeros, and that is synced, before anything is appended.
//!
//! **One sync first.** What was read may be in the page cache only (the process was killed between its
//! write and its sync). Raft will build on it, so it is synced before it is handed out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use super::disk::Disk;
use super::index::{Index, State};
use super::record::{self, ALIGNMENT, HEADER_BYTES, Kind, Op, Record};
use super::segment::{self, HEAD_BYTES_MAX, Head, SEGMENT_BYTES_MAX, Segment};
use super::watermark::{self, Watermark};
use crate::Error;

/// A log that was opened.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// What the records add up to.
    pub(crate) index: Index,
    /// The segments that are needed, by number.
    pub(crate) segments: BTreeMap<u64, Arc<Segment>>,
    /// Where the next record goes, in the newest segment.
    pub(crate) offset: u32,
    /// The next record's number.
    pub(crate) sequence: u64,
    /// The watermark, already moved to `offset`.
    pub(crate) watermark: Watermark,
    /// A purged segment under its spare name.
    pub(crate) spare: Option<Segment>,
    /// The segment after the newest, if it was prepared already.
    pub(crate) ready: Option<Segment>,
}

/// Makes an empty log, replacing what is there.
pub(crate) fn create(disk: &dyn Disk, store: u128, segment_bytes: u32) -> Result<(), Error> {
    let failed = |error| Error::io("create", &disk.path(watermark::NAME), error);
    for name in disk.list().map_err(failed)? {
        disk.remove(&name).map_err(failed)?;
    }
    let first = segment::create(disk, 1, segment_bytes, |_| Ok(true))?;
    let first = first.expect("nothing ends it early");
    let state = State {
        oldest: 1,
        ..State::default()
    };
    let head = Head::new(store, 1, segment_bytes, state).record(1);
    first
        .blob
        .write_at(0, &head)
        .and_then(|()| first.blob.sync())
        .map_err(failed)?;
    Watermark::create(disk)
        .and_then(|_| disk.sync())
        .map_err(failed)
}

/// True if a log was ever opened here, as far as can be told: anything but what an interrupted
/// [`create`] leaves.
pub(crate) fn is_used(disk: &dyn Disk) -> io::Result<bool> {
    if Watermark::open(disk).is_ok_and(|watermark| watermark.mark().segment > 0) {
        return Ok(true);
    }
    for number in disk.list()?.iter().filter_map(|name| segment::number(name)) {
        let beginning = read_beginning(disk, &segment::name(number))?;
        let head_bytes = Head::parse(&beginning, number).map_or(0, |(_, _, bytes)| bytes);
        let later = number > 1 && head_bytes > 0;
        if later || beginning[head_bytes..].iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Opens the log of `store`.
pub(crate) fn open(disk: &dyn Disk, store: u128, segment_bytes: u32) -> Result<Recovered, Error> {
    let watermark = Watermark::open(disk)?;
    let numbers = tidy(disk)?;
    let (newest, unused) = newest(disk, store, &numbers, &watermark)?;
    let oldest = newest.oldest();
    let last = newest.segment.number;

    let mut segments = BTreeMap::new();
    let mut replay: Option<Replay> = None;
    for number in oldest..last {
        if !numbers.contains(&number) {
            return Err(missing(disk, number, last));
        }
        let loaded = Loaded::read(disk, store, number)?;
        segments.insert(number, Arc::clone(&loaded.segment));
        replay = Some(Replay::join(replay, disk, &loaded)?.read(disk, &loaded)?);
    }
    segments.insert(last, Arc::clone(&newest.segment));
    let replay = Replay::join(replay, disk, &newest)?.read(disk, &newest)?;
    let watermark = finish(disk, &replay, &newest, watermark)?;

    let purged = numbers.range(..oldest).map(|number| segment::name(*number));
    let ready = Reusable::new(disk, segment_bytes).ready(unused, last + 1)?;
    let spare = Reusable::new(disk, segment_bytes).spare(purged)?;
    Ok(Recovered {
        index: replay.index,
        segments,
        offset: replay.end,
        sequence: replay.sequence,
        watermark,
        spare,
        ready,
    })
}

/// Removes what an interrupted preparation left, and lists the segments.
fn tidy(disk: &dyn Disk) -> Result<BTreeSet<u64>, Error> {
    let failed = |error| Error::io("list", &disk.path(""), error);
    let names = disk.list().map_err(failed)?;
    for name in names.iter().filter(|name| name.ends_with(".tmp")) {
        disk.remove(name).map_err(failed)?;
    }
    Ok(names
        .iter()
        .filter_map(|name| segment::number(name))
        .collect())
}

fn missing(disk: &dyn Disk, number: u64, newest: u64) -> Error {
    let path = disk.path(&segment::name(number));
    Error::corrupted(
        &path,
        format!("the segment is missing (the newest is {newest})"),
    )
}

/// The first bytes of a segment, where its head is.
fn read_beginning(disk: &dyn Disk, name: &str) -> io::Result<Vec<u8>> {
    let blob = disk.open(name)?;
    let mut bytes = vec![0; blob.length()?.min(HEAD_BYTES_MAX as u64) as usize];
    blob.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// The newest segment that was ever written to, and the numbers of later files, which were not.
fn newest(
    disk: &dyn Disk,
    store: u128,
    numbers: &BTreeSet<u64>,
    watermark: &Watermark,
) -> Result<(Loaded, Vec<u64>), Error> {
    let acknowledged = watermark.mark().segment;
    let mut unused = Vec::new();
    for number in numbers.iter().rev().copied() {
        let name = segment::name(number);
        let path = disk.path(&name);
        let beginning =
            read_beginning(disk, &name).map_err(|error| Error::io("read", &path, error))?;
        if Head::parse(&beginning, number).is_some() {
            if number < acknowledged {
                return Err(missing(disk, acknowledged, number));
            }
            return Ok((Loaded::read(disk, store, number)?, unused));
        }
        if number <= acknowledged {
            return Err(Error::damaged(
                &path,
                0,
                "the segment's head is not whole, but the segment was in use",
            ));
        }
        unused.push(number);
    }
    Err(missing(disk, acknowledged.max(1), 0))
}

/// A segment in memory, its head and its size verified.
struct Loaded {
    segment: Arc<Segment>,
    head: Head,
    head_sequence: u64,
    head_bytes: usize,
    bytes: Vec<u8>,
}

impl Loaded {
    fn read(disk: &dyn Disk, store: u128, number: u64) -> Result<Loaded, Error> {
        let name = segment::name(number);
        let path = disk.path(&name);
        let failed = |error| Error::io("read", &path, error);
        let blob = disk.open(&name).map_err(failed)?;
        let length = blob.length().map_err(failed)?;
        if length > u64::from(SEGMENT_BYTES_MAX) {
            return Err(Error::corrupted(
                &path,
                format!("{length} bytes are too many"),
            ));
        }
        let mut bytes = vec![0; length as usize];
        blob.read_at(0, &mut bytes).map_err(failed)?;
        let Some((head, head_sequence, head_bytes)) = Head::parse(&bytes, number) else {
            return Err(Error::damaged(&path, 0, "the segment's head is not whole"));
        };
        if u64::from(head.bytes) != length {
            let what = format!(
                "the segment must have {} bytes, it has {length}",
                head.bytes
            );
            return Err(Error::damaged(&path, length, what));
        }
        if head.store != store {
            return Err(Error::corrupted(
                &path,
                "the segment is of another data directory",
            ));
        }
        let segment = Arc::new(Segment {
            number,
            bytes: head.bytes,
            blob,
        });
        Ok(Loaded {
            segment,
            head,
            head_sequence,
            head_bytes,
            bytes,
        })
    }

    /// The records after the head, with their offsets, up to the first that is none.
    fn records(&self) -> impl Iterator<Item = (usize, Record<'_>)> {
        let mut offset = self.head_bytes;
        let mut sequence = self.head_sequence;
        std::iter::from_fn(move || {
            let record = record::read(&self.bytes[offset..], self.segment.number)?;
            if record.sequence != sequence.saturating_add(1) {
                return None;
            }
            sequence += 1;
            let at = offset;
            offset += record.bytes();
            Some((at, record))
        })
    }

    /// The oldest segment that is needed, as far as this one knows.
    fn oldest(&self) -> u64 {
        let purges = self
            .records()
            .filter(|(_, record)| record.kind == Kind::Purge);
        let oldest =
            purges.filter_map(|(_, record)| match Op::parse(record.kind, record.payload) {
                Some(Op::Purge { oldest, .. }) => Some(oldest),
                _ => None,
            });
        let newest = oldest.last().unwrap_or(0).max(self.head.state.oldest);
        newest.clamp(1, self.segment.number)
    }

    /// Whole records of this segment behind its end, with their offsets. Only such as could one day
    /// be taken for the next record are of interest: their sequence is not far from the end's.
    fn strays(&self, end: usize, sequence: u64) -> impl Iterator<Item = (usize, Record<'_>)> {
        let records_max = (self.bytes.len() / HEADER_BYTES) as u64;
        let plausible = sequence..=sequence.saturating_add(records_max);
        (end..self.bytes.len())
            .step_by(ALIGNMENT)
            .filter_map(move |offset| {
                let bytes = &self.bytes[offset..];
                record::sequence(bytes).filter(|sequence| plausible.contains(sequence))?;
                Some((offset, record::read(bytes, self.segment.number)?))
            })
    }
}

/// The records read so far.
struct Replay {
    index: Index,
    /// The next record's number.
    sequence: u64,
    /// The segment that was read last, and where its records end.
    segment: u64,
    end: u32,
}

impl Replay {
    /// Goes on from what was read before to the head of the next segment, or starts with it.
    fn join(before: Option<Replay>, disk: &dyn Disk, next: &Loaded) -> Result<Replay, Error> {
        let number = next.segment.number;
        let Some(before) = before else {
            let index = Index::new(next.head.state.clone());
            return Ok(Replay {
                index,
                sequence: next.head_sequence.saturating_add(1),
                segment: number,
                end: 0,
            });
        };
        let path = disk.path(&segment::name(before.segment));
        if before.sequence != next.head_sequence {
            let what = format!(
                "record {} is not whole, but segment {number} begins with record {}",
                before.sequence, next.head_sequence
            );
            return Err(Error::damaged(&path, before.end.into(), what));
        }
        if *before.index.state() != next.head.state {
            let what = format!("the records do not add up to what segment {number} begins with");
            return Err(Error::corrupted(&path, what));
        }
        Ok(Replay {
            sequence: before.sequence.saturating_add(1),
            segment: number,
            ..before
        })
    }

    fn read(mut self, disk: &dyn Disk, loaded: &Loaded) -> Result<Replay, Error> {
        self.end = loaded.head_bytes as u32;
        for (offset, record) in loaded.records() {
            let wrong = |what| {
                Error::damaged(
                    &disk.path(&segment::name(self.segment)),
                    offset as u64,
                    what,
                )
            };
            let op = Op::parse(record.kind, record.payload)
                .ok_or_else(|| wrong(format!("record {} makes no sense", record.sequence)))?;
            self.index
                .apply(&op, self.segment, offset as u32)
                .map_err(wrong)?;
            self.sequence = record.sequence.saturating_add(1);
            self.end = (offset + record.bytes()) as u32;
        }
        Ok(self)
    }
}

/// Decides whether the newest segment may end where its records end; if so, makes that durable.
fn finish(
    disk: &dyn Disk,
    replay: &Replay,
    newest: &Loaded,
    mut watermark: Watermark,
) -> Result<Watermark, Error> {
    let path = disk.path(&segment::name(replay.segment));
    let end = u64::from(replay.end);
    let lost = |proof: String| {
        let what = format!("record {} is not whole, but {proof}", replay.sequence);
        Err(Error::damaged(&path, end, what))
    };
    let mark = watermark.mark();
    if mark.segment == replay.segment && mark.offset > end {
        return lost(format!(
            "everything up to byte {} had been acknowledged",
            mark.offset
        ));
    }
    let mut strays_end = replay.end as usize;
    for (offset, record) in newest.strays(replay.end as usize, replay.sequence) {
        if u64::from(record.synced) > end {
            return lost(format!(
                "record {} at byte {offset} says that everything up to byte {} had been durable",
                record.sequence, record.synced
            ));
        }
        strays_end = offset + record.bytes();
    }
    let missing = replay.index.missing();
    if !missing.is_empty() {
        let what = format!(
            "log entries {} to {} are missing",
            missing.start,
            missing.end - 1
        );
        return Err(Error::corrupted(&disk.path(""), what));
    }
    let blob = &newest.segment.blob;
    let strays = strays_end - replay.end as usize;
    if strays > 0 {
        tracing::info!(path = %path.display(), end, strays, "a torn write is cut off");
    }
    blob.write_at(end, &vec![0; strays])
        .and_then(|()| blob.sync())
        .and_then(|()| disk.sync())
        .and_then(|()| watermark.update(|mark| (mark.segment, mark.offset) = (replay.segment, end)))
        .and_then(|()| watermark.sync())
        .map_err(|error| Error::io("sync", &path, error))?;
    Ok(watermark)
}

/// Takes over files that hold nothing, if they have the right size; removes the others.
struct Reusable<'a> {
    disk: &'a dyn Disk,
    segment_bytes: u32,
}

impl<'a> Reusable<'a> {
    fn new(disk: &'a dyn Disk, segment_bytes: u32) -> Self {
        Reusable {
            disk,
            segment_bytes,
        }
    }

    /// The file for the next segment.
    fn ready(&self, unused: Vec<u64>, next: u64) -> Result<Option<Segment>, Error> {
        let mut ready = None;
        for number in unused {
            let name = segment::name(number);
            match self.take(&name, number)? {
                Some(segment) if number == next => ready = Some(segment),
                _ => self.remove(&name)?,
            }
        }
        Ok(ready)
    }

    /// One spare file, out of purged segments and those that are spare already.
    fn spare(&self, purged: impl Iterator<Item = String>) -> Result<Option<Segment>, Error> {
        let failed = |error| Error::io("list", &self.disk.path(""), error);
        let names = self.disk.list().map_err(failed)?;
        let spares = names.into_iter().filter(|name| name.ends_with(".spare"));
        let mut spare = None;
        for name in purged.chain(spares) {
            // Which number a spare had does not matter, as long as its name can be made from it.
            let number = u64::from_str_radix(name.split('.').next().unwrap_or(""), 16);
            let taken = match number {
                Ok(number) if spare.is_none() => self.take(&name, number)?,
                _ => None,
            };
            let Some(segment) = taken else {
                self.remove(&name)?;
                continue;
            };
            let spare_name = segment::spare_name(segment.number);
            self.disk.rename(&name, &spare_name).map_err(failed)?;
            spare = Some(segment);
        }
        Ok(spare)
    }

    fn take(&self, name: &str, number: u64) -> Result<Option<Segment>, Error> {
        let failed = |error| Error::io("open", &self.disk.path(name), error);
        let blob = self.disk.open(name).map_err(failed)?;
        let fits = blob.length().map_err(failed)? == u64::from(self.segment_bytes);
        Ok(fits.then_some(Segment {
            number,
            bytes: self.segment_bytes,
            blob,
        }))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.disk
            .remove(name)
            .map_err(|error| Error::io("remove", &self.disk.path(name), error))
    }
}
