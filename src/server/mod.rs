//! The front end: connections, handshakes and sessions, in front of the desk.
//!
//! | module | idea |
//! |---|---|
//! | `listener` | accepts, bounds the number of connections, runs handshakes under one deadline |
//! | `handshake` | challenge and verdict |
//! | `tls` | certificate and key from PEM files |
//! | `transport` | plain or TLS: what the socket took, what the client may have read, how to close |
//! | `session` | one authenticated connection: reads, writes, clocks, end |
//! | `input`, `output` | its buffers |
//!
//! Every client-controlled size has a bound: the connections by their slots, a connection's input by
//! its buffer, its requests by the limits of the desk and the release lane, its replies by not reading
//! from it. What the bounds cannot hold back is cut off, as PROTOCOL section 7 says.

mod counters;
mod handshake;
mod input;
mod listener;
mod output;
mod probe;
mod session;
mod tls;
mod transport;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use raft::clock::Clock;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use wire::AuthToken;

use crate::desk::Limits;
use crate::driver::{self, Backend};
use listener::Gate;

pub use counters::Counters;
pub use probe::Probe;
pub use tls::{TlsError, acceptor};

/// How long a stop waits for sessions to take their last replies, once they were told to close.
/// Their own bounds are below it.
const STOP_TIME_MAX: Duration = Duration::from_secs(8);

/// What a front end needs to know.
pub struct ServerConfig {
    /// One token, or two while they are being rotated. The empty token if there is none.
    pub tokens: Vec<AuthToken>,
    /// With it, every connection is TLS; see [`acceptor`].
    pub tls: Option<TlsAcceptor>,
    /// Most connections at a time, those in their handshake included.
    pub connections_max: usize,
    /// The desk's limits.
    pub limits: Limits,
    /// What leases and waits are counted with.
    pub clock: Arc<dyn Clock>,
}

/// A running front end. Dropping it closes the listener and leaves the sessions to themselves.
pub struct Server {
    address: SocketAddr,
    probe: Probe,
    stopping: watch::Sender<bool>,
    driver: driver::Handle,
    listening: JoinHandle<()>,
}

impl Server {
    /// Serves `backend` to whoever connects to `listener`.
    pub fn start(
        listener: TcpListener,
        config: ServerConfig,
        backend: Backend,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let counters = Arc::new(Counters::default());
        let (stopping, stops) = watch::channel(false);
        let (front, driver) = driver::start(backend, config.limits, config.clock);
        let gate = Gate::new(
            config.tokens,
            config.tls,
            config.connections_max,
            Arc::clone(&counters),
            stops.clone(),
        );
        let probe = Probe {
            driver: driver.observer(),
            counters,
            slots: gate.slots(),
            connections_max: config.connections_max,
            stopping: stops,
        };
        let listening = tokio::spawn(listener::accept_all(listener, Arc::new(gate), front));
        Ok(Self {
            address,
            probe,
            stopping,
            driver,
            listening,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What may look at it.
    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    /// Waits until the front end fails, which only a defect in it brings about. The process must end
    /// then.
    pub async fn failed(&mut self) {
        self.driver.ended().await;
    }

    /// The first step of a planned stop: accepts nobody any more, proposes nothing more and waits (1 s
    /// at most) until nothing is under way. Sessions stay, so that a leader can hand over now
    /// and its clients are told where to go.
    pub async fn quiesce(&self) {
        self.stopping.send_replace(true);
        self.driver.quiesce().await;
    }

    /// Answers, refuses what cannot be answered, flushes and closes all sessions; takes 10 s at
    /// most, with [`quiesce`](Self::quiesce), which it does first.
    pub async fn stop(mut self) {
        self.quiesce().await;
        self.driver.stop();
        let ended = async {
            self.driver.ended().await;
            let _ = (&mut self.listening).await;
        };
        if timeout(STOP_TIME_MAX, ended).await.is_err() {
            tracing::warn!("some sessions did not end in time");
            self.driver.abort();
        }
    }
}
