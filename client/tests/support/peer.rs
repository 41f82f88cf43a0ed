//! The server's end of one connection: it says and expects exactly what a test tells it to. Shared by
//! the tests over real sockets and those in memory.

#![allow(dead_code, reason = "each user of this file uses a part of it")]

use std::future::Future;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use wire::{
    Acquire, AuthToken, DIGEST_BYTES, Decode, Nonce, Release, Reply, Request, Token,
    decode_request, encode_reply, verify,
};

/// How long anything that must happen may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Awaits what must happen.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(PATIENCE, future).await;
    result.unwrap_or_else(|_| panic!("{what} did not happen in time"))
}

pub(crate) struct Peer<S> {
    stream: S,
    buffer: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub(crate) async fn handshake(mut stream: S) -> Self {
        let nonce = Nonce::from_random([1, 2, 3, 4, 5, 6]);
        stream.write_all(&nonce.challenge()).await.unwrap();
        let mut line = [0; DIGEST_BYTES + 1];
        soon("the digest", stream.read_exact(&mut line))
            .await
            .unwrap();
        assert!(verify(
            &line[..DIGEST_BYTES],
            &nonce,
            &[AuthToken::new("secret")]
        ));
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    pub(crate) async fn request(&mut self) -> Request {
        let request = soon("a request", self.next()).await;
        request.expect("the client closed the connection")
    }

    /// The next request, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Request> {
        loop {
            match decode_request(&self.buffer) {
                Decode::Complete(request, consumed) => {
                    self.buffer.drain(..consumed);
                    return Some(request);
                }
                Decode::Incomplete(_) => {}
                Decode::Refused(reason) => panic!("the client sent {reason}"),
            }
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    pub(crate) async fn acquire(&mut self) -> Acquire {
        match self.request().await {
            Request::Acquire(acquire) => acquire,
            other => panic!("expected an acquire, got {other:?}"),
        }
    }

    pub(crate) async fn release(&mut self) -> Release {
        match self.request().await {
            Request::Release(release) => release,
            other => panic!("expected a release, got {other:?}"),
        }
    }

    /// The client ends the connection, and says nothing more before it does but probes.
    pub(crate) async fn closed(&mut self) {
        loop {
            match soon("the end of the connection", self.next()).await {
                None => return,
                Some(Request::Release(probe)) if probe.token == Token(0) => {}
                Some(other) => panic!("expected the end of the connection, got {other:?}"),
            }
        }
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub(crate) async fn say(&mut self, reply: Reply) {
        self.raw(&bytes_of(&reply)).await;
    }

    pub(crate) async fn grant(&mut self, token: u64, acquire: &Acquire) {
        self.say(granted(token, acquire)).await;
    }

    pub(crate) async fn time_out(&mut self, acquire: &Acquire) {
        self.say(Reply::TimedOut {
            owner: acquire.owner,
            key: acquire.key.clone(),
        })
        .await;
    }

    pub(crate) async fn released(&mut self, release: &Release) {
        self.say(Reply::Released {
            token: release.token,
            key: release.key.clone(),
        })
        .await;
    }

    pub(crate) async fn not_current(&mut self, release: &Release) {
        self.say(Reply::NotCurrent {
            token: release.token,
            key: release.key.clone(),
        })
        .await;
    }

    /// The next request must be a probe; it is answered.
    pub(crate) async fn expect_probe(&mut self) {
        let probe = self.release().await;
        assert_eq!(probe.token, Token(0));
        self.not_current(&probe).await;
    }

    /// The next release must name this token; it is answered with `R`.
    pub(crate) async fn expect_release(&mut self, token: u64) {
        let release = self.release().await;
        assert_eq!(release.token, Token(token));
        self.released(&release).await;
    }
}

pub(crate) fn bytes_of(reply: &Reply) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_reply(reply, &mut bytes);
    bytes
}

/// The answer that grants it.
pub(crate) fn granted(token: u64, acquire: &Acquire) -> Reply {
    Reply::Granted {
        token: Token(token),
        owner: acquire.owner,
        key: acquire.key.clone(),
    }
}
