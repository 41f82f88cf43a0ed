//! One run: start a cluster, let clients and the nemesis at it, heal, and see whether all is well
//! again.
//!
//! The order of the end matters. Clients stop first, with faults still on; then everything is
//! healed; and only then does the last client ask for every key that was used, so that the bound on
//! how long that may take is a lease from before.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::checker::LAST_CLIENT;
use crate::cluster::{Cluster, Settings};
use crate::error::Error;
use crate::history::{Recorder, RunInfo, What};
use crate::hosts::Hosts;
use crate::nemesis::{Fault, Nemesis, PRESSED_SNAPSHOT_ENTRIES};
use crate::observer::{Seen, observe, status};
use crate::pki::Identity;
use crate::raw::Endpoint;
use crate::workload::{Base, Clients, Workload, give_back, take};

/// How long a new cluster may take to serve.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// How long clients may take to come to the end of what they are doing: the longest wait and the
/// longest hold.
const FINISH_TIME_MAX: Duration = Duration::from_secs(60);

/// How long nodes may take to come to one index in the end.
const TOGETHER_TIME_MAX: Duration = Duration::from_secs(20);

/// The longest wait of the last client, in seconds: more than any lease that is used, plus election
/// and margin.
const LAST_WAIT_S: u8 = 60;

/// Log entries between two snapshots without pressure: the product's default.
const SNAPSHOT_ENTRIES: u64 = 16_384;

/// What a node says when it has installed a snapshot.
const INSTALLED: &str = "installed a snapshot from the leader";

/// How often something is looked at that is awaited.
const LOOK: Duration = Duration::from_millis(100);

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) info: RunInfo,
    pub(crate) time: Duration,
    pub(crate) faults: Vec<Fault>,
    pub(crate) workloads: Vec<Workload>,
    /// The binary under test.
    pub(crate) server: PathBuf,
    /// The bug that it has, if it has some.
    pub(crate) bug: Option<String>,
}

/// Runs `plan` in `dir`; the history's file. Interrupted by `interrupted` becoming true.
pub(crate) async fn run(
    plan: &Plan,
    hosts: Hosts,
    dir: &Path,
    interrupted: watch::Receiver<bool>,
) -> Result<PathBuf, Error> {
    let path = dir.join("history.jsonl");
    let failed = |error| Error::of("writing the history", error);
    let recorder = Arc::new(Recorder::create(&path, plan.info.clone()).map_err(failed)?);
    let nodes = usize::from(plan.info.nodes);
    let ips = (0..nodes).map(|node| hosts.ip(node)).collect();
    let identity = plan
        .info
        .tls
        .then(|| Identity::create(dir, ips))
        .transpose()?;
    let trust = identity.as_ref().map(Identity::trust).transpose()?;
    let pem = identity.as_ref().map(|identity| identity.pem.clone());
    let settings = Settings {
        server: plan.server.clone(),
        snapshot_entries: if plan.faults.contains(&Fault::Snapshots) {
            PRESSED_SNAPSHOT_ENTRIES
        } else {
            SNAPSHOT_ENTRIES
        },
        identity,
        shifted_clocks: plan.faults.contains(&Fault::ClockJump)
            || plan.faults.contains(&Fault::ClockStrobe),
        bug: plan.bug.clone(),
    };
    let seen: Vec<Seen> = (0..nodes)
        .map(|node| Seen {
            address: hosts.address(node),
            admin: hosts.admin(node),
        })
        .collect();
    let mut cluster = Cluster::prepare(hosts, nodes, dir, settings, Arc::clone(&recorder)).await?;
    cluster.start_all().await?;

    let (leader_sender, leader) = watch::channel(None);
    let mut observer = JoinSet::new();
    observer.spawn(observe(
        seen.clone(),
        trust.clone(),
        Arc::clone(&recorder),
        leader_sender,
    ));
    let mut first_leader = leader.clone();
    // What the wait borrows is let go at once: it would hold up the observer.
    let served = timeout(START_TIME_MAX, first_leader.wait_for(Option::is_some))
        .await
        .is_ok_and(|leader| leader.is_ok());
    if !served {
        return Err(Error(
            "no node came to lead; the nodes' logs say why".into(),
        ));
    }

    let endpoint = Endpoint {
        recorder: Arc::clone(&recorder),
        tls: trust,
        sessions: Arc::new(AtomicU64::new(1)),
    };
    let (stop_sender, stop) = watch::channel(false);
    let base = Base {
        endpoint,
        nodes: cluster.addresses(),
        pem,
        leader: leader.clone(),
        stop,
    };
    let mut clients = Clients::new(base.clone(), plan.info.seed);
    for workload in &plan.workloads {
        workload.start(&mut clients)?;
    }
    let mut nemesis = Nemesis::new(cluster, Arc::clone(&recorder), leader, plan.info.seed ^ 1);
    let until = Instant::now() + plan.time;
    let mut interrupted = interrupted;
    tokio::select! {
        done = nemesis.run(&plan.faults, until) => done?,
        _ = interrupted.wait_for(|interrupted| *interrupted) => {
            return Err(Error("interrupted".into()));
        }
    }
    stop_sender.send_replace(true);
    if !clients.finish(FINISH_TIME_MAX).await {
        return Err(Error("a client is stuck, or failed".into()));
    }
    nemesis.cluster.start_all().await?;
    recorder.write(What::Healed);
    last_client(&base).await?;
    come_together(&seen, &recorder).await;
    if plan.faults.contains(&Fault::Snapshots) {
        nemesis.snapshots(snapshots_taken(&seen).await);
    }
    nemesis.cluster.collect_logs().await?;
    listen_to_logs(&mut nemesis, &recorder);
    recorder.flush().map_err(failed)?;
    observer.shutdown().await;
    for node in &mut nemesis.cluster.nodes {
        node.kill().await;
        node.disk.close().await?;
    }
    Ok(path)
}

/// Asks for every key that was used, at once.
async fn last_client(base: &Base) -> Result<(), Error> {
    let broker = base.broker()?;
    let mut tasks = JoinSet::new();
    for key in base.endpoint.recorder.keys() {
        let (broker, endpoint) = (broker.clone(), base.endpoint.clone());
        tasks.spawn(async move {
            let ticket = take(&endpoint, LAST_CLIENT, &broker, &key, LAST_WAIT_S, 5).await;
            if let Some(ticket) = ticket {
                give_back(&endpoint, LAST_CLIENT, ticket).await;
            }
        });
    }
    tasks.join_all().await;
    Ok(())
}

/// Waits until all nodes show one index; the history then has the last that each said.
async fn come_together(seen: &[Seen], recorder: &Recorder) {
    let deadline = Instant::now() + TOGETHER_TIME_MAX;
    loop {
        let mut applied = BTreeSet::new();
        for node in seen {
            let said = status(node).await;
            applied.insert(said.as_ref().map(|status| status.applied));
            if let Some(said) = said {
                recorder.write(What::Status(said));
            }
        }
        let together = applied.len() == 1 && !applied.contains(&None);
        if together || Instant::now() >= deadline {
            return;
        }
        sleep(LOOK).await;
    }
}

async fn snapshots_taken(seen: &[Seen]) -> u64 {
    let mut taken = 0;
    for node in seen {
        let said = status(node).await;
        let index = said.and_then(|status| status.snapshot).unwrap_or(0);
        taken += index / PRESSED_SNAPSHOT_ENTRIES;
    }
    taken
}

/// A panic is a death, even where the process lives on. And only the logs tell of all lives of a
/// process how many snapshots it installed.
fn listen_to_logs(nemesis: &mut Nemesis, recorder: &Recorder) {
    for node in &nemesis.cluster.nodes {
        let said = node.said();
        for line in said.lines().filter(|line| line.contains("panicked at")) {
            recorder.write(What::Died {
                node: node.address.clone(),
                how: line.to_owned(),
            });
        }
        recorder.write(What::Installed {
            node: node.address.clone(),
            snapshots: said.matches(INSTALLED).count() as u64,
        });
    }
}
