//! A session's output: replies encoded for the next write, and which grants are among them.
//!
//! # Which grants did not reach the client?
//!
//! When a session ends, grants that it could not write are released by the server. That is safe
//! only if the client can't have read them, so each doubt counts as "reached". On a plain socket a
//! reply may have reached the client when the socket took its last byte. Under TLS the record
//! around a write counts: a client can't read it before its last byte, and one write is one record
//! ([`ACCEPTED_BYTES_MAX`]), so all replies of a write reach the client when it is flushed, and none
//! before. The session keeps this true by closing the raw socket before it asks
//! ([`shut_down`](super::transport::shut_down)).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use wire::{FRAME_BYTES_MAX, Key, Reply, Token, encode_reply};

use super::transport::{ACCEPTED_BYTES_MAX, Transport};

/// Replies in one write.
pub(super) const REPLIES_PER_WRITE_MAX: usize = 64;

const _: () = assert!(REPLIES_PER_WRITE_MAX * (FRAME_BYTES_MAX + 1) <= ACCEPTED_BYTES_MAX);

/// One write under way.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// How many of `bytes` the transport accepted.
    accepted: usize,
    /// How many replies `bytes` holds.
    replies: usize,
    /// The grants among them, and where their frames end.
    grants: Vec<(usize, Key, Token)>,
}

impl Output {
    /// Adds `reply` to the next write.
    pub(super) fn add(&mut self, reply: Reply) {
        encode_reply(&reply, &mut self.bytes);
        self.replies += 1;
        if let Reply::Granted { key, token, .. } = reply {
            self.grants.push((self.bytes.len(), key, token));
        }
    }

    /// How many replies are not written and flushed.
    pub(super) fn replies(&self) -> usize {
        self.replies
    }

    /// Writes and flushes everything; ready when nothing is left.
    pub(super) fn poll_flush<T: Transport>(
        &mut self,
        stream: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.replies == 0 {
            return Poll::Ready(Ok(()));
        }
        while self.accepted < self.bytes.len() {
            let rest = &self.bytes[self.accepted..];
            match ready!(Pin::new(&mut *stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.accepted += count,
            }
        }
        ready!(Pin::new(stream).poll_flush(cx))?;
        self.bytes.clear();
        self.grants.clear();
        self.accepted = 0;
        self.replies = 0;
        Poll::Ready(Ok(()))
    }

    /// The transport failed and may have written by itself what it had accepted.
    pub(super) fn assume_accepted_reached(&mut self) {
        self.grants.retain(|(end, ..)| *end > self.accepted);
    }

    /// The grants that surely did not reach the client and, the transport being closed, never will.
    pub(super) fn into_undelivered<T: Transport>(self) -> impl Iterator<Item = (Key, Token)> {
        let reached = if T::REACHES_WHEN_FLUSHED {
            0
        } else {
            self.accepted
        };
        self.grants
            .into_iter()
            .filter(move |(end, ..)| *end > reached)
            .map(|(_, key, token)| (key, token))
    }
}
