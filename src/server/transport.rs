//! The byte stream under a session, plain or TLS, with the three things that a session must know
//! beyond reading and writing: how many bytes the socket took, which accepted bytes may have reached
//! the client, and how to close without another byte.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::server::TlsStream;

/// Bytes that may be accepted between two flushes. A TLS record holds them all, so the client can
/// read either all of them or none.
pub(super) const ACCEPTED_BYTES_MAX: usize = 16_384;

/// How long a closed connection still discards input. Closing with unread input would reset the
/// connection, and the last reply with it.
const DISCARD: Duration = Duration::from_secs(1);

/// Bytes that are discarded at a time.
const DISCARD_BYTES: usize = 4096;

/// A connection as the operating system gives it, or a pipe in tests.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Socket for S {}

/// See the module's documentation.
pub(super) trait Transport: Socket {
    /// What is under it: the socket.
    type Raw: Socket;

    /// Whether bytes reach the client only when all that was accepted is flushed. If not, each
    /// accepted byte may have reached it.
    const REACHES_WHEN_FLUSHED: bool;

    /// How many bytes the socket has taken so far.
    fn bytes_taken(&self) -> u64;

    /// The socket.
    fn raw(&mut self) -> &mut Self::Raw;
}

/// A socket that counts what it takes.
#[derive(Debug)]
pub(super) struct Counted<S> {
    socket: S,
    taken: u64,
}

impl<S> Counted<S> {
    pub(super) fn new(socket: S) -> Self {
        Self { socket, taken: 0 }
    }
}

impl<S: Socket> Transport for Counted<S> {
    type Raw = S;

    const REACHES_WHEN_FLUSHED: bool = false;

    fn bytes_taken(&self) -> u64 {
        self.taken
    }

    fn raw(&mut self) -> &mut S {
        &mut self.socket
    }
}

impl<S: Socket> Transport for TlsStream<Counted<S>> {
    type Raw = S;

    const REACHES_WHEN_FLUSHED: bool = true;

    fn bytes_taken(&self) -> u64 {
        self.get_ref().0.taken
    }

    fn raw(&mut self) -> &mut S {
        &mut self.get_mut().0.socket
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = ready!(Pin::new(&mut self.socket).poll_write(cx, buf))?;
        self.taken += taken as u64;
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// Tells the client that nothing more comes. With `flushed` unset, bytes that were accepted but
/// did not reach the socket never will: whoever asks now which grants reached the client gets an
/// answer that stays true.
pub(super) async fn shut_down<T: Transport>(stream: &mut T, flushed: bool) {
    let until = Instant::now() + DISCARD;
    let farewell = async {
        if flushed {
            stream.shutdown().await
        } else {
            stream.raw().shutdown().await
        }
    };
    // A client that is gone, or that takes no byte, needs no farewell.
    let _ = timeout_at(until, farewell).await;
}

/// Reads and drops input, for a bounded time, until the client has closed its side.
pub(super) async fn discard<R: AsyncRead + Unpin>(raw: &mut R) {
    let mut bytes = [0; DISCARD_BYTES];
    let until = Instant::now() + DISCARD;
    while let Ok(Ok(1..)) = timeout_at(until, raw.read(&mut bytes)).await {}
}
