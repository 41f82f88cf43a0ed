//! Frames over one TCP connection, driven by whoever owns it.
//!
//! There is no task and no lock: the owner polls. What is queued goes out in one write, what has
//! arrived comes in with one read, so a burst of requests costs two system calls and no hand-over
//! between tasks.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

use super::Error;
use super::frame::{Decoder, FRAME_BYTES_MAX, HANDSHAKE_FRAME_BYTES_MAX, put_frame};

/// How long a connection is idle before the kernel asks whether the peer is still there, and how
/// long it waits between asking again. Requests have their own, shorter deadlines; this is for
/// connections on which nobody waits for anything.
const KEEPALIVE: Duration = Duration::from_secs(1);

/// A write buffer that grew beyond this many bytes is given back when it is empty.
const WRITE_BUFFER_KEPT_BYTES_MAX: usize = 256 * 1024;

/// One connection to a peer.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    decoder: Decoder,
    frame_bytes_max: usize,
    out: Vec<u8>,
    /// How much of `out` is written.
    written: usize,
}

impl Connection {
    /// Takes over a socket whose peer has not proved anything yet.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        // Answers are small and waited for; nothing is gained by collecting them in the kernel.
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        Ok(Self {
            stream,
            decoder: Decoder::new(HANDSHAKE_FRAME_BYTES_MAX),
            frame_bytes_max: HANDSHAKE_FRAME_BYTES_MAX,
            out: Vec::new(),
            written: 0,
        })
    }

    /// The peer has proved that it knows the secret: larger frames are allowed.
    pub(crate) fn set_trusted(&mut self) {
        self.frame_bytes_max = FRAME_BYTES_MAX;
        self.decoder.set_frame_bytes_max(FRAME_BYTES_MAX);
    }

    /// Queues one frame; nothing is sent before a flush.
    pub(crate) fn queue(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        put_frame(&mut self.out, self.frame_bytes_max, encode)
    }

    /// Bytes queued and not yet written.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.out.len() - self.written
    }

    /// Writes what is queued. Ready when nothing is left.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while self.queued_bytes() > 0 {
            let part = &self.out[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(cx, part))? {
                0 => return Poll::Ready(Err(Error::cut("nothing can be written"))),
                bytes => self.written += bytes,
            }
        }
        self.written = 0;
        self.out.clear();
        if self.out.capacity() > WRITE_BUFFER_KEPT_BYTES_MAX {
            self.out.shrink_to(0);
        }
        Poll::Ready(Ok(()))
    }

    /// The next frame; `None` if the peer ended the connection between two frames. An end inside
    /// a frame is an error.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, Error>> {
        loop {
            if let Some(frame) = self.decoder.next()? {
                return Poll::Ready(Ok(Some(frame)));
            }
            // `read_buf` loses nothing when it is dropped while pending.
            let read = pin!(self.stream.read_buf(self.decoder.space()));
            if ready!(read.poll(cx))? == 0 {
                return Poll::Ready(if self.decoder.is_clean() {
                    Ok(None)
                } else {
                    Err(Error::cut("inside a frame"))
                });
            }
        }
    }

    /// Queues one frame and sends all that is queued.
    pub(crate) async fn send(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.queue(encode)?;
        std::future::poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// The next frame, or `None` at an end between frames.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        std::future::poll_fn(|cx| self.poll_frame(cx)).await
    }

    /// The next frame, where an end would come too early.
    pub(crate) async fn expect(&mut self) -> Result<Bytes, Error> {
        self.next()
            .await?
            .ok_or_else(|| Error::cut("before an answer"))
    }

    /// Sends bytes as they are, as a broken peer would.
    #[cfg(test)]
    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        std::future::poll_fn(|cx| self.poll_flush(cx))
            .await
            .expect("the other side reads");
    }

    /// Whether nothing waits to be written or read and the peer has not ended the connection, as
    /// far as this process knows without waiting.
    pub(crate) fn is_quiet(&self) -> bool {
        let unread = self.stream.try_read(&mut [0; 1]);
        self.queued_bytes() == 0
            && self.decoder.is_clean()
            && unread.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}
