//! A type config and a state machine that is as small as openraft allows, on [`Snapshots`].

use std::io;
use std::io::Cursor;
use std::path::Path;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::entry::RaftEntry;
use openraft::impls::leader_id_std;
use openraft::storage::{
    EntryResponder, IOFlushed, RaftLogStorage, RaftSnapshotBuilder, RaftStateMachine,
};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::{
    EntryOf, LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf, VoteOf,
};
use openraft::vote::{RaftLeaderId, RaftVote};
use openraft::{LogId, OptionalSend};
use serde::{Deserialize, Serialize};
use storage::{LogStore, Options, Snapshots, Storage, codec};
use tempfile::TempDir;

openraft::declare_raft_types!(
    pub(crate) Config:
        D = Payload,
        R = (),
        NodeId = u64,
        Node = (),
        LeaderId = leader_id_std::LeaderId<Self::Term, Self::NodeId>,
);

/// Opaque bytes, as in the product.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Payload(pub(crate) Bytes);

impl std::fmt::Display for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

pub(crate) type Entry = EntryOf<Config>;
pub(crate) type Vote = VoteOf<Config>;
pub(crate) type Log = LogStore<Config>;

/// Small enough that tests go through many.
pub(crate) const SEGMENT_BYTES: u32 = 16 << 10;

pub(crate) fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        ..Options::default()
    }
}

pub(crate) fn open(dir: &Path) -> Result<Storage, storage::Error> {
    Storage::open(dir, options())
}

/// A directory in memory where there is one: for tests that are not about syncs, and want many rounds.
pub(crate) fn fast_directory() -> TempDir {
    TempDir::new_in("/dev/shm")
        .or_else(|_| TempDir::new())
        .unwrap()
}

pub(crate) fn log_id(term: u64, index: u64) -> LogIdOf<Config> {
    LogId::new_term_index(term, index)
}

/// An entry whose content is made from its index.
pub(crate) fn entry(term: u64, index: u64, bytes: usize) -> Entry {
    let mut pattern = index.to_le_bytes().repeat(bytes.div_ceil(8));
    pattern.truncate(bytes);
    Entry::new_normal(log_id(term, index), Payload(pattern.into()))
}

pub(crate) fn vote(term: u64, node: u64) -> Vote {
    Vote::from_leader_id(leader_id_std::LeaderId::new(term, node), false)
}

/// Appends and waits until it is durable.
pub(crate) async fn append(log: &mut Log, entries: Vec<Entry>) -> io::Result<()> {
    let (done, durable) = Config::oneshot();
    log.append(entries, IOFlushed::signal(done)).await?;
    durable.await.map_err(io::Error::other)?
}

/// Remembers what was applied last, and nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    applied: Option<LogIdOf<Config>>,
    membership: StoredMembershipOf<Config>,
    snapshots: Snapshots,
}

impl Machine {
    pub(crate) fn new(snapshots: Snapshots) -> Machine {
        Machine {
            applied: None,
            membership: StoredMembershipOf::<Config>::default(),
            snapshots,
        }
    }

    fn save(&self, meta: &SnapshotMetaOf<Config>, data: &[u8]) -> io::Result<()> {
        let meta = codec::encode(meta).map_err(io::Error::other)?;
        Ok(self.snapshots.save(&meta, data)?)
    }
}

impl RaftSnapshotBuilder<Config> for Machine {
    type SnapshotData = Cursor<Vec<u8>>;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Config, Self::SnapshotData>> {
        let meta = SnapshotMetaOf::<Config> {
            last_log_id: self.applied,
            last_membership: self.membership.clone(),
        };
        let data = b"state".to_vec();
        self.save(&meta, &data)?;
        Ok(SnapshotOf::<Config, _> {
            meta,
            snapshot: Cursor::new(data),
        })
    }
}

impl RaftStateMachine<Config> for Machine {
    type SnapshotData = Cursor<Vec<u8>>;
    type SnapshotBuilder = Self;

    async fn applied_state(
        &mut self,
    ) -> io::Result<(Option<LogIdOf<Config>>, StoredMembershipOf<Config>)> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Config>>> + Unpin + OptionalSend,
    {
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            self.applied = Some(entry.log_id());
            if let Some(membership) = entry.get_membership() {
                self.membership = StoredMembershipOf::<Config>::new(self.applied, membership);
            }
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<Config>,
        snapshot: Cursor<Vec<u8>>,
    ) -> io::Result<()> {
        self.save(meta, snapshot.get_ref())?;
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<SnapshotOf<Config, Self::SnapshotData>>> {
        let Some(stored) = self.snapshots.load()? else {
            return Ok(None);
        };
        let meta = codec::decode(&stored.meta, stored.meta.len()).map_err(io::Error::other)?;
        Ok(Some(SnapshotOf::<Config, _> {
            meta,
            snapshot: Cursor::new(stored.data.to_vec()),
        }))
    }
}
