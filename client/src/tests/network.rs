//! Servers in memory, found by address.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use tokio::io::DuplexStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

use super::Peer;
use super::peer::soon;
use crate::clock::Clock;
use crate::dial::Transport;
use crate::{Broker, Builder};

/// How many connections wait to be accepted.
const BACKLOG: usize = 16;

/// How many bytes a connection holds for each direction unless a test says otherwise.
const BYTES: usize = 64 * 1024;

/// All servers of one test.
#[derive(Clone, Default)]
pub(crate) struct Network(Arc<Mutex<BTreeMap<String, Listener>>>);

struct Listener {
    connections: Sender<DuplexStream>,
    bytes: usize,
}

impl Network {
    /// A client's end of a connection to the server at `address`.
    pub(crate) fn connect(&self, address: &str) -> io::Result<DuplexStream> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let listeners = self.0.lock().unwrap();
        let listener = listeners.get(address).ok_or_else(refused)?;
        let (client, server) = tokio::io::duplex(listener.bytes);
        let sent = listener.connections.try_send(server);
        sent.map_err(|_| refused())?;
        Ok(client)
    }

    /// A server at `address`.
    pub(crate) fn server(&self, address: &str) -> Server {
        self.narrow_server(address, BYTES)
    }

    /// One whose connections hold so few bytes that each takes no more until it is read.
    pub(crate) fn narrow_server(&self, address: &str, bytes: usize) -> Server {
        let (connections, accepted) = channel(BACKLOG);
        let listener = Listener { connections, bytes };
        self.0.lock().unwrap().insert(address.to_owned(), listener);
        Server {
            network: self.clone(),
            address: address.to_owned(),
            accepted,
        }
    }

    /// Makes a broker that lives in this network.
    pub(crate) fn start(&self, builder: Builder) -> Broker {
        let transport = Transport::Memory(self.clone());
        let clock = Clock::Paused(Instant::now());
        let broker = builder.token("secret").start(transport, clock, || u32::MAX);
        broker.unwrap()
    }
}

pub(crate) struct Server {
    network: Network,
    pub(crate) address: String,
    accepted: Receiver<DuplexStream>,
}

impl Server {
    /// The only one of its network, at `a:1`.
    pub(crate) fn alone() -> Self {
        Network::default().server("a:1")
    }

    /// A broker with this server as its only address.
    pub(crate) fn broker(&self) -> Broker {
        self.broker_with(|builder| builder)
    }

    pub(crate) fn broker_with(&self, set: impl FnOnce(Builder) -> Builder) -> Broker {
        let builder = Broker::builder().addresses([self.address.clone()]);
        self.network.start(set(builder))
    }

    /// A bare connection, before the handshake.
    pub(crate) async fn connection(&mut self) -> DuplexStream {
        let connection = soon("a connection", self.accepted.recv()).await;
        connection.expect("the network holds the other end")
    }

    /// A connection that came through the handshake.
    pub(crate) async fn accept(&mut self) -> Peer {
        let connection = self.connection().await;
        Peer::handshake(connection).await
    }

    /// Whether a connection is waiting to be accepted.
    pub(crate) fn is_dialled(&mut self) -> bool {
        self.accepted.try_recv().is_ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.network.0.lock().unwrap().remove(&self.address);
    }
}

/// Servers `a:1`, `b:1` and so on, and a broker that has all their addresses.
pub(crate) fn broker<const N: usize>() -> ([Server; N], Broker) {
    let network = Network::default();
    let names = ["a:1", "b:1", "c:1"];
    let servers = std::array::from_fn(|index| network.server(names[index]));
    let broker = network.start(Broker::builder().addresses(names[..N].to_vec()));
    (servers, broker)
}
