//! The incoming side of the Raft lane: append streams, votes, transfers of leadership.
//!
//! One task for each connection, and no other between the socket and Raft: it reads what has arrived,
//! hands every request to Raft in order, and writes the answers in order, one write for all that are
//! ready. Faults answered:
//!
//! - *A removed node* that would raise the term: its votes and pre-votes are answered here and never
//!   reach Raft.
//! - *A peer that sends without reading*: requests under way and bytes to be written are bounded, and
//!   nothing is read while either bound is met.
//! - *A peer that is gone without a word*: the connection ends when nothing has come for a while.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use openraft::Raft;
use openraft::raft::{AppendEntriesResponse, TransferLeaderResponse, VoteResponse};
use openraft::storage::RaftStateMachine;

use super::connection::Connection;
use super::deadline::Deadline;
use super::registry::{LiveStream, Registry};
use super::wire::{self, Answer, Denied, Kind};
use super::{Error, Service};
use crate::type_config::TypeConfig;

/// Requests of one connection that Raft works on at the same time.
const IN_FLIGHT_MAX: usize = 64;

/// Answers that may wait to be written, in bytes, before reading stops.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// One connection of the Raft lane.
pub(crate) struct RaftLane<SM>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = Bytes>,
{
    pub(crate) connection: Connection,
    pub(crate) from: u64,
    pub(crate) raft: Raft<TypeConfig, SM>,
    pub(crate) service: Arc<dyn Service>,
    pub(crate) registry: Registry,
}

/// A request that Raft works on, or has answered before an earlier one.
enum Pending {
    Asked(BoxFuture<'static, Reply>),
    Answered(Reply),
}

enum Reply {
    Append(Answer<AppendEntriesResponse<TypeConfig>>),
    Vote(Answer<VoteResponse<TypeConfig>>),
    PreVote(Answer<VoteResponse<TypeConfig>>),
    TransferLeader(Answer<TransferLeaderResponse<TypeConfig>>),
}

impl Reply {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        match self {
            Reply::Append(answer) => wire::encode(Kind::Append, answer, out),
            Reply::Vote(answer) => wire::encode(Kind::Vote, answer, out),
            Reply::PreVote(answer) => wire::encode(Kind::PreVote, answer, out),
            Reply::TransferLeader(answer) => wire::encode(Kind::TransferLeader, answer, out),
        }
    }
}

impl<SM> RaftLane<SM>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = Bytes>,
{
    /// Serves the connection until the peer ends it between two frames, or it fails.
    pub(crate) async fn serve(mut self, idle: Duration) -> Result<(), Error> {
        let mut pending = VecDeque::new();
        let mut idle = Deadline::new(idle);
        let mut live = None;
        std::future::poll_fn(|cx| self.poll(&mut pending, &mut idle, &mut live, cx)).await
    }

    fn poll(
        &mut self,
        pending: &mut VecDeque<Pending>,
        idle: &mut Deadline,
        live: &mut Option<LiveStream>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        loop {
            while pending.len() < IN_FLIGHT_MAX
                && self.connection.queued_bytes() < ANSWER_BYTES_MAX
                && let Poll::Ready(frame) = self.connection.poll_frame(cx)?
            {
                let Some(frame) = frame else {
                    return Poll::Ready(Ok(()));
                };
                idle.restart();
                pending.push_back(self.dispatch(&frame, live)?);
            }
            poll_all(pending, cx);
            let answered = self.queue_answers(pending)?;
            let _ = self.connection.poll_flush(cx)?;
            if !answered {
                break;
            }
        }
        if idle.poll_passed(cx).is_ready() {
            return Poll::Ready(Err(Error::Timeout(idle.patience())));
        }
        Poll::Pending
    }

    /// Makes the call to Raft for one request; it is sent when it is first polled.
    fn dispatch(&self, frame: &Bytes, live: &mut Option<LiveStream>) -> Result<Pending, Error> {
        let (kind, content) = wire::split(frame)?;
        let raft = self.raft.clone();
        match kind {
            Kind::Append => {
                let request = wire::decode_append(self.from, &content)?;
                if live
                    .as_ref()
                    .is_none_or(|live| *live.vote() != request.vote)
                {
                    *live = Some(self.registry.enter(request.vote));
                }
                Ok(asked(async move {
                    let answer = raft.append_entries(request).await;
                    Reply::Append(answer.map_err(|_| Denied::Stopped))
                }))
            }
            Kind::Vote | Kind::PreVote if !self.service.admits_vote(self.from) => {
                wire::decode_vote(self.from, &content)?;
                Ok(Pending::Answered(match kind {
                    Kind::Vote => Reply::Vote(Err(Denied::NotAdmitted)),
                    _ => Reply::PreVote(Err(Denied::NotAdmitted)),
                }))
            }
            Kind::Vote => {
                let request = wire::decode_vote(self.from, &content)?;
                Ok(asked(async move {
                    Reply::Vote(raft.vote(request).await.map_err(|_| Denied::Stopped))
                }))
            }
            Kind::PreVote => {
                let request = wire::decode_vote(self.from, &content)?;
                Ok(asked(async move {
                    Reply::PreVote(raft.pre_vote(request).await.map_err(|_| Denied::Stopped))
                }))
            }
            Kind::TransferLeader => {
                let request = wire::decode_transfer(self.from, &content)?;
                Ok(asked(async move {
                    let answer = raft.handle_transfer_leader(request).await;
                    Reply::TransferLeader(answer.map_err(|_| Denied::Stopped))
                }))
            }
            Kind::Control | Kind::SnapshotBegin | Kind::SnapshotChunk => Err(Error::Malformed(
                "a message that does not belong to this connection",
            )),
        }
    }

    /// Encodes the answers that are ready and have none before them. True if there were any.
    fn queue_answers(&mut self, pending: &mut VecDeque<Pending>) -> Result<bool, Error> {
        let mut any = false;
        while let Some(Pending::Answered(reply)) = pending.front() {
            self.connection.queue(|out| reply.encode(out))?;
            pending.pop_front();
            any = true;
        }
        Ok(any)
    }
}

fn asked(call: impl Future<Output = Reply> + Send + 'static) -> Pending {
    Pending::Asked(Box::pin(call))
}

/// Polls every call in order. A call sends its request to Raft in its first poll or, should Raft's
/// queue be full, in a later one; as the order is the same each time, requests stay in order.
fn poll_all(pending: &mut VecDeque<Pending>, cx: &mut Context<'_>) {
    for one in pending {
        if let Pending::Asked(call) = one
            && let Poll::Ready(reply) = call.as_mut().poll(cx)
        {
            *one = Pending::Answered(reply);
        }
    }
}
