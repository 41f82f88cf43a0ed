//! A token is never granted twice, and tokens grow: if one grant's answer came before another
//! grant's call, its token is smaller. Over all keys, all nodes and all restarts.
//!
//! Sound, because a token is drawn between an acquire's call and its answer: two grants of which
//! one was answered before the other was asked for drew in that order.

use std::collections::BTreeMap;

use super::Violation;
use crate::history::{Grant, History};

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut violations = repeated(history);
    violations.extend(out_of_order(history));
    violations
}

fn repeated(history: &History) -> Vec<Violation> {
    let mut seen: BTreeMap<u64, Grant<'_>> = BTreeMap::new();
    let mut violations = Vec::new();
    for grant in history.grants() {
        if let Some(first) = seen.insert(grant.token, grant) {
            let text = format!("token {} was granted twice", grant.token);
            let ops = [first.op, grant.op];
            violations.push(Violation::at_key(grant.key, grant.op.ended, &ops, text));
        }
    }
    violations
}

fn out_of_order(history: &History) -> Vec<Violation> {
    let mut answered: Vec<Grant<'_>> = history.grants().collect();
    answered.sort_by_key(|grant| grant.op.ended);
    let mut answered = answered.into_iter().peekable();
    let mut greatest: Option<Grant<'_>> = None;
    let mut violations = Vec::new();
    // Grants come in order of their calls.
    for grant in history.grants() {
        while let Some(earlier) = answered.next_if(|earlier| earlier.op.ended < grant.op.called) {
            if greatest.is_none_or(|greatest| earlier.token > greatest.token) {
                greatest = Some(earlier);
            }
        }
        if let Some(greatest) = greatest
            && greatest.token > grant.token
        {
            let ops = [greatest.op, grant.op];
            let text = "a later grant has the smaller token";
            violations.push(Violation::at_key(grant.key, grant.op.ended, &ops, text));
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
    fn growing_tokens_are_fine() {
        let build = Build::default()
            .grant("a", 1, 0, 5, 1)
            .grant("b", 1, 6, 9, 2);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn calls_that_overlap_may_draw_in_any_order() {
        let build = Build::default()
            .grant("a", 1, 0, 5, 2)
            .grant("b", 1, 4, 9, 1);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn a_token_twice_is_found_on_other_keys_as_well() {
        let build = Build::default()
            .grant("a", 1, 0, 9, 7)
            .grant("b", 1, 1, 8, 7);
        assert_eq!(count(build), 1);
    }

    #[test]
    fn a_smaller_token_later_is_found_on_other_keys_as_well() {
        let build = Build::default()
            .grant("a", 1, 0, 5, 9)
            .grant("b", 1, 1, 6, 3)
            .grant("c", 1, 6, 8, 8);
        assert_eq!(count(build), 1);
    }
}
