//! What goes wrong, when, and to whom.
//!
//! The [`Nemesis`] owns the nodes. It strikes with one fault after another, now and then with two
//! at once, and leaves calm times in between: promises about healthy clusters need them. Each fault
//! says how often it was *seen to bite*, counted from outside: packets by the kernel, processes by
//! `/proc`, disks by their file systems.
//!
//! The seed decides the order of faults, their aims and their times.

mod disk;
mod network;
mod process;
mod wipe;

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;
use crate::error::Error;
use crate::history::{FaultBegan, FaultEnded, Recorder, What};
use crate::hosts::Applied;

/// A fault by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// Two groups that do not hear each other
    PartitionHalves,
    /// One node, the leader by choice, alone
    PartitionAlone,
    /// Two groups that have one node in common
    PartitionBridge,
    /// Everybody hears a majority, nobody the same one
    PartitionRing,
    /// One node hears nobody, or is heard by nobody
    PartitionOneWay,
    /// Packets take 50 ms ± 10
    Delay,
    /// 20 % of packets are lost
    Loss,
    /// Packets come twice
    Duplicate,
    /// Packets overtake each other
    Reorder,
    /// A link with 256 kbit/s
    SlowLink,
    /// SIGKILL
    Kill,
    /// SIGSTOP for less than an election
    PauseShort,
    /// SIGSTOP for more than an election
    PauseLong,
    /// SIGTERM
    Terminate,
    /// A disk that stands still again and again
    SlowDisk,
    /// A disk without room
    FullDisk,
    /// Loss of everything that is not synced, on all nodes at once
    Power,
    /// The wall clock jumps, 1 ms to 1 h, forward or back
    ClockJump,
    /// The wall clock jumps to and fro
    ClockStrobe,
    /// A node loses its disk
    Wipe,
    /// A snapshot every 100 entries
    Snapshots,
    /// Node after node is stopped and started
    RollingRestart,
}

impl Fault {
    /// Its name.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value().expect("no fault is hidden");
        value.get_name().to_owned()
    }

    /// Whether it can be brought about in these places.
    pub(crate) fn is_possible(self, hosts: &crate::hosts::Hosts) -> bool {
        match self {
            Self::SlowDisk | Self::FullDisk | Self::Power => hosts.has_disks(),
            Self::ClockJump | Self::ClockStrobe => hosts.has_clocks(),
            other => network::effect(other).is_none_or(|effect| hosts.can(effect)),
        }
    }
}

/// Log entries between two snapshots under [`Fault::Snapshots`].
pub(crate) const PRESSED_SNAPSHOT_ENTRIES: u64 = 100;

/// Whom a fault is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    Leader,
    /// One that does not lead.
    One,
    Minority,
    Majority,
    All,
}

/// The aims that faults go through. The first two make a run valid.
const AIMS: [Aim; 7] = [
    Aim::Leader,
    Aim::One,
    Aim::Majority,
    Aim::Leader,
    Aim::Minority,
    Aim::All,
    Aim::Leader,
];

/// How long a fault lasts, and how long it is calm after it, in milliseconds.
const FAULT_MS: std::ops::Range<u64> = 2_000..5_000;
const CALM_MS: std::ops::Range<u64> = 1_500..4_000;

/// Every so many faults the calm lasts long enough for promises about healthy clusters to be
/// judged.
const LONG_CALM_EVERY: u64 = 5;
const LONG_CALM: Duration = Duration::from_secs(13);

/// How many faults of a hundred come with a second one, once each was there alone.
const MIXED_PERCENT: u8 = 40;

/// Decides and does.
pub(crate) struct Nemesis {
    pub(crate) cluster: Cluster,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) leader: watch::Receiver<Option<String>>,
    random: fastrand::Rng,
    next: u64,
}

/// A fault that is on.
struct Ongoing {
    number: u64,
    targets: Vec<usize>,
    work: Work,
    evidence: u64,
    counted: &'static str,
}

/// What must be taken back, and how the time is spent meanwhile.
enum Work {
    /// Nothing but starting whoever does not run.
    Restart,
    Links(Applied),
    Resume,
    Thaw,
    Empty,
    SetClocks {
        strobe: bool,
        seconds: f64,
    },
}

impl Nemesis {
    /// A nemesis of `cluster`, whose nodes run.
    pub(crate) fn new(
        cluster: Cluster,
        recorder: Arc<Recorder>,
        leader: watch::Receiver<Option<String>>,
        seed: u64,
    ) -> Self {
        Self {
            cluster,
            recorder,
            leader,
            random: fastrand::Rng::with_seed(seed),
            next: 1,
        }
    }

    /// Strikes with each of `faults` once, and then on until `until`.
    pub(crate) async fn run(&mut self, faults: &[Fault], until: Instant) -> Result<(), Error> {
        // Pressure from snapshots is how nodes are started, not something that begins and ends.
        let mut faults: Vec<Fault> = faults
            .iter()
            .copied()
            .filter(|fault| *fault != Fault::Snapshots)
            .collect();
        let mut aims = AIMS.iter().cycle();
        let mut alone = true;
        if faults.is_empty() {
            sleep(until.saturating_duration_since(Instant::now())).await;
            return Ok(());
        }
        loop {
            self.random.shuffle(&mut faults);
            for fault in faults.clone() {
                if !alone && Instant::now() >= until {
                    return Ok(());
                }
                let aim = *aims.next().unwrap_or(&Aim::One);
                let second = (!alone && self.random.u8(0..100) < MIXED_PERCENT)
                    .then(|| self.companion(&faults, fault))
                    .flatten();
                self.strike(fault, aim, second).await?;
                if self.next.is_multiple_of(LONG_CALM_EVERY) {
                    sleep(LONG_CALM).await;
                }
                let calm = self.random.u64(CALM_MS);
                sleep(Duration::from_millis(calm)).await;
            }
            alone = false;
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }

    /// A fault that may be on together with another one.
    fn companion(&mut self, faults: &[Fault], first: Fault) -> Option<Fault> {
        let whole =
            |fault: &Fault| matches!(fault, Fault::Power | Fault::Wipe | Fault::RollingRestart);
        if whole(&first) {
            return None;
        }
        let others = faults
            .iter()
            .filter(|fault| **fault != first && !whole(fault));
        let others: Vec<Fault> = others.copied().collect();
        self.random.choice(&others).copied()
    }

    async fn strike(&mut self, fault: Fault, aim: Aim, second: Option<Fault>) -> Result<(), Error> {
        let mut first = self.begin(fault, aim).await?;
        self.hold(&mut first).await?;
        if let Some(second) = second {
            let aim = [Aim::Leader, Aim::One][usize::from(self.random.bool())];
            let mut second = self.begin(second, aim).await?;
            self.hold(&mut second).await?;
            self.end(first).await?;
            self.hold(&mut second).await?;
            return self.end(second).await;
        }
        self.end(first).await
    }

    /// Nodes to be hit.
    fn targets(&mut self, aim: Aim) -> Vec<usize> {
        let count = self.cluster.nodes.len();
        let leader = self.leader_index();
        let mut nodes: Vec<usize> = (0..count).filter(|node| Some(*node) != leader).collect();
        self.random.shuffle(&mut nodes);
        match aim {
            Aim::Leader => return vec![leader.unwrap_or(nodes[0])],
            Aim::One => nodes.truncate(1),
            Aim::Minority => nodes.truncate((count - 1) / 2),
            Aim::Majority => {
                nodes.extend(leader);
                self.random.shuffle(&mut nodes);
                nodes.truncate(count / 2 + 1);
            }
            Aim::All => nodes.extend(leader),
        }
        nodes
    }

    fn leader_index(&self) -> Option<usize> {
        let leader = self.leader.borrow().clone()?;
        let nodes = &self.cluster.nodes;
        nodes.iter().position(|node| node.address == leader)
    }

    async fn begin(&mut self, fault: Fault, aim: Aim) -> Result<Ongoing, Error> {
        self.cluster.start_all().await?;
        let number = self.next;
        self.next += 1;
        let targets = match fault {
            // Their own scenario, or everybody.
            Fault::Power | Fault::RollingRestart | Fault::Wipe | Fault::PartitionRing => {
                self.targets(Aim::All)
            }
            // A majority that is dead, full or slow only stands still; fewer are of more interest.
            Fault::FullDisk | Fault::PartitionAlone | Fault::PartitionOneWay => {
                self.targets(if aim == Aim::Leader { aim } else { Aim::One })
            }
            _ => self.targets(aim),
        };
        let plan = network::plan(self, fault, &targets);
        let what = plan.as_ref().map_or_else(
            || format!("{aim:?}").to_lowercase(),
            |plan| plan.what.clone(),
        );
        let names = targets
            .iter()
            .map(|node| self.cluster.nodes[*node].address.clone());
        self.recorder.write(What::Began(FaultBegan {
            fault: number,
            kind: fault.name(),
            what,
            targets: names.collect(),
            leader: self.leader.borrow().clone(),
        }));
        let mut ongoing = Ongoing {
            number,
            targets,
            work: Work::Restart,
            evidence: 0,
            counted: "",
        };
        match (fault, plan) {
            (_, Some(plan)) => {
                let applied = self.cluster.hosts.apply(plan.effect, &plan.links).await?;
                ongoing.work = Work::Links(applied);
            }
            (Fault::Kill, _) => self.kill(&mut ongoing).await,
            (Fault::Terminate, _) => self.terminate(&mut ongoing).await,
            (Fault::PauseShort | Fault::PauseLong, _) => self.pause(&mut ongoing, fault).await,
            (Fault::RollingRestart, _) => self.roll(&mut ongoing).await?,
            (Fault::Power, _) => self.cut_power(&mut ongoing).await?,
            (Fault::FullDisk, _) => self.fill(&mut ongoing).await?,
            (Fault::SlowDisk, _) => {
                ongoing.work = Work::Thaw;
                ongoing.counted = "times a disk stood still";
            }
            (Fault::ClockJump | Fault::ClockStrobe, _) => {
                self.jump(&mut ongoing, fault == Fault::ClockStrobe)?;
            }
            (Fault::Wipe, _) => self.wipe(&mut ongoing).await?,
            _ => {}
        }
        Ok(ongoing)
    }

    /// Lets a fault be on for a while.
    async fn hold(&mut self, ongoing: &mut Ongoing) -> Result<(), Error> {
        let time = Duration::from_millis(self.random.u64(FAULT_MS));
        match ongoing.work {
            Work::Thaw => self.stutter(ongoing, time).await,
            Work::SetClocks {
                strobe: true,
                seconds,
            } => self.strobe(ongoing, seconds, time).await,
            _ => {
                sleep(time).await;
                Ok(())
            }
        }
    }

    async fn end(&mut self, mut ongoing: Ongoing) -> Result<(), Error> {
        match ongoing.work {
            Work::Restart => {}
            Work::Links(applied) => {
                let evidence = self.cluster.hosts.take_back(applied).await?;
                ongoing.evidence += evidence.count;
                ongoing.counted = evidence.of;
            }
            Work::Resume => {
                for node in &ongoing.targets {
                    self.cluster.nodes[*node].resume();
                }
            }
            Work::Thaw => {
                for node in &ongoing.targets {
                    self.cluster.nodes[*node].disk.thaw().await?;
                }
            }
            Work::Empty => {
                for node in &ongoing.targets {
                    self.cluster.nodes[*node].disk.empty()?;
                }
            }
            Work::SetClocks { .. } => {
                for node in &ongoing.targets {
                    self.cluster.nodes[*node].shift_clock(0.0)?;
                }
            }
        }
        self.cluster.start_all().await?;
        self.recorder.write(What::Ended(FaultEnded {
            fault: ongoing.number,
            evidence: ongoing.evidence,
            counted: ongoing.counted.into(),
        }));
        Ok(())
    }

    /// Says how much pressure from snapshots there was: how many the nodes have taken.
    pub(crate) fn snapshots(&mut self, taken: u64) {
        let fault = self.next;
        self.next += 1;
        self.recorder.write(What::Began(FaultBegan {
            fault,
            kind: Fault::Snapshots.name(),
            what: "all along".into(),
            targets: self.cluster.addresses(),
            leader: self.leader.borrow().clone(),
        }));
        self.recorder.write(What::Ended(FaultEnded {
            fault,
            evidence: taken,
            counted: "snapshots taken".into(),
        }));
    }
}
