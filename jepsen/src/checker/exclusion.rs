//! No two hold a key at once. For grants t1 < t2 of a key, t2's answer is not before the end of t1:
//! the call of t1's release, or, if that is later or never, the end of its lease, counted from the
//! call of its acquire. For a grant of the official client the lease ends when the ticket says so
//! (`valid_until`), which is later: that is the promise that users build on.
//!
//! Sound, because a lease is counted from the grant, which is not before the acquire's call, and a
//! grant is answered after it was made. The ticket's end is counted from a moment that is surely
//! not after the grant. No tolerance: all moments are of one clock, the one that servers count
//! with.

use super::Violation;
use super::releases::Releases;
use crate::history::{Grant, History, Operation};

pub(super) fn check(history: &History) -> Vec<Violation> {
    let keys = history.by_key();
    keys.iter()
        .flat_map(|(key, operations)| overlaps(key, operations))
        .collect()
}

fn overlaps(key: &str, operations: &[&Operation]) -> Vec<Violation> {
    let mut grants: Vec<Grant<'_>> = operations.iter().filter_map(|op| op.grant()).collect();
    grants.sort_by_key(|grant| grant.token);
    let releases = Releases::of(operations);
    let mut latest: Option<(u64, Grant<'_>)> = None;
    let mut violations = Vec::new();
    for grant in grants {
        if let Some((end, holder)) = latest
            && grant.op.ended < end
            && holder.token != grant.token
        {
            let text = format!("granted {} early", super::ms(end - grant.op.ended));
            let ops = [holder.op, grant.op];
            violations.push(Violation::at_key(key, grant.op.ended, &ops, text));
        }
        let end = end_of(grant, &releases);
        if latest.is_none_or(|(latest, _)| end > latest) {
            latest = Some((end, grant));
        }
    }
    violations
}

/// Until when `grant` excludes all others.
fn end_of(grant: Grant<'_>, releases: &Releases) -> u64 {
    let lease_end = grant.op.called + grant.lease;
    let held_until = grant
        .valid_until
        .map_or(lease_end, |until| until.max(lease_end));
    held_until.min(releases.called(grant.token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::build::Build;

    fn count(build: Build) -> usize {
        check(&build.history()).len()
    }

    #[test]
    fn one_after_the_other_is_fine() {
        let build = Build::default()
            .grant("k", 10, 0, 5, 1)
            .released("k", 1, 20, 30)
            .grant("k", 10, 1, 25, 2)
            .grant("k", 10, 3, 10_001, 3);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn other_keys_do_not_exclude() {
        let build = Build::default()
            .grant("a", 10, 0, 5, 1)
            .grant("b", 10, 0, 5, 2);
        assert_eq!(count(build), 0);
    }

    #[test]
    fn an_answer_within_the_lease_is_found() {
        let build = Build::default()
            .grant("k", 10, 0, 5, 1)
            .grant("k", 10, 1, 9_999, 2);
        assert_eq!(count(build), 1);
    }

    #[test]
    fn an_answer_before_the_release_was_called_is_found() {
        let build = Build::default()
            .grant("k", 10, 0, 5, 1)
            .grant("k", 10, 1, 19, 2)
            .released("k", 1, 20, 30);
        assert_eq!(count(build), 1);
    }

    #[test]
    fn the_holder_need_not_be_the_one_right_before() {
        let build = Build::default()
            .grant("k", 10, 0, 5, 1)
            .grant("k", 1, 1, 10_001, 2)
            .released("k", 2, 10_002, 10_003)
            .grant("k", 60, 10_003, 10_010, 3)
            .grant("k", 1, 10_004, 70_004, 4)
            .released("k", 4, 70_005, 70_006);
        assert_eq!(count(build), 0);
        let build = Build::default()
            .grant("k", 60, 0, 5, 1)
            .grant("k", 1, 0, 60_000, 2)
            .released("k", 2, 4, 5)
            .grant("k", 1, 2, 30_000, 3);
        assert_eq!(count(build), 1);
    }

    #[test]
    fn a_ticket_holds_until_it_says() {
        let early = Build::default()
            .ticket("k", 10, (0, 4_000), 1, 13_000)
            .grant("k", 10, 1, 12_999, 2);
        assert_eq!(count(early), 1);
        let right = Build::default()
            .ticket("k", 10, (0, 4_000), 1, 13_000)
            .grant("k", 10, 1, 13_000, 2);
        assert_eq!(count(right), 0);
    }
}
