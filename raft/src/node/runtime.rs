//! The thread that a node runs on.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;
use openraft::{Instant, TokioInstant};
use tokio::runtime::Builder;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::time::timeout;

use super::activation::{Board, Monitor};
use super::catch_up::CatchUp;
use super::failover::Watch;
use super::gate::Gate;
use super::local::{Entrance, Local};
use super::measures::Instruments;
use super::proposals::{Proposals, proposals};
use super::{Config, Error, RaftHandle, founders, membership, settings};
use crate::feed::Feed;
use crate::state_machine::{Progress, StateMachine};
use crate::transport::{Identity, PeerNetwork, PeerServer};

/// How many times per heartbeat the state of Raft is looked at when nothing seems to change.
const LOOKS_PER_HEARTBEAT: u64 = 4;

/// How long Raft may take to stop in order.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether the node is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    No,
    InOrder,
}

/// What the thread begins with.
pub(super) struct Start {
    pub(super) config: Config,
    pub(super) origin: u64,
    pub(super) stopping: watch::Receiver<Stop>,
}

/// What a running node is reached by from other threads. None of it keeps the data directory open.
pub(super) struct Parts {
    pub(super) raft: RaftHandle,
    pub(super) board: Arc<Board>,
    pub(super) proposals: Proposals,
    pub(super) identity: Arc<Identity>,
    pub(super) failure: watch::Receiver<Option<Error>>,
    pub(super) feed: mpsc::Receiver<Feed>,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) instruments: Instruments,
    pub(super) local: Weak<Local>,
}

/// Starts the thread; returns when the node runs on it, or with the reason why it doesn't.
/// `stopped` becomes true, or is dropped, when the thread has let go of everything.
pub(super) async fn spawn(start: Start, stopped: watch::Sender<bool>) -> Result<Parts, Error> {
    let (ready, parts) = oneshot::channel();
    let run_on_thread = move || {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = ready.send(Err(Error::System(format!("no runtime: {error}"))));
                return;
            }
        };
        runtime.block_on(run(start, ready));
        // Drops every task, and with them sockets and storage. A name that is still being resolved
        // is not waited for.
        runtime.shutdown_background();
        stopped.send_replace(true);
    };
    thread::Builder::new()
        .name("raft".into())
        .spawn(run_on_thread)
        .map_err(|error| Error::System(format!("no thread: {error}")))?;
    parts
        .await
        .unwrap_or_else(|_| Err(Error::System("the thread of Raft panicked".into())))
}

async fn run(start: Start, ready: oneshot::Sender<Result<Parts, Error>>) {
    let mut stopping = start.stopping.clone();
    let (running, parts) = match assemble(start).await {
        Ok(assembled) => assembled,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    if ready.send(Ok(parts)).is_err() {
        return; // Nobody waits for this node any more.
    }
    // An error means that the node was dropped: it stops as if it were killed.
    if stopping
        .wait_for(|stop| *stop == Stop::InOrder)
        .await
        .is_ok()
    {
        running.close().await;
    }
}

/// What is closed in order.
struct Running {
    raft: RaftHandle,
    board: Arc<Board>,
    network: PeerNetwork,
    server: Arc<PeerServer<StateMachine>>,
}

impl Running {
    async fn close(self) {
        self.board.stop();
        // The sockets first: peers then know at once that this process is gone, and don't wait for
        // it. What Raft was still doing is lost to it like in a crash, which is always allowed.
        self.network.close();
        self.server.shutdown().await;
        if timeout(STOP_TIMEOUT, self.raft.shutdown()).await.is_err() {
            tracing::warn!("Raft did not stop in time");
        }
    }
}

/// Puts the node together on the current runtime and starts its tasks.
async fn assemble(start: Start) -> Result<(Running, Parts), Error> {
    let Start { config, origin, .. } = start;
    let raft_config = Arc::new(settings::raft_config(&config)?);
    let storage = config.storage;
    let id = storage.node_id();
    let identity = Arc::new(Identity::new(id, storage.cluster_id(), &config.secret));
    let gate = Arc::new(Gate::load(&storage)?);
    let board = Arc::new(Board::new());
    let (failure_sender, failure) = watch::channel(None);
    let failure_sender = Arc::new(failure_sender);

    let entrance = Arc::new(Entrance {
        gate: Arc::clone(&gate),
        node: OnceLock::new(),
    });
    let (server, streams_ended) = PeerServer::start(
        config.listener,
        Arc::clone(&identity),
        Arc::clone(&entrance) as _,
    )
    .map_err(|error| Error::System(format!("cannot serve the peer port: {error}")))?;
    let server = Arc::new(server);
    let network = PeerNetwork::new(Arc::clone(&identity));
    let clock = Arc::clone(&config.clock);
    let (state_machine, feed, progress) =
        StateMachine::new(origin, config.clock, storage.snapshots());
    let instruments = Instruments {
        proposals: Arc::default(),
        log: storage.measures(),
        peers: network.measures(),
        snapshots: state_machine.snapshot_measures(),
    };
    let raft = RaftHandle::new(
        id,
        raft_config,
        network.clone(),
        storage.log_store()?,
        state_machine,
    )
    .await
    .map_err(|error| Error::Consensus(error.to_string()))?;
    let started = TokioInstant::now();
    server.serve_raft(raft.clone());

    let (proposals, proposer) = {
        let counts = Arc::clone(&instruments.proposals);
        proposals(Arc::clone(&board), origin, counts)
    };
    let election_timeout = Duration::from_millis(config.election_timeout_ms);
    let local = Arc::new(Local {
        id,
        founders: founders::text(&config.peers),
        own: config.own,
        peers: config.peers,
        bootstrap: config.bootstrap,
        election_timeout,
        storage,
        identity: Arc::clone(&identity),
        dialer: network.dialer().clone(),
        raft: raft.clone(),
        board: Arc::clone(&board),
        gate,
        promising: Mutex::new(()),
        changing: Arc::default(),
    });
    let watch = Watch {
        raft: raft.clone(),
        dialer: network.dialer().clone(),
        server: Arc::downgrade(&server),
    };
    if entrance
        .node
        .set((Arc::clone(&local), watch.clone()))
        .is_err()
    {
        unreachable!("the entrance is opened once, here");
    }

    let monitor = Monitor {
        raft: raft.clone(),
        board: Arc::clone(&board),
        proposals: proposals.clone(),
        clock,
        started,
        election_timeout,
        period: Duration::from_millis((config.heartbeat_ms / LOOKS_PER_HEARTBEAT).max(1)),
        progress: progress.clone(),
        catch_up: CatchUp::default(),
    };
    tokio::spawn(proposer.run(raft.clone()));
    tokio::spawn(monitor.run());
    tokio::spawn(watch.run(streams_ended));
    let alarm = Alarm {
        board: Arc::clone(&board),
        failure: failure_sender,
    };
    tokio::spawn(watch_storage(Arc::clone(&local), alarm.clone()));
    tokio::spawn(watch_membership(
        Arc::clone(&local),
        progress.clone(),
        alarm.clone(),
    ));
    let belonging = Arc::clone(&local);
    tokio::spawn(async move { alarm.raise(membership::belong(&belonging).await) });

    let parts = Parts {
        raft: raft.clone(),
        board: Arc::clone(&board),
        proposals,
        identity,
        failure,
        feed,
        progress,
        instruments,
        local: Arc::downgrade(&local),
    };
    Ok((
        Running {
            raft,
            board,
            network,
            server,
        },
        parts,
    ))
}

/// Where a reason to stop is reported. The first one counts.
#[derive(Clone)]
struct Alarm {
    board: Arc<Board>,
    failure: Arc<watch::Sender<Option<Error>>>,
}

impl Alarm {
    fn raise(&self, error: Error) {
        tracing::error!(%error, "this node must stop");
        self.board.stop();
        self.failure.send_if_modified(|failure| {
            let first = failure.is_none();
            failure.get_or_insert(error);
            first
        });
    }
}

/// Reports a failed write or sync.
async fn watch_storage(local: Arc<Local>, alarm: Alarm) {
    let mut failed = local.storage.failed();
    let why = match failed.wait_for(Option::is_some).await {
        Ok(why) => why.clone().unwrap_or_default(),
        Err(_) => return, // The store is gone, with this node.
    };
    alarm.raise(Error::StorageFailed(why));
}

/// Follows the membership: keeps the gate true to it and finishes what an earlier leader began.
/// Reports the end of Raft.
async fn watch_membership(local: Arc<Local>, progress: watch::Receiver<Progress>, alarm: Alarm) {
    let mut server = local.raft.server_metrics();
    loop {
        let (committed, effective) = {
            let metrics = server.borrow_and_update();
            let ids = |nodes: &mut dyn Iterator<Item = u64>| nodes.collect::<BTreeSet<u64>>();
            (
                ids(&mut metrics
                    .committed_membership_config
                    .nodes()
                    .map(|(id, _)| *id)),
                ids(&mut metrics.membership_config.nodes().map(|(id, _)| *id)),
            )
        };
        if let Err(error) = local.gate.update(committed, effective, &local.storage) {
            alarm.raise(error);
        }
        membership::finish_joint(&local);
        match timeout(local.election_timeout, server.changed()).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(_)) => break,
        }
    }
    if let Some(fault) = progress.borrow().fault.clone() {
        alarm.raise(Error::Consensus(fault));
        return;
    }
    let end = local.raft.metrics().borrow_watched().running_state.clone();
    match end {
        Err(Fatal::Stopped) => {}
        Err(fatal) => alarm.raise(Error::Consensus(fatal.to_string())),
        Ok(()) => alarm.raise(Error::Consensus("it ended without saying why".into())),
    }
}

/// A random number for this process.
pub(super) fn random_origin() -> Result<u64, Error> {
    getrandom::u64()
        .map_err(|error| Error::System(format!("no randomness from the system: {error}")))
}
