//! The outgoing append stream: many requests under way, answers in order.
//!
//! One object, polled by openraft's own replication task: it takes the requests that are there,
//! encodes them behind each other, writes once, and hands out the answers as they come. Faults
//! answered:
//!
//! - *A peer that stops answering.* Each answer must come within a patience of the one before it (or
//!   of its request), else the stream ends with an error. The connection is closed when that has
//!   happened a few times in a row, or with much under way (see [`Link`]).
//! - *A connection that ends*, in the middle of a frame or between two: an error, never an orderly
//!   end, so that openraft does not take what is unanswered for sent.
//! - *Lingering.* The stream ends in the same poll in which its input has ended and the last answer
//!   was given, so heartbeats and a change of leader wait for nothing.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt};
use openraft::errors::RPCError;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, StreamAppendResult,
};

use super::Error;
use super::deadline::Deadline;
use super::link::Link;
use super::measures::PeerMeasures;
use super::network::rpc_error;
use super::wire::{self, Kind, LogId};
use crate::type_config::TypeConfig;

/// Requests under way on one stream.
pub(crate) const IN_FLIGHT_MAX: usize = 64;

/// Bytes queued for writing at which no further request is taken.
const QUEUED_BYTES_MAX: usize = 2 * 1024 * 1024;

/// One append stream. The connection goes back into its slot at the end.
pub(crate) struct AppendStream<'s, S> {
    slot: &'s mut Option<Link>,
    /// `None` once the stream has failed: the connection is closed by dropping it.
    link: Option<Link>,
    input: Option<S>,
    in_flight: VecDeque<Range>,
    deadline: Deadline,
    measures: Arc<PeerMeasures>,
}

/// What a request covers: the answers do not repeat it.
struct Range {
    sent: Instant,
    prev: Option<LogId>,
    last: Option<LogId>,
}

type Item = Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>;

impl<'s, S> AppendStream<'s, S>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Unpin,
{
    pub(crate) fn new(
        link: Link,
        slot: &'s mut Option<Link>,
        input: S,
        patience: Duration,
        measures: Arc<PeerMeasures>,
    ) -> Self {
        Self {
            slot,
            link: Some(link),
            input: Some(input),
            in_flight: VecDeque::new(),
            deadline: Deadline::new(patience),
            measures,
        }
    }

    /// Takes the requests that are there, as long as there is room for them.
    fn take_requests(&mut self, link: &mut Link, cx: &mut Context<'_>) -> Result<(), Error> {
        while let Some(input) = &mut self.input
            && self.in_flight.len() < IN_FLIGHT_MAX
            && link.connection.queued_bytes() < QUEUED_BYTES_MAX
        {
            match input.poll_next_unpin(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => self.input = None,
                Poll::Ready(Some(request)) => {
                    if self.in_flight.is_empty() {
                        self.deadline.restart();
                    }
                    for part in wire::parts(&request) {
                        link.connection
                            .queue(|out| wire::encode(Kind::Append, &part, out))?;
                        let range = Range {
                            sent: Instant::now(),
                            prev: part.prev_log_id,
                            last: part.last_log_id(),
                        };
                        self.in_flight.push_back(range);
                    }
                }
            }
        }
        Ok(())
    }

    /// The next answer, or `None` when all have been given and no request will come.
    fn poll_answer(
        &mut self,
        link: &mut Link,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<StreamAppendResult<TypeConfig>>, Error>> {
        self.take_requests(link, cx)?;
        // Writing and reading go on side by side: a peer that waits for us to read its answers
        // must not wait for ever because we wait for it to read.
        let _ = link.connection.poll_flush(cx)?;
        if self.in_flight.is_empty() && self.input.is_none() {
            return Poll::Ready(Ok(None));
        }
        while let Poll::Ready(frame) = link.connection.poll_frame(cx)? {
            let frame = frame.ok_or_else(|| Error::cut("between two answers"))?;
            self.deadline.restart();
            if link.owed > 0 {
                link.owed -= 1;
                continue;
            }
            let answer: AppendEntriesResponse<TypeConfig> =
                wire::decode_answer(Kind::Append, &frame)?;
            let range = self.in_flight.pop_front();
            let range = range.ok_or(Error::Malformed("an answer to nothing"))?;
            self.measures.round_trips.observe(range.sent.elapsed());
            return Poll::Ready(Ok(Some(result(answer, range)?)));
        }
        if !self.in_flight.is_empty() && self.deadline.poll_passed(cx).is_ready() {
            return Poll::Ready(Err(Error::Timeout(self.deadline.patience())));
        }
        Poll::Pending
    }
}

/// What an answer says about the range that was sent.
fn result(
    answer: AppendEntriesResponse<TypeConfig>,
    range: Range,
) -> Result<StreamAppendResult<TypeConfig>, Error> {
    Ok(match answer {
        AppendEntriesResponse::Success => Ok(range.last),
        AppendEntriesResponse::HigherVote(vote) => Err(StreamAppendError::HigherVote(vote)),
        AppendEntriesResponse::Conflict => {
            let prev = range
                .prev
                .ok_or(Error::Malformed("a conflict before the first entry"))?;
            Err(StreamAppendError::Conflict(prev))
        }
        AppendEntriesResponse::PartialSuccess(_) => {
            return Err(Error::Malformed("a partial success, which is never sent"));
        }
    })
}

impl<S> Stream for AppendStream<'_, S>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Unpin,
{
    type Item = Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let this = self.get_mut();
        let Some(mut link) = this.link.take() else {
            return Poll::Ready(None);
        };
        match this.poll_answer(&mut link, cx) {
            Poll::Pending => {
                this.link = Some(link);
                Poll::Pending
            }
            Poll::Ready(Ok(Some(Ok(matching)))) => {
                this.link = Some(link);
                Poll::Ready(Some(Ok(Ok(matching))))
            }
            // The end, or an answer after which openraft wants no more of this stream.
            Poll::Ready(Ok(last)) => {
                this.keep(link);
                Poll::Ready(last.map(Ok))
            }
            Poll::Ready(Err(error)) => {
                this.measures.calls_failed.add_one();
                // A late answer may be a slow disk: the link itself counts how often.
                if matches!(error, Error::Timeout(_)) {
                    this.keep(link);
                }
                Poll::Ready(Some(Err(rpc_error(&error))))
            }
        }
    }
}

impl<S> AppendStream<'_, S> {
    /// Gives the connection back. Answers that are under way are owed to nobody.
    fn keep(&mut self, mut link: Link) {
        link.owed += self.in_flight.len();
        self.in_flight.clear();
        *self.slot = Some(link);
    }
}

impl<S> Drop for AppendStream<'_, S> {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            self.keep(link);
        }
    }
}
