//! Each key is a linearizable fenced mutex: there is one order of everything that was done to it,
//! every call having its place between its call and its end, in which a plain mutex would have
//! answered the same.
//!
//! The search is Wing and Gong's with Lowe's memory, just in time: it goes through the calls and
//! ends in order of time and keeps the set of all [`Configuration`]s that explain what was answered
//! so far. Where a call ends, each configuration must have given it a place; those that can't are
//! dropped, and a key whose set becomes empty is not linearizable. Only calls under way are
//! remembered, so the window is as wide as the clients are many, however long the run. (Keys are
//! independent: linearizability is local.)
//!
//! # The mutex
//!
//! - `acquire → A(t)`: free → held by t. Tokens grow, so the grants of a key have their places in
//!   order of token.
//! - `acquire → T` with wait 0: the key is held. (After a wait, `T` says nothing about the key.)
//! - `release(t) → R`: held by t → free. `→ N`: not held by t.
//! - hidden `expire(t)`: held by t → free; legal only after t's acquire was called plus its lease.
//! - A release of t of unknown outcome may free t at any time after its call, for ever. So may a
//!   release of the official client that came to `N`: it retries, and its first try may have been
//!   the one.
//! - An acquire of unknown outcome may take the key once, at any time after its call, under a token
//!   that nobody knows, and give it back at any time (its lease, or the server when nobody is
//!   there). It never counts as failed.
//!
//! # What keeps the search small
//!
//! Answers that only look (`T`, `N`) change nothing, so each gets its place as soon as one is
//! legal. A free key is taken by an unknown acquire only where somebody needs it to be held.
//! Unknown acquires are told apart by nothing but their calls, so it is enough to count how many
//! were used.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use crate::history::{Answer, By, Call, Doubt, Grant, History, OpId, Operation, Outcome, Refusal};

/// Configurations of one key that are kept. Some ten are usual; more than this says that the model
/// is at fault, not the service, and the key is reported as such.
const CONFIGURATIONS_MAX: usize = 20_000;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let keys = history.by_key();
    keys.iter()
        .filter_map(|(key, operations)| Search::new(operations).run(key))
        .collect()
}

/// Who has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Nobody,
    Token(u64),
    /// An acquire of unknown outcome.
    Unknown,
}

/// One explanation of what was answered so far.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Configuration {
    holder: Holder,
    /// How many of the key's known grants have their place.
    granted: usize,
    /// How many acquires of unknown outcome have one.
    unknown: usize,
    /// The calls under way that have one.
    placed: BTreeSet<OpId>,
}

/// What a call says about the key.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    Takes(u64),
    Frees(u64),
    FindsHeld,
    FindsNot(u64),
}

/// A moment of the key's history.
enum Moment<'a> {
    /// A call that is answered later.
    Call(&'a Operation, Meaning),
    /// From now on the token's grant may end without a word.
    MayEnd(u64),
    /// An acquire whose outcome nobody knows.
    Unknown,
    /// The answer.
    End(&'a Operation),
}

struct Search<'a> {
    /// In order of time; calls come before ends of the same moment.
    moments: Vec<(u64, u8, Moment<'a>)>,
    /// The tokens of the key's known grants, in order.
    tokens: Vec<u64>,
    under_way: BTreeMap<OpId, Meaning>,
    may_end: BTreeSet<u64>,
    unknown: usize,
    configurations: BTreeSet<Configuration>,
}

impl<'a> Search<'a> {
    fn new(operations: &[&'a Operation]) -> Self {
        let mut moments = Vec::new();
        let mut tokens = Vec::new();
        for operation in operations {
            let (at, end) = (operation.called, operation.ended);
            if let Some(grant) = operation.grant() {
                tokens.push(grant.token);
                moments.push((lease_end(grant), 0, Moment::MayEnd(grant.token)));
            }
            if let Some(token) = may_free(operation) {
                moments.push((at, 0, Moment::MayEnd(token)));
            }
            if is_unknown_acquire(operation) {
                moments.push((at, 0, Moment::Unknown));
            }
            if let Some(meaning) = meaning(operation) {
                moments.push((at, 0, Moment::Call(operation, meaning)));
                moments.push((end, 1, Moment::End(operation)));
            }
        }
        moments.sort_by_key(|(at, rank, _)| (*at, *rank));
        tokens.sort_unstable();
        let start = Configuration {
            holder: Holder::Nobody,
            granted: 0,
            unknown: 0,
            placed: BTreeSet::new(),
        };
        Self {
            moments,
            tokens,
            under_way: BTreeMap::new(),
            may_end: BTreeSet::new(),
            unknown: 0,
            configurations: BTreeSet::from([start]),
        }
    }

    fn run(mut self, key: &str) -> Option<Violation> {
        for (at, _, moment) in std::mem::take(&mut self.moments) {
            match moment {
                Moment::Call(operation, meaning) => {
                    self.under_way.insert(operation.id, meaning);
                }
                Moment::MayEnd(token) => {
                    self.may_end.insert(token);
                }
                Moment::Unknown => self.unknown += 1,
                Moment::End(operation) => {
                    let before = self.configurations.clone();
                    if !self.end(operation.id) {
                        let text = format!("more than {CONFIGURATIONS_MAX} explanations");
                        return Some(Violation::at_key(key, at, &[operation], text));
                    }
                    if self.configurations.is_empty() {
                        let holders: BTreeSet<String> = before
                            .iter()
                            .map(|known| format!("{:?}", known.holder))
                            .collect();
                        let holders: Vec<String> = holders.into_iter().collect();
                        let text = format!(
                            "no order explains this answer (the holder may have been {})",
                            holders.join(" or ")
                        );
                        return Some(Violation::at_key(key, at, &[operation], text));
                    }
                }
            }
        }
        None
    }

    /// Keeps the configurations in which `op` has its place, going on from those in which it has
    /// none yet. False when there are too many.
    fn end(&mut self, op: OpId) -> bool {
        let mut open: Vec<Configuration> = std::mem::take(&mut self.configurations)
            .into_iter()
            .map(|known| self.look(known))
            .collect();
        let mut seen: BTreeSet<Configuration> = open.iter().cloned().collect();
        while let Some(mut known) = open.pop() {
            if known.placed.remove(&op) {
                self.configurations.insert(known);
                continue;
            }
            for next in self.steps(&known) {
                let next = self.look(next);
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
            if seen.len() > CONFIGURATIONS_MAX {
                return false;
            }
        }
        self.under_way.remove(&op);
        true
    }

    /// Gives every call its place that only looks and finds what it said.
    fn look(&self, mut known: Configuration) -> Configuration {
        for (op, meaning) in &self.under_way {
            let true_now = match meaning {
                Meaning::FindsHeld => known.holder != Holder::Nobody,
                Meaning::FindsNot(token) => known.holder != Holder::Token(*token),
                Meaning::Takes(_) | Meaning::Frees(_) => false,
            };
            if true_now {
                known.placed.insert(*op);
            }
        }
        known
    }

    /// What may happen next.
    fn steps(&self, known: &Configuration) -> Vec<Configuration> {
        let mut steps = Vec::new();
        let mut step = |holder, placed: Option<OpId>, granted, unknown| {
            let mut next = Configuration {
                holder,
                granted,
                unknown,
                placed: known.placed.clone(),
            };
            next.placed.extend(placed);
            steps.push(next);
        };
        let (granted, unknown) = (known.granted, known.unknown);
        let waiting = self
            .under_way
            .iter()
            .filter(|(op, _)| !known.placed.contains(op));
        match known.holder {
            Holder::Nobody => {
                let mut wanted_held = false;
                for (op, meaning) in waiting {
                    match meaning {
                        Meaning::Takes(token) if self.tokens.get(granted) == Some(token) => {
                            step(Holder::Token(*token), Some(*op), granted + 1, unknown);
                        }
                        Meaning::FindsHeld => wanted_held = true,
                        _ => {}
                    }
                }
                if wanted_held && unknown < self.unknown {
                    step(Holder::Unknown, None, granted, unknown + 1);
                }
            }
            Holder::Token(token) => {
                for (op, meaning) in waiting {
                    if matches!(meaning, Meaning::Frees(freed) if *freed == token) {
                        step(Holder::Nobody, Some(*op), granted, unknown);
                    }
                }
                if self.may_end.contains(&token) {
                    step(Holder::Nobody, None, granted, unknown);
                }
            }
            Holder::Unknown => step(Holder::Nobody, None, granted, unknown),
        }
        steps
    }
}

fn lease_end(grant: Grant<'_>) -> u64 {
    grant.op.called.saturating_add(grant.lease)
}

/// The token that a release may free although it was not answered with `R`.
fn may_free(operation: &Operation) -> Option<u64> {
    let Call::Release { token, by, .. } = operation.call else {
        return None;
    };
    let may = match operation.outcome {
        Outcome::Info(_) => true,
        Outcome::Ok(Answer::NotCurrent) => by == By::Official,
        Outcome::Ok(_) | Outcome::Fail(_) => false,
    };
    may.then_some(token)
}

fn is_unknown_acquire(operation: &Operation) -> bool {
    matches!(
        (&operation.call, operation.outcome),
        (Call::Acquire { .. }, Outcome::Info(_))
    )
}

/// What an answered call says about the key; `None`: nothing.
fn meaning(operation: &Operation) -> Option<Meaning> {
    match (&operation.call, operation.outcome) {
        (Call::Acquire { .. }, Outcome::Ok(Answer::Granted { token, .. })) => {
            Some(Meaning::Takes(token))
        }
        (
            Call::Acquire {
                wait_s: 0,
                by: By::Raw,
                ..
            },
            Outcome::Fail(Refusal::TimedOut),
        ) => Some(Meaning::FindsHeld),
        (Call::Release { token, .. }, Outcome::Ok(Answer::Released)) => {
            Some(Meaning::Frees(*token))
        }
        (Call::Release { token, .. }, Outcome::Ok(Answer::NotCurrent)) => {
            Some(Meaning::FindsNot(*token))
        }
        // An open call is never counted as failed.
        (_, Outcome::Info(Doubt::Open) | _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::build::Build;

    fn count(build: Build) -> usize {
        check(&build.history()).len()
    }

    #[test]
    fn a_plain_mutex_is_fine() {
        let build = Build::default()
            .grant("k", 10, 0, 5, 1)
            .refused("k", 0, 6, 8, Refusal::TimedOut)
            .released("k", 1, 10, 20)
            .grant("k", 10, 15, 18, 2)
            .not_current("k", 1, 30, 40)
            .released("k", 2, 50, 60);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn a_lease_ends_only_when_it_is_over() {
        let second = |answered| {
            Build::default()
                .grant("k", 1, 0, 5, 1)
                .grant("k", 1, 6, answered, 2)
        };
        assert_eq!(count(second(1_000)), 0);
        assert_eq!(count(second(999)), 1);
    }

    #[test]
    fn a_release_frees_only_after_its_call() {
        let build = Build::default()
            .grant("k", 10, 0, 5, 1)
            .grant("k", 10, 6, 9, 2)
            .released("k", 1, 10, 20);
        assert_eq!(count(build), 1);
    }

    #[test]
    fn a_release_that_frees_what_is_over_is_found() {
        // The second grant shows that the first one had ended by its lease.
        let build = Build::default()
            .grant("k", 1, 0, 5, 1)
            .grant("k", 9, 6, 1_100, 2)
            .released("k", 1, 1_200, 1_300);
        assert_eq!(count(build), 1);
    }

    #[test]
    fn a_refused_release_of_the_current_token_is_found() {
        let build = Build::default()
            .grant("k", 10, 0, 5, 1)
            .not_current("k", 1, 10, 20);
        assert_eq!(count(build), 1);
        let official = Build::default().grant("k", 10, 0, 5, 1).release(
            By::Official,
            "k",
            1,
            (10, 20),
            Answer::NotCurrent,
        );
        assert_eq!(count(official), 0);
    }

    #[test]
    fn a_try_on_a_free_key_must_not_find_it_held() {
        let build = Build::default().refused("k", 0, 10, 20, Refusal::TimedOut);
        assert_eq!(count(build), 1);
        let build = Build::default()
            .refused("k", 5, 0, 5, Refusal::Moved)
            .refused("k", 0, 10, 20, Refusal::TimedOut);
        assert_eq!(count(build), 1);
    }

    #[test]
    fn an_acquire_of_unknown_outcome_explains_one_time_of_being_held() {
        let held = |build: Build, at| build.refused("k", 0, at, at + 5, Refusal::TimedOut);
        let build = Build::default().doubt("k", 10, 0, 5, Doubt::Lost);
        let build = held(held(build, 10), 20);
        assert_eq!(count(build), 0);
        let build = Build::default().doubt("k", 10, 0, 5, Doubt::Lost);
        let build = held(build, 10).grant("k", 10, 20, 25, 1);
        let build = held(build.released("k", 1, 30, 35), 40);
        assert_eq!(count(build), 1);
    }

    #[test]
    fn an_open_call_is_never_counted_as_failed() {
        let build =
            Build::default()
                .open("k", 10, 0)
                .refused("k", 0, 9_000, 9_010, Refusal::TimedOut);
        assert_eq!(count(build), 0);
        let release = Build::default()
            .grant("k", 60, 0, 5, 1)
            .release_lost("k", 1, 10, 20)
            .grant("k", 10, 8_000, 8_010, 2);
        assert_eq!(count(release), 0);
    }

    #[test]
    fn grants_have_their_places_in_order_of_token() {
        let build = Build::default()
            .grant("k", 10, 0, 100, 2)
            .released("k", 2, 101, 102)
            .grant("k", 10, 103, 110, 1);
        assert_eq!(count(build), 1);
    }

    #[test]
    fn calls_that_overlap_may_have_any_order() {
        let build = Build::default()
            .grant("k", 10, 0, 100, 2)
            .grant("k", 10, 0, 90, 1)
            .released("k", 1, 91, 120)
            .refused("k", 0, 1, 2, Refusal::TimedOut)
            .not_current("k", 2, 1, 99);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn many_clients_at_once_are_judged() {
        let mut build = Build::default();
        for token in 1..=60 {
            build = build.grant("k", 10, 0, 10 * token, token);
            build = build.released("k", token, 10 * token, 10 * token + 5);
            build = build.doubt("k", 10, 10 * token, 10 * token + 1, Doubt::Lost);
        }
        assert_eq!(count(build), 0);
    }
}
