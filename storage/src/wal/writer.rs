//! The one IO thread: takes what is queued, writes it at once, syncs once, then tells everybody.
//!
//! Votes and entries go the same way, so none overtakes another; while one sync runs, the next batch
//! gathers by itself. Nothing is told before its bytes are durable *and* the watermark says so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::disk::Disk;
use super::files::Files;
use super::index::Index;
use super::measures::Measures;
use super::queue::{Job, Queue};
use super::record::{self, Op, Place};
use super::segment::{self, Head, Segment};
use super::watermark::Watermark;
use crate::Error;

/// What readers share with the writer: where the entries are, and the files that they are in.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) index: Index,
    pub(crate) segments: BTreeMap<u64, Arc<Segment>>,
}

/// The IO thread's own.
pub(crate) struct Writer {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) store: u128,
    pub(crate) queue: Arc<Queue>,
    pub(crate) live: Arc<Mutex<Live>>,
    pub(crate) watermark: Arc<Mutex<Watermark>>,
    pub(crate) files: Files,
    /// The segment that is written to.
    pub(crate) segment: Arc<Segment>,
    /// Everything before this offset of it is durable.
    pub(crate) synced: u32,
    /// The next record's number.
    pub(crate) sequence: u64,
    /// Records that are to be written at `synced`.
    pub(crate) buffer: Vec<u8>,
    /// Segments that are not needed once the buffer is durable.
    pub(crate) released: Vec<Arc<Segment>>,
    pub(crate) measures: Arc<Measures>,
}

impl Writer {
    /// Works until the queue is closed or something fails.
    pub(crate) fn run(mut self) {
        // Even a panic must not leave anybody waiting, or believing that the store still works.
        let _ended = Ended(Arc::clone(&self.queue));
        self.files.want(self.segment.number + 1);
        while let Some((jobs, committed)) = self.queue.next() {
            let begun = Instant::now();
            let written = self.write(&jobs, committed);
            self.measures.appends.observe(begun.elapsed());
            match written {
                Ok(()) => self.queue.complete(jobs),
                Err(error) => return self.queue.fail(jobs, &error.to_string()),
            }
        }
    }

    fn write(&mut self, jobs: &[Job], committed: Option<Vec<u8>>) -> Result<(), Error> {
        for op in jobs.iter().flat_map(|job| &job.ops) {
            self.add(op)?;
        }
        if let Some(id) = committed {
            self.add(&Op::Committed(id))?;
        }
        self.flush()
    }

    /// Puts an operation into the buffer, in the next segment if this one is full.
    fn add(&mut self, op: &Op) -> Result<(), Error> {
        if self.offset() + op.record_bytes() > self.segment.bytes as usize {
            self.flush()?;
            self.begin_next_segment()?;
        }
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let purge;
        let mut op = op;
        if let Op::Purge {
            index,
            id,
            snapshot,
            ..
        } = op
        {
            let oldest = live
                .index
                .oldest_after(*index)
                .unwrap_or(self.segment.number);
            purge = Op::Purge {
                index: *index,
                id: id.clone(),
                snapshot: *snapshot,
                oldest,
            };
            op = &purge;
        }
        let offset = self.synced + self.buffer.len() as u32;
        live.index
            .apply(op, self.segment.number, offset)
            .map_err(Error::Refused)?;
        let place = Place {
            segment: self.segment.number,
            sequence: self.sequence,
            synced: self.synced,
        };
        record::write_op(&mut self.buffer, place, op);
        self.sequence += 1;
        let oldest = live.index.state().oldest;
        self.released.extend(
            live.segments
                .extract_if(..oldest, |_, _| true)
                .map(|(_, s)| s),
        );
        Ok(())
    }

    /// Where the next record goes.
    fn offset(&self) -> usize {
        self.synced as usize + self.buffer.len()
    }

    /// Makes the buffer durable.
    fn flush(&mut self) -> Result<(), Error> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let end = self.offset() as u32;
        let blob = &self.segment.blob;
        blob.write_at(self.synced.into(), &self.buffer)
            .map_err(|error| self.failed("write to", error))?;
        let begun = Instant::now();
        blob.sync().map_err(|error| self.failed("sync", error))?;
        self.measures.syncs.observe(begun.elapsed());
        self.measures.bytes.add(self.buffer.len() as u64);
        self.synced = end;
        self.buffer.clear();
        self.note()?;
        // Only now is it durable that they are not needed.
        self.files.release(self.released.drain(..));
        Ok(())
    }

    /// Goes on in a new segment. Everything before it is durable already.
    fn begin_next_segment(&mut self) -> Result<(), Error> {
        let number = self.segment.number + 1;
        let segment = Arc::new(self.files.take(number)?);
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let state = live.index.state().clone();
        live.segments.insert(number, Arc::clone(&segment));
        drop(live);

        self.segment = segment;
        let head = Head::new(self.store, number, self.segment.bytes, state).record(self.sequence);
        self.segment
            .blob
            .write_at(0, &head)
            .and_then(|()| self.segment.blob.sync())
            .map_err(|error| self.failed("begin", error))?;
        self.sequence += 1;
        self.synced = head.len() as u32;
        // Synced too: from here on a directory without this segment is a damaged one.
        self.note()?;
        let watermark = self
            .watermark
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .blob();
        watermark
            .sync()
            .map_err(|error| self.failed("sync the watermark for", error))?;
        self.files.want(number + 1);
        Ok(())
    }

    /// Says in the watermark how far everything is durable.
    fn note(&self) -> Result<(), Error> {
        let (segment, offset) = (self.segment.number, u64::from(self.synced));
        self.watermark
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .update(|mark| (mark.segment, mark.offset) = (segment, offset))
            .map_err(|error| self.failed("write the watermark for", error))
    }

    fn failed(&self, action: &'static str, error: std::io::Error) -> Error {
        Error::io(
            action,
            &self.disk.path(&segment::name(self.segment.number)),
            error,
        )
    }
}

/// Refuses everything that is queued if the thread panics.
struct Ended(Arc<Queue>);

impl Drop for Ended {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0
                .fail(Vec::new(), "the thread that writes the log panicked");
        }
    }
}
