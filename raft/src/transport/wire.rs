//! What authenticated peers say to each other: one byte for the kind, then the content.
//!
//! Faults answered:
//!
//! - *A peer that is broken or lies.* Decoding is bounded by the frame. What openraft takes for
//!   granted is checked before it gets there (entries without gaps, terms that do not go back, votes
//!   of the kind that the message carries), and a peer may only speak for itself: the node id in a
//!   vote must be the one that the handshake proved.
//! - *Requests without bound.* openraft puts up to some hundreds of entries into a request; it is
//!   divided into frames of about [`APPEND_BYTES_MAX`], each of which is a request of its own with
//!   its own answer. openraft accepts answers up to any entry that it sent.
//!
//! openraft's own types are encoded as they are. Their encoding changes only with the version of
//! openraft, which is pinned; a change of either is a new version of the peer protocol.

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::entry::RaftEntry;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};
use openraft::type_config::alias::{EntryOf, LogIdOf, SnapshotMetaOf};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use storage::codec;

use super::frame::FRAME_BYTES_MAX;
use super::{Error, Vote};
use crate::type_config::TypeConfig;

pub(crate) type Entry = EntryOf<TypeConfig>;
pub(crate) type LogId = LogIdOf<TypeConfig>;
pub(crate) type SnapshotMeta = SnapshotMetaOf<TypeConfig>;

/// Encoded entries after which a request is divided, in bytes. One entry above it goes alone.
pub(crate) const APPEND_BYTES_MAX: usize = 1024 * 1024;

/// Greatest snapshot that is sent or taken, in bytes: three times what 65,536 keys of greatest
/// length need.
pub(crate) const SNAPSHOT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Content of one snapshot chunk, in bytes: what may be under way at once, since each is answered.
pub(crate) const SNAPSHOT_CHUNK_BYTES: usize = 256 * 1024;

/// Allowance for an entry besides its payload, in bytes.
const ENTRY_BYTES: usize = 64;

/// Allowance for a membership and for each of its nodes, in bytes.
const MEMBER_BYTES: usize = 1024;

/// What a frame holds. Answers carry the kind of their request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Append = 1,
    Vote = 2,
    PreVote = 3,
    TransferLeader = 4,
    Control = 5,
    SnapshotBegin = 6,
    SnapshotChunk = 7,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Append,
        Kind::Vote,
        Kind::PreVote,
        Kind::TransferLeader,
        Kind::Control,
        Kind::SnapshotBegin,
        Kind::SnapshotChunk,
    ];
}

/// The answer to any request: what was asked for, or why it was not served.
pub(crate) type Answer<T> = Result<T, Denied>;

/// Why a request was not served. The connection stays usable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum Denied {
    /// The asker's votes do not reach Raft here.
    #[error("the asker is not a member")]
    NotAdmitted,
    /// As many snapshots are being received as this node allows.
    #[error("too many snapshots at once")]
    Busy,
    /// Raft stopped.
    #[error("raft stopped")]
    Stopped,
}

impl From<Denied> for Error {
    fn from(why: Denied) -> Self {
        Error::Denied(why.to_string())
    }
}

/// Encodes one message as a frame's content.
pub(crate) fn encode<T: Serialize>(
    kind: Kind,
    content: &T,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    out.push(kind as u8);
    Ok(codec::encode_into(content, out)?)
}

/// The kind of a frame, and its content.
pub(crate) fn split(frame: &Bytes) -> Result<(Kind, Bytes), Error> {
    let first = *frame.first().ok_or(Error::Malformed("empty frame"))?;
    let kind = Kind::ALL
        .into_iter()
        .find(|kind| *kind as u8 == first)
        .ok_or(Error::Malformed("unknown kind of message"))?;
    Ok((kind, frame.slice(1..)))
}

/// Decodes the content of a frame.
pub(crate) fn decode<T: DeserializeOwned>(content: &[u8]) -> Result<T, Error> {
    Ok(codec::decode(content, FRAME_BYTES_MAX)?)
}

/// Decodes an answer that must be of the given kind.
pub(crate) fn decode_answer<T: DeserializeOwned>(kind: Kind, frame: &Bytes) -> Result<T, Error> {
    let (got, content) = split(frame)?;
    if got != kind {
        return Err(Error::Malformed("an answer to another question"));
    }
    Ok(decode::<Answer<T>>(&content)??)
}

/// An append request as it is sent; the same encoding as [`Append`].
#[derive(Serialize)]
pub(crate) struct AppendRef<'a> {
    pub(crate) vote: &'a Vote,
    pub(crate) prev_log_id: Option<LogId>,
    pub(crate) leader_commit: &'a Option<LogId>,
    pub(crate) entries: &'a [Entry],
}

impl AppendRef<'_> {
    /// The log id up to which the follower's log matches when it has taken this.
    pub(crate) fn last_log_id(&self) -> Option<LogId> {
        self.entries
            .last()
            .map(RaftEntry::log_id)
            .or(self.prev_log_id)
    }
}

/// Divides a request into parts of bounded size. A heartbeat is one part without entries.
pub(crate) fn parts(request: &AppendEntriesRequest<TypeConfig>) -> Vec<AppendRef<'_>> {
    let mut parts = Vec::with_capacity(1);
    let mut rest = request.entries.as_slice();
    let mut prev_log_id = request.prev_log_id;
    loop {
        let (entries, after) = rest.split_at(entries_in_one_part(rest));
        let part = AppendRef {
            vote: &request.vote,
            prev_log_id,
            leader_commit: &request.leader_commit,
            entries,
        };
        prev_log_id = part.last_log_id();
        parts.push(part);
        rest = after;
        if rest.is_empty() {
            return parts;
        }
    }
}

/// How many of the entries go into one part: at least one, if there are any.
fn entries_in_one_part(entries: &[Entry]) -> usize {
    let mut bytes = 0_usize;
    for (count, entry) in entries.iter().enumerate() {
        bytes = bytes.saturating_add(match &entry.payload {
            EntryPayload::Blank => ENTRY_BYTES,
            EntryPayload::Normal(payload) => ENTRY_BYTES + payload.0.len(),
            EntryPayload::Membership(members) => MEMBER_BYTES * (1 + members.nodes().count()),
        });
        if count > 0 && bytes > APPEND_BYTES_MAX {
            return count;
        }
    }
    entries.len()
}

/// An append request as it arrives.
#[derive(Deserialize)]
struct Append {
    vote: Vote,
    prev_log_id: Option<LogId>,
    leader_commit: Option<LogId>,
    entries: Vec<Entry>,
}

/// Decodes an append request of the peer `from` and checks what openraft relies on.
pub(crate) fn decode_append(
    from: u64,
    content: &[u8],
) -> Result<AppendEntriesRequest<TypeConfig>, Error> {
    let Append {
        vote,
        prev_log_id,
        leader_commit,
        entries,
    } = decode(content)?;
    check_leader_vote(from, &vote)?;
    let mut prev = prev_log_id;
    for entry in &entries {
        let id = entry.log_id();
        let follows = match prev {
            None => id.index == 0,
            Some(prev) => {
                prev.index.checked_add(1) == Some(id.index)
                    && prev.committed_leader_id() <= id.committed_leader_id()
            }
        };
        if !follows {
            return Err(Error::Malformed("entries with a gap"));
        }
        prev = Some(id);
    }
    Ok(AppendEntriesRequest {
        vote,
        prev_log_id,
        entries,
        leader_commit,
    })
}

/// Decodes a vote or pre-vote request of the peer `from`.
pub(crate) fn decode_vote(from: u64, content: &[u8]) -> Result<VoteRequest<TypeConfig>, Error> {
    let request: VoteRequest<TypeConfig> = decode(content)?;
    if request.vote.committed || request.vote.leader_id.voted_for != from {
        return Err(Error::Malformed(
            "a vote that is not the peer's own candidacy",
        ));
    }
    Ok(request)
}

/// Decodes a transfer of leadership by the peer `from`.
pub(crate) fn decode_transfer(
    from: u64,
    content: &[u8],
) -> Result<TransferLeaderRequest<TypeConfig>, Error> {
    let request: TransferLeaderRequest<TypeConfig> = decode(content)?;
    check_leader_vote(from, request.from_leader())?;
    Ok(request)
}

/// Announces a snapshot.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotBegin {
    /// The leader's vote.
    pub(crate) vote: Vote,
    /// What the snapshot covers.
    pub(crate) meta: SnapshotMeta,
    /// How many bytes follow.
    pub(crate) bytes: u64,
}

/// Decodes the announcement of a snapshot by the peer `from`.
pub(crate) fn decode_snapshot_begin(from: u64, content: &[u8]) -> Result<SnapshotBegin, Error> {
    let begin: SnapshotBegin = decode(content)?;
    check_leader_vote(from, &begin.vote)?;
    if begin.bytes > SNAPSHOT_BYTES_MAX {
        return Err(Error::Malformed("a snapshot above the greatest size"));
    }
    Ok(begin)
}

/// A piece of a snapshot, in order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotChunk {
    /// CRC-32 of all bytes of the snapshot up to the end of this piece, so that a piece that is
    /// lost, doubled or changed shows in it and in every later one.
    pub(crate) crc: u32,
    /// The piece.
    pub(crate) data: Bytes,
}

fn check_leader_vote(from: u64, vote: &Vote) -> Result<(), Error> {
    if vote.committed && vote.leader_id.voted_for == from {
        Ok(())
    } else {
        Err(Error::Malformed(
            "a vote that is not the peer's own leadership",
        ))
    }
}

#[cfg(test)]
mod tests {
    use openraft::vote::RaftLeaderId;
    use proptest::prelude::*;

    use super::*;
    use crate::type_config::Payload;

    const LEADER: u64 = 7;

    fn log_id(index: u64) -> LogId {
        let vote = Vote::new_committed(3, LEADER);
        LogId::new(vote.leader_id.to_committed(), index)
    }

    fn entry(index: u64, bytes: usize) -> Entry {
        let payload = EntryPayload::Normal(Payload(vec![1; bytes].into()));
        Entry {
            log_id: log_id(index),
            payload,
        }
    }

    fn request(entries: Vec<Entry>) -> AppendEntriesRequest<TypeConfig> {
        AppendEntriesRequest {
            vote: Vote::new_committed(3, LEADER),
            prev_log_id: Some(log_id(9)),
            entries,
            leader_commit: Some(log_id(8)),
        }
    }

    fn encoded(request: &AppendEntriesRequest<TypeConfig>) -> Vec<Vec<u8>> {
        let encode = |part| codec::encode(&part).unwrap();
        parts(request).into_iter().map(encode).collect()
    }

    #[test]
    fn a_request_comes_out_as_it_went_in() {
        let request = request(vec![entry(10, 5), entry(11, 0)]);
        let frames = encoded(&request);
        assert_eq!(frames.len(), 1);
        let got = decode_append(LEADER, &frames[0]).unwrap();
        assert_eq!(format!("{got:?}"), format!("{request:?}"));
    }

    #[test]
    fn a_heartbeat_is_one_part() {
        let request = request(vec![]);
        assert_eq!(encoded(&request).len(), 1);
        assert_eq!(parts(&request)[0].last_log_id(), Some(log_id(9)));
    }

    #[test]
    fn a_large_request_is_divided_into_parts_that_follow_each_other() {
        let sizes = [900_000, 200_000, 2_000_000, 1, 1, 500_000, 600_000];
        let entries = sizes
            .iter()
            .zip(10..)
            .map(|(bytes, index)| entry(index, *bytes))
            .collect();
        let request = request(entries);
        let mut prev = request.prev_log_id;
        let mut entries = Vec::new();
        let frames = encoded(&request);
        for frame in &frames {
            let part = decode_append(LEADER, frame).unwrap();
            assert_eq!(part.prev_log_id, prev);
            prev = part.entries.last().map(RaftEntry::log_id);
            assert!(frame.len() < APPEND_BYTES_MAX + 4096 || part.entries.len() == 1);
            entries.extend(part.entries);
        }
        assert_eq!(frames.len(), 5);
        assert_eq!(entries, request.entries);
    }

    #[test]
    fn entries_with_a_gap_or_an_older_term_are_refused() {
        let older = LogId::new(Vote::new_committed(2, LEADER).leader_id.to_committed(), 11);
        let back = Entry {
            log_id: older,
            payload: EntryPayload::Blank,
        };
        for entries in [
            vec![entry(11, 1)],
            vec![entry(10, 1), entry(12, 1)],
            vec![entry(10, 1), entry(10, 1)],
            vec![entry(10, 1), back],
        ] {
            let frame = &encoded(&request(entries))[0];
            assert!(matches!(
                decode_append(LEADER, frame),
                Err(Error::Malformed(_))
            ));
        }
    }

    #[test]
    fn a_peer_speaks_only_for_itself() {
        let frame = &encoded(&request(vec![]))[0];
        assert!(decode_append(LEADER, frame).is_ok());
        assert!(decode_append(LEADER + 1, frame).is_err());

        let vote = VoteRequest::<TypeConfig>::new(Vote::new(4, LEADER), None);
        let bytes = codec::encode(&vote).unwrap();
        assert!(decode_vote(LEADER, &bytes).is_ok());
        assert!(decode_vote(LEADER + 1, &bytes).is_err());
        let committed = VoteRequest::<TypeConfig>::new(Vote::new_committed(4, LEADER), None);
        assert!(decode_vote(LEADER, &codec::encode(&committed).unwrap()).is_err());

        let from_leader = Vote::new_committed(4, LEADER);
        let transfer = TransferLeaderRequest::<TypeConfig>::new(from_leader, 1, None);
        let bytes = codec::encode(&transfer).unwrap();
        assert!(decode_transfer(LEADER, &bytes).is_ok());
        assert!(decode_transfer(LEADER + 1, &bytes).is_err());
    }

    #[test]
    fn a_snapshot_above_the_greatest_size_is_refused() {
        let mut begin = SnapshotBegin {
            vote: Vote::new_committed(3, LEADER),
            meta: SnapshotMeta::default(),
            bytes: SNAPSHOT_BYTES_MAX,
        };
        let ok = codec::encode(&begin).unwrap();
        assert!(decode_snapshot_begin(LEADER, &ok).is_ok());
        begin.bytes += 1;
        let too_large = codec::encode(&begin).unwrap();
        assert!(decode_snapshot_begin(LEADER, &too_large).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let frame = Bytes::from(bytes);
            if let Ok((_, content)) = split(&frame) {
                let _ = decode_append(LEADER, &content);
                let _ = decode_vote(LEADER, &content);
                let _ = decode_transfer(LEADER, &content);
                let _ = decode_snapshot_begin(LEADER, &content);
                let _ = decode::<SnapshotChunk>(&content);
            }
        }

        #[test]
        fn a_request_changed_anywhere_never_panics(at in 0_usize..200, to in any::<u8>()) {
            let mut frame = encoded(&request(vec![entry(10, 5), entry(11, 5)])).remove(0);
            let at = at % frame.len();
            frame[at] = to;
            let _ = decode_append(LEADER, &frame);
        }
    }
}
