//! Prepares the next segment and disposes of old ones, in the background.
//!
//! Zero-filling a segment takes longer than many appends, and a directory sync longer than one, so
//! neither is done while somebody waits for an acknowledgement. One segment is prepared ahead, and
//! at most one purged segment is kept to become the next: that bounds what the log takes on disk to
//! the live segments and two more.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::disk::Disk;
use super::segment::{self, Segment};
use crate::Error;

/// The handle of the background thread.
#[derive(Debug)]
pub(crate) struct Files {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    segment_bytes: u32,
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    /// The segment to be prepared; stays until that is done.
    wanted: Option<u64>,
    /// The segment that was prepared, or why it could not be.
    ready: Option<Result<Segment, Error>>,
    /// Segments that nothing needs any more.
    released: VecDeque<Arc<Segment>>,
    /// A purged segment under its spare name.
    spare: Option<Segment>,
    /// The thread is to end.
    closed: bool,
    /// The thread has ended.
    gone: bool,
}

impl Files {
    /// Starts the thread. `spare` has its spare name, `ready` its segment name.
    pub(crate) fn start(
        disk: Arc<dyn Disk>,
        segment_bytes: u32,
        spare: Option<Segment>,
        ready: Option<Segment>,
    ) -> std::io::Result<Files> {
        let work = Work {
            spare,
            ready: ready.map(Ok),
            ..Work::default()
        };
        let shared = Arc::new(Shared {
            disk,
            segment_bytes,
            work: Mutex::new(work),
            changed: Condvar::new(),
        });
        let thread = std::thread::Builder::new()
            .name("wal-files".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let _gone = Gone(&shared);
                    shared.run();
                }
            })?;
        Ok(Files {
            shared,
            thread: Some(thread),
        })
    }

    /// Asks for a segment to be prepared.
    pub(crate) fn want(&self, number: u64) {
        let mut work = self.shared.lock();
        if work.ready.is_none() {
            self.shared.ask(&mut work, number);
        }
    }

    /// Takes the prepared segment, waiting until it is there. If preparing it failed, it is tried once
    /// more: a disk that was full may have room again.
    pub(crate) fn take(&self, number: u64) -> Result<Segment, Error> {
        let mut work = self.shared.lock();
        let mut failed_before = false;
        loop {
            match work.ready.take() {
                Some(Ok(segment)) if segment.number == number => return Ok(segment),
                Some(Err(error)) if failed_before => return Err(error),
                Some(Err(_)) => failed_before = true,
                Some(Ok(_)) | None => {}
            }
            if work.gone {
                return Err(Error::Poisoned(
                    "nothing prepares segments any more".to_owned(),
                ));
            }
            self.shared.ask(&mut work, number);
            work = self
                .shared
                .changed
                .wait(work)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives up segments that nothing needs any more. That they are not needed is durable already.
    pub(crate) fn release(&self, segments: impl IntoIterator<Item = Arc<Segment>>) {
        self.shared.lock().released.extend(segments);
        self.shared.changed.notify_all();
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its hook; there is nothing left to do about it here.
            let _ = thread.join();
        }
    }
}

/// Tells those who wait for the thread that it has ended, in whatever way.
struct Gone<'a>(&'a Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.lock().gone = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, work: &mut Work, number: u64) {
        work.wanted = Some(number);
        self.changed.notify_all();
    }

    fn run(&self) {
        let mut work = self.lock();
        while !work.closed {
            if let Some(segment) = work.released.pop_front() {
                let keep = work.spare.is_none();
                drop(work);
                let spare = self.dispose(segment, keep);
                work = self.lock();
                work.spare = work.spare.take().or(spare);
            } else if let Some(number) = work.wanted {
                let spare = work.spare.take();
                drop(work);
                let ready = self.prepare(number, spare).transpose();
                if let Some(Err(error)) = &ready {
                    // Not a failure of the store yet: it is tried again when the segment is needed.
                    tracing::warn!(%error, "cannot prepare the next log segment");
                }
                work = self.lock();
                work.ready = ready;
                work.wanted = None;
                self.changed.notify_all();
            } else {
                work = self
                    .changed
                    .wait(work)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// A segment under its name, from the spare file or from zeros. `None` if the store closes.
    fn prepare(&self, number: u64, spare: Option<Segment>) -> Result<Option<Segment>, Error> {
        let Some(spare) = spare else {
            // Each part is synced before the next is written: one large sync at the end would hold
            // up the log's own syncs for as long as it takes.
            return segment::create(&*self.disk, number, self.segment_bytes, |blob| {
                blob.sync()?;
                Ok(!self.lock().closed)
            });
        };
        let name = segment::name(number);
        self.disk
            .rename(&segment::spare_name(spare.number), &name)
            .and_then(|()| self.disk.sync())
            .map_err(|error| Error::io("rename to", &self.disk.path(&name), error))?;
        Ok(Some(Segment { number, ..spare }))
    }

    /// Removes a segment, or keeps it as the spare. Failing to is no danger: the next start of the
    /// store finds the file and tries again.
    fn dispose(&self, segment: Arc<Segment>, keep: bool) -> Option<Segment> {
        let number = segment.number;
        let name = segment::name(number);
        // A reader may still be in it; then its records must stay as they are.
        let spare = Arc::try_unwrap(segment)
            .ok()
            .filter(|segment| keep && segment.bytes == self.segment_bytes);
        let done = match &spare {
            Some(_) => self.disk.rename(&name, &segment::spare_name(number)),
            None => self.disk.remove(&name),
        };
        if let Err(error) = done {
            let path = self.disk.path(&name);
            tracing::warn!(path = %path.display(), %error, "cannot dispose of a purged segment");
            return None;
        }
        spare
    }
}
