//! The front end as its clients see it: bytes in, bytes out. The tests build frames by hand, so a mistake
//! in the codec can't hide itself.
//!
//! Where time matters, clients come through in-memory pipes and tokio's clock is paused: it
//! jumps to the next deadline when nothing can go on. The rest runs over loopback.

mod cluster;
mod ends;
mod frames;
mod handshake;
mod limits;
mod stop;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use raft::clock::Clock;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use wire::AuthToken;

use super::listener::{Gate, admit};
use super::{Counters, Server, ServerConfig};
use crate::desk::Limits;
use crate::driver::{self, Backend, Front};

/// Longer than anything that a server takes its time for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Room of an in-memory pipe that holds a few replies only.
const NARROW: usize = 64;

/// Room of an in-memory pipe that holds all that a test sends.
const WIDE: usize = 1 << 20;

const TOKEN: &str = "secret";

/// A clock that stands still when tokio's does.
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap()
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(TokioClock(Instant::now()))
}

fn limits() -> Limits {
    Limits {
        waiters_per_key_max: 2048,
        waiters_max: 16_384,
        acquires_in_flight_max: 4096,
    }
}

fn config(connections_max: usize, tls: Option<TlsAcceptor>) -> ServerConfig {
    ServerConfig {
        tokens: vec![AuthToken::new(TOKEN)],
        tls,
        connections_max,
        limits: limits(),
        clock: clock(),
    }
}

/// A server in single mode, on loopback.
async fn serve() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    Server::start(listener, config(100, None), Backend::Single).unwrap()
}

/// A server that is reached through in-memory pipes.
struct House {
    gate: Arc<Gate>,
    front: Front,
    driver: driver::Handle,
    stopping: watch::Sender<bool>,
}

impl House {
    fn single() -> Self {
        Self::new(Backend::Single, config(100, None))
    }

    fn new(backend: Backend, config: ServerConfig) -> Self {
        let (stopping, stops) = watch::channel(false);
        let (front, driver) = driver::start(backend, config.limits, config.clock);
        let gate = Gate::new(
            config.tokens,
            config.tls,
            config.connections_max,
            Arc::default(),
            stops,
        );
        Self {
            gate: Arc::new(gate),
            front,
            driver,
            stopping,
        }
    }

    fn counters(&self) -> &Counters {
        &self.gate.counters
    }

    /// A connection with `room` for bytes in either direction.
    fn connect(&self, room: usize) -> Peer<DuplexStream> {
        let (client, server) = duplex(room);
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        admit(server, from, &self.gate, &self.front);
        Peer(client)
    }

    /// A connection that is through its handshake.
    async fn enter(&self, room: usize) -> Peer<DuplexStream> {
        let mut peer = self.connect(room);
        peer.authenticate(TOKEN).await;
        peer
    }
}

/// A client that speaks bytes.
struct Peer<S>(S);

impl Peer<TcpStream> {
    async fn dial(server: &Server) -> Self {
        Self(TcpStream::connect(server.local_addr()).await.unwrap())
    }

    /// A connection that is through its handshake.
    async fn enter(server: &Server) -> Self {
        let mut peer = Self::dial(server).await;
        peer.authenticate(TOKEN).await;
        peer
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    async fn challenge(&mut self) -> String {
        let line = String::from_utf8(self.take(17).await).unwrap();
        let nonce = line
            .strip_prefix("SHA-256 ")
            .unwrap()
            .strip_suffix('\n')
            .unwrap();
        assert!(
            nonce
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        );
        nonce.to_owned()
    }

    async fn authenticate(&mut self, token: &str) {
        let nonce = self.challenge().await;
        self.send(digest(token, &nonce).as_bytes()).await;
        self.send(b"\n").await;
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = timeout(PATIENCE, self.0.write_all(bytes.as_ref())).await;
        sent.expect("the server takes bytes").unwrap();
        self.0.flush().await.unwrap();
    }

    async fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let taken = timeout(PATIENCE, self.0.read_exact(&mut bytes)).await;
        taken
            .expect("the server sends bytes")
            .expect("the connection stays");
        bytes
    }

    /// The next bytes are these.
    async fn expect(&mut self, bytes: impl AsRef<[u8]>) {
        let taken = self.take(bytes.as_ref().len()).await;
        assert_eq!(text(&taken), text(bytes.as_ref()));
    }

    /// What comes until the server closes its side.
    async fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = timeout(PATIENCE, self.0.read_to_end(&mut bytes)).await;
        read.expect("the server closes")
            .expect("the end is a clean one");
        bytes
    }

    /// These bytes come, and then the server closes its side.
    async fn expect_last(&mut self, bytes: impl AsRef<[u8]>) {
        let rest = self.rest().await;
        assert_eq!(text(&rest), text(bytes.as_ref()));
    }

    /// Closes this side; what the server still says can be read.
    async fn finish(&mut self) {
        self.0.shutdown().await.unwrap();
    }

    /// Acquires a free key and says under which token.
    async fn acquire(&mut self, key: &str) -> u64 {
        self.send(acquire(key, 0, 30, 7)).await;
        let reply = self.take(18 + key.len()).await;
        assert_eq!(reply[0], b'A', "{}", text(&reply));
        assert_eq!(reply[9..17], 7u64.to_be_bytes());
        u64::from_be_bytes(reply[1..9].try_into().unwrap())
    }

    /// Waits until the server has dealt with all that this client sent: a probe comes back.
    async fn settle(&mut self) {
        self.send(release("settle", 0)).await;
        self.expect(numbered(b'N', 0, "settle")).await;
    }
}

fn digest(token: &str, nonce: &str) -> String {
    let hash = Sha256::digest([token.as_bytes(), nonce.as_bytes()].concat());
    URL_SAFE_NO_PAD.encode(hash)
}

fn acquire(key: &str, wait: u8, lease: u8, owner: u64) -> Vec<u8> {
    [
        &[b'A', wait, lease],
        &owner.to_be_bytes()[..],
        key.as_bytes(),
        b"\n",
    ]
    .concat()
}

fn release(key: &str, token: u64) -> Vec<u8> {
    numbered(b'R', token, key)
}

fn granted(key: &str, token: u64, owner: u64) -> Vec<u8> {
    [
        b"A",
        &token.to_be_bytes()[..],
        &owner.to_be_bytes(),
        key.as_bytes(),
        b"\n",
    ]
    .concat()
}

fn numbered(op: u8, number: u64, key: &str) -> Vec<u8> {
    [&[op], &number.to_be_bytes()[..], key.as_bytes(), b"\n"].concat()
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Lets everything run that can, without letting time pass.
async fn run_dry() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}
