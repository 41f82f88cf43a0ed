//! One data directory: who this node is, its log and vote, its newest snapshot.
//!
//! ```text
//! data/format      text: which version of the program may touch the rest
//! data/lock        held by the process that has the directory open
//! data/sled/       node id, cluster id, small values, copy of the vote, snapshots
//! data/wal/        log and vote
//! ```
//!
//! **First start.** The format file is written first, then the WAL, then the record with the node id,
//! each durable before the next. The record is what makes the directory count: without it, and with a
//! WAL that nobody ever used, a first start was interrupted and begins again; with it the WAL must be
//! there. So a directory that has lost one half is never taken for a new one, which would give a
//! node that has voted an empty memory. (A directory that has lost both halves *is* a new one, with a
//! new node id: what the cluster makes of that is decided above.)
//!
//! **One process.** A second one would write into the same segments. The lock goes with the process, so
//! a restart right after a kill or a stop waits for a moment instead of failing.

use std::any::Any;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use openraft::RaftTypeConfig;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::log::State;
use crate::meta::{Meta, Record};
use crate::vote_copy::VoteCopy;
use crate::wal::disk::Directory;
use crate::wal::{self, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, Wal};
use crate::{Error, LogStore, Snapshots};

/// Version of everything in a data directory.
const FORMAT: u32 = 1;
const FORMAT_PREFIX: &str = "ticketing data, format ";
/// How often a lock is tried that another process holds.
const LOCK_POLL: Duration = Duration::from_millis(10);

/// How a data directory is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of a new log segment in bytes, 16 KiB to 256 MiB. Existing ones keep theirs. An entry must
    /// fit into one. A new directory takes two segments at once.
    pub segment_bytes: u32,
    /// How long to wait for another process to let go of the directory.
    pub lock_wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_bytes: 32 << 20,
            lock_wait: Duration::from_secs(10),
        }
    }
}

/// An open data directory. Handles share it; it closes with the last one, log stores included.
#[derive(Clone, Debug)]
pub struct Storage(Arc<Inner>);

/// Parts of an open directory. They are dropped in this order: the log writes what is queued, the copy
/// of the vote is finished, sled closes, and only then is the lock let go.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) wal: Wal,
    pub(crate) vote_copy: VoteCopy,
    snapshots: Snapshots,
    meta: Arc<Meta>,
    failure: Failure,
    /// The state of the one log store, whose type is only known to who asks for it.
    log: Mutex<Option<Box<dyn Any + Send + Sync>>>,
    _lock: File,
}

impl Inner {
    /// The number of the current snapshot; 0 if there is none.
    pub(crate) fn snapshot_number(&self) -> u64 {
        snapshot_number(&self.meta)
    }
}

fn snapshot_number(meta: &Meta) -> u64 {
    meta.record()
        .and_then(|record| record.snapshot.as_ref().map(|snapshot| snapshot.number))
        .unwrap_or(0)
}

impl Storage {
    /// Opens a data directory, or creates it. Waits for the file lock, recovers the log and verifies
    /// what was acknowledged; makes the random node id at the first start. Blocks on the disk.
    pub fn open(dir: &Path, options: Options) -> Result<Storage, Error> {
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&options.segment_bytes) {
            let bytes = options.segment_bytes;
            return Err(Error::Refused(format!("segments of {bytes} bytes")));
        }
        create_directory(dir)?;
        let lock = lock(&dir.join("lock"), options.lock_wait)?;
        check_format(dir)?;
        let wal_path = dir.join("wal");
        create_directory(&wal_path)?;
        let sled_path = dir.join("sled");
        create_directory(&sled_path)?;

        let failure = Failure::new();
        let meta = Arc::new(Meta::open(&sled_path, options.lock_wait, failure.clone())?);
        let disk = Arc::new(Directory(wal_path.clone()));
        let store = match meta.record() {
            Some(record) => record.store,
            None => first_start(&disk, &meta, &sled_path, options.segment_bytes)?,
        };
        let wal = Wal::open(disk, store, options.segment_bytes, failure.clone())?;
        meta.attach(wal.watermark())?;
        check_together(&wal, &meta, &wal_path, &sled_path)?;
        let snapshots = Snapshots::on_disk(Arc::clone(&meta));
        snapshots.load()?;
        let vote_copy = VoteCopy::start(Arc::clone(&meta))
            .map_err(|error| Error::io("start threads for", dir, error))?;
        let log = Mutex::new(None);
        Ok(Storage(Arc::new(Inner {
            wal,
            vote_copy,
            snapshots,
            meta,
            failure,
            log,
            _lock: lock,
        })))
    }

    /// This node's id: random, made at the first start, durable before `open` returned it.
    pub fn node_id(&self) -> u64 {
        self.record().node_id
    }

    /// The cluster that this node belongs to, if it ever did.
    pub fn cluster_id(&self) -> Option<u128> {
        self.record().cluster_id
    }

    /// Stores the cluster id durably. Refused if another one is stored. Blocks on the disk.
    pub fn set_cluster_id(&self, id: u128) -> Result<(), Error> {
        if self.cluster_id() == Some(id) {
            return Ok(());
        }
        self.0
            .meta
            .change(|record| match record.cluster_id.replace(id) {
                None => Ok(()),
                Some(other) => Err(Error::Refused(format!(
                    "cluster id {id:032x} for a node of cluster {other:032x}"
                ))),
            })
    }

    /// What the log has measured of itself. Holding it does not keep the directory open.
    pub fn measures(&self) -> Arc<wal::Measures> {
        self.0.wal.measures()
    }

    /// A small durable value, by its name.
    pub fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.record().values.get(name).cloned())
    }

    /// Stores a small value durably, replacing the one before. All of them together may have 16 KiB,
    /// names included. Blocks on the disk.
    pub fn put(&self, name: &str, value: &[u8]) -> Result<(), Error> {
        self.0.meta.put(name, value)
    }

    /// True while there is no vote, no log entry (not even a purged one) and no snapshot.
    pub fn is_empty(&self) -> bool {
        let recovered = self.0.wal.recovered();
        recovered.vote.is_none()
            && recovered.entries.is_none()
            && recovered.purged.is_none()
            && !self.0.wal.queue().is_used()
            && self.record().snapshot.is_none()
    }

    /// Raft's log and vote. All calls give handles of one log; a second type config is refused.
    pub fn log_store<C: RaftTypeConfig>(&self) -> Result<LogStore<C>, Error> {
        let mut log = self.0.log.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match &*log {
            Some(state) => state
                .downcast_ref::<Arc<Mutex<State<C>>>>()
                .ok_or_else(|| Error::Refused("the log is open as another type".to_owned()))?
                .clone(),
            None => {
                let state = Arc::new(Mutex::new(State::<C>::recover(&self.0.wal)?));
                *log = Some(Box::new(Arc::clone(&state)));
                state
            }
        };
        Ok(LogStore::new(Arc::clone(&self.0), state))
    }

    /// The snapshot store.
    pub fn snapshots(&self) -> Snapshots {
        self.0.snapshots.clone()
    }

    /// Becomes `Some(why)` once, when a write or sync failed: nothing is acknowledged after that,
    /// and the process must stop.
    pub fn failed(&self) -> watch::Receiver<Option<String>> {
        self.0.failure.subscribe()
    }

    fn record(&self) -> Arc<Record> {
        self.0
            .meta
            .record()
            .expect("an open directory has its record")
    }
}

/// Makes the WAL and the record of a new node, and gives the store's id.
fn first_start(
    disk: &Directory,
    meta: &Meta,
    sled_path: &Path,
    segment_bytes: u32,
) -> Result<u128, Error> {
    let used = wal::is_used(disk).map_err(|error| Error::io("read", &disk.0, error))?;
    if used {
        let what = "the record of this node's identity is missing, but its log was in use";
        return Err(Error::corrupted(sled_path, what));
    }
    let mut random = [0; 24];
    getrandom::fill(&mut random).map_err(|error| {
        Error::io(
            "make a random id for",
            sled_path,
            io::Error::other(error.to_string()),
        )
    })?;
    #[cfg(feature = "planted-bugs")]
    if planted::has(planted::Bug::WipedUnderOldId) {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        sled_path.hash(&mut hasher);
        random[..8].copy_from_slice(&hasher.finish().to_le_bytes());
    }
    let (node_id, store) = random.split_at(8);
    let node_id = u64::from_le_bytes(node_id.try_into().expect("8 bytes"));
    let store = u128::from_le_bytes(store.try_into().expect("16 bytes"));
    wal::create(disk, store, segment_bytes)?;
    meta.create(node_id, store)?;
    Ok(store)
}

/// What the two halves must know of each other.
fn check_together(wal: &Wal, meta: &Meta, wal_path: &Path, sled_path: &Path) -> Result<(), Error> {
    let recovered = wal.recovered();
    let vote = recovered.vote.as_ref().map_or(0, |vote| vote.number);
    let copied = meta
        .record()
        .and_then(|record| record.vote.as_ref().map(|vote| vote.number))
        .unwrap_or(0);
    if copied > vote {
        let what = format!("the newest vote is number {vote}, but number {copied} was durable");
        return Err(Error::corrupted(wal_path, what));
    }
    let snapshot = snapshot_number(meta);
    if let Some(purged) = recovered
        .purged
        .as_ref()
        .filter(|purged| purged.snapshot > snapshot)
    {
        let what = format!(
            "the newest snapshot is number {snapshot}, but the log was purged behind number {}",
            purged.snapshot
        );
        return Err(Error::corrupted(sled_path, what));
    }
    Ok(())
}

/// Makes a directory durably, its parents included.
fn create_directory(path: &Path) -> Result<(), Error> {
    let failed = |error| Error::io("create", path, error);
    let new: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
    fs::create_dir_all(path).map_err(failed)?;
    for path in new {
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        sync_directory(parent.unwrap_or(Path::new("."))).map_err(failed)?;
    }
    Ok(())
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Takes the lock of the directory, waiting for it.
fn lock(path: &Path, wait: Duration) -> Result<File, Error> {
    let failed = |error| Error::io("lock", path, error);
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(failed)?;
    let deadline = Instant::now() + wait;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(LOCK_POLL),
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::Locked {
                    path: path.to_owned(),
                });
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// Reads the format file, or writes it if the directory is new.
fn check_format(dir: &Path) -> Result<(), Error> {
    let path = dir.join("format");
    let expected = format!("{FORMAT_PREFIX}{FORMAT}\n");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if dir.join("wal").exists() || dir.join("sled").exists() {
                return Err(Error::corrupted(&path, "the file is missing"));
            }
            return write_format(dir, &path, &expected)
                .map_err(|error| Error::io("write", &path, error));
        }
        Err(error) => return Err(Error::io("read", &path, error)),
    };
    if text == expected.as_bytes() {
        return Ok(());
    }
    Err(Error::UnknownFormat {
        found: found_format(&text),
        path,
        known: FORMAT,
    })
}

fn found_format(text: &[u8]) -> String {
    let version = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.strip_prefix(FORMAT_PREFIX))
        .and_then(|version| version.trim_end().parse::<u32>().ok());
    match version {
        Some(version) => format!("the directory has format {version}"),
        None => "this is not the format file of a data directory".to_owned(),
    }
}

fn write_format(dir: &Path, path: &Path, text: &str) -> io::Result<()> {
    let temporary: PathBuf = dir.join("format.tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_directory(dir)
}
