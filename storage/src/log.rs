//! Raft's log and vote on the WAL.
//!
//! **Readable at once.** `append` puts the entries into a cache in memory and into the WAL's queue; the
//! callback comes after the sync. Replication and apply read the newest entries from the cache; what
//! has left it is read again from its segment. An entry leaves the cache only when it is durable:
//! operations are numbered as they are submitted, and the WAL tells how many of them are.
//!
//! **Order.** Every change is submitted to the queue under the lock that guards the state here, so the
//! WAL's order is the order in which readers saw the changes. A position is looked up under the same
//! lock: an entry that is live and has left the cache has been written, and no later operation in the
//! queue that the WAL has gone through already can have moved it without the state here saying so.
//!
//! **What waits for a sync.** `save_vote` does, and an append's callback. Truncation and purge do not:
//! nothing is acknowledged by them, the next append's sync covers them (they are before it in the same
//! file), and a crash before it leaves the state in which Raft asked for them. The committed log id is
//! written with whatever is written next and wakes nobody: after a crash an older one makes the node
//! wait for its leader to say again what is committed. It is never ahead of the entries, because it is
//! written after them. A clean stop writes it.
//!
//! **Votes do not go back**, whoever asks: a vote that is less than the current one, or that is for
//! another candidate of the same term, is refused.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::Stream;
use openraft::entry::RaftEntry;
use openraft::errors::LeaderChanged;
use openraft::storage::{IOFlushed, LeaderBoundedStreamError, RaftLogStorage};
use openraft::type_config::alias::{EntryOf, LeaderIdOf, LogIdOf, VoteOf};
use openraft::vote::RaftVote;
use openraft::{LogState, OptionalSend, RaftLogReader, RaftTypeConfig};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::Inner;
use crate::wal::{self, Completion, Job, Located, Op, SMALL_BYTES_MAX, Vote};
use crate::{Error, codec};

/// Bytes of the newest entries, encoded, that stay in memory after they are durable.
const CACHE_BYTES_MAX: usize = 16 << 20;
/// Bytes of entries, encoded, that are read for one step of a stream or one limited read.
const READ_BYTES_MAX: usize = 1 << 20;

/// Raft's log and vote on disk. Handles share one log.
pub struct LogStore<C: RaftTypeConfig> {
    inner: Arc<Inner>,
    state: Arc<Mutex<State<C>>>,
}

impl<C: RaftTypeConfig> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        LogStore {
            inner: Arc::clone(&self.inner),
            state: Arc::clone(&self.state),
        }
    }
}

impl<C: RaftTypeConfig> Debug for LogStore<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogStore")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// The log as Raft has asked for it, durable or not.
pub(crate) struct State<C: RaftTypeConfig> {
    /// The newest durable vote.
    vote: Option<VoteOf<C>>,
    /// Number of the newest submitted vote.
    vote_number: u64,
    committed: Option<LogIdOf<C>>,
    purged: Option<LogIdOf<C>>,
    last: Option<LogIdOf<C>>,
    /// The live entries are `first..next`; `None` while the next one may have any index.
    range: Option<(u64, u64)>,
    /// The newest entries, up to `next`.
    cache: VecDeque<Cached<C>>,
    cache_bytes: usize,
}

struct Cached<C: RaftTypeConfig> {
    entry: EntryOf<C>,
    bytes: usize,
    /// Which submitted operation appends it.
    op: u64,
}

impl<C: RaftTypeConfig> State<C> {
    /// The state after a recovery.
    pub(crate) fn recover(wal: &wal::Wal) -> Result<State<C>, Error> {
        let recovered = wal.recovered();
        let decode_id = |bytes: &Vec<u8>| decode::<LogIdOf<C>>(bytes, "log id");
        let purged = recovered
            .purged
            .as_ref()
            .map(|purged| decode_id(&purged.id))
            .transpose()?;
        let vote = recovered.vote.as_ref();
        let mut last = purged.clone();
        let range = recovered
            .entries
            .map(|entries| (entries.first, entries.next));
        if let Some((first, next)) = range.filter(|(first, next)| first < next) {
            let index = (next - 1).max(first);
            for located in wal.locate(index, next, usize::MAX)? {
                last = Some(read_entry::<C>(&located, index)?.log_id());
            }
        }
        Ok(State {
            vote: vote.map(|vote| decode(&vote.bytes, "vote")).transpose()?,
            vote_number: vote.map_or(0, |vote| vote.number),
            committed: recovered.committed.as_ref().map(decode_id).transpose()?,
            purged,
            last,
            range,
            cache: VecDeque::new(),
            cache_bytes: 0,
        })
    }

    /// The index of the first entry in the cache, or of the next one.
    fn cache_first(&self) -> u64 {
        self.range.map_or(0, |(_, next)| next) - self.cache.len() as u64
    }

    /// Lets go of old entries that are durable, down to the cache's size.
    fn shrink(&mut self, durable: u64) {
        while self.cache_bytes > CACHE_BYTES_MAX
            && let Some(cached) = self.cache.pop_front_if(|cached| cached.op <= durable)
        {
            self.cache_bytes -= cached.bytes;
        }
    }

    fn truncate(&mut self, next: u64) {
        let Some((first, end)) = self.range.filter(|(_, end)| next < *end) else {
            return;
        };
        let next = next.max(first);
        for _ in next..end {
            let Some(cached) = self.cache.pop_back() else {
                break;
            };
            self.cache_bytes -= cached.bytes;
        }
        self.range = Some((first, next)).filter(|_| next > first || self.purged.is_some());
    }

    fn purge(&mut self, index: u64) {
        let next = self.range.map_or(index + 1, |(_, next)| next);
        while self
            .cache
            .front()
            .is_some_and(|cached| cached.entry.index() <= index)
        {
            self.cache_bytes -= self.cache.pop_front().map_or(0, |cached| cached.bytes);
        }
        let first = self.range.map_or(0, |(first, _)| first).max(index + 1);
        self.range = Some((first, next.max(first)));
    }
}

/// Entries to be read: first those that have left the cache, then those from it.
struct Plan<C: RaftTypeConfig> {
    first: u64,
    cold: Vec<Located>,
    warm: Vec<EntryOf<C>>,
}

impl<C: RaftTypeConfig> LogStore<C>
where
    C::Entry: Clone,
{
    /// Live entries of `start..end`, at least one if there is one, and no more when they have
    /// `bytes_max` bytes.
    async fn read(&self, start: u64, end: u64, bytes_max: usize) -> io::Result<Vec<C::Entry>> {
        let plan = self.plan(start, end, bytes_max)?;
        if plan.cold.is_empty() {
            return Ok(plan.warm);
        }
        // Old entries are mostly in the page cache, but where they are not, a disk read must not hold
        // up the runtime that Raft's core is on.
        let cold = tokio::task::spawn_blocking(move || -> Result<Vec<_>, Error> {
            let entries = plan.cold.iter().zip(plan.first..);
            entries
                .map(|(located, index)| read_entry::<C>(located, index))
                .collect()
        });
        let mut entries = cold.await.map_err(io::Error::other)??;
        entries.extend(plan.warm);
        Ok(entries)
    }

    fn plan(&self, start: u64, end: u64, bytes_max: usize) -> Result<Plan<C>, Error> {
        let state = self.lock();
        let (first, next) = state.range.unwrap_or((0, 0));
        let (start, end) = (start.max(first), end.min(next));
        let warm_start = state.cache_first().clamp(start, end.max(start));
        let cold = self.inner.wal.locate(start, warm_start, bytes_max)?;
        let mut bytes: usize = cold.iter().map(Located::bytes).sum();
        let mut warm = Vec::new();
        if start + cold.len() as u64 == warm_start {
            let skip = warm_start.saturating_sub(state.cache_first());
            let wanted = end.saturating_sub(warm_start) as usize;
            for cached in state.cache.iter().skip(skip as usize).take(wanted) {
                bytes += cached.bytes;
                if bytes > bytes_max && !(cold.is_empty() && warm.is_empty()) {
                    break;
                }
                warm.push(cached.entry.clone());
            }
        }
        Ok(Plan {
            first: start,
            cold,
            warm,
        })
    }

    /// Reads `range` part by part. With a leader, ends with an error when the vote is not, or no more,
    /// a committed one for it: then the entries may be truncated and replaced in the middle.
    fn stream(
        &self,
        range: (u64, u64),
        leader: Option<LeaderIdOf<C>>,
    ) -> impl Stream<Item = Result<C::Entry, LeaderBoundedStreamError<C>>> + Send + 'static {
        let reader = self.clone();
        let start = (Some(range), VecDeque::new());
        futures_util::stream::unfold(start, move |(mut rest, mut ready)| {
            let reader = reader.clone();
            let leader = leader.clone();
            async move {
                if let Some(entry) = ready.pop_front() {
                    return Some((Ok(entry), (rest, ready)));
                }
                let (start, end) = rest.take()?;
                let entries = match reader.read(start, end, READ_BYTES_MAX).await {
                    Ok(entries) => entries,
                    Err(error) => return Some((Err(error.into()), (None, ready))),
                };
                // Looked at after the read: a vote that is still the leader's has let nobody truncate.
                if let Some(error) = leader.and_then(|leader| reader.leader_changed(leader)) {
                    return Some((Err(error.into()), (None, ready)));
                }
                ready = entries.into();
                let entry = ready.pop_front()?;
                let next = ready.back().unwrap_or(&entry).index() + 1;
                Some((Ok(entry), (Some((next, end)).filter(|_| next < end), ready)))
            }
        })
    }

    fn leader_changed(&self, leader: LeaderIdOf<C>) -> Option<LeaderChanged<C>> {
        let vote = self.lock().vote.clone();
        let unchanged = vote
            .as_ref()
            .is_some_and(|vote| *vote.leader_id() == leader && vote.is_committed());
        (!unchanged).then(|| LeaderChanged::new(leader, vote))
    }
}

impl<C: RaftTypeConfig> LogStore<C> {
    pub(crate) fn new(inner: Arc<Inner>, state: Arc<Mutex<State<C>>>) -> Self {
        LogStore { inner, state }
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits one operation that nobody waits for.
    fn submit(&self, op: Op) -> Result<(), Error> {
        let job = Job {
            ops: vec![op],
            done: Completion::none(),
        };
        self.inner.wal.queue().submit(job).map(|_| ())
    }

    /// Encodes entries and checks that they follow the log.
    fn encode(
        &self,
        state: &State<C>,
        entries: impl Iterator<Item = C::Entry>,
    ) -> Result<(Vec<Op>, Vec<C::Entry>), Error> {
        let mut next = state.range.map(|(_, next)| next);
        let mut ops = Vec::new();
        let mut kept = Vec::new();
        for entry in entries {
            let index = entry.index();
            if next.is_some_and(|next| next != index) || index == u64::MAX {
                return Err(Error::Refused(format!("entry {index} would leave a hole")));
            }
            next = Some(index + 1);
            let bytes = encode(&entry, self.inner.wal.entry_bytes_max())?;
            ops.push(Op::Entry { index, bytes });
            kept.push(entry);
        }
        Ok((ops, kept))
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
        self.read(start, end, usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<C::Entry>> {
        self.read(start, end, READ_BYTES_MAX).await
    }

    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<C::Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        use futures_util::StreamExt;
        Box::pin(self.stream(bounds(&range), None).map(|item| {
            item.map_err(|error| match error {
                LeaderBoundedStreamError::IoError(error) => error,
                LeaderBoundedStreamError::LeaderChanged(error) => io::Error::other(error),
            })
        }))
    }

    async fn leader_bounded_stream<RB>(
        &mut self,
        leader: LeaderIdOf<C>,
        range: RB,
    ) -> impl Stream<Item = Result<C::Entry, LeaderBoundedStreamError<C>>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        Box::pin(self.stream(bounds(&range), Some(leader)))
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
        let state = self.lock();
        Ok(LogState {
            last_purged_log_id: state.purged.clone(),
            last_log_id: state.last.clone(),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<C>) -> io::Result<()> {
        let bytes = encode(vote, SMALL_BYTES_MAX)?;
        let (done, durable) = tokio::sync::oneshot::channel();
        let numbered = {
            let mut state = self.lock();
            if state
                .vote
                .as_ref()
                .is_some_and(|current| goes_back(current, vote))
            {
                let what = format!("vote {vote} after {:?}", state.vote);
                return Err(Error::Refused(what).into());
            }
            let numbered = Vote {
                number: state.vote_number + 1,
                bytes,
            };
            let done = Completion::new(move |result| drop(done.send(result)));
            let job = Job {
                ops: vec![Op::Vote(numbered.clone())],
                done,
            };
            self.inner.wal.queue().submit(job)?;
            state.vote_number = numbered.number;
            numbered
        };
        durable.await.map_err(io::Error::other)??;
        self.lock().vote = Some(vote.clone());
        self.inner.vote_copy.copy(numbered);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<C>>) -> io::Result<()> {
        let Some(committed) = committed else {
            return Ok(());
        };
        let bytes = encode(&committed, SMALL_BYTES_MAX)?;
        let mut state = self.lock();
        if state.committed.as_ref() < Some(&committed) {
            self.inner.wal.queue().set_committed(bytes);
            state.committed = Some(committed);
        }
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
            let mut state = self.lock();
            let (ops, entries) = self.encode(&state, entries.into_iter())?;
            let sizes: Vec<_> = ops.iter().map(Op::record_bytes).collect();
            let done = Completion::new(|result| callback.io_completed(result));
            let queue = self.inner.wal.queue();
            let last_op = queue.submit(Job { ops, done })?;
            let first_op = last_op + 1 - entries.len() as u64;
            for ((entry, bytes), op) in entries.into_iter().zip(sizes).zip(first_op..) {
                let index = entry.index();
                let first = state.range.map_or(index, |(first, _)| first);
                state.range = Some((first, index + 1));
                state.last = Some(entry.log_id());
                state.cache_bytes += bytes;
                state.cache.push_back(Cached { entry, bytes, op });
            }
            state.shrink(queue.durable());
        }
        // A disk that has stalled must hold up what fills the queue, else it fills the memory.
        self.inner.wal.queue().room().await;
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogIdOf<C>>) -> io::Result<()> {
        let next = last.as_ref().map_or(0, |last| last.index + 1);
        let mut state = self.lock();
        let Some((first, _)) = state.range.filter(|(_, end)| next < *end) else {
            return Ok(());
        };
        self.submit(Op::Truncate { next })?;
        state.truncate(next);
        // Nothing before the first live entry can be truncated, so `last` is live or purged.
        state.last = if next > first {
            last
        } else {
            state.purged.clone()
        };
        Ok(())
    }

    async fn purge(&mut self, upto: LogIdOf<C>) -> io::Result<()> {
        let id = encode(&upto, SMALL_BYTES_MAX)?;
        let mut state = self.lock();
        if upto.index == u64::MAX || state.purged.as_ref().is_some_and(|purged| *purged >= upto) {
            return Ok(());
        }
        let snapshot = self.inner.snapshot_number();
        self.submit(Op::Purge {
            index: upto.index,
            id,
            snapshot,
            oldest: 0,
        })?;
        state.purge(upto.index);
        if state
            .last
            .as_ref()
            .is_none_or(|last| last.index <= upto.index)
        {
            state.last = Some(upto.clone());
        }
        state.purged = Some(upto);
        Ok(())
    }
}

/// True if `next` may not follow `current`: it is less, or for another candidate of the same term.
pub(crate) fn goes_back<V: RaftVote>(current: &V, next: &V) -> bool {
    !matches!(
        RaftVote::partial_cmp(next, current),
        Some(std::cmp::Ordering::Equal | std::cmp::Ordering::Greater)
    )
}

fn encode(value: &impl Serialize, bytes_max: usize) -> Result<Vec<u8>, Error> {
    let bytes = codec::encode(value).map_err(|error| Error::Refused(error.to_string()))?;
    if bytes.len() > bytes_max {
        let length = bytes.len();
        return Err(Error::Refused(format!(
            "{length} bytes where {bytes_max} are the most"
        )));
    }
    Ok(bytes)
}

fn decode<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, Error> {
    codec::decode(bytes, bytes.len())
        .map_err(|error| Error::Refused(format!("a {what} of another type of log: {error}")))
}

fn read_entry<C: RaftTypeConfig>(located: &Located, index: u64) -> Result<C::Entry, Error> {
    let entry: C::Entry = decode(&located.read(index)?, "log entry")?;
    if entry.index() != index {
        return Err(Error::Refused(format!(
            "entry {} at index {index}",
            entry.index()
        )));
    }
    Ok(entry)
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
