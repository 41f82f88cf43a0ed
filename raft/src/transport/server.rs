//! The incoming side: accepts, authenticates, and serves each lane.
//!
//! Faults answered:
//!
//! - *Strangers and floods.* A connection that has not proved the secret lives for at most
//!   [`HANDSHAKE_DEADLINE`], and their number is bounded apart from that of authenticated peers, so
//!   no flood of strangers ends a connection of a peer. Above a bound the dialer is told so.
//! - *No more file descriptors.* Accepting pauses instead of spinning.
//! - *Garbage*: the connection is closed. What a stranger can make this node write to its log is
//!   limited to a line a second.
//! - *Shutdown*: the listener and every socket are closed at once, so that peers notice at once.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use openraft::Raft;
use openraft::storage::RaftStateMachine;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::auth::{Lane, Refusal};
use super::connection::Connection;
use super::handshake::{self, Accepted};
use super::raft_lane::RaftLane;
use super::registry::{Registry, StreamEnded};
use super::wire::{self, Answer, Kind};
use super::{CONTROL_BYTES_MAX, Error, Identity, PeerIdentity, Service, Vote, snapshot};
use crate::quiet_log::QuietLog;
use crate::type_config::TypeConfig;

/// From accept to the end of the handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(3);

/// Connections that are in their handshake.
const HANDSHAKES_MAX: usize = 64;

/// Connections above [`HANDSHAKES_MAX`] that are told so. More are closed without a word.
const TURNED_AWAY_MAX: usize = 32;

/// Authenticated connections. Each peer needs about four.
const ESTABLISHED_MAX: usize = 192;

/// A connection on which nothing has arrived for so long is closed. The dialer opens another one
/// when it needs it.
const IDLE_DEADLINE: Duration = Duration::from_secs(60);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts, authenticates and serves peers.
pub struct PeerServer<SM>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = Bytes>,
{
    shared: Arc<Shared<SM>>,
    stop: watch::Sender<bool>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

struct Shared<SM>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = Bytes>,
{
    own: Arc<Identity>,
    service: Arc<dyn Service>,
    raft: OnceLock<Raft<TypeConfig, SM>>,
    registry: Registry,
    handshakes: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
    established: Arc<Semaphore>,
    snapshots: Semaphore,
    log: QuietLog,
}

impl<SM> PeerServer<SM>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = Bytes>,
{
    /// Serves `listener` on the current tokio runtime. Only control requests are answered until
    /// [`serve_raft`](Self::serve_raft). The receiver gets the end of each leader's last stream.
    pub fn start(
        listener: TcpListener,
        identity: Arc<Identity>,
        service: Arc<dyn Service>,
    ) -> io::Result<(Self, mpsc::Receiver<StreamEnded>)> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (registry, ended) = Registry::new();
        let shared = Arc::new(Shared {
            own: identity,
            service,
            raft: OnceLock::new(),
            registry,
            handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
            established: Arc::new(Semaphore::new(ESTABLISHED_MAX)),
            snapshots: Semaphore::new(snapshot::RECEIVED_AT_ONCE_MAX),
            log: QuietLog::default(),
        });
        let (stop, stopped) = watch::channel(false);
        let accepting = tokio::spawn(shared.clone().accept(listener, stopped));
        Ok((
            Self {
                shared,
                stop,
                accepting: Mutex::new(Some(accepting)),
            },
            ended,
        ))
    }

    /// Serves `raft` to the peers from now on. Later calls change nothing.
    pub fn serve_raft(&self, raft: Raft<TypeConfig, SM>) {
        let _ = self.shared.raft.set(raft);
    }

    /// Whether an append stream of the leader with this committed vote is open.
    pub fn has_live_stream(&self, vote: &Vote) -> bool {
        self.shared.registry.has_live_stream(vote)
    }

    /// Stops accepting and closes every connection; returns when all sockets are closed. Dropping
    /// the server does the same, without waiting.
    pub async fn shutdown(&self) {
        let _ = self.stop.send(true);
        let accepting = self
            .accepting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(accepting) = accepting {
            let _ = accepting.await;
        }
    }
}

impl<SM> std::fmt::Debug for PeerServer<SM>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = Bytes>,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerServer")
            .field("own", &self.shared.own)
            .finish_non_exhaustive()
    }
}

impl<SM> Shared<SM>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = Bytes>,
{
    async fn accept(
        self: Arc<Self>,
        listener: tokio::net::TcpListener,
        mut stopped: watch::Receiver<bool>,
    ) {
        // Dropping the set ends its tasks, and each socket belongs to one of them.
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                // Also when the server is dropped.
                _ = stopped.changed() => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => self.clone().begin(stream, address, &mut connections),
                    Err(error) => {
                        if let Some(dropped) = self.log.admit() {
                            tracing::warn!(%error, dropped, "cannot accept a peer connection");
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
        drop(listener);
        connections.shutdown().await;
    }

    /// Starts the task of a new connection, within the bounds.
    fn begin(self: Arc<Self>, stream: TcpStream, address: SocketAddr, tasks: &mut JoinSet<()>) {
        if let Ok(permit) = self.handshakes.clone().try_acquire_owned() {
            tasks.spawn(async move {
                let ended = self.serve(stream, address, permit).await;
                self.log_end(address, ended);
            });
        } else if let Ok(permit) = self.turned_away.clone().try_acquire_owned() {
            tasks.spawn(async move {
                let _permit = permit;
                self.log_end(address, Err(Error::Refused(Refusal::Busy)));
                let _ = timeout(HANDSHAKE_DEADLINE, turn_away(stream)).await;
            });
        }
    }

    async fn serve(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        handshake: OwnedSemaphorePermit,
    ) -> Result<(), Error> {
        let mut connection = Connection::new(stream)?;
        let mut established = None;
        let raft_ready = || self.raft.get().is_some();
        let admit = || match self.established.clone().try_acquire_owned() {
            Ok(permit) => {
                established = Some(permit);
                Ok(())
            }
            Err(_) => Err(Refusal::Busy),
        };
        let accepted = handshake::accept(&mut connection, &self.own, raft_ready, admit);
        let Accepted {
            lane,
            node_id,
            cluster_id,
        } = timeout(HANDSHAKE_DEADLINE, accepted)
            .await
            .unwrap_or(Err(Error::Timeout(HANDSHAKE_DEADLINE)))?;
        drop(handshake);
        tracing::debug!(%address, node_id, ?lane, "peer connected");

        match (lane, self.raft.get()) {
            (Lane::Raft, Some(raft)) => {
                let lane = RaftLane {
                    connection,
                    from: node_id,
                    raft: raft.clone(),
                    service: self.service.clone(),
                    registry: self.registry.clone(),
                };
                lane.serve(IDLE_DEADLINE).await
            }
            (Lane::Snapshot, Some(raft)) => {
                snapshot::serve(
                    &mut connection,
                    node_id,
                    raft,
                    &self.snapshots,
                    IDLE_DEADLINE,
                )
                .await
            }
            (Lane::Control, _) => {
                self.serve_control(
                    connection,
                    PeerIdentity {
                        node_id,
                        cluster_id,
                        address,
                    },
                )
                .await
            }
            (Lane::Raft | Lane::Snapshot, None) => Err(Error::Refused(Refusal::NotReady)),
        }
    }

    async fn serve_control(
        &self,
        mut connection: Connection,
        from: PeerIdentity,
    ) -> Result<(), Error> {
        loop {
            let exchange = async {
                let Some(frame) = connection.next().await? else {
                    return Ok(false);
                };
                let (kind, content) = wire::split(&frame)?;
                let request: Bytes = wire::decode(&content)?;
                if kind != Kind::Control || request.len() > CONTROL_BYTES_MAX {
                    return Err(Error::Malformed("not a control request"));
                }
                let answer = self.service.control(from, request.into()).await;
                let answer: Answer<Bytes> = Ok(answer.into());
                connection
                    .send(|out| wire::encode(Kind::Control, &answer, out))
                    .await?;
                Ok(true)
            };
            let exchanged = timeout(IDLE_DEADLINE, exchange).await;
            if !exchanged.unwrap_or(Err(Error::Timeout(IDLE_DEADLINE)))? {
                return Ok(());
            }
        }
    }

    /// Why a connection ended. Lost ones are everyday; what is refused should be looked at.
    fn log_end(&self, address: SocketAddr, ended: Result<(), Error>) {
        match ended {
            Ok(()) => tracing::debug!(%address, "peer connection closed"),
            Err(error @ (Error::Lost(_) | Error::Timeout(_))) => {
                tracing::debug!(%address, "peer connection ended: {error}");
            }
            Err(error) if error.passes_by_itself() => {
                tracing::debug!(%address, "peer connection refused: {error}");
            }
            Err(error) => {
                if let Some(dropped) = self.log.admit() {
                    tracing::warn!(%address, %error, dropped, "peer connection refused");
                }
            }
        }
    }
}

async fn turn_away(stream: TcpStream) -> Result<(), Error> {
    handshake::turn_away(&mut Connection::new(stream)?, Refusal::Busy).await
}
