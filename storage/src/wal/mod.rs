//! The write-ahead log: numbered segments of checksummed records, written by one thread.
//!
//! It knows bytes and indices, not Raft: which vote is greater or what an entry says is not its
//! business. What it promises:
//!
//! - An operation is durable when its completion is called with `Ok`, and so are all before it.
//! - After a crash, [`recovery`] gives exactly the operations up to some point at or after the last
//!   completion, or refuses with what is wrong.
//! - After a failed write or sync nothing is completed any more.
//!
//! | module | |
//! |---|---|
//! | [`record`] | bytes and checksums |
//! | [`segment`] | files of records, their names and heads |
//! | [`index`] | what the records add up to |
//! | [`watermark`] | how far everything was acknowledged |
//! | [`recovery`] | torn or damaged? |
//! | [`queue`], [`writer`] | the one IO thread |
//! | [`measures`] | what it measures of itself |
//! | [`files`] | prepares and recycles segments in the background |
//! | [`disk`] | the seam to the file system |

pub(crate) mod disk;
mod files;
mod index;
mod measures;
mod queue;
mod record;
mod recovery;
mod segment;
#[cfg(test)]
mod simulation;
mod watermark;
mod writer;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub(crate) use index::{Position, State};
pub use measures::Measures;
pub(crate) use queue::{Completion, Job};
pub(crate) use record::{Op, SMALL_BYTES_MAX, Vote};
pub(crate) use recovery::{create, is_used};
pub(crate) use segment::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, Segment, entry_bytes_max};
pub(crate) use watermark::Watermark;

use crate::Error;
use crate::failure::Failure;
use disk::Disk;
use files::Files;
use queue::Queue;
use writer::{Live, Writer};

/// An open log. Dropping it writes what is queued and ends its threads.
pub(crate) struct Wal {
    disk: Arc<dyn Disk>,
    entry_bytes_max: usize,
    queue: Arc<Queue>,
    live: Arc<Mutex<Live>>,
    watermark: Arc<Mutex<Watermark>>,
    measures: Arc<Measures>,
    recovered: State,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wal")
            .field("disk", &self.disk)
            .finish_non_exhaustive()
    }
}

/// An entry to be read from its segment.
#[derive(Debug)]
pub(crate) struct Located {
    position: Position,
    segment: Arc<Segment>,
    path: PathBuf,
}

impl Wal {
    /// Recovers the log of `store` and starts its threads. `segment_bytes` is the size of new
    /// segments, between [`SEGMENT_BYTES_MIN`] and [`SEGMENT_BYTES_MAX`].
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        store: u128,
        segment_bytes: u32,
        failure: Failure,
    ) -> Result<Wal, Error> {
        let recovered = recovery::open(&*disk, store, segment_bytes)?;
        let newest = recovered
            .segments
            .last_key_value()
            .expect("recovery found one")
            .1;
        let segment = Arc::clone(newest);
        let state = recovered.index.state().clone();
        let threads_failed = |error| Error::io("start threads for", &disk.path(""), error);
        let files = Files::start(
            Arc::clone(&disk),
            segment_bytes,
            recovered.spare,
            recovered.ready,
        )
        .map_err(threads_failed)?;
        let queue = Arc::new(Queue::new(failure));
        let live = Live {
            index: recovered.index,
            segments: recovered.segments,
        };
        let live = Arc::new(Mutex::new(live));
        let watermark = Arc::new(Mutex::new(recovered.watermark));
        let measures = Arc::new(Measures::default());
        let writer = Writer {
            disk: Arc::clone(&disk),
            store,
            queue: Arc::clone(&queue),
            live: Arc::clone(&live),
            watermark: Arc::clone(&watermark),
            files,
            segment,
            synced: recovered.offset,
            sequence: recovered.sequence,
            buffer: Vec::new(),
            released: Vec::new(),
            measures: Arc::clone(&measures),
        };
        let thread = std::thread::Builder::new()
            .name("wal".to_owned())
            .spawn(move || writer.run())
            .map_err(threads_failed)?;
        Ok(Wal {
            disk,
            entry_bytes_max: entry_bytes_max(segment_bytes),
            queue,
            live,
            watermark,
            measures,
            recovered: state,
            thread: Some(thread),
        })
    }

    /// The state as it was when the log was opened.
    pub(crate) fn recovered(&self) -> &State {
        &self.recovered
    }

    /// What the IO thread has measured.
    pub(crate) fn measures(&self) -> Arc<Measures> {
        Arc::clone(&self.measures)
    }

    /// The queue of the IO thread.
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Encoded entries may have at most so many bytes.
    pub(crate) fn entry_bytes_max(&self) -> usize {
        self.entry_bytes_max
    }

    /// The watermark, for what else is to be covered by it.
    pub(crate) fn watermark(&self) -> Arc<Mutex<Watermark>> {
        Arc::clone(&self.watermark)
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds entries from `start` on, before `end`, until they have more than `bytes_max` bytes (but at
    /// least one). All of them must be durable and live.
    pub(crate) fn locate(
        &self,
        start: u64,
        end: u64,
        bytes_max: usize,
    ) -> Result<Vec<Located>, Error> {
        let live = self.live();
        let mut located = Vec::new();
        let mut bytes = 0;
        for index in start..end {
            let position = live.index.position(index);
            let segment = position.and_then(|position| live.segments.get(&position.segment));
            let (Some(position), Some(segment)) = (position, segment) else {
                return Err(Error::Refused(format!("entry {index} is not in the log")));
            };
            bytes += position.bytes as usize;
            if bytes > bytes_max && !located.is_empty() {
                break;
            }
            let path = self.disk.path(&segment::name(segment.number));
            located.push(Located {
                position,
                segment: Arc::clone(segment),
                path,
            });
        }
        Ok(located)
    }
}

impl Located {
    /// Bytes of the entry.
    pub(crate) fn bytes(&self) -> usize {
        self.position.bytes as usize
    }

    /// Reads the entry and verifies it. Blocks on the disk.
    pub(crate) fn read(&self, index: u64) -> Result<Vec<u8>, Error> {
        let offset = u64::from(self.position.offset);
        let mut bytes = vec![0; Op::entry_record_bytes(self.bytes())];
        self.segment
            .blob
            .read_at(offset, &mut bytes)
            .map_err(|error| Error::io("read", &self.path, error))?;
        let record = record::read(&bytes, self.segment.number);
        match record.and_then(|record| Op::parse(record.kind, record.payload)) {
            Some(Op::Entry {
                index: found,
                bytes,
            }) if found == index => Ok(bytes),
            _ => {
                let what = format!("the record of log entry {index} is not whole");
                Err(Error::damaged(&self.path, offset, what))
            }
        }
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // A panic there has failed the store and was reported by its hook.
            let _ = thread.join();
        }
    }
}
