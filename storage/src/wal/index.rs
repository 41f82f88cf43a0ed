//! What the records add up to: the newest vote, which entries are live, and where they are.
//!
//! The writer applies each operation as it writes it, recovery applies the same operations as it
//! reads them: one rule book, so both come to the same state. Each segment's head carries the state at
//! its beginning, which makes earlier segments dispensable once their entries are purged, and lets
//! recovery check what it added up against what the writer had.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::record::{Op, Vote};

/// The state of the log between two records, apart from where the entries are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The newest vote.
    pub(crate) vote: Option<Vote>,
    /// The newest committed log id.
    pub(crate) committed: Option<Vec<u8>>,
    /// The newest purge.
    pub(crate) purged: Option<Purged>,
    /// The live entries. `None` while the log never had one, or had all of them truncated with
    /// nothing purged: then the next entry may have any index.
    pub(crate) entries: Option<Entries>,
    /// No segment before this one is needed.
    pub(crate) oldest: u64,
}

/// What the head of the log was replaced by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Purged {
    /// The last purged index.
    pub(crate) index: u64,
    /// Its log id, encoded.
    pub(crate) id: Vec<u8>,
    /// The number of the snapshot that was current.
    pub(crate) snapshot: u64,
}

/// Indices of the live entries: `first..next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entries {
    /// The first live entry, if there is one.
    pub(crate) first: u64,
    /// The one after the last.
    pub(crate) next: u64,
}

/// Where an entry's record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of the segment.
    pub(crate) segment: u64,
    /// Where in the segment the record begins, in bytes.
    pub(crate) offset: u32,
    /// Bytes of the entry.
    pub(crate) bytes: u32,
}

/// The state, and the positions of the live entries: 16 bytes an entry, less than a third of what
/// the shortest entry takes on disk; both end with the purge.
#[derive(Debug, Default)]
pub(crate) struct Index {
    state: State,
    /// Positions of the entries `known..entries.next`. `known` is greater than `entries.first` only
    /// in the middle of a recovery, which starts at the oldest segment that is needed and may find
    /// its head speak of entries that are purged or truncated later on.
    positions: VecDeque<Position>,
    known: u64,
}

impl Index {
    /// Starts from the state that a segment's head carries.
    pub(crate) fn new(state: State) -> Index {
        let known = state.entries.map_or(0, |entries| entries.next);
        Index {
            state,
            positions: VecDeque::new(),
            known,
        }
    }

    /// The state by now.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Applies one operation whose record begins at `offset` of `segment`. An operation that does not
    /// follow from those before it changes nothing and gives what is wrong with it.
    pub(crate) fn apply(&mut self, op: &Op, segment: u64, offset: u32) -> Result<(), String> {
        match op {
            Op::Vote(vote) => {
                let number = self.state.vote.as_ref().map_or(0, |vote| vote.number);
                if number.checked_add(1) != Some(vote.number) {
                    return Err(format!("vote {} follows vote {number}", vote.number));
                }
                self.state.vote = Some(vote.clone());
            }
            Op::Committed(id) => self.state.committed = Some(id.clone()),
            Op::Entry { index, bytes } => {
                let next = self.state.entries.map_or(*index, |entries| entries.next);
                if *index != next || next == u64::MAX {
                    return Err(format!("entry {index} where entry {next} must follow"));
                }
                self.push(
                    next,
                    Position {
                        segment,
                        offset,
                        bytes: bytes.len() as u32,
                    },
                );
            }
            Op::Truncate { next } => self.truncate(*next),
            Op::Purge {
                index,
                id,
                snapshot,
                oldest,
            } => {
                if self
                    .state
                    .purged
                    .as_ref()
                    .is_none_or(|purged| purged.index < *index)
                {
                    self.purge(*index);
                    self.state.purged = Some(Purged {
                        index: *index,
                        id: id.clone(),
                        snapshot: *snapshot,
                    });
                }
                self.state.oldest = self.state.oldest.max(*oldest);
            }
        }
        Ok(())
    }

    fn push(&mut self, index: u64, position: Position) {
        match &mut self.state.entries {
            Some(entries) => entries.next = index + 1,
            None => {
                self.state.entries = Some(Entries {
                    first: index,
                    next: index + 1,
                });
                self.known = index;
            }
        }
        self.positions.push_back(position);
    }

    fn truncate(&mut self, next: u64) {
        let Some(entries) = self.state.entries.filter(|entries| next < entries.next) else {
            return;
        };
        let next = next.max(entries.first);
        self.known = self.known.min(next);
        self.positions.truncate((next - self.known) as usize);
        self.state.entries = Some(Entries {
            first: entries.first,
            next,
        })
        .filter(|_| next > entries.first || self.state.purged.is_some());
    }

    fn purge(&mut self, index: u64) {
        let first = index.saturating_add(1);
        let before = self.state.entries.unwrap_or(Entries { first, next: first });
        let entries = Entries {
            first: before.first.max(first),
            next: before.next.max(first),
        };
        let dropped = entries
            .first
            .saturating_sub(self.known)
            .min(self.positions.len() as u64);
        self.positions.drain(..dropped as usize);
        self.known = entries.next - self.positions.len() as u64;
        self.state.entries = Some(entries);
    }

    /// Indices of the live entries.
    pub(crate) fn entries(&self) -> std::ops::Range<u64> {
        self.state
            .entries
            .map_or(0..0, |entries| entries.first..entries.next)
    }

    /// The live entries whose position is not known: none, except in damaged or half-read logs.
    pub(crate) fn missing(&self) -> std::ops::Range<u64> {
        let entries = self.entries();
        entries.start..self.known.clamp(entries.start, entries.end)
    }

    /// Where an entry is.
    pub(crate) fn position(&self, index: u64) -> Option<Position> {
        self.positions
            .get(usize::try_from(index.checked_sub(self.known)?).ok()?)
            .copied()
    }

    /// The segment of the first live entry after a purge up to `purged`; `None` if none is left.
    pub(crate) fn oldest_after(&self, purged: u64) -> Option<u64> {
        let first = self.entries().start.max(purged.saturating_add(1));
        self.position(first).map(|position| position.segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64) -> Op {
        Op::Entry {
            index,
            bytes: vec![0; 3],
        }
    }

    fn purge(index: u64) -> Op {
        Op::Purge {
            index,
            id: vec![],
            snapshot: 0,
            oldest: 0,
        }
    }

    /// Applies `ops`, each at an offset of its own, and checks what is live and where.
    fn check(start: State, ops: &[Op], live: std::ops::Range<u64>, offsets: &[u32]) -> Index {
        let mut index = Index::new(start);
        for (offset, op) in (0..).zip(ops) {
            index.apply(op, 1, offset).unwrap();
        }
        assert_eq!(index.entries(), live);
        assert!(index.missing().is_empty());
        let found: Vec<_> = live
            .map(|entry| index.position(entry).expect("known").offset)
            .collect();
        assert_eq!(found, offsets);
        index
    }

    #[test]
    fn a_log_may_start_at_any_index_and_has_no_holes() {
        let mut index = check(State::default(), &[entry(3), entry(4)], 3..5, &[0, 1]);
        assert!(index.apply(&entry(6), 1, 9).is_err());
        assert!(index.apply(&entry(4), 1, 9).is_err());
        assert_eq!(index.entries(), 3..5);
    }

    #[test]
    fn truncation_and_new_entries_give_the_newest_positions() {
        let ops = [
            entry(0),
            entry(1),
            entry(2),
            Op::Truncate { next: 1 },
            entry(1),
        ];
        check(State::default(), &ops, 0..2, &[0, 4]);
    }

    #[test]
    fn truncating_everything_lets_the_log_start_anew() {
        let ops = [entry(5), entry(6), Op::Truncate { next: 0 }, entry(2)];
        check(State::default(), &ops, 2..3, &[3]);
        let ops = [
            entry(0),
            entry(1),
            purge(0),
            Op::Truncate { next: 0 },
            entry(1),
        ];
        check(State::default(), &ops, 1..2, &[4]);
    }

    #[test]
    fn a_purge_beyond_the_end_moves_the_end() {
        let mut index = check(State::default(), &[entry(0), purge(20)], 21..21, &[]);
        assert!(index.apply(&entry(1), 1, 9).is_err());
        index.apply(&entry(21), 1, 9).unwrap();
        assert_eq!(index.position(21).unwrap().offset, 9);
        check(State::default(), &[purge(4), entry(5)], 5..6, &[1]);
    }

    #[test]
    fn a_purge_does_not_go_back() {
        let ops = [entry(0), entry(1), entry(2), purge(1), purge(0)];
        let index = check(State::default(), &ops, 2..3, &[2]);
        assert_eq!(index.state().purged.as_ref().unwrap().index, 1);
    }

    #[test]
    fn a_recovery_from_the_middle_knows_which_entries_it_has_not_seen() {
        let start = State {
            entries: Some(Entries { first: 3, next: 8 }),
            ..State::default()
        };
        let mut index = Index::new(start.clone());
        index.apply(&entry(8), 2, 0).unwrap();
        assert_eq!(index.missing(), 3..8);
        index.apply(&purge(6), 2, 1).unwrap();
        assert_eq!(index.missing(), 7..8);
        index.apply(&purge(7), 2, 1).unwrap();
        assert_eq!(index.missing(), 8..8);
        assert_eq!(index.position(8).unwrap().offset, 0);

        let ops = [
            entry(8),
            purge(4),
            Op::Truncate { next: 5 },
            entry(5),
            entry(6),
        ];
        check(start, &ops, 5..7, &[3, 4]);
    }

    #[test]
    fn votes_are_counted_without_a_gap() {
        let mut index = Index::default();
        let vote = |number| {
            Op::Vote(Vote {
                number,
                bytes: vec![],
            })
        };
        index.apply(&vote(1), 1, 0).unwrap();
        assert!(index.apply(&vote(1), 1, 0).is_err());
        assert!(index.apply(&vote(3), 1, 0).is_err());
        index.apply(&vote(2), 1, 0).unwrap();
    }
}
