//! In-memory twin of the log store, for tests and simulation.
//!
//! It keeps the same contract as [`LogStore`](crate::LogStore) towards openraft (a hole in the log is
//! an error, so is a vote that goes back, appended entries are readable at once, callbacks run in order) and forgets everything
//! when the last handle goes. A simulated restart keeps the handle.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::alias::{EntryOf, LogIdOf, VoteOf};
use openraft::{LogState, OptionalSend, RaftLogReader, RaftTypeConfig};

use crate::log::{bounds, goes_back};
use crate::snapshots::Snapshots;

/// A log and vote that live in memory; handles share them.
#[derive(Debug)]
pub struct LogStore<C: RaftTypeConfig>(Arc<Mutex<Log<C>>>);

/// An empty snapshot store that lives in memory; handles share it.
pub fn snapshots() -> Snapshots {
    Snapshots::in_memory()
}

#[derive(Debug)]
struct Log<C: RaftTypeConfig> {
    vote: Option<VoteOf<C>>,
    committed: Option<LogIdOf<C>>,
    purged: Option<LogIdOf<C>>,
    /// Consecutive.
    entries: VecDeque<EntryOf<C>>,
}

impl<C: RaftTypeConfig> LogStore<C> {
    /// An empty store.
    pub fn new() -> Self {
        LogStore(Arc::new(Mutex::new(Log {
            vote: None,
            committed: None,
            purged: None,
            entries: VecDeque::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Log<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: RaftTypeConfig> Default for LogStore<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: RaftTypeConfig> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        LogStore(Arc::clone(&self.0))
    }
}

impl<C: RaftTypeConfig> Log<C> {
    fn next(&self) -> Option<u64> {
        match self.entries.back() {
            Some(last) => Some(last.index() + 1),
            None => self.purged.as_ref().map(|purged| purged.index + 1),
        }
    }
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStore<C>
where
    C::Entry: Clone,
{
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<C::Entry>> {
        let (start, end) = bounds(&range);
        let log = self.lock();
        let kept = log
            .entries
            .iter()
            .filter(|entry| (start..end).contains(&entry.index()));
        Ok(kept.cloned().collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<C>>> {
        Ok(self.lock().vote.clone())
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore<C>
where
    C::Entry: Clone,
{
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<C>> {
        let log = self.lock();
        let last = log.entries.back().map(RaftEntry::log_id);
        Ok(LogState {
            last_purged_log_id: log.purged.clone(),
            last_log_id: last.or_else(|| log.purged.clone()),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<C>) -> io::Result<()> {
        let mut log = self.lock();
        if log
            .vote
            .as_ref()
            .is_some_and(|current| goes_back(current, vote))
        {
            return Err(io::Error::other(format!(
                "vote {vote} after {:?}",
                log.vote
            )));
        }
        log.vote = Some(vote.clone());
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<C>>) -> io::Result<()> {
        self.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogIdOf<C>>> {
        Ok(self.lock().committed.clone())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> io::Result<()>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        {
            let mut log = self.lock();
            for entry in entries {
                let index = entry.index();
                if log.next().is_some_and(|next| next != index) {
                    return Err(io::Error::other(format!(
                        "entry {index} would leave a hole"
                    )));
                }
                log.entries.push_back(entry);
            }
        }
        callback.io_completed(Ok(()));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogIdOf<C>>) -> io::Result<()> {
        let mut log = self.lock();
        let next = last.map_or(0, |last| last.index + 1);
        while log
            .entries
            .back()
            .is_some_and(|entry| entry.index() >= next)
        {
            log.entries.pop_back();
        }
        Ok(())
    }

    async fn purge(&mut self, upto: LogIdOf<C>) -> io::Result<()> {
        let mut log = self.lock();
        while log
            .entries
            .front()
            .is_some_and(|entry| entry.index() <= upto.index)
        {
            log.entries.pop_front();
        }
        log.purged = Some(upto);
        Ok(())
    }
}
