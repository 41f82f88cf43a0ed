//! Random logs against a tiny model, and random bytes against the decoder.
//!
//! The model (`Model`) is the lock table written for reading instead of speed: a list of locks that is
//! scanned. The invariants that a client relies on are checked by themselves (`Witness`), from nothing but
//! what `apply` answered, so that a mistake made in both table and model is found too.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use wire::{Key, Lease, Token};

use crate::lock::{
    Applied, Attempt, Batch, Command, Grant, Lock, LockTable, Outcome, STAMP_MAX, Stamp,
};

const SECOND: u64 = 1_000_000_000;

/// Few keys, a cap below their number, so that every refusal comes up.
const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const ACTIVE_KEYS_MAX: u32 = 4;

/// A command whose token is chosen when its place in the log is known.
#[derive(Clone, Debug)]
enum Intent {
    Acquire {
        key: usize,
        lease: u8,
    },
    Release {
        key: usize,
        token: TokenIntent,
        next: Option<u8>,
    },
}

#[derive(Clone, Debug)]
enum TokenIntent {
    /// The one that the key is held under when the batch begins, or 0.
    Current,
    /// So many below the newest: somebody's, perhaps a late one.
    Back(u64),
    /// Never granted.
    Wild(u64),
}

#[derive(Clone, Debug)]
enum StampIntent {
    /// So many nanoseconds after the last one.
    Later(u64),
    /// So many nanoseconds before the last one.
    Earlier(u64),
    /// Just when the next lock ends, or a nanosecond before.
    AtDeadline { before: bool },
    /// So many nanoseconds after the last sensible stamp.
    Beyond(u64),
}

fn leases() -> impl Strategy<Value = u8> {
    prop_oneof![4 => 1..5u8, 1 => Just(250)]
}

fn commands() -> impl Strategy<Value = Intent> {
    let tokens = prop_oneof![
        5 => Just(TokenIntent::Current),
        2 => (0..20u64).prop_map(TokenIntent::Back),
        1 => any::<u64>().prop_map(TokenIntent::Wild),
    ];
    let key = 0..KEYS.len();
    prop_oneof![
        (key.clone(), leases()).prop_map(|(key, lease)| Intent::Acquire { key, lease }),
        (key, tokens, proptest::option::of(leases()))
            .prop_map(|(key, token, next)| Intent::Release { key, token, next }),
    ]
}

fn stamps() -> impl Strategy<Value = StampIntent> {
    prop_oneof![
        8 => (0..2 * SECOND).prop_map(StampIntent::Later),
        2 => (0..5 * SECOND).prop_map(StampIntent::Earlier),
        3 => any::<bool>().prop_map(|before| StampIntent::AtDeadline { before }),
        1 => (1..300 * SECOND).prop_map(StampIntent::Beyond),
    ]
}

fn logs() -> impl Strategy<Value = Vec<(StampIntent, Vec<Intent>)>> {
    vec((stamps(), vec(commands(), 0..6)), 0..60)
}

/// Makes a real log of the intents, playing it to a model to know what is current.
fn written(intents: Vec<(StampIntent, Vec<Intent>)>) -> Vec<Batch> {
    let mut model = Model::new();
    let mut log = Vec::new();
    for (stamp, commands) in intents {
        let stamp = match stamp {
            StampIntent::Later(nanos) => model.now + nanos,
            StampIntent::Earlier(nanos) => model.now.saturating_sub(nanos),
            StampIntent::AtDeadline { before } => {
                let next = model.locks.iter().map(|(_, grant)| grant.deadline.0).min();
                next.unwrap_or(model.now + 1) - u64::from(before)
            }
            StampIntent::Beyond(nanos) => STAMP_MAX.0.saturating_add(nanos),
        };
        let command = |intent| match intent {
            Intent::Acquire { key, lease } => Command::Acquire {
                key: key_of(key),
                lease: lease_of(lease),
            },
            Intent::Release { key, token, next } => {
                let key = key_of(key);
                let token = match token {
                    TokenIntent::Current => model.grant(&key).map_or(Token(0), |grant| grant.token),
                    TokenIntent::Back(back) => Token(model.tokens.saturating_sub(back)),
                    TokenIntent::Wild(token) => Token(token),
                };
                Command::Release {
                    key,
                    token,
                    next: next.map(lease_of),
                }
            }
        };
        let commands = commands.into_iter().map(command).collect();
        let sequence = log.len() as u64 + 1;
        let batch = Batch {
            origin: 7,
            sequence,
            stamp: Stamp(stamp),
            commands,
        };
        model.apply(&batch);
        log.push(batch);
    }
    log
}

fn key_of(index: usize) -> Key {
    KEYS[index].parse().unwrap()
}

fn lease_of(seconds: u8) -> Lease {
    Lease::from_seconds(seconds).unwrap()
}

/// The lock table, as simple as can be.
struct Model {
    now: u64,
    tokens: u64,
    locks: Vec<(Key, Grant)>,
}

impl Model {
    fn new() -> Self {
        Self {
            now: 0,
            tokens: 0,
            locks: Vec::new(),
        }
    }

    fn grant(&self, key: &Key) -> Option<Grant> {
        self.locks
            .iter()
            .find(|(held, _)| held == key)
            .map(|(_, grant)| *grant)
    }

    fn apply(&mut self, batch: &Batch) -> Applied {
        let dated = batch.stamp <= STAMP_MAX;
        if dated && batch.stamp.0 > self.now {
            self.now = batch.stamp.0;
        }
        let mut ended: Vec<Lock> = Vec::new();
        for (key, grant) in &self.locks {
            if grant.deadline.0 <= self.now {
                ended.push(Lock {
                    key: key.clone(),
                    grant: *grant,
                });
            }
        }
        ended.sort_by_key(|lock| (lock.grant.deadline, lock.grant.token));
        self.locks.retain(|(_, grant)| grant.deadline.0 > self.now);
        let mut outcomes = Vec::new();
        for command in &batch.commands {
            outcomes.push(match command {
                Command::Acquire { key, lease } => {
                    Outcome::Acquired(self.attempt(key, *lease, dated))
                }
                Command::Release { key, token, next } => {
                    let current = self.grant(key).is_some_and(|grant| grant.token == *token);
                    if current {
                        self.locks.retain(|(held, _)| held != key);
                    }
                    let next = next.map(|lease| self.attempt(key, lease, dated));
                    if current {
                        Outcome::Released { next }
                    } else {
                        Outcome::NotCurrent { next }
                    }
                }
            });
        }
        Applied {
            origin: batch.origin,
            sequence: batch.sequence,
            now: Stamp(self.now),
            ended,
            outcomes,
        }
    }

    fn attempt(&mut self, key: &Key, lease: Lease, dated: bool) -> Attempt {
        if let Some(grant) = self.grant(key) {
            return Attempt::Held(grant);
        }
        if self.locks.len() >= ACTIVE_KEYS_MAX as usize {
            return Attempt::KeysFull;
        }
        if !dated {
            return Attempt::TokensExhausted;
        }
        self.tokens += 1;
        let grant = Grant {
            token: Token(self.tokens),
            deadline: Stamp(self.now + lease.nanos()),
        };
        self.locks.push((key.clone(), grant));
        Attempt::Granted(grant)
    }
}

/// What a client may rely on, seen from the answers alone.
#[derive(Default)]
struct Witness {
    newest: Token,
    /// For each key that somebody believes to hold: its token, and the earliest stamp at which the
    /// lease may end.
    held: BTreeMap<Key, (Token, u128)>,
}

impl Witness {
    fn observe(&mut self, batch: &Batch, applied: &Applied) {
        for lock in &applied.ended {
            let (token, end_min) = self.held.remove(&lock.key).expect("only held locks end");
            assert_eq!(token, lock.grant.token);
            assert!(u128::from(applied.now.0) >= end_min, "{lock:?} ended early");
        }
        assert_eq!(applied.outcomes.len(), batch.commands.len());
        for (command, outcome) in batch.commands.iter().zip(&applied.outcomes) {
            match (command, outcome) {
                (Command::Acquire { key, lease }, Outcome::Acquired(attempt)) => {
                    self.attempted(batch, key, *lease, attempt);
                }
                (
                    Command::Release {
                        key,
                        token,
                        next: lease,
                    },
                    Outcome::Released { next } | Outcome::NotCurrent { next },
                ) => {
                    let believed = self.held.get(key).map(|(token, _)| *token);
                    let released = matches!(outcome, Outcome::Released { .. });
                    assert_eq!(released, believed == Some(*token));
                    if released {
                        self.held.remove(key);
                    }
                    assert_eq!(next.is_some(), lease.is_some());
                    if let (Some(attempt), Some(lease)) = (next, lease) {
                        self.attempted(batch, key, *lease, attempt);
                    }
                }
                (command, outcome) => panic!("{outcome:?} is no answer to {command:?}"),
            }
        }
    }

    fn attempted(&mut self, batch: &Batch, key: &Key, lease: Lease, attempt: &Attempt) {
        match attempt {
            Attempt::Granted(grant) => {
                assert!(grant.token > self.newest, "tokens only grow");
                self.newest = grant.token;
                let end_min = u128::from(batch.stamp.0) + u128::from(lease.nanos());
                let before = self.held.insert(key.clone(), (grant.token, end_min));
                assert_eq!(before, None, "{key} is held twice");
            }
            Attempt::Held(grant) => {
                assert_eq!(
                    self.held.get(key).map(|(token, _)| *token),
                    Some(grant.token)
                );
            }
            Attempt::KeysFull | Attempt::TokensExhausted => {
                assert!(!self.held.contains_key(key));
            }
        }
        assert!(self.held.len() <= ACTIVE_KEYS_MAX as usize);
    }
}

/// A table's bytes.
fn bytes(table: &LockTable) -> Vec<u8> {
    table.image().encode()
}

/// Applies all of `log`; the outcomes.
fn play(table: &mut LockTable, log: &[Batch]) -> Vec<Applied> {
    log.iter().map(|batch| table.apply(batch)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn the_table_answers_as_the_model_and_keeps_its_promises(intents in logs()) {
        let mut table = LockTable::new(ACTIVE_KEYS_MAX);
        let mut model = Model::new();
        let mut witness = Witness::default();
        for batch in written(intents) {
            let applied = table.apply(&batch);
            witness.observe(&batch, &applied);
            prop_assert_eq!(applied, model.apply(&batch));
            let mut held = model.locks.clone();
            held.sort_by_key(|(_, grant)| grant.token);
            let held: Vec<Lock> =
                held.into_iter().map(|(key, grant)| Lock { key, grant }).collect();
            prop_assert_eq!(table.held(), held);
            let next = model.locks.iter().map(|(_, grant)| grant.deadline).min();
            prop_assert_eq!(table.next_deadline(), next);
            prop_assert_eq!(table.active_keys(), model.locks.len());
            prop_assert_eq!(table.tokens_granted(), model.tokens);
        }
    }

    #[test]
    fn the_same_log_gives_the_same_bytes_and_hash(intents in logs()) {
        let log = written(intents);
        let (mut one, mut two) = (LockTable::new(ACTIVE_KEYS_MAX), LockTable::new(ACTIVE_KEYS_MAX));
        for batch in &log {
            prop_assert_eq!(one.apply(batch), two.apply(batch));
            prop_assert_eq!(bytes(&one), bytes(&two));
            prop_assert_eq!(one.state_hash(), two.state_hash());
        }
    }

    #[test]
    fn different_tables_have_different_hashes(intents in logs()) {
        let mut table = LockTable::new(ACTIVE_KEYS_MAX);
        let mut seen = BTreeMap::from([(table.state_hash(), bytes(&table))]);
        for batch in written(intents) {
            table.apply(&batch);
            let known = seen.entry(table.state_hash()).or_insert_with(|| bytes(&table));
            prop_assert_eq!(&*known, &bytes(&table));
        }
    }

    #[test]
    fn a_snapshot_and_the_tail_are_the_full_replay(
        intents in logs(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let log = written(intents);
        let (head, tail) = log.split_at(cut.index(log.len() + 1));
        let mut full = LockTable::new(ACTIVE_KEYS_MAX);
        play(&mut full, head);
        let mut restored = LockTable::decode(&bytes(&full)).unwrap();
        prop_assert_eq!(restored.state_hash(), full.state_hash());
        prop_assert_eq!(restored.next_deadline(), full.next_deadline());
        prop_assert_eq!(play(&mut restored, tail), play(&mut full, tail));
        prop_assert_eq!(bytes(&restored), bytes(&full));
        prop_assert_eq!(restored.state_hash(), full.state_hash());
    }

    #[test]
    fn the_heap_stays_within_twice_the_locks_and_a_constant(
        hand_overs in 0..2_000u64,
        batch_length in 1..50u64,
    ) {
        let mut table = LockTable::new(ACTIVE_KEYS_MAX);
        // It ends first, so the stale entries never come to the top, where they would be dropped.
        let pinned = Command::Acquire { key: key_of(1), lease: lease_of(1) };
        table.apply(&Batch { origin: 1, sequence: 1, stamp: Stamp(0), commands: vec![pinned] });
        for sequence in 0..hand_overs / batch_length {
            let newest = table.tokens_granted();
            let hand_over = |token| Command::Release {
                key: key_of(0),
                token: Token(token),
                next: Some(lease_of(250)),
            };
            let commands = (newest..newest + batch_length).map(hand_over).collect();
            table.apply(&Batch { origin: 1, sequence, stamp: Stamp(0), commands });
            prop_assert_eq!(table.tokens_granted(), newest + batch_length);
            let (entries, live) = (table.deadlines.len(), table.active_keys());
            prop_assert!(entries <= live + 64, "{entries} entries for {live} locks");
        }
    }

    #[test]
    fn random_bytes_never_make_the_decoder_panic(mut noise: Vec<u8>) {
        let _ = LockTable::decode(&noise);
        noise.insert(0, 1);
        prop_assert!(LockTable::decode(&sealed(noise)).is_err());
    }

    #[test]
    fn a_changed_snapshot_is_refused(
        intents in logs(),
        at in any::<proptest::sample::Index>(),
        flip in 1..=255u8,
    ) {
        let mut table = LockTable::new(ACTIVE_KEYS_MAX);
        play(&mut table, &written(intents));
        let mut snapshot = bytes(&table);
        let at = at.index(snapshot.len());
        snapshot[at] ^= flip;
        prop_assert!(LockTable::decode(&snapshot).is_err());
        prop_assert!(LockTable::decode(&snapshot[..at]).is_err());
    }

    #[test]
    fn a_forged_snapshot_is_refused_or_is_a_possible_table(
        intents in logs(),
        at in any::<proptest::sample::Index>(),
        value: u8,
        then in logs(),
    ) {
        let mut table = LockTable::new(ACTIVE_KEYS_MAX);
        play(&mut table, &written(intents));
        let mut body = bytes(&table);
        body.truncate(body.len() - 4);
        let at = at.index(body.len());
        body[at] = value;
        let forged = sealed(body);
        if let Ok(mut table) = LockTable::decode(&forged) {
            prop_assert_eq!(bytes(&table), forged);
            // It goes on without a panic.
            play(&mut table, &written(then));
        }
    }
}

/// Adds the checksum that belongs to these bytes.
fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    let checksum = crc32fast::hash(&body);
    body.extend_from_slice(&checksum.to_le_bytes());
    body
}
