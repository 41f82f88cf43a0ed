//! One authenticated connection: frames in, replies out, an orderly end.
//!
//! One task owns the stream. It reads when it may, decodes what it read and hands it to the driver
//! as one message, writes what the driver put into its outbox, and watches three clocks. All of it
//! hangs on one poll function, so a session costs no wake-up more than its socket and the driver
//! cause.
//!
//! # When it does not read
//!
//! - The outbox and the write under way hold more than [`UNSENT_REPLIES_MAX`] replies: who does not
//!   read does not get to ask for more.
//! - A release waits for its place in the release lane. Releases are never refused, so this is
//!   their backpressure.
//! - The driver's inbound channel is full.
//!
//! # How it ends
//!
//! | cause | what follows |
//! |---|---|
//! | the client closes its side between frames | the desk answers what is decided (bounded), flush |
//! | a malformed frame, or one that takes too long | as above, then `E` |
//! | the desk ends it | flush (bounded) |
//! | slow: more than [`UNSENT_REPLIES_MAX`] unsent and no byte taken for [`STALL_TIME_MAX`] | cut |
//! | the connection breaks | cut |
//!
//! A flush that runs into its bound is a cut as well. In all cases sending is shut down first, then
//! the driver is told of the grants that surely did not reach the client, then input is discarded for
//! a moment.
//!
//! "Slow" is judged only after another attempt to write: the clock's ringing wakes the task, which
//! writes first and looks at the clock afterwards. So a session is not cut because its task (or the
//! whole process) was not scheduled for a while.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use wire::{Decode, Key, Reason, Reply, Request, Token, decode_request};

use super::counters::{Counters, Mishap};
use super::input::{FrameClock, Input};
use super::output::{Output, REPLIES_PER_WRITE_MAX};
use super::transport::{Transport, discard, shut_down};
use crate::desk::SessionId;
use crate::driver::{Contents, Front, Inbound, Outbox};
use crate::timer::LazyTimer;

/// With more unsent replies than this, a session is not read from.
pub(super) const UNSENT_REPLIES_MAX: usize = 256;

/// How long the socket may take no byte while there are too many unsent replies.
pub(super) const STALL_TIME_MAX: Duration = Duration::from_secs(1);

/// How long what is decided is still answered after the input is over.
pub(super) const ANSWERS_TIME_MAX: Duration = Duration::from_secs(5);

/// How long the last replies may take to be written.
pub(super) const FLUSH_TIME_MAX: Duration = Duration::from_secs(5);

/// How long the last word may take to be written when answers took too long.
const LAST_WORD_TIME_MAX: Duration = Duration::from_secs(1);

/// See the module's documentation.
pub(super) struct Session<T> {
    id: SessionId,
    client: SocketAddr,
    stream: T,
    front: Front,
    outbox: Arc<Outbox>,
    counters: Arc<Counters>,
    input: Input,
    frame: FrameClock,
    /// A release that waits for its place in the lane.
    held_back: Option<HeldBack>,
    /// Set when no more input will be taken.
    over: Option<Over>,
    output: Output,
    /// Since when the socket has not taken a byte though it was offered some, and how many it had
    /// taken then.
    stalled: Option<(Instant, u64)>,
    /// When the last replies must be written.
    flush_until: Option<Instant>,
    timer: LazyTimer,
}

/// The end of a session's input.
struct Over {
    /// Until when its requests are still answered.
    answers_until: Instant,
    /// What is said last.
    last: Option<Reason>,
}

struct HeldBack {
    release: Request,
    permit: Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>,
}

impl HeldBack {
    fn new(release: Request, lane: &Arc<Semaphore>) -> Self {
        Self {
            release,
            permit: Box::pin(Arc::clone(lane).acquire_owned()),
        }
    }
}

/// What the session has to act on.
#[derive(Debug)]
enum Step {
    /// Bytes were read.
    Read,
    /// The client closed its side.
    EndOfInput,
    /// This release, which was held back, has its place.
    LaneFree(Request),
    /// Everything is written and nothing will follow.
    Flushed,
    /// The connection is broken.
    Lost,
    /// A clock ran out.
    Due(Due),
}

#[derive(Clone, Copy, Debug)]
enum Due {
    /// The incomplete frame's.
    Frame,
    /// The stalled socket's.
    Slow,
    /// That of answers after the end of input.
    Answers,
    /// That of the last replies.
    Flush,
}

/// Nobody answers any more: the driver is gone.
struct NoDriver;

impl<T: Transport> Session<T> {
    /// A session on an authenticated `stream`, with what was read behind the handshake.
    pub(super) fn new(
        id: SessionId,
        client: SocketAddr,
        stream: T,
        input: Input,
        front: Front,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            id,
            client,
            stream,
            front,
            outbox: Arc::default(),
            counters,
            input,
            frame: FrameClock::new(),
            held_back: None,
            over: None,
            output: Output::default(),
            stalled: None,
            flush_until: None,
            timer: LazyTimer::new(),
        }
    }

    /// Serves the client until the end.
    pub(super) async fn run(mut self) {
        let flushed = self.serve().await.unwrap_or(false);
        shut_down(&mut self.stream, flushed).await;
        let Self {
            id,
            mut stream,
            front,
            outbox,
            output,
            ..
        } = self;
        let undelivered = output
            .into_undelivered::<T>()
            .chain(grants(outbox.close()))
            .collect();
        // Without a driver there is nobody to tell.
        let _ = front
            .inbound
            .send(Inbound::Gone {
                session: id,
                undelivered,
            })
            .await;
        drop(front);
        discard(stream.raw()).await;
    }

    /// Says whether everything that was to be said is flushed.
    async fn serve(&mut self) -> Result<bool, NoDriver> {
        let outbox = Arc::clone(&self.outbox);
        self.tell(Inbound::Opened {
            session: self.id,
            outbox,
        })
        .await?;
        // The first frames may have come right behind the handshake.
        self.hand_on(None).await?;
        loop {
            match poll_fn(|cx| self.poll_step(cx)).await {
                Step::Read => self.hand_on(None).await?,
                Step::LaneFree(release) => self.hand_on(Some(release)).await?,
                Step::EndOfInput => {
                    let inside = self.frame.has_begun();
                    self.end_input(inside.then_some(Reason::BadRequest)).await?;
                }
                Step::Due(Due::Frame) => self.end_input(Some(Reason::BadRequest)).await?,
                Step::Due(Due::Answers) => self.give_up_on_answers(),
                Step::Due(Due::Slow) => {
                    self.counters.mishap(self.client, Mishap::Slow);
                    return Ok(false);
                }
                Step::Flushed => return Ok(true),
                Step::Lost | Step::Due(Due::Flush) => return Ok(false),
            }
        }
    }

    async fn tell(&mut self, message: Inbound) -> Result<(), NoDriver> {
        self.front.inbound.send(message).await.map_err(|_| NoDriver)
    }

    /// Hands `first` and all whole frames of the input to the driver, up to a release that has to
    /// wait for its place.
    async fn hand_on(&mut self, first: Option<Request>) -> Result<(), NoDriver> {
        let mut requests = Vec::from_iter(first);
        let refused = self.decode(&mut requests);
        if !requests.is_empty() {
            let arrived = self.front.clock.now();
            self.tell(Inbound::Requests {
                session: self.id,
                arrived,
                requests,
            })
            .await?;
        }
        match refused {
            Some(reason) => self.end_input(Some(reason)).await,
            None => Ok(()),
        }
    }

    fn decode(&mut self, requests: &mut Vec<Request>) -> Option<Reason> {
        loop {
            match decode_request(self.input.pending()) {
                Decode::Complete(request, consumed) => {
                    self.input.consume(consumed);
                    self.frame.clear();
                    if let Request::Release(_) = request {
                        match self.front.release_lane.try_acquire() {
                            Ok(permit) => permit.forget(),
                            Err(_) => {
                                let lane = &self.front.release_lane;
                                self.held_back = Some(HeldBack::new(request, lane));
                                return None;
                            }
                        }
                    }
                    requests.push(request);
                }
                Decode::Incomplete(keep_alives) => {
                    self.input.consume(keep_alives);
                    if !self.input.pending().is_empty() && !self.frame.has_begun() {
                        self.frame.begin();
                    }
                    return None;
                }
                Decode::Refused(reason) => return Some(reason),
            }
        }
    }

    /// No more input is taken; `last` says what was wrong with it.
    async fn end_input(&mut self, last: Option<Reason>) -> Result<(), NoDriver> {
        if let Some(reason) = last {
            self.counters.mishap(self.client, Mishap::Malformed(reason));
        }
        self.frame.clear();
        self.over = Some(Over {
            answers_until: Instant::now() + ANSWERS_TIME_MAX,
            last,
        });
        self.tell(Inbound::Ended {
            session: self.id,
            last,
        })
        .await
    }

    /// The desk took too long: what it says from here on is not said to this client.
    fn give_up_on_answers(&mut self) {
        let last = self.over.as_ref().and_then(|over| over.last);
        self.outbox.finish(last.map(Reply::Error));
        self.flush_until = Some(Instant::now() + LAST_WORD_TIME_MAX);
    }

    /// Writes, then reads, then looks at the clocks.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let Ok((contents, flushed)) = self.poll_send(cx) else {
            return Poll::Ready(Step::Lost);
        };
        if contents.ending {
            if flushed && contents.left == 0 {
                return Poll::Ready(Step::Flushed);
            }
            self.bound_flush();
        }
        if let Some(release) = self.poll_lane(cx) {
            return Poll::Ready(Step::LaneFree(release));
        }
        let unsent = contents.left + self.output.replies();
        let reading =
            self.over.is_none() && self.held_back.is_none() && unsent <= UNSENT_REPLIES_MAX;
        self.frame.set_reading(reading);
        if reading && let Poll::Ready(step) = self.poll_read(cx) {
            return Poll::Ready(step);
        }
        match self.next_due(unsent) {
            Some((due, clock)) => self.timer.poll(due, cx).map(|()| Step::Due(clock)),
            None => Poll::Pending,
        }
    }

    /// Writes as much as the socket takes. Says what is left, and whether all that was encoded is
    /// flushed.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> io::Result<(Contents, bool)> {
        loop {
            let flushed = match self.output.poll_flush(&mut self.stream, cx) {
                Poll::Ready(done) => done.map(|()| true)?,
                Poll::Pending => false,
            };
            let count_max = if flushed { REPLIES_PER_WRITE_MAX } else { 0 };
            let contents = self
                .outbox
                .take(cx, count_max, |reply| self.output.add(reply));
            if contents.taken == 0 {
                self.note_progress(flushed);
                return Ok((contents, flushed));
            }
        }
    }

    fn note_progress(&mut self, flushed: bool) {
        let taken = self.stream.bytes_taken();
        self.stalled = match self.stalled {
            _ if flushed => None,
            Some((since, before)) if before == taken => Some((since, before)),
            _ => Some((Instant::now(), taken)),
        };
    }

    fn bound_flush(&mut self) {
        let answers_until = self.over.as_ref().map(|over| over.answers_until);
        self.flush_until.get_or_insert_with(|| {
            answers_until.unwrap_or_else(|| Instant::now() + FLUSH_TIME_MAX)
        });
    }

    fn poll_lane(&mut self, cx: &mut Context<'_>) -> Option<Request> {
        match self.held_back.as_mut()?.permit.as_mut().poll(cx) {
            Poll::Ready(permit) => permit.expect("the lane is never closed").forget(),
            Poll::Pending => return None,
        }
        self.held_back.take().map(|held_back| held_back.release)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let mut room = ReadBuf::new(self.input.room());
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room));
        let count = room.filled().len();
        Poll::Ready(match read {
            Ok(()) if count > 0 => {
                self.input.filled(count);
                Step::Read
            }
            Ok(()) => Step::EndOfInput,
            // A TLS client that closed its socket without saying so in TLS.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Step::EndOfInput,
            Err(_) => {
                // A TLS stream that cannot go on tries to write an alert, and what it had before it.
                self.output.assume_accepted_reached();
                Step::Lost
            }
        })
    }

    fn next_due(&self, unsent: usize) -> Option<(Instant, Due)> {
        let slow = self.stalled.filter(|_| unsent > UNSENT_REPLIES_MAX);
        let answers = self.over.as_ref().filter(|_| self.flush_until.is_none());
        let clocks = [
            self.frame.deadline().map(|at| (at, Due::Frame)),
            slow.map(|(since, _)| (since + STALL_TIME_MAX, Due::Slow)),
            answers.map(|over| (over.answers_until, Due::Answers)),
            self.flush_until.map(|at| (at, Due::Flush)),
        ];
        clocks.into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

fn grants(replies: impl IntoIterator<Item = Reply>) -> impl Iterator<Item = (Key, Token)> {
    replies.into_iter().filter_map(|reply| match reply {
        Reply::Granted { token, key, .. } => Some((key, token)),
        _ => None,
    })
}
