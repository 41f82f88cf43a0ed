//! Raft log and vote on the WAL.

use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::alias::{LogIdOf, VoteOf};
use openraft::{LogState, OptionalSend, RaftLogReader, RaftTypeConfig};

/// Raft's log and vote on disk. Handles share one log.
#[derive(Debug)]
pub struct LogStore<C: RaftTypeConfig> {
    _config: PhantomData<C>,
}

impl<C: RaftTypeConfig> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        LogStore {
            _config: PhantomData,
        }
    }
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStore<C>
where
    C::Entry: Clone,
{
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        _range: RB,
    ) -> io::Result<Vec<C::Entry>> {
        unimplemented!("the WAL is not there yet")
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<C>>> {
        unimplemented!("the WAL is not there yet")
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore<C>
where
    C::Entry: Clone,
{
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<C>> {
        unimplemented!("the WAL is not there yet")
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, _vote: &VoteOf<C>) -> io::Result<()> {
        unimplemented!("the WAL is not there yet")
    }

    async fn append<I>(&mut self, _entries: I, _callback: IOFlushed<C>) -> io::Result<()>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        unimplemented!("the WAL is not there yet")
    }

    async fn truncate_after(&mut self, _last: Option<LogIdOf<C>>) -> io::Result<()> {
        unimplemented!("the WAL is not there yet")
    }

    async fn purge(&mut self, _upto: LogIdOf<C>) -> io::Result<()> {
        unimplemented!("the WAL is not there yet")
    }
}

/// A range of indices as `start..end`.
pub(crate) fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}
