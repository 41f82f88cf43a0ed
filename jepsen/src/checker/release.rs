//! A token is released with `R` at most once, only under the key that it was granted for, and never
//! when another grant of that key is known already: a stale token frees nobody.
//!
//! Sound, because `R` says that the token was the key's current one until then, and a token is
//! current once. A call of which nobody knows the end is not an `R`.

use std::collections::BTreeMap;

use super::Violation;
use crate::history::{Answer, Call, Grant, History, Operation, Outcome};

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut granted: BTreeMap<u64, Grant<'_>> = BTreeMap::new();
    let mut by_key: BTreeMap<&str, BTreeMap<u64, Grant<'_>>> = BTreeMap::new();
    for grant in history.grants() {
        granted.insert(grant.token, grant);
        by_key
            .entry(grant.key)
            .or_default()
            .insert(grant.token, grant);
    }
    let mut released: BTreeMap<(&str, u64), &Operation> = BTreeMap::new();
    let mut violations = Vec::new();
    for operation in &history.operations {
        let Call::Release { key, token, .. } = &operation.call else {
            continue;
        };
        if operation.outcome != Outcome::Ok(Answer::Released) {
            continue;
        }
        let mut blame = |other: &Operation, text: &str| {
            let ops = [other, operation];
            violations.push(Violation::at_key(key, operation.ended, &ops, text));
        };
        if let Some(first) = released.insert((key, *token), operation) {
            blame(first, "a token was released twice");
        }
        if let Some(grant) = granted.get(token)
            && grant.key != key
        {
            blame(grant.op, "a token was released under another key");
        }
        let newer = by_key.get(key.as_str()).and_then(|grants| {
            let mut newer = grants.range(token + 1..);
            newer.find(|(_, grant)| grant.op.ended < operation.called)
        });
        if let Some((_, newer)) = newer {
            blame(newer.op, "a stale token released something");
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::build::Build;

    fn count(build: Build) -> usize {
        check(&build.history()).len()
    }

    #[test]
    fn one_release_and_many_refusals_are_fine() {
        let build = Build::default()
            .grant("k", 10, 0, 5, 1)
            .released("k", 1, 10, 20)
            .not_current("k", 1, 11, 21)
            .release_lost("k", 1, 12, 22)
            .not_current("k", 99, 12, 22);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn a_second_release_is_found() {
        let build = Build::default()
            .grant("k", 10, 0, 5, 1)
            .released("k", 1, 10, 20)
            .released("k", 1, 10, 21);
        assert_eq!(count(build), 1);
    }

    #[test]
    fn a_release_under_another_key_is_found() {
        let build = Build::default()
            .grant("a", 10, 0, 5, 1)
            .released("b", 1, 10, 20);
        assert_eq!(count(build), 1);
    }

    #[test]
    fn a_stale_release_is_found() {
        let build = Build::default()
            .grant("k", 1, 0, 5, 1)
            .grant("k", 10, 6, 1_100, 2)
            .released("k", 1, 1_200, 1_210);
        assert_eq!(count(build), 1);
    }
}
