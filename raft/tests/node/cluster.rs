//! Clusters of real nodes in this process: real storage in temporary directories, real connections on
//! loopback, each node on its own thread. A node is killed by dropping it.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use raft::clock::MonotonicClock;
use raft::lock::{Applied, Attempt, Batch, Command, Grant, Outcome, Stamp};
use raft::node::{Bootstrap, Config, Error, Node, Overview};
use raft::type_config::Peer;
use raft::{Activation, Activity, Feed, Status};
use storage::{Options, Storage};
use tempfile::TempDir;
use tokio::sync::mpsc;
use wire::{Key, Lease};

use crate::link::Link;

/// How long anything may take before a test gives up. Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(40);

/// Ports are taken from below the range that outgoing connections use, so that none of them sits
/// on a node's port while the node is down.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// What the nodes of a cluster have in common.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) heartbeat_ms: u64,
    pub(crate) election_timeout_ms: u64,
    pub(crate) snapshot_entries: u64,
    pub(crate) bootstrap: Bootstrap,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat_ms: 50,
            election_timeout_ms: 500,
            snapshot_entries: 10_000,
            bootstrap: Bootstrap::Auto,
        }
    }
}

impl Settings {
    pub(crate) fn election_timeout(&self) -> Duration {
        Duration::from_millis(self.election_timeout_ms)
    }
}

/// A place for a node: its addresses and its data, whether it runs or not.
pub(crate) struct Place {
    pub(crate) peer: Peer,
    /// Where the node listens: its address, or the far end of its link.
    listens: String,
    /// Between the others and this node, if the network is to be cut.
    pub(crate) link: Option<Link>,
    pub(crate) data: PathBuf,
    pub(crate) node: Option<Running>,
}

/// A running node with a tiny desk.
pub(crate) struct Running {
    pub(crate) node: Node,
    desk: Arc<Mutex<Desk>>,
}

/// What came out of the apply stream, in order.
#[derive(Debug, Default)]
struct Desk {
    activations: Vec<Activation>,
    applied: Vec<(Activity, Applied)>,
    sequence: u64,
}

pub(crate) struct Cluster {
    pub(crate) places: Vec<Place>,
    pub(crate) settings: Settings,
    directory: TempDir,
}

impl Cluster {
    /// Places for `size` nodes; none is started.
    pub(crate) fn places(size: usize, settings: Settings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let places = (0..size).map(|number| {
            let raft = format!("127.0.0.1:{}", free_port());
            Place {
                listens: raft.clone(),
                peer: Peer {
                    client: format!("client-{number}:5225"),
                    raft,
                },
                link: None,
                data: directory.path().join(format!("node-{number}")),
                node: None,
            }
        });
        Self {
            places: places.collect(),
            settings,
            directory,
        }
    }

    /// A cluster in which somebody serves.
    pub(crate) async fn started(size: usize, settings: Settings) -> Self {
        let mut cluster = Self::places(size, settings);
        for number in 0..size {
            cluster.start(number).await;
        }
        cluster.until_serving().await;
        cluster
    }

    /// The same with a link before each node.
    pub(crate) async fn started_with_links(size: usize, settings: Settings) -> Self {
        let mut cluster = Self::places(size, settings);
        for place in &mut cluster.places {
            place.listens = format!("127.0.0.1:{}", free_port());
            let near = place.peer.raft.parse().unwrap();
            place.link = Some(Link::open(near, place.listens.parse().unwrap()).await);
        }
        for number in 0..size {
            cluster.start(number).await;
        }
        cluster.until_serving().await;
        cluster
    }

    /// One more place, with the addresses of another one but reached by nobody: as if that address
    /// had moved. Returns its number.
    pub(crate) fn add_impostor(&mut self, of: usize) -> usize {
        let number = self.places.len();
        self.places.push(Place {
            peer: self.places[of].peer.clone(),
            listens: format!("127.0.0.1:{}", free_port()),
            link: None,
            data: self.directory.path().join(format!("node-{number}")),
            node: None,
        });
        number
    }

    pub(crate) fn link(&mut self, number: usize) -> &mut Link {
        self.places[number]
            .link
            .as_mut()
            .expect("started with links")
    }

    pub(crate) fn peers(&self) -> Vec<Peer> {
        self.places.iter().map(|place| place.peer.clone()).collect()
    }

    pub(crate) async fn start(&mut self, number: usize) {
        let peers = self.peers();
        let started = self.try_start(number, peers, self.settings.bootstrap).await;
        started.unwrap_or_else(|error| panic!("node {number}: {error}"));
    }

    pub(crate) async fn try_start(
        &mut self,
        number: usize,
        peers: Vec<Peer>,
        bootstrap: Bootstrap,
    ) -> Result<(), Error> {
        let place = &mut self.places[number];
        let data = place.data.clone();
        let options = Options {
            segment_bytes: 1 << 20,
            ..Options::default()
        };
        let opened = tokio::task::spawn_blocking(move || Storage::open(&data, options));
        let (node, feed) = Node::start(Config {
            own: place.peer.clone(),
            peers,
            listener: listen(&place.listens).await,
            secret: b"for tests".to_vec(),
            bootstrap,
            heartbeat_ms: self.settings.heartbeat_ms,
            election_timeout_ms: self.settings.election_timeout_ms,
            storage: opened.await.unwrap()?,
            snapshot_entries: self.settings.snapshot_entries,
            clock: Arc::new(MonotonicClock),
        })
        .await?;
        let desk = Arc::default();
        tokio::spawn(receive(feed, Arc::clone(&desk)));
        place.node = Some(Running { node, desk });
        Ok(())
    }

    /// Kills a node: its sockets close, nothing is said or flushed.
    pub(crate) fn kill(&mut self, number: usize) -> Running {
        self.places[number].node.take().expect("it runs")
    }

    pub(crate) fn node(&self, number: usize) -> &Running {
        self.places[number].node.as_ref().expect("it runs")
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = (usize, &Running)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(number, place)| Some((number, place.node.as_ref()?)))
    }

    /// Moves a node's data away, as if its disk were lost; returns where it is now.
    pub(crate) fn lose_disk(&self, number: usize) -> PathBuf {
        let lost = self.directory.path().join(format!("lost-{number}"));
        std::fs::rename(&self.places[number].data, &lost).unwrap();
        lost
    }

    /// The node that serves at this moment, with its activity.
    pub(crate) fn serving(&self) -> Option<(usize, Activity)> {
        let serving = self
            .running()
            .filter_map(|(number, node)| Some((number, node.serving()?)));
        serving.max_by_key(|(number, _)| self.node(*number).status().term)
    }

    pub(crate) async fn until_serving(&self) -> (usize, Activity) {
        self.until("a node serves", |cluster| cluster.serving())
            .await
    }

    /// Waits until `condition` gives something, and shows the nodes when it takes too long.
    pub(crate) async fn until<T>(&self, what: &str, condition: impl Fn(&Self) -> Option<T>) -> T {
        self.within(PATIENCE, what, condition).await
    }

    pub(crate) async fn within<T>(
        &self,
        patience: Duration,
        what: &str,
        condition: impl Fn(&Self) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(value) = condition(self) {
                return value;
            }
            assert!(
                Instant::now() < deadline,
                "not within {patience:?}: {what}\n{}",
                self.show()
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Takes `key` on whichever node serves, again and again until one says that it is granted.
    pub(crate) async fn acquire(&self, key: &str) -> Grant {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (number, activity) = self.until_serving().await;
            let node = self.node(number);
            let sequence = node.propose(activity, acquire_command(key));
            let applied = self.until("the batch is decided", |_| {
                node.outcome(sequence)
                    .map(Some)
                    .or(node.is_over(activity).then_some(None))
            });
            match applied.await.map(|applied| applied.outcomes[0]) {
                Some(Outcome::Acquired(Attempt::Granted(grant))) => return grant,
                Some(other) => panic!("{key}: {other:?}\n{}", self.show()),
                None => assert!(
                    Instant::now() < deadline,
                    "no grant of {key}\n{}",
                    self.show()
                ),
            }
        }
    }

    /// Waits until all running nodes have applied the same log, and checks that it gave the same.
    pub(crate) async fn until_equal(&self) {
        let progress = |cluster: &Self| -> Vec<_> {
            cluster
                .running()
                .map(|(_, node)| node.node.overview().progress)
                .collect()
        };
        self.until("all nodes have applied the same entries", |cluster| {
            let all = progress(cluster);
            let same = |p: &raft::state_machine::Progress| {
                p.last_applied == all[0].last_applied && p.last_applied.is_some()
            };
            (all.iter().all(same) && all == progress(cluster)).then(|| {
                assert!(
                    all.iter().all(|p| *p == all[0]),
                    "diverged\n{}",
                    cluster.show()
                );
            })
        })
        .await;
    }

    pub(crate) fn show(&self) -> String {
        let lines = self.running().map(|(number, node)| {
            let desk = node.desk.lock().unwrap();
            let last = desk
                .activations
                .last()
                .map(|activation| activation.activity);
            format!(
                "node {number}: {:#?}\n  {:?}\n  activated: {last:?}, applied: {}\n",
                node.node.overview(),
                node.status(),
                desk.applied.len(),
            )
        });
        lines.collect()
    }
}

impl Running {
    pub(crate) fn status(&self) -> Status {
        self.node.status().borrow().clone()
    }

    pub(crate) fn overview(&self) -> Overview {
        self.node.overview()
    }

    /// The activity in which this node may serve now.
    pub(crate) fn serving(&self) -> Option<Activity> {
        let last = self
            .activations()
            .last()
            .map(|activation| activation.activity)?;
        (!self.is_over(last)).then_some(last)
    }

    pub(crate) fn is_over(&self, activity: Activity) -> bool {
        self.status().revoked >= activity
    }

    pub(crate) fn activations(&self) -> Vec<Activation> {
        self.desk.lock().unwrap().activations.clone()
    }

    /// Proposes one command and returns the sequence of its batch.
    pub(crate) fn propose(&self, activity: Activity, command: Command) -> u64 {
        let sequence = {
            let mut desk = self.desk.lock().unwrap();
            desk.sequence += 1;
            desk.sequence
        };
        let batch = Batch {
            origin: self.node.origin(),
            sequence,
            stamp: Stamp(0),
            commands: vec![command],
        };
        self.node.propose(activity, batch);
        sequence
    }

    /// What the batch with this sequence did, once it was applied.
    pub(crate) fn outcome(&self, sequence: u64) -> Option<Applied> {
        let desk = self.desk.lock().unwrap();
        let own = desk.applied.iter().rev().map(|(_, applied)| applied);
        own.into_iter()
            .find(|a| a.origin == self.node.origin() && a.sequence == sequence)
            .cloned()
    }
}

pub(crate) fn acquire_command(key: &str) -> Command {
    let key: Key = key.parse().unwrap();
    Command::Acquire {
        key,
        lease: Lease::from_seconds(200).unwrap(),
    }
}

async fn receive(mut feed: mpsc::Receiver<Feed>, desk: Arc<Mutex<Desk>>) {
    while let Some(message) = feed.recv().await {
        let mut desk = desk.lock().unwrap();
        match message {
            Feed::Activated(activation) => desk.activations.push(activation),
            Feed::Applied { activity, applied } => desk.applied.push((activity, applied)),
        }
    }
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    loop {
        let port = PORTS.start + (getrandom::u32().unwrap() % PORTS.len() as u32) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Listens at `address`, as soon as the node that had it before has let it go.
async fn listen(address: &str) -> TcpListener {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match TcpListener::bind(address) {
            Ok(listener) => return listener,
            Err(error) => assert!(Instant::now() < deadline, "{address}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
