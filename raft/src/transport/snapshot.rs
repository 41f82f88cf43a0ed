//! Snapshots between peers, both sides.
//!
//! A snapshot is announced with its size and comes in pieces, each of which is answered before the
//! next is sent, so that at most one piece is in the sockets: on a slow link it shares the way with
//! heartbeats instead of standing before them. The last answer comes when the snapshot is installed.
//! Faults answered:
//!
//! - *Damage on the way, a piece lost or doubled*: a checksum over everything up to each piece.
//! - *An announced size that lies*: it is compared with the cap, memory grows with what has arrived,
//!   and more or less than announced is refused.
//! - *Many at once*: the receiver takes a bounded number and refuses the others.
//! - *A sender or receiver that stops*: each step has a deadline.

use std::time::Duration;

use bytes::Bytes;
use openraft::Raft;
use openraft::raft::SnapshotResponse;
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::type_config::alias::SnapshotOf;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::connection::Connection;
use super::wire::{
    self, Answer, Denied, Kind, SNAPSHOT_BYTES_MAX, SNAPSHOT_CHUNK_BYTES, SnapshotBegin,
    SnapshotChunk,
};
use super::{Error, Vote};
use crate::type_config::TypeConfig;

/// How long the other side may take for one piece.
const STEP_DEADLINE: Duration = Duration::from_secs(10);

/// How long the receiver may take to install the snapshot: it writes and syncs all of it.
const INSTALL_DEADLINE: Duration = Duration::from_secs(60);

/// Snapshots that one node receives at the same time: one, and one more for a new leader while the
/// old one's has not been given up.
pub(crate) const RECEIVED_AT_ONCE_MAX: usize = 2;

/// The answer to a piece: the response of Raft to the last, nothing to the others.
type ChunkAnswer = Option<SnapshotResponse<TypeConfig>>;

/// Sends one snapshot and waits until it is installed.
pub(crate) async fn send(
    connection: &mut Connection,
    vote: Vote,
    snapshot: &SnapshotOf<TypeConfig, Bytes>,
) -> Result<SnapshotResponse<TypeConfig>, Error> {
    let data = &snapshot.snapshot;
    let bytes = data.len() as u64;
    if bytes > SNAPSHOT_BYTES_MAX {
        return Err(Error::Malformed("the snapshot is above the greatest size"));
    }
    let begin = SnapshotBegin {
        vote,
        meta: snapshot.meta.clone(),
        bytes,
    };
    let step = ask(connection, Kind::SnapshotBegin, &begin);
    let () = within(STEP_DEADLINE, step).await?;

    let mut hasher = crc32fast::Hasher::new();
    let mut start = 0;
    loop {
        let end = data.len().min(start + SNAPSHOT_CHUNK_BYTES);
        let data = data.slice(start..end);
        hasher.update(&data);
        let chunk = SnapshotChunk {
            crc: hasher.clone().finalize(),
            data,
        };
        let is_last = end as u64 == bytes;
        let deadline = if is_last {
            INSTALL_DEADLINE
        } else {
            STEP_DEADLINE
        };
        let step = ask(connection, Kind::SnapshotChunk, &chunk);
        let answer: ChunkAnswer = within(deadline, step).await?;
        match answer {
            Some(response) if is_last => return Ok(response),
            None if !is_last => start = end,
            _ => return Err(Error::Malformed("an answer to another piece")),
        }
    }
}

async fn ask<Q: serde::Serialize, A: serde::de::DeserializeOwned>(
    connection: &mut Connection,
    kind: Kind,
    request: &Q,
) -> Result<A, Error> {
    connection
        .send(|out| wire::encode(kind, request, out))
        .await?;
    wire::decode_answer(kind, &connection.expect().await?)
}

/// Receives snapshots of the peer `from` until it ends the connection.
pub(crate) async fn serve<SM>(
    connection: &mut Connection,
    from: u64,
    raft: &Raft<TypeConfig, SM>,
    at_once: &Semaphore,
    idle: Duration,
) -> Result<(), Error>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = Bytes>,
{
    while let Some(frame) = within(idle, connection.next()).await? {
        let content = content_of(Kind::SnapshotBegin, &frame)?;
        let begin = wire::decode_snapshot_begin(from, &content)?;
        let Ok(_permit) = at_once.try_acquire() else {
            answer::<()>(connection, Kind::SnapshotBegin, Err(Denied::Busy)).await?;
            continue;
        };
        answer(connection, Kind::SnapshotBegin, Ok(())).await?;
        let data = receive(connection, begin.bytes).await?;
        let snapshot = Snapshot {
            meta: begin.meta,
            snapshot: data,
        };
        let installing = async {
            let installed = raft.install_full_snapshot(begin.vote, snapshot).await;
            Ok(installed.map(Some).map_err(|_| Denied::Stopped))
        };
        let installed = within(INSTALL_DEADLINE, installing).await?;
        answer::<ChunkAnswer>(connection, Kind::SnapshotChunk, installed).await?;
    }
    Ok(())
}

/// All pieces of a snapshot. The last one is not answered here.
async fn receive(connection: &mut Connection, bytes: u64) -> Result<Bytes, Error> {
    let mut data = Vec::new();
    let mut hasher = crc32fast::Hasher::new();
    loop {
        let frame = within(STEP_DEADLINE, connection.expect()).await?;
        let chunk: SnapshotChunk = wire::decode(&content_of(Kind::SnapshotChunk, &frame)?)?;
        hasher.update(&chunk.data);
        if hasher.clone().finalize() != chunk.crc {
            return Err(Error::Malformed(
                "a snapshot that does not match its checksum",
            ));
        }
        let received = (data.len() + chunk.data.len()) as u64;
        if received > bytes || (chunk.data.is_empty() && received < bytes) {
            return Err(Error::Malformed(
                "a snapshot of another size than announced",
            ));
        }
        data.extend_from_slice(&chunk.data);
        if received == bytes {
            return Ok(data.into());
        }
        answer::<ChunkAnswer>(connection, Kind::SnapshotChunk, Ok(None)).await?;
    }
}

fn content_of(kind: Kind, frame: &Bytes) -> Result<Bytes, Error> {
    match wire::split(frame)? {
        (got, content) if got == kind => Ok(content),
        _ => Err(Error::Malformed(
            "a message that does not belong to a snapshot",
        )),
    }
}

async fn answer<T: serde::Serialize>(
    connection: &mut Connection,
    kind: Kind,
    answer: Answer<T>,
) -> Result<(), Error> {
    within(
        STEP_DEADLINE,
        connection.send(|out| wire::encode(kind, &answer, out)),
    )
    .await
}

async fn within<T>(
    deadline: Duration,
    step: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    timeout(deadline, step)
        .await
        .unwrap_or(Err(Error::Timeout(deadline)))
}
