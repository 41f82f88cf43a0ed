//! What is to be written, in order, between those who ask for it and the one IO thread.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::record::Op;
use crate::Error;
use crate::failure::Failure;

/// Bytes that may wait to be written before appending waits too: what a stalled disk can cost in memory.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Bytes that are taken at a time: bounds the writer's buffer and the wait of the first in a batch.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Called once when its operations are durable, or will not be. It is never forgotten: dropped uncalled
/// (a panic in the IO thread), it reports a failure.
pub(crate) struct Completion(Option<Box<dyn FnOnce(io::Result<()>) + Send>>);

impl Completion {
    pub(crate) fn new(call: impl FnOnce(io::Result<()>) + Send + 'static) -> Completion {
        Completion(Some(Box::new(call)))
    }

    /// For operations that nobody waits for.
    pub(crate) fn none() -> Completion {
        Completion(None)
    }

    pub(crate) fn call(mut self, result: io::Result<()>) {
        if let Some(call) = self.0.take() {
            call(result);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call(Err(
                Error::Poisoned("the write was given up".to_owned()).into()
            ));
        }
    }
}

/// Operations that become durable together, and who is told.
pub(crate) struct Job {
    pub(crate) ops: Vec<Op>,
    pub(crate) done: Completion,
}

/// The queue.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    filled: Condvar,
    drained: Notify,
    failure: Failure,
    /// How many of the submitted operations are durable.
    durable: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    bytes: usize,
    /// How many operations were ever submitted.
    submitted: u64,
    /// The newest committed log id, if it is not in the log yet. It wakes nobody: see
    /// [`Queue::set_committed`].
    committed: Option<Vec<u8>>,
    closed: bool,
}

impl Queue {
    pub(crate) fn new(failure: Failure) -> Queue {
        Queue {
            waiting: Mutex::default(),
            filled: Condvar::new(),
            drained: Notify::new(),
            failure,
            durable: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job and gives the number of its last operation. After a failure it is refused.
    pub(crate) fn submit(&self, job: Job) -> Result<u64, Error> {
        let mut waiting = self.lock();
        // Checked under the lock: the IO thread empties the queue under it after it has set the
        // failure, so no job is left behind.
        self.failure.check()?;
        waiting.bytes += bytes(&job);
        waiting.submitted += job.ops.len() as u64;
        waiting.jobs.push_back(job);
        self.filled.notify_one();
        Ok(waiting.submitted)
    }

    /// Leaves the newest committed log id to be written with whatever is written next. Losing it
    /// loses nothing: it only spares a restarted node some waiting.
    pub(crate) fn set_committed(&self, id: Vec<u8>) {
        self.lock().committed = Some(id);
    }

    /// Waits until the queue is not over its bound.
    pub(crate) async fn room(&self) {
        loop {
            let drained = self.drained.notified();
            tokio::pin!(drained);
            // Registered before the look, else a drain between the two would be missed.
            drained.as_mut().enable();
            if self.lock().bytes <= QUEUE_BYTES_MAX {
                return;
            }
            drained.await;
        }
    }

    /// How many of the submitted operations are durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// True if anything was ever submitted.
    pub(crate) fn is_used(&self) -> bool {
        self.lock().submitted > 0
    }

    /// Ends the IO thread when it has written what is there.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// The next jobs, in order, and the committed log id that goes with them. Waits for some; `None`
    /// when the queue is closed and empty.
    pub(crate) fn next(&self) -> Option<(Vec<Job>, Option<Vec<u8>>)> {
        let mut waiting = self.lock();
        while waiting.jobs.is_empty() && !waiting.closed {
            waiting = self
                .filled
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let committed = waiting.committed.take();
        let mut jobs = Vec::new();
        let mut taken = 0;
        while taken < BATCH_BYTES_MAX
            && let Some(job) = waiting.jobs.pop_front()
        {
            taken += bytes(&job);
            jobs.push(job);
        }
        waiting.bytes -= taken;
        self.drained.notify_waiters();
        (!jobs.is_empty() || committed.is_some()).then_some((jobs, committed))
    }

    /// Tells that these jobs are durable, in order.
    pub(crate) fn complete(&self, jobs: Vec<Job>) {
        let ops: usize = jobs.iter().map(|job| job.ops.len()).sum();
        self.durable.fetch_add(ops as u64, Ordering::AcqRel);
        for job in jobs {
            job.done.call(Ok(()));
        }
    }

    /// Refuses these jobs and all later ones.
    pub(crate) fn fail(&self, jobs: Vec<Job>, why: &str) {
        self.failure.set(why);
        let later = std::mem::take(&mut self.lock().jobs);
        self.lock().bytes = 0;
        self.drained.notify_waiters();
        for job in jobs.into_iter().chain(later) {
            job.done.call(Err(Error::Poisoned(why.to_owned()).into()));
        }
    }
}

fn bytes(job: &Job) -> usize {
    job.ops.iter().map(Op::record_bytes).sum()
}
