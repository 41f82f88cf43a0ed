//! One connection: a single task that reads, writes, takes commands and keeps time around a
//! [`Ledger`].
//!
//! Everything that is there is taken in before anything is written, so requests of many callers
//! leave in one write, and frames are made only when the socket takes bytes, so a request's wait
//! is true when it leaves.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, Sleep};
use wire::{Decode, Reason, Reply, decode_reply};

use crate::dial::Stream;
use crate::dispatch::Dispatcher;
use crate::ledger::{End, Ledger, News};
use crate::routes::{Command, Down};
use crate::trace;

/// How much is read at once, in bytes; longer than the longest frame.
const READ_BYTES: usize = 16 * 1024;

/// About how much is written at once, in bytes.
const WRITE_BYTES: usize = 16 * 1024;

/// How many commands are taken at once.
const COMMANDS: usize = 256;

/// Serves calls over `stream` until the connection ends; none stays unanswered here. Comes back with
/// whether the lock table ever answered on it.
pub(crate) async fn run(dispatcher: Arc<Dispatcher>, index: usize, stream: Stream) -> bool {
    let (sender, commands) = unbounded_channel();
    let mut session = Session {
        ledger: Ledger::new(Arc::clone(&dispatcher), Instant::now()),
        index,
        stream,
        commands,
        taken: Vec::with_capacity(COMMANDS),
        input: vec![0; READ_BYTES].into_boxed_slice(),
        filled: 0,
        output: Vec::with_capacity(WRITE_BYTES),
        written: 0,
        unflushed: false,
        bytes_taken: 0,
        timer: Box::pin(tokio::time::sleep_until(Instant::now())),
        armed: None,
        served: false,
        dispatcher,
    };
    session.dispatcher.up(index, sender);
    // Whoever ended everything before this session was known did not tell it.
    let why = if session.dispatcher.is_done() {
        End::Closed
    } else {
        poll_fn(|cx| session.poll(cx)).await
    };
    session.end(why)
}

struct Session {
    dispatcher: Arc<Dispatcher>,
    index: usize,
    ledger: Ledger,
    stream: Stream,
    commands: UnboundedReceiver<Command>,
    taken: Vec<Command>,
    input: Box<[u8]>,
    /// How many bytes of `input` hold what was read and not decoded yet.
    filled: usize,
    output: Vec<u8>,
    /// How many bytes of `output` are written.
    written: usize,
    unflushed: bool,
    /// How many bytes the stream took in all.
    bytes_taken: u64,
    timer: Pin<Box<Sleep>>,
    /// When `timer` goes off; it may be too early, never too late.
    armed: Option<Instant>,
    served: bool,
}

impl Session {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        match self.advance(cx) {
            Ok(()) => Poll::Pending,
            Err(end) => Poll::Ready(end),
        }
    }

    /// Does all that can be done now; every source of more has the task's waker afterwards.
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        self.read(cx)?;
        self.take_commands(cx)?;
        loop {
            let now = Instant::now();
            self.ledger.tick(now)?;
            self.write(cx, now)?;
            if !self.is_time(cx, now) {
                break;
            }
        }
        Ok(())
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        loop {
            let mut buf = ReadBuf::new(&mut self.input[self.filled..]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(_)) => return Err(End::Lost),
                Poll::Ready(Ok(())) => {
                    let count = buf.filled().len();
                    if count == 0 {
                        return Err(End::Lost);
                    }
                    self.filled += count;
                }
            }
            self.decode()?;
        }
    }

    fn decode(&mut self) -> Result<(), End> {
        let mut start = 0;
        loop {
            match decode_reply(&self.input[start..self.filled]) {
                Decode::Complete(reply, consumed) => {
                    start += consumed;
                    self.take_reply(reply)?;
                }
                Decode::Incomplete(keep_alives) => {
                    start += keep_alives;
                    break;
                }
                Decode::Refused(reason) => {
                    trace::warn!(%reason, "the server broke the protocol");
                    return Err(End::Protocol);
                }
            }
        }
        self.input.copy_within(start..self.filled, 0);
        self.filled -= start;
        Ok(())
    }

    fn take_reply(&mut self, reply: Reply) -> Result<(), End> {
        match &reply {
            Reply::Moved(address) => self.dispatcher.moved(self.index, address),
            Reply::Error(Reason::NoLeader) => self.dispatcher.leaderless(),
            _ => {}
        }
        match self.ledger.reply(reply)? {
            Some(News::Leader(address)) => self.dispatcher.named(self.index, &address),
            Some(News::Served) if !self.served => {
                self.served = true;
                self.dispatcher.served(self.index);
            }
            Some(News::Served) | None => {}
        }
        Ok(())
    }

    fn take_commands(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        while let Poll::Ready(count) = self.commands.poll_recv_many(cx, &mut self.taken, COMMANDS)
            && count > 0
        {
            let now = Instant::now();
            for command in self.taken.drain(..) {
                match command {
                    Command::Call(call) => self.ledger.submit(call, now),
                    Command::Abandon(owner) => self.ledger.abandon(owner, now),
                    Command::Superseded => {
                        for call in self.ledger.superseded() {
                            self.dispatcher.submit(call);
                        }
                    }
                    Command::Close => self.ledger.close(now),
                    // Nothing comes after it that is not refused elsewhere.
                    Command::End => return Err(End::Closed),
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<(), End> {
        loop {
            while self.written < self.output.len() {
                let rest = &self.output[self.written..];
                match Pin::new(&mut self.stream).poll_write(cx, rest) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(Err(_) | Ok(0)) => return Err(End::Lost),
                    Poll::Ready(Ok(count)) => {
                        self.written += count;
                        self.bytes_taken += count as u64;
                    }
                }
                self.unflushed = true;
            }
            self.output.clear();
            self.written = 0;
            if !self.ledger.has_output(now) || self.stream.poll_write_ready(cx).is_pending() {
                break;
            }
            self.ledger
                .encode(&mut self.output, WRITE_BYTES, self.bytes_taken, now);
        }
        if self.unflushed {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(_)) => return Err(End::Lost),
            }
        }
        Ok(())
    }

    /// Whether the time has come for the ledger's next thing to do; if not, the timer is set to it.
    /// A timer that is set to something earlier, done meanwhile, is left alone: setting it costs
    /// more than the wake-up too many.
    fn is_time(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let Some(wakeup) = self.ledger.wakeup(now) else {
            return false;
        };
        if self.armed.is_none_or(|armed| wakeup < armed) {
            self.timer.as_mut().reset(wakeup);
            self.armed = Some(wakeup);
        }
        if self.timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.armed = None;
        true
    }

    /// Tells the dispatcher first, so that nothing is sent here any more, then empties everything.
    fn end(mut self, why: End) -> bool {
        trace::info!(
            address = self.dispatcher.address(self.index),
            ?why,
            "connection ended"
        );
        self.dispatcher.down(
            self.index,
            match why {
                End::Lost | End::Refused | End::Closed => Down::Unreachable,
                End::Auth => Down::Auth,
                End::Protocol => Down::Protocol,
            },
        );
        self.commands.close();
        let mut elsewhere = self.ledger.end(&why, self.bytes_taken);
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Call(call) = command {
                elsewhere.push(call);
            }
        }
        for call in elsewhere {
            self.dispatcher.submit(call);
        }
        self.served
    }
}
