//! From an address to a connection that takes frames: TCP, TLS, the auth handshake.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wire::{Decode, HANDSHAKE_LINE_BYTES_MAX, Nonce, Reason, decode_challenge, digest};

use crate::dispatch::Settings;
use crate::routes::Down;
use crate::{Tls, trace};

/// A quiet connection is probed after so long, so that one whose host vanished is found.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);

/// How often it is then, and how often in vain.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEP_ALIVE_PROBES: u32 = 3;

/// How servers are reached.
pub(crate) enum Transport {
    Tcp,
    Tls(Tls),
    /// Servers in the same process.
    #[cfg(test)]
    Memory(crate::tests::Network),
}

/// A connection to a server.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(test)]
    Memory(tokio::io::DuplexStream),
}

/// Connects to `address` and proves the auth token. The server is silent when the proof is right,
/// so a wrong one shows only in the first frame.
pub(crate) async fn dial(address: &str, settings: &Settings) -> Result<Stream, Down> {
    let mut stream = open(address, settings).await.map_err(|error| {
        trace::debug!(address, %error, "connecting failed");
        match error.kind() {
            // What TLS says of an answer that is not TLS, or of a certificate that it rejects.
            io::ErrorKind::InvalidData => Down::Protocol,
            _ => Down::Unreachable,
        }
    })?;
    let nonce = challenge(&mut stream).await?;
    let mut answer = digest(&settings.auth_token, &nonce).to_vec();
    answer.push(b'\n');
    stream
        .write_all(&answer)
        .await
        .map_err(|_| Down::Unreachable)?;
    stream.flush().await.map_err(|_| Down::Unreachable)?;
    Ok(stream)
}

async fn open(address: &str, settings: &Settings) -> io::Result<Stream> {
    let tls = match &settings.transport {
        Transport::Tcp => return connect(address).await.map(Stream::Plain),
        Transport::Tls(tls) => tls,
        #[cfg(test)]
        Transport::Memory(network) => return network.connect(address).map(Stream::Memory),
    };
    let tcp = connect(address).await?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let tls = TlsConnector::from(tls.config()).connect(name, tcp).await?;
    Ok(Stream::Tls(Box::new(tls)))
}

/// The name is resolved here, each time anew: a node's address changes when it moves.
async fn connect(address: &str) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    let keep_alive = TcpKeepalive::new()
        .with_time(KEEP_ALIVE_AFTER)
        .with_interval(KEEP_ALIVE_EVERY)
        .with_retries(KEEP_ALIVE_PROBES);
    SockRef::from(&tcp).set_tcp_keepalive(&keep_alive)?;
    Ok(tcp)
}

async fn challenge(stream: &mut Stream) -> Result<Nonce, Down> {
    let mut line = Vec::with_capacity(HANDSHAKE_LINE_BYTES_MAX + 1);
    loop {
        match decode_challenge(&line) {
            // Nothing may follow before the answer.
            Decode::Complete(nonce, consumed) if consumed == line.len() => return Ok(nonce),
            Decode::Complete(..) => return Err(Down::Protocol),
            Decode::Refused(Reason::NotActive | Reason::NoLeader) => return Err(Down::Unreachable),
            Decode::Refused(_) => return Err(Down::Protocol),
            Decode::Incomplete(_) => {}
        }
        let mut piece = [0; HANDSHAKE_LINE_BYTES_MAX + 1];
        let room = piece.len() - line.len();
        let count = stream
            .read(&mut piece[..room])
            .await
            .map_err(|_| Down::Unreachable)?;
        if count == 0 {
            return Err(Down::Unreachable);
        }
        line.extend_from_slice(&piece[..count]);
    }
}

impl Stream {
    /// Whether the socket takes bytes.
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp) => tcp.poll_write_ready(cx),
            Self::Tls(tls) => tls.get_ref().0.poll_write_ready(cx),
            #[cfg(test)]
            Self::Memory(_) => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
            #[cfg(test)]
            Self::Memory(memory) => Pin::new(memory).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
            #[cfg(test)]
            Self::Memory(memory) => Pin::new(memory).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
            #[cfg(test)]
            Self::Memory(memory) => Pin::new(memory).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            #[cfg(test)]
            Self::Memory(memory) => Pin::new(memory).poll_shutdown(cx),
        }
    }
}
