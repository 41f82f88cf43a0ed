//! A client that speaks the protocol by hand.
//!
//! It shares no code with the server: what it sends are the bytes of PROTOCOL.md, and what it
//! reads it takes apart itself, strictly. Everything has a deadline.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::PATIENCE;

/// A frame from the server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// `A`.
    Granted {
        token: u64,
        owner: u64,
        key: Vec<u8>,
    },
    /// `T`.
    WaitOver { owner: u64, key: Vec<u8> },
    /// `B`.
    Busy { owner: u64, key: Vec<u8> },
    /// `R`.
    Released { token: u64, key: Vec<u8> },
    /// `N`.
    NotReleased { token: u64, key: Vec<u8> },
    /// `M`.
    Moved(String),
    /// `L`.
    Leads(String),
    /// `E`.
    Error(String),
}

impl Frame {
    pub(crate) fn granted(token: u64, owner: u64, key: impl AsRef<[u8]>) -> Self {
        Self::Granted {
            token,
            owner,
            key: key.as_ref().to_vec(),
        }
    }

    pub(crate) fn wait_over(owner: u64, key: impl AsRef<[u8]>) -> Self {
        Self::WaitOver {
            owner,
            key: key.as_ref().to_vec(),
        }
    }

    pub(crate) fn busy(owner: u64, key: impl AsRef<[u8]>) -> Self {
        Self::Busy {
            owner,
            key: key.as_ref().to_vec(),
        }
    }

    pub(crate) fn released(token: u64, key: impl AsRef<[u8]>) -> Self {
        Self::Released {
            token,
            key: key.as_ref().to_vec(),
        }
    }

    pub(crate) fn not_released(token: u64, key: impl AsRef<[u8]>) -> Self {
        Self::NotReleased {
            token,
            key: key.as_ref().to_vec(),
        }
    }

    pub(crate) fn error(reason: &str) -> Self {
        Self::Error(reason.to_owned())
    }

    /// The token of an `A`.
    pub(crate) fn token(&self) -> u64 {
        match self {
            Self::Granted { token, .. } => *token,
            other => panic!("expected a grant, got {other:?}"),
        }
    }

    /// Takes the first frame off `bytes`; `None` while it is incomplete.
    fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let header = match bytes.first()? {
            b'A' => 16,
            b'T' | b'B' | b'R' | b'N' => 8,
            b'M' | b'L' | b'E' => 0,
            _ => panic!("the server sent an unknown op: {}", bytes.escape_ascii()),
        };
        let body = bytes.get(1 + header..)?;
        let end = body.iter().position(|&byte| byte == b'\n')?;
        assert!(
            1 + header + end <= 192,
            "a frame over 192 bytes: {}",
            bytes.escape_ascii()
        );
        let key = body[..end].to_vec();
        let text = || String::from_utf8(key.clone()).expect("addresses and reasons are text");
        let number = |index: usize| {
            let at = 1 + 8 * index;
            u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
        };
        let frame = match bytes[0] {
            b'A' => Self::Granted {
                token: number(0),
                owner: number(1),
                key,
            },
            b'T' => Self::WaitOver {
                owner: number(0),
                key,
            },
            b'B' => Self::Busy {
                owner: number(0),
                key,
            },
            b'R' => Self::Released {
                token: number(0),
                key,
            },
            b'N' => Self::NotReleased {
                token: number(0),
                key,
            },
            b'M' => Self::Moved(text()),
            b'L' => Self::Leads(text()),
            _ => Self::Error(text()),
        };
        Some((frame, 1 + header + end + 1))
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { token, owner, key } => {
                write!(f, "A(token {token}, owner {owner}, {})", key.escape_ascii())
            }
            Self::WaitOver { owner, key } => write!(f, "T(owner {owner}, {})", key.escape_ascii()),
            Self::Busy { owner, key } => write!(f, "B(owner {owner}, {})", key.escape_ascii()),
            Self::Released { token, key } => write!(f, "R({token}, {})", key.escape_ascii()),
            Self::NotReleased { token, key } => write!(f, "N({token}, {})", key.escape_ascii()),
            Self::Moved(address) => write!(f, "M({address})"),
            Self::Leads(address) => write!(f, "L({address})"),
            Self::Error(reason) => write!(f, "E({reason})"),
        }
    }
}

/// The bytes of an acquire.
pub(crate) fn acquire(key: impl AsRef<[u8]>, wait: u8, lease: u8, owner: u64) -> Vec<u8> {
    let mut bytes = vec![b'A', wait, lease];
    bytes.extend(owner.to_be_bytes());
    bytes.extend(key.as_ref());
    bytes.push(b'\n');
    bytes
}

/// The bytes of a release.
pub(crate) fn release(key: impl AsRef<[u8]>, token: u64) -> Vec<u8> {
    let mut bytes = vec![b'R'];
    bytes.extend(token.to_be_bytes());
    bytes.extend(key.as_ref());
    bytes.push(b'\n');
    bytes
}

/// What a client answers to a nonce.
pub(crate) fn digest(token: impl AsRef<[u8]>, nonce: &[u8]) -> String {
    let hash = Sha256::new()
        .chain_update(token)
        .chain_update(nonce)
        .finalize();
    BASE64_URL_SAFE_NO_PAD.encode(hash)
}

/// What came within a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A whole frame.
    Frame(Frame),
    /// The server shut down its side, between frames.
    End,
    /// The connection broke.
    Broken(ErrorKind),
    /// Neither, and the time is over.
    Nothing,
}

/// A byte stream with a socket below.
trait Transport: Read + Write + Send {
    fn socket(&self) -> &TcpStream;
}

impl Transport for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Transport for rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }
}

/// One connection.
pub(crate) struct Raw {
    stream: Box<dyn Transport>,
    unread: Vec<u8>,
}

impl Raw {
    /// A TCP connection, nothing more.
    pub(crate) fn open(address: &str) -> io::Result<Self> {
        let resolved = address
            .to_socket_addrs()?
            .next()
            .ok_or(ErrorKind::NotFound)?;
        let stream = TcpStream::connect_timeout(&resolved, PATIENCE)?;
        Self::over(stream)
    }

    /// On a socket that was made elsewhere.
    pub(crate) fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: Box::new(stream),
            unread: Vec::new(),
        })
    }

    /// TLS on a new connection; fails when the server's certificate does not satisfy `config`.
    pub(crate) fn open_tls(
        address: &str,
        config: std::sync::Arc<rustls::ClientConfig>,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let name = "localhost".try_into().expect("a valid name");
        let connection = rustls::ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut stream = rustls::StreamOwned::new(connection, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self {
            stream: Box::new(stream),
            unread: Vec::new(),
        })
    }

    /// Connects and authenticates with the empty token.
    pub(crate) fn connect(address: &str) -> Self {
        Self::connect_with(address, b"")
    }

    /// Connects and authenticates.
    pub(crate) fn connect_with(address: &str, token: impl AsRef<[u8]>) -> Self {
        Self::try_connect(address, token)
            .unwrap_or_else(|error| panic!("no session at {address}: {error}"))
    }

    /// Connects and authenticates, if somebody is there.
    pub(crate) fn try_connect(address: &str, token: impl AsRef<[u8]>) -> io::Result<Self> {
        let mut raw = Self::open(address)?;
        raw.authenticate(token)?;
        Ok(raw)
    }

    /// Reads the challenge and answers it.
    pub(crate) fn authenticate(&mut self, token: impl AsRef<[u8]>) -> io::Result<()> {
        let nonce = self.try_nonce()?;
        let mut line = digest(token, &nonce).into_bytes();
        line.push(b'\n');
        self.stream.write_all(&line)?;
        self.stream.flush()
    }

    /// Reads the challenge and gives back its nonce.
    pub(crate) fn nonce(&mut self) -> Vec<u8> {
        self.try_nonce().expect("a challenge comes")
    }

    fn try_nonce(&mut self) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + PATIENCE;
        let end = loop {
            if let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                break end;
            }
            match self.fill(deadline) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        };
        let line: Vec<u8> = self.unread.drain(..=end).collect();
        let nonce = line
            .strip_prefix(b"SHA-256 ")
            .unwrap_or_else(|| panic!("not a challenge: {}", line.escape_ascii()));
        Ok(nonce[..nonce.len() - 1].to_vec())
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the server takes the bytes");
    }

    /// Sends bytes; an error is the caller's.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// Ends the sending direction.
    pub(crate) fn shut_down(&self) {
        self.stream
            .socket()
            .shutdown(Shutdown::Write)
            .expect("the connection is there");
    }

    /// A second handle of the socket, to write from another thread; not for TLS.
    pub(crate) fn writer(&self) -> TcpStream {
        self.stream
            .socket()
            .try_clone()
            .expect("a socket can be copied")
    }

    /// Bytes that arrive until `deadline`; 0 is the end.
    fn fill(&mut self, deadline: Instant) -> io::Result<usize> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let mut buffer = [0; 16 * 1024];
        self.stream
            .socket()
            .set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let count = self.stream.read(&mut buffer)?;
        self.unread.extend(&buffer[..count]);
        Ok(count)
    }

    /// The next frame, the end, or neither within a time.
    pub(crate) fn receive(&mut self, within: Duration) -> Received {
        let deadline = Instant::now() + within;
        loop {
            if let Some((frame, consumed)) = Frame::parse(&self.unread) {
                self.unread.drain(..consumed);
                return Received::Frame(frame);
            }
            match self.fill(deadline) {
                Ok(0) if self.unread.is_empty() => return Received::End,
                Ok(0) => panic!("the end inside a frame: {}", self.unread.escape_ascii()),
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Received::Nothing;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Received::Broken(error.kind()),
            }
        }
    }

    /// The next frame, whatever it is.
    pub(crate) fn frame(&mut self) -> Frame {
        self.frame_within(PATIENCE)
    }

    /// The next frame within a time.
    pub(crate) fn frame_within(&mut self, within: Duration) -> Frame {
        match self.receive(within) {
            Received::Frame(frame) => frame,
            other => panic!("expected a frame within {within:?}, got {other:?}"),
        }
    }

    /// The next frame that is not a push of the leader's address.
    pub(crate) fn reply(&mut self) -> Frame {
        self.reply_within(PATIENCE)
    }

    /// The next frame within a time that is not a push of the leader's address.
    pub(crate) fn reply_within(&mut self, within: Duration) -> Frame {
        match self.receive_reply(within) {
            Received::Frame(frame) => frame,
            other => panic!("expected a reply within {within:?}, got {other:?}"),
        }
    }

    /// Like [`receive`](Self::receive), without pushes of the leader's address.
    pub(crate) fn receive_reply(&mut self, within: Duration) -> Received {
        let deadline = Instant::now() + within;
        loop {
            match self.receive(deadline.saturating_duration_since(Instant::now())) {
                Received::Frame(Frame::Leads(_)) => {}
                other => return other,
            }
        }
    }

    /// Sends a request and gives back its reply.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> Frame {
        self.send(request);
        self.reply()
    }

    /// Expects the orderly end of the connection, and no frame before it but `L`.
    pub(crate) fn expect_end(&mut self) {
        self.expect_end_within(PATIENCE);
    }

    /// Expects the orderly end within a time, and no frame before it but `L`.
    pub(crate) fn expect_end_within(&mut self, within: Duration) {
        let received = self.receive_reply(within);
        assert_eq!(
            received,
            Received::End,
            "expected the end within {within:?}"
        );
    }

    /// Takes whatever comes until the connection ends; false when it does not within a time.
    /// What comes must not contain `never`.
    pub(crate) fn discard_until_end(&mut self, within: Duration, never: &[u8]) -> bool {
        let deadline = Instant::now() + within;
        loop {
            match self.fill(deadline) {
                Ok(0) => return true,
                Ok(_) => {
                    let mut windows = self.unread.windows(never.len());
                    assert!(
                        !windows.any(|part| part == never),
                        "it must not be said here"
                    );
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return false;
                }
                Err(_) => return true,
            }
        }
    }

    /// Shows that everything decided before has been answered: the reply to a release of a token
    /// that is never issued comes next.
    pub(crate) fn expect_nothing_pending(&mut self) {
        let reply = self.ask(release("fence", 0));
        assert_eq!(
            reply,
            Frame::not_released(0, "fence"),
            "a reply that nobody expected"
        );
    }

    /// The address of the leader as this session was told: the next frame must be an `L`.
    pub(crate) fn leads(&mut self) -> String {
        match self.frame() {
            Frame::Leads(address) => address,
            other => panic!("expected L, got {other:?}"),
        }
    }
}
