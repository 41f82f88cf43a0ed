//! Accepts connections, bounds how many there are, and leads each through its handshakes.
//!
//! Accepting never waits for a client: each handshake runs in a task of its own, under one deadline
//! from the accept. A connection holds its slot from the accept until its socket is closed, so
//! clients that never say anything use up slots for [`HANDSHAKE_TIME_MAX`] at most, and nothing
//! beyond the slots.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsAcceptor;
use wire::{AuthToken, Reason};

use super::counters::{Counters, Mishap};
use super::handshake::{self, Failure};
use super::session::Session;
use super::transport::{Counted, Socket, Transport, discard, shut_down};
use crate::desk::SessionId;
use crate::driver::Front;

/// From the accept to the end of the auth handshake, TLS included.
pub(super) const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// Connections beyond the limit that are closed politely at the same time. More are just dropped.
const TURNED_AWAY_MAX: usize = 64;

/// Shortest and longest pause after an accept that failed for want of something.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A peer whose host is gone is found after about seven minutes, so that its slot comes back. A
/// quiet client's kernel answers the probes, so it stays connected.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_PROBES: u32 = 10;

/// What all connections share.
pub(super) struct Gate {
    pub(super) tokens: Vec<AuthToken>,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) counters: Arc<Counters>,
    pub(super) stopping: watch::Receiver<bool>,
    /// One permit per connection.
    slots: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
    sessions: AtomicU64,
}

impl Gate {
    pub(super) fn new(
        tokens: Vec<AuthToken>,
        tls: Option<TlsAcceptor>,
        connections_max: usize,
        counters: Arc<Counters>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            tokens,
            tls,
            counters,
            stopping,
            slots: Arc::new(Semaphore::new(connections_max)),
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
            sessions: AtomicU64::new(0),
        }
    }

    /// The slots of connections, to be looked at.
    pub(super) fn slots(&self) -> Arc<Semaphore> {
        Arc::clone(&self.slots)
    }

    fn next_session(&self) -> SessionId {
        SessionId(self.sessions.fetch_add(1, Ordering::Relaxed))
    }
}

/// Accepts until the process stops.
pub(super) async fn accept_all(listener: TcpListener, gate: Arc<Gate>, front: Front) {
    let mut stopping = gate.stopping.clone();
    let mut pause = PAUSE_MIN;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // An error means that nobody can stop this server any more.
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        match accepted {
            Ok((socket, client)) => {
                pause = PAUSE_MIN;
                tune(&socket);
                admit(socket, client, &gate, &front);
            }
            Err(error) if concerns_one_connection(&error) => {}
            Err(error) => {
                gate.counters.cannot_accept(&error);
                tokio::select! {
                    () = sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
                    _ = stopping.wait_for(|stopping| *stopping) => return,
                }
            }
        }
    }
}

/// Whether the next accept may well succeed: the connection at hand failed, not the accepting.
/// Anything else (no file descriptors, no memory) would come back at once.
fn concerns_one_connection(error: &io::Error) -> bool {
    use Errno as E;
    const OF_ONE: [Errno; 10] = [
        E::CONNABORTED,
        E::CONNRESET,
        E::PERM,
        E::PROTO,
        E::NETDOWN,
        E::NETUNREACH,
        E::HOSTDOWN,
        E::HOSTUNREACH,
        E::NOPROTOOPT,
        E::INTR,
    ];
    Errno::from_io_error(error).is_some_and(|errno| OF_ONE.contains(&errno))
}

/// Gives a connection from `client` its slot and begins with it, or turns it away.
pub(super) fn admit<S: Socket>(socket: S, client: SocketAddr, gate: &Arc<Gate>, front: &Front) {
    match Arc::clone(&gate.slots).try_acquire_owned() {
        Ok(slot) => {
            gate.counters.connections.add_one();
            let welcomed = welcome(socket, client, slot, Arc::clone(gate), front.clone());
            tokio::spawn(welcomed);
        }
        Err(_) => {
            gate.counters.mishap(client, Mishap::TurnedAway);
            turn_away(socket, gate);
        }
    }
}

/// Closes a connection beyond the limit, so that its client sees the end of the stream even if it
/// has sent something already.
fn turn_away<S: Socket>(socket: S, gate: &Gate) {
    if let Ok(permit) = Arc::clone(&gate.turned_away).try_acquire_owned() {
        tokio::spawn(async move {
            let _permit = permit;
            let mut stream = Counted::new(socket);
            shut_down(&mut stream, true).await;
            discard(stream.raw()).await;
        });
    }
}

/// From the accept to the end of the connection.
async fn welcome<S: Socket>(
    socket: S,
    client: SocketAddr,
    slot: OwnedSemaphorePermit,
    gate: Arc<Gate>,
    front: Front,
) {
    let _slot = slot;
    let deadline = Instant::now() + HANDSHAKE_TIME_MAX;
    let stream = Counted::new(socket);
    let Some(acceptor) = &gate.tls else {
        return greet(stream, client, deadline, &gate, front).await;
    };
    let mut stopping = gate.stopping.clone();
    let accepted = tokio::select! {
        accepted = timeout_at(deadline, acceptor.accept(stream).into_fallible()) => accepted,
        _ = stopping.wait_for(|stopping| *stopping) => return,
    };
    match accepted {
        Ok(Ok(stream)) => greet(stream, client, deadline, &gate, front).await,
        Ok(Err((_, mut stream))) => {
            gate.counters.mishap(client, Mishap::Tls);
            drop(front);
            shut_down(&mut stream, true).await;
            discard(stream.raw()).await;
        }
        Err(_) => gate.counters.mishap(client, Mishap::Deadline),
    }
}

/// Options that a connection lives well without, so failing to set them is no reason to end it.
fn tune(socket: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    if let Err(error) = socket
        .set_nodelay(true)
        .and_then(|()| SockRef::from(socket).set_tcp_keepalive(&keepalive))
    {
        tracing::debug!("cannot set a connection's options: {error}");
    }
}

/// The auth handshake, and then the session.
async fn greet<T: Transport>(
    mut stream: T,
    client: SocketAddr,
    deadline: Instant,
    gate: &Gate,
    front: Front,
) {
    let mut stopping = gate.stopping.clone();
    let authenticated = tokio::select! {
        authenticated = timeout_at(
            deadline,
            handshake::authenticate(&mut stream, &gate.tokens),
        ) => authenticated,
        _ = stopping.wait_for(|stopping| *stopping) => return,
    };
    let failed = match authenticated {
        Ok(Ok(input)) => {
            gate.counters.sessions.add_one();
            let counters = Arc::clone(&gate.counters);
            let session = Session::new(gate.next_session(), client, stream, input, front, counters);
            return session.run().await;
        }
        Ok(Err(Failure::Refused(Reason::AuthFailed))) => Mishap::Auth,
        Ok(Err(Failure::Refused(_))) => Mishap::Line,
        Ok(Err(Failure::Lost)) => Mishap::Lost,
        Ok(Err(Failure::NoRandomness)) => Mishap::NoRandomness,
        Err(_) => Mishap::Deadline,
    };
    gate.counters.mishap(client, failed);
    drop(front);
    shut_down(&mut stream, true).await;
    discard(stream.raw()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_one_connection_are_tried_again_without_a_pause() {
        let of_one = |errno: Errno| concerns_one_connection(&io::Error::from(errno));
        assert!(of_one(Errno::CONNABORTED));
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::INVAL,
        ] {
            assert!(!of_one(errno), "{errno:?}");
        }
    }
}
