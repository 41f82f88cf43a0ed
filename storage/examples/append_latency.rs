//! Latency of one append of 2 KB with its sync, against the same write and fdatasync by hand.
//!
//! `cargo run --release -p storage --example append_latency -- [directory]`
//!
//! Both are measured in turns in the same run, because a shared disk has good and bad minutes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use openraft::entry::RaftEntry;
use openraft::impls::leader_id_std;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::EntryOf;
use openraft::vote::{RaftLeaderId, RaftVote};
use serde::{Deserialize, Serialize};
use storage::{LogStore, Options, Storage};

const APPENDS: u64 = 4_000;
const APPENDS_PER_TURN: u64 = 200;
const BYTES: usize = 2_000;
const FILE_BYTES: usize = 32 << 20;

openraft::declare_raft_types!(
    Config: D = Payload, R = (), NodeId = u64, Node = (),
    LeaderId = leader_id_std::LeaderId<Self::Term, Self::NodeId>,
);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Payload(Bytes);

impl std::fmt::Display for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args()
        .nth(1)
        .map_or(std::env::temp_dir(), PathBuf::from);
    let directory = directory.join(format!("append-latency-{}", std::process::id()));
    let storage = Storage::open(&directory, Options::default())?;
    let mut log: LogStore<Config> = storage.log_store()?;
    let payload = Payload(vec![7; BYTES].into());

    let raw_file = preallocated(&directory.join("raw"))?;
    let (mut raw, mut wal) = (Vec::new(), Vec::new());
    for index in 0..APPENDS {
        if index % APPENDS_PER_TURN == 0 {
            for write in index..index + APPENDS_PER_TURN {
                let begin = Instant::now();
                let offset = write * BYTES as u64;
                raw_file.write_all_at(&payload.0, offset % (FILE_BYTES - BYTES) as u64)?;
                raw_file.sync_data()?;
                raw.push(begin.elapsed());
            }
        }
        let log_id = openraft::LogId::new_term_index(1, index);
        let entry = EntryOf::<Config>::new_normal(log_id, payload.clone());
        let begin = Instant::now();
        let (done, durable) = Config::oneshot();
        log.append([entry], IOFlushed::signal(done)).await?;
        durable.await??;
        wal.push(begin.elapsed());
    }
    let mut votes = Vec::new();
    for term in 1..200 {
        let vote = RaftVote::from_leader_id(leader_id_std::LeaderId::new(term, 1), false);
        let begin = Instant::now();
        log.save_vote(&vote).await?;
        votes.push(begin.elapsed());
    }
    report("raw write + fdatasync", raw);
    report("append", wal);
    report("save_vote", votes);
    drop((log, storage));
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

fn preallocated(path: &Path) -> std::io::Result<File> {
    let file = File::create(path)?;
    file.write_all_at(&vec![0; FILE_BYTES], 0)?;
    file.sync_all()?;
    Ok(file)
}

fn report(name: &str, mut latencies: Vec<Duration>) {
    latencies.sort();
    let at = |part: f64| latencies[(latencies.len() as f64 * part) as usize].as_micros();
    println!(
        "{name:>22}: p50 {} us, p90 {} us, p99 {} us",
        at(0.5),
        at(0.9),
        at(0.99)
    );
}
