//! What clients saw and what was done to the cluster: one event a line, as JSON.
//!
//! All clients live in one process, so there is one clock: `CLOCK_MONOTONIC_RAW`, in nanoseconds
//! since the run began. It is not slewed, and it is the clock that the servers count leases with,
//! so bounds are judged without any tolerance.
//!
//! A call is *invoked*, and then it is `ok` (what was answered), `fail` (definitive: surely not
//! done) or `info` (open: it may have been done, or may yet be). A call without an end is open as
//! well. The checkers never read the file: they see a [`History`], in which each call and its end
//! are one [`Operation`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Nanoseconds of a millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// Nanoseconds of a second.
pub(crate) const S: u64 = 1000 * MS;

/// Number of a call.
pub(crate) type OpId = u64;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// When, in nanoseconds since the run began.
    pub(crate) at: u64,
    /// What.
    #[serde(flatten)]
    pub(crate) what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum What {
    /// The first line.
    Run(RunInfo),
    /// A client began a call.
    Invoke { op: OpId, client: u32, call: Call },
    /// The server has surely read the acquire and put it in its place.
    Arrived { op: OpId },
    /// The call was answered.
    Ok { op: OpId, answer: Answer },
    /// The call was surely not done.
    Fail { op: OpId, why: Refusal },
    /// What became of the call is not known.
    Info { op: OpId, why: Doubt },
    /// The server said something that nobody asked for.
    Stray { session: u64, frame: String },
    /// Somebody used the register behind the lock.
    Store(Access),
    /// A fault began.
    Began(FaultBegan),
    /// A fault was taken back.
    Ended(FaultEnded),
    /// Another node leads, as seen from outside; `None`: nobody for now.
    Leader { node: Option<String> },
    /// What a node said of itself.
    Status(NodeStatus),
    /// A node's process ended by itself, or said something that it never should.
    Died { node: String, how: String },
    /// How many snapshots of a leader a node has installed in all its lives.
    Installed { node: String, snapshots: u64 },
    /// All faults were taken back and all nodes run.
    Healed,
}

/// How a run was started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunInfo {
    /// Makes the run repeatable as far as processes allow.
    pub(crate) seed: u64,
    /// How many nodes.
    pub(crate) nodes: u16,
    /// Whether clients used TLS.
    pub(crate) tls: bool,
    /// What the nodes ran in.
    pub(crate) hosts: String,
    /// The election timeout of the nodes, in milliseconds.
    pub(crate) election_ms: u64,
    /// The faults that were to happen.
    pub(crate) faults: Vec<String>,
    /// The workloads that ran.
    pub(crate) workloads: Vec<String>,
    /// The command that repeats the run.
    pub(crate) repeat: String,
}

/// Who made a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum By {
    /// The official client, which routes and retries.
    Official,
    /// The raw client, which does neither.
    Raw,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(crate) enum Call {
    /// A lock.
    Acquire {
        key: String,
        wait_s: u8,
        lease_s: u8,
        by: By,
        /// The raw client's node; empty for the official client.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        node: String,
    },
    /// The end of a grant.
    Release { key: String, token: u64, by: By },
}

impl Call {
    /// The lock's name.
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Acquire { key, .. } | Self::Release { key, .. } => key,
        }
    }
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// `A`.
    Granted {
        token: u64,
        /// Until when the official client's ticket promised the lock.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        valid_until: Option<u64>,
    },
    /// `R`.
    Released,
    /// `N`.
    NotCurrent,
}

/// Why a call was surely not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Refusal {
    /// `T`, or the official client's `Timeout`.
    TimedOut,
    /// `B`.
    Busy,
    /// `M`.
    Moved,
    /// `E no_leader`.
    NoLeader,
    /// `E not_active`.
    NotActive,
    /// No byte of it was sent.
    Unsent,
}

/// Why nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Doubt {
    /// The connection broke, or was closed by the server.
    Lost,
    /// The connection stood, and no answer came long after one was due.
    Silent,
    /// The client went away on purpose.
    Vanished,
    /// The official client said so, or gave a grant back.
    Indeterminate,
    /// A release was refused; it may have been done nevertheless.
    Refused,
    /// The run ended.
    Open,
}

/// Use of a register behind a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Access {
    /// Whether the register refuses tokens less than one that it has seen.
    pub(crate) fenced: bool,
    /// Which register.
    pub(crate) name: String,
    /// True for a write.
    pub(crate) write: bool,
    /// Under which token.
    pub(crate) token: u64,
    /// What was read, or was to be written.
    pub(crate) value: u64,
    /// Whether the register took it.
    pub(crate) accepted: bool,
}

/// The beginning of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FaultBegan {
    /// Number of the fault in this run.
    pub(crate) fault: u64,
    /// Its name, as `--faults` has it.
    pub(crate) kind: String,
    /// Which nodes are hit, and how.
    pub(crate) what: String,
    /// The nodes that are hit.
    pub(crate) targets: Vec<String>,
    /// Who led then.
    pub(crate) leader: Option<String>,
}

/// The end of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FaultEnded {
    /// Number of the fault in this run.
    pub(crate) fault: u64,
    /// How often it was seen from outside to bite: packets dropped, processes gone.
    pub(crate) evidence: u64,
    /// What was counted.
    pub(crate) counted: String,
}

/// What a node said of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    /// Its client address.
    pub(crate) node: String,
    /// Its term.
    pub(crate) term: u64,
    /// `leader`, `follower`, ...
    pub(crate) role: String,
    /// Index of the newest entry that it applied.
    pub(crate) applied: u64,
    /// Index of the newest entry in its newest snapshot.
    pub(crate) snapshot: Option<u64>,
    /// The hash of its state after `applied`.
    pub(crate) state_hash: String,
}

/// Writes events down as they happen. Shared by everything that takes part in a run.
#[derive(Debug)]
pub(crate) struct Recorder {
    began: u64,
    next_op: AtomicU64,
    /// Every key that was asked for.
    keys: Mutex<BTreeSet<String>>,
    file: Mutex<BufWriter<File>>,
}

impl Recorder {
    /// A new file that begins with `info`.
    pub(crate) fn create(path: &Path, info: RunInfo) -> std::io::Result<Self> {
        let recorder = Self {
            began: raw_now(),
            next_op: AtomicU64::new(1),
            keys: Mutex::default(),
            file: Mutex::new(BufWriter::new(File::create(path)?)),
        };
        recorder.write(What::Run(info));
        Ok(recorder)
    }

    /// Nanoseconds since the run began.
    pub(crate) fn now(&self) -> u64 {
        raw_now() - self.began
    }

    /// Writes `what` down, now. The time is read under the lock, so lines are in order of time.
    pub(crate) fn write(&self, what: What) -> u64 {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.now();
        let line = serde_json::to_string(&Event { at, what }).expect("events have string keys");
        // A history that cannot be written has no end, and is judged as what it is: unfinished.
        let _ = writeln!(file, "{line}");
        at
    }

    /// Writes the beginning of a call down, and numbers it.
    pub(crate) fn invoke(&self, client: u32, call: Call) -> OpId {
        let op = self.next_op.fetch_add(1, Ordering::Relaxed);
        if let Call::Acquire { key, .. } = &call {
            let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            if !keys.contains(key) {
                keys.insert(key.clone());
            }
        }
        self.write(What::Invoke { op, client, call });
        op
    }

    /// Every key that was asked for.
    pub(crate) fn keys(&self) -> BTreeSet<String> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.clone()
    }

    /// Puts everything into the file.
    pub(crate) fn flush(&self) -> std::io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.flush()
    }
}

fn raw_now() -> u64 {
    let time = clock_gettime(ClockId::MonotonicRaw);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * S + nanos
}

/// A call and its end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operation {
    pub(crate) id: OpId,
    pub(crate) client: u32,
    pub(crate) call: Call,
    /// Just before anything was sent.
    pub(crate) called: u64,
    /// When the server had surely read it, if that is known.
    pub(crate) arrived: Option<u64>,
    /// When its end was known; `u64::MAX` if never.
    pub(crate) ended: u64,
    pub(crate) outcome: Outcome,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was answered.
    Ok(Answer),
    /// Surely not done.
    Fail(Refusal),
    /// Open.
    Info(Doubt),
}

/// A grant that a client was told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant<'a> {
    pub(crate) op: &'a Operation,
    pub(crate) key: &'a str,
    pub(crate) token: u64,
    /// In nanoseconds.
    pub(crate) lease: u64,
    pub(crate) valid_until: Option<u64>,
}

impl Operation {
    /// The grant, if it came to one.
    pub(crate) fn grant(&self) -> Option<Grant<'_>> {
        match (&self.call, self.outcome) {
            (
                Call::Acquire { key, lease_s, .. },
                Outcome::Ok(Answer::Granted { token, valid_until }),
            ) => Some(Grant {
                op: self,
                key,
                token,
                lease: u64::from(*lease_s) * S,
                valid_until,
            }),
            _ => None,
        }
    }
}

/// A fault from its beginning to its end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) began: u64,
    /// `u64::MAX` if it never ended.
    pub(crate) ended: u64,
    pub(crate) begin: FaultBegan,
    pub(crate) end: Option<FaultEnded>,
}

/// Everything that is judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct History {
    pub(crate) info: RunInfo,
    /// In order of their calls.
    pub(crate) operations: Vec<Operation>,
    pub(crate) strays: Vec<(u64, u64, String)>,
    pub(crate) accesses: Vec<(u64, Access)>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) leaders: Vec<(u64, Option<String>)>,
    pub(crate) statuses: Vec<(u64, NodeStatus)>,
    /// When, which node, and how.
    pub(crate) deaths: Vec<(u64, String, String)>,
    /// Snapshots of a leader that nodes have installed.
    pub(crate) snapshots_installed: u64,
    /// When all faults were taken back for good.
    pub(crate) healed: Option<u64>,
    /// The last event.
    pub(crate) end: u64,
}

/// Why a file is no history.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Io { path: String, error: std::io::Error },
    /// A line is not an event, or makes no sense where it stands.
    #[error("line {line} of {path} is no event of a history: {why}")]
    Line {
        path: String,
        line: usize,
        why: String,
    },
}

impl History {
    /// Reads a file that a [`Recorder`] wrote.
    pub(crate) fn read(path: &Path) -> Result<Self, Unreadable> {
        let name = path.display().to_string();
        let io = |error| Unreadable::Io {
            path: name.clone(),
            error,
        };
        let mut reading = Reading::default();
        for (index, line) in BufReader::new(File::open(path).map_err(io)?)
            .lines()
            .enumerate()
        {
            let line = line.map_err(io)?;
            let event = serde_json::from_str(&line).map_err(|error| error.to_string());
            event
                .and_then(|event| reading.take(event))
                .map_err(|why| Unreadable::Line {
                    path: name.clone(),
                    line: index + 1,
                    why,
                })?;
        }
        Ok(reading.history)
    }

    /// All grants, in order of their calls.
    pub(crate) fn grants(&self) -> impl Iterator<Item = Grant<'_>> {
        self.operations.iter().filter_map(Operation::grant)
    }

    /// The operations of each key, in order of their calls.
    pub(crate) fn by_key(&self) -> BTreeMap<&str, Vec<&Operation>> {
        let mut keys: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
        for operation in &self.operations {
            keys.entry(operation.call.key())
                .or_default()
                .push(operation);
        }
        keys
    }
}

/// A history in the making.
#[derive(Default)]
pub(crate) struct Reading {
    history: History,
    /// Where each operation is.
    places: BTreeMap<OpId, usize>,
    fault_places: BTreeMap<u64, usize>,
}

impl Reading {
    /// The next event.
    pub(crate) fn take(&mut self, event: Event) -> Result<(), String> {
        let at = event.at;
        let history = &mut self.history;
        history.end = history.end.max(at);
        match event.what {
            What::Run(info) => history.info = info,
            What::Invoke { op, client, call } => {
                if self.places.insert(op, history.operations.len()).is_some() {
                    return Err(format!("call {op} is invoked twice"));
                }
                history.operations.push(Operation {
                    id: op,
                    client,
                    call,
                    called: at,
                    arrived: None,
                    ended: u64::MAX,
                    outcome: Outcome::Info(Doubt::Open),
                });
            }
            What::Arrived { op } => self.operation(op)?.arrived = Some(at),
            What::Ok { op, answer } => self.end(op, at, Outcome::Ok(answer))?,
            What::Fail { op, why } => self.end(op, at, Outcome::Fail(why))?,
            What::Info { op, why } => self.end(op, at, Outcome::Info(why))?,
            What::Stray { session, frame } => history.strays.push((at, session, frame)),
            What::Store(access) => history.accesses.push((at, access)),
            What::Began(begin) => {
                self.fault_places.insert(begin.fault, history.faults.len());
                history.faults.push(Fault {
                    began: at,
                    ended: u64::MAX,
                    begin,
                    end: None,
                });
            }
            What::Ended(end) => {
                let place = self.fault_places.get(&end.fault);
                let place = *place.ok_or_else(|| format!("fault {} never began", end.fault))?;
                let fault = &mut history.faults[place];
                (fault.ended, fault.end) = (at, Some(end));
            }
            What::Leader { node } => history.leaders.push((at, node)),
            What::Status(status) => history.statuses.push((at, status)),
            What::Died { node, how } => history.deaths.push((at, node, how)),
            What::Installed { snapshots, .. } => history.snapshots_installed += snapshots,
            What::Healed => history.healed = Some(at),
        }
        Ok(())
    }

    fn end(&mut self, op: OpId, at: u64, outcome: Outcome) -> Result<(), String> {
        let operation = self.operation(op)?;
        if operation.ended != u64::MAX {
            return Err(format!("call {op} ends twice"));
        }
        (operation.ended, operation.outcome) = (at, outcome);
        Ok(())
    }

    fn operation(&mut self, op: OpId) -> Result<&mut Operation, String> {
        let place = self.places.get(&op);
        let place = *place.ok_or_else(|| format!("call {op} was never invoked"))?;
        Ok(&mut self.history.operations[place])
    }
}

#[cfg(test)]
pub(crate) mod build;

#[cfg(test)]
mod tests {
    use super::build::Build;
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.jsonl");
        let info = RunInfo {
            seed: u64::MAX,
            ..RunInfo::default()
        };
        let recorder = Recorder::create(&path, info.clone()).unwrap();
        let call = Call::Acquire {
            key: "k\u{1}\"".into(),
            wait_s: 3,
            lease_s: 10,
            by: By::Raw,
            node: "10.0.0.1:5225".into(),
        };
        let op = recorder.invoke(7, call.clone());
        let token = u64::MAX - 1;
        let answer = Answer::Granted {
            token,
            valid_until: Some(5),
        };
        recorder.write(What::Ok { op, answer });
        recorder.write(What::Healed);
        recorder.flush().unwrap();
        let history = History::read(&path).unwrap();
        assert_eq!(history.info, info);
        let operation = &history.operations[0];
        assert_eq!((&operation.call, operation.client), (&call, 7));
        assert_eq!(operation.grant().unwrap().token, token);
        assert!(operation.ended >= operation.called);
        assert_eq!(history.healed, Some(history.end));
    }

    #[test]
    fn a_line_that_is_no_event_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.jsonl");
        for (text, complaint) in [
            ("{\"at\":1,\"event\":\"healed\"}\nnonsense\n", "line 2"),
            (
                "{\"at\":1,\"event\":\"arrived\",\"op\":9}\n",
                "never invoked",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = History::read(&path).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }

    #[test]
    fn a_call_without_an_end_is_open() {
        let history = Build::default().open("k", 10, 5).history();
        assert_eq!(history.operations[0].outcome, Outcome::Info(Doubt::Open));
        assert_eq!(history.operations[0].ended, u64::MAX);
    }
}
