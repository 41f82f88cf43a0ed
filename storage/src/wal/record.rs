//! Records: the bytes of a segment.
//!
//! A record is a header of 24 bytes and a payload, padded with zeros to a multiple of 8:
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | CRC-32 of the segment's number (8 bytes) and of everything after this field, padding included |
//! | 4..8 | length of the payload |
//! | 8..16 | sequence: counts the records of the whole log, without a gap |
//! | 16..20 | synced: everything before this offset of this segment was durable when the record was written |
//! | 20 | kind |
//! | 21..24 | zero |
//!
//! **Are 32 bits enough?** Records of an earlier life of a recycled file are told apart with
//! certainty: their number differs from the file's new one within 32 bits, a CRC detects every error
//! burst of up to 32 bits, and the rest of the bytes is the same. One or two flipped bits are detected
//! with certainty in records of up to 2^31 bits, single sectors of zeros or noise with probability
//! 1 - 2^-32; what takes the place of a record must also carry the one sequence number that is
//! expected there. So 64 bits of CRC would guard against nothing that happens.

use serde::{Deserialize, Serialize};

/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 24;
/// Records start at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;
/// Longest vote or log id, encoded.
pub(crate) const SMALL_BYTES_MAX: usize = 240;
/// Payload of every vote: number, length, and the vote with zeros after it. A fixed size, so that
/// a damaged length cannot make another vote of it.
const VOTE_BYTES: usize = 8 + 2 + SMALL_BYTES_MAX;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first record of a segment.
    Head = 1,
    /// A vote.
    Vote = 2,
    /// A log entry.
    Entry = 3,
    /// The end of the log is dropped.
    Truncate = 4,
    /// The beginning of the log is dropped.
    Purge = 5,
    /// The committed log id.
    Committed = 6,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        let all = [
            Kind::Head,
            Kind::Vote,
            Kind::Entry,
            Kind::Truncate,
            Kind::Purge,
            Kind::Committed,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A vote with its number: votes are counted, so that two copies can be compared without knowing
/// what a vote means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Vote {
    /// 1 for the first vote of this store.
    pub(crate) number: u64,
    /// The vote, encoded.
    pub(crate) bytes: Vec<u8>,
}

/// What the log can be told to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Remember a vote.
    Vote(Vote),
    /// Append an entry.
    Entry { index: u64, bytes: Vec<u8> },
    /// Drop all entries from `next` on.
    Truncate { next: u64 },
    /// Drop all entries up to `index`, which has the log id `id`; the snapshot numbered `snapshot`
    /// stands for them. No segment before `oldest` is needed any more (the writer fills it in).
    Purge {
        index: u64,
        id: Vec<u8>,
        snapshot: u64,
        oldest: u64,
    },
    /// Remember the committed log id.
    Committed(Vec<u8>),
}

impl Op {
    /// Bytes that the record of this operation takes.
    pub(crate) fn record_bytes(&self) -> usize {
        record_bytes(match self {
            Op::Vote(_) => VOTE_BYTES,
            Op::Entry { bytes, .. } => return Op::entry_record_bytes(bytes.len()),
            Op::Truncate { .. } => 8,
            Op::Purge { id, .. } => 24 + id.len(),
            Op::Committed(id) => id.len(),
        })
    }

    /// Bytes that the record of an entry takes.
    pub(crate) fn entry_record_bytes(entry: usize) -> usize {
        record_bytes(8 + entry)
    }

    fn kind(&self) -> Kind {
        match self {
            Op::Vote(_) => Kind::Vote,
            Op::Entry { .. } => Kind::Entry,
            Op::Truncate { .. } => Kind::Truncate,
            Op::Purge { .. } => Kind::Purge,
            Op::Committed(_) => Kind::Committed,
        }
    }

    fn write_payload(&self, out: &mut Vec<u8>) {
        match self {
            Op::Vote(vote) => {
                let start = out.len();
                out.extend(vote.number.to_le_bytes());
                let length =
                    u16::try_from(vote.bytes.len()).expect("votes are checked to be small");
                out.extend(length.to_le_bytes());
                out.extend(&vote.bytes);
                out.resize(start + VOTE_BYTES, 0);
            }
            Op::Entry { index, bytes } => {
                out.extend(index.to_le_bytes());
                out.extend(bytes);
            }
            Op::Truncate { next } => out.extend(next.to_le_bytes()),
            Op::Purge {
                index,
                id,
                snapshot,
                oldest,
            } => {
                out.extend(index.to_le_bytes());
                out.extend(snapshot.to_le_bytes());
                out.extend(oldest.to_le_bytes());
                out.extend(id);
            }
            Op::Committed(id) => out.extend(id),
        }
    }

    /// The operation of a record; `None` if the payload is not one of that kind.
    pub(crate) fn parse(kind: Kind, payload: &[u8]) -> Option<Op> {
        match kind {
            Kind::Head => None,
            Kind::Vote => {
                let (number, rest) = split_u64(payload)?;
                let (length, rest) = rest.split_first_chunk::<2>()?;
                let length = usize::from(u16::from_le_bytes(*length));
                if payload.len() != VOTE_BYTES || rest.get(length..)?.iter().any(|byte| *byte != 0)
                {
                    return None;
                }
                Some(Op::Vote(Vote {
                    number,
                    bytes: rest[..length].to_vec(),
                }))
            }
            Kind::Entry => {
                let (index, bytes) = split_u64(payload)?;
                Some(Op::Entry {
                    index,
                    bytes: bytes.to_vec(),
                })
            }
            Kind::Truncate => {
                let (next, rest) = split_u64(payload)?;
                rest.is_empty().then_some(Op::Truncate { next })
            }
            Kind::Purge => {
                let (index, rest) = split_u64(payload)?;
                let (snapshot, rest) = split_u64(rest)?;
                let (oldest, id) = split_u64(rest)?;
                Some(Op::Purge {
                    index,
                    id: id.to_vec(),
                    snapshot,
                    oldest,
                })
            }
            Kind::Committed => Some(Op::Committed(payload.to_vec())),
        }
    }
}

/// Splits a little-endian number off.
pub(crate) fn split_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*number), rest))
}

/// Bytes of a record with this payload length.
fn record_bytes(payload: usize) -> usize {
    (HEADER_BYTES + payload).next_multiple_of(ALIGNMENT)
}

/// Where a record is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Number of the segment.
    pub(crate) segment: u64,
    /// The record's number in the log.
    pub(crate) sequence: u64,
    /// Everything before this offset of the segment is durable.
    pub(crate) synced: u32,
}

/// Appends the record of an operation to `out`.
pub(crate) fn write_op(out: &mut Vec<u8>, place: Place, op: &Op) {
    write(out, place, op.kind(), |out| op.write_payload(out));
}

/// Appends the first record of a segment to `out`.
pub(crate) fn write_head(out: &mut Vec<u8>, place: Place, payload: &[u8]) {
    write(out, place, Kind::Head, |out| out.extend(payload));
}

fn write(out: &mut Vec<u8>, place: Place, kind: Kind, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    payload(out);
    let length = out.len() - start - HEADER_BYTES;
    out.resize(start + record_bytes(length), 0);
    let record = &mut out[start..];
    let length = u32::try_from(length).expect("a payload fits into a segment");
    record[4..8].copy_from_slice(&length.to_le_bytes());
    record[8..16].copy_from_slice(&place.sequence.to_le_bytes());
    record[16..20].copy_from_slice(&place.synced.to_le_bytes());
    record[20] = kind as u8;
    let checksum = checksum(place.segment, &record[4..]);
    record[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// A record as it was found, its checksum verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    /// What it is.
    pub(crate) kind: Kind,
    /// Its number in the log.
    pub(crate) sequence: u64,
    /// Everything before this offset was durable when it was written.
    pub(crate) synced: u32,
    /// The payload.
    pub(crate) payload: &'a [u8],
}

impl Record<'_> {
    /// Bytes that the record takes.
    pub(crate) fn bytes(&self) -> usize {
        record_bytes(self.payload.len())
    }
}

/// The record at the beginning of `bytes`, if a whole one of this segment is there.
pub(crate) fn read(bytes: &[u8], segment: u64) -> Option<Record<'_>> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let kind = Kind::from_byte(header[20])?;
    let length = u32::from_le_bytes(*header[4..].first_chunk()?) as usize;
    if header[21..] != [0; 3] || length > bytes.len() {
        return None;
    }
    let record = bytes.get(..record_bytes(length))?;
    if checksum(segment, &record[4..]) != u32::from_le_bytes(*header.first_chunk()?) {
        return None;
    }
    Some(Record {
        kind,
        sequence: u64::from_le_bytes(*header[8..].first_chunk()?),
        synced: u32::from_le_bytes(*header[16..].first_chunk()?),
        payload: &record[HEADER_BYTES..HEADER_BYTES + length],
    })
}

/// The sequence number that a record at the beginning of `bytes` would have: a cheap look before
/// [`read`].
pub(crate) fn sequence(bytes: &[u8]) -> Option<u64> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    Kind::from_byte(header[20])?;
    Some(u64::from_le_bytes(*header[8..].first_chunk()?))
}

fn checksum(segment: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&segment.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops() -> Vec<Op> {
        vec![
            Op::Vote(Vote {
                number: 3,
                bytes: b"vote".to_vec(),
            }),
            Op::Entry {
                index: 7,
                bytes: vec![1, 2, 3],
            },
            Op::Truncate { next: 9 },
            Op::Purge {
                index: 5,
                id: b"id".to_vec(),
                snapshot: 2,
                oldest: 1,
            },
            Op::Committed(b"id".to_vec()),
        ]
    }

    fn place(segment: u64) -> Place {
        Place {
            segment,
            sequence: 40,
            synced: 8,
        }
    }

    #[test]
    fn an_operation_comes_back_from_its_record() {
        for op in ops() {
            let mut bytes = Vec::new();
            write_op(&mut bytes, place(1), &op);
            assert_eq!(bytes.len(), op.record_bytes());
            let record = read(&bytes, 1).unwrap();
            assert_eq!((record.sequence, record.synced), (40, 8));
            assert_eq!(Op::parse(record.kind, record.payload), Some(op));
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for op in ops() {
            let mut bytes = Vec::new();
            write_op(&mut bytes, place(1), &op);
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(read(&bytes, 1).is_none(), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn every_cut_is_found() {
        let mut bytes = Vec::new();
        write_op(&mut bytes, place(1), &ops()[1]);
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length], 1).is_none(), "{length} bytes");
        }
    }

    #[test]
    fn a_record_of_another_life_of_the_file_is_no_record() {
        let mut bytes = Vec::new();
        write_op(&mut bytes, place(1), &ops()[1]);
        for segment in (2..10_000).chain([u64::from(u32::MAX), u64::MAX]) {
            assert!(read(&bytes, segment).is_none(), "segment {segment}");
        }
    }
}
