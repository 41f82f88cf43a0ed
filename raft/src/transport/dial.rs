//! Making connections: names, addresses, deadlines, and the handshake.
//!
//! Faults answered:
//!
//! - *An address that changes.* The name is resolved at every dial; nothing is cached.
//! - *A peer that accepts and says nothing.* Name, connection and handshake share one deadline.
//! - *A socket that reached itself.* Dialling a free port of the ephemeral range on the own host may
//!   connect a socket to itself. That is nobody listening, and it is reported as a refusal.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::auth::Lane;
use super::connection::Connection;
use super::wire::{self, Kind};
use super::{CONTROL_BYTES_MAX, Error, Identity, handshake};
use crate::quiet_log::QuietLog;

/// Resolving, connecting and the handshake together.
const DIAL_DEADLINE: Duration = Duration::from_millis(1000);

/// The whole of one probe. A host that is there refuses within a round trip.
const PROBE_DEADLINE: Duration = Duration::from_millis(50);

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// What dialling an address showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Every address that the name resolves to refused: the host is there, and nobody listens.
    Refused,
    /// Somebody accepted.
    Reached,
    /// Anything else: no name, no route, no answer in time.
    Unknown,
}

/// Dials peers.
#[derive(Clone, Debug)]
pub struct Dialer {
    own: Arc<Identity>,
    refusals: Arc<QuietLog>,
}

impl Dialer {
    /// A dialer that authenticates as `identity`.
    pub fn new(identity: Arc<Identity>) -> Self {
        Self {
            own: identity,
            refusals: Arc::default(),
        }
    }

    /// Looks whether anybody listens at `address` (`host:port`), within 50 ms.
    pub async fn probe(&self, address: &str) -> Probe {
        timeout(PROBE_DEADLINE, probe(address))
            .await
            .unwrap_or(Probe::Unknown)
    }

    /// One control request to whoever answers at `address`, on a connection of its own. Works
    /// without a cluster id. `deadline` bounds the whole of it.
    pub async fn control(
        &self,
        address: &str,
        request: Vec<u8>,
        deadline: Duration,
    ) -> Result<Vec<u8>, Error> {
        let asked = async {
            let mut connection = self.dial(address, Lane::Control, None).await?;
            let request = Bytes::from(request);
            connection
                .send(|out| wire::encode(Kind::Control, &request, out))
                .await?;
            let answer: Bytes = wire::decode_answer(Kind::Control, &connection.expect().await?)?;
            if answer.len() > CONTROL_BYTES_MAX {
                return Err(Error::Malformed("a control answer above the greatest size"));
            }
            Ok(answer.into())
        };
        timeout(deadline, asked)
            .await
            .unwrap_or(Err(Error::Timeout(deadline)))
    }

    /// An authenticated connection. `wanted`: the node that must be there, `None` for any.
    pub(crate) async fn dial(
        &self,
        address: &str,
        lane: Lane,
        wanted: Option<u64>,
    ) -> Result<Connection, Error> {
        let dialled = async {
            let mut connection = Connection::new(connect(address).await?)?;
            handshake::dial(&mut connection, &self.own, lane, wanted).await?;
            Ok(connection)
        };
        let dialled = timeout(DIAL_DEADLINE, dialled)
            .await
            .unwrap_or(Err(Error::Timeout(DIAL_DEADLINE)));
        if let Err(error @ (Error::Refused(_) | Error::Untrusted(_) | Error::Malformed(_))) =
            &dialled
            && !error.passes_by_itself()
            && let Some(dropped) = self.refusals.admit()
        {
            tracing::warn!(address, %error, dropped, "no handshake with a peer");
        }
        dialled
    }
}

async fn connect(address: &str) -> Result<TcpStream, Error> {
    let failed = |source| Error::Connect {
        address: address.to_owned(),
        source,
    };
    let addresses = resolve(address).await.map_err(failed)?;
    let share = DIAL_DEADLINE / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for socket_address in addresses {
        match timeout(share, connect_to(socket_address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failed(last))
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

async fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    Ok(lookup_host(address).await?.take(ADDRESSES_MAX).collect())
}

async fn probe(address: &str) -> Probe {
    let Ok(addresses) = resolve(address).await else {
        return Probe::Unknown;
    };
    let mut seen = Probe::Unknown;
    for socket_address in addresses {
        match connect_to(socket_address).await {
            Ok(_) => return Probe::Reached,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => seen = Probe::Refused,
            Err(_) => return Probe::Unknown,
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn dialer() -> Dialer {
        Dialer::new(Arc::new(Identity::new(1, None, b"secret")))
    }

    #[tokio::test]
    async fn a_probe_tells_a_listener_from_a_free_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert_eq!(dialer().probe(&address).await, Probe::Reached);
        drop(listener);
        assert_eq!(dialer().probe(&address).await, Probe::Refused);
    }

    #[tokio::test]
    async fn a_probe_of_a_name_without_address_is_unknown() {
        assert_eq!(
            dialer().probe("no-such-host.invalid:1").await,
            Probe::Unknown
        );
    }

    #[tokio::test]
    async fn a_peer_that_accepts_and_says_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let dialled = dialer().dial(&address, Lane::Raft, Some(2)).await;
        assert!(matches!(dialled, Err(Error::Timeout(_))), "{dialled:?}");
    }
}
