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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, duplex};

    use super::*;
    use crate::server::transport::Counted;

    fn grant(number: u64) -> Reply {
        let key = format!("key-{number}").parse().unwrap();
        Reply::Granted {
            token: Token(number),
            owner: wire::Owner(1),
            key,
        }
    }

    fn tokens(undelivered: impl Iterator<Item = (Key, Token)>) -> Vec<u64> {
        undelivered.map(|(_, token)| token.0).collect()
    }

    /// Like TLS: accepts everything and never gets it flushed.
    struct Hoard;

    impl AsyncRead for Hoard {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Hoard {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl Transport for Hoard {
        type Raw = Self;

        const REACHES_WHEN_FLUSHED: bool = true;

        fn bytes_taken(&self) -> u64 {
            0
        }

        fn raw(&mut self) -> &mut Self {
            self
        }
    }

    /// Has three grants written and says how far that came.
    fn write<T: Transport>(stream: &mut T) -> (Output, Poll<io::Result<()>>) {
        let mut output = Output::default();
        (1..=3).for_each(|number| output.add(grant(number)));
        assert_eq!(output.replies(), 3);
        let flushed = output.poll_flush(stream, &mut Context::from_waker(Waker::noop()));
        (output, flushed)
    }

    #[tokio::test]
    async fn on_a_plain_socket_a_grant_has_reached_the_client_with_its_last_byte() {
        let frame_bytes = 1 + 16 + "key-1".len() + 1;
        for (room, undelivered) in [
            (frame_bytes - 1, vec![1, 2, 3]),
            (frame_bytes, vec![2, 3]),
            (2 * frame_bytes - 1, vec![2, 3]),
            (3 * frame_bytes, vec![]),
        ] {
            let (server, _client) = duplex(room);
            let (output, flushed) = write(&mut Counted::new(server));
            assert_eq!(flushed.is_ready(), undelivered.is_empty());
            let told = output.into_undelivered::<Counted<tokio::io::DuplexStream>>();
            assert_eq!(tokens(told), undelivered);
        }
    }

    #[test]
    fn under_tls_no_grant_of_a_write_reaches_the_client_before_it_is_flushed() {
        let (output, flushed) = write(&mut Hoard);
        assert!(flushed.is_pending());
        assert_eq!(tokens(output.into_undelivered::<Hoard>()), [1, 2, 3]);
    }

    #[test]
    fn after_a_doubtful_failure_what_was_accepted_counts_as_read() {
        let (mut output, _) = write(&mut Hoard);
        output.assume_accepted_reached();
        assert_eq!(tokens(output.into_undelivered::<Hoard>()), [0; 0]);
    }
}
