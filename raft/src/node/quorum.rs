//! Counting nodes: what makes a majority, and in which order nodes act.
//!
//! Pure functions on node ids. A membership is one set of voters, or two while it is *joint*; a
//! decision then needs a majority of each of them, because either may be the one that survives.

use std::collections::BTreeSet;

/// Voters of a membership: one set, or two while it is joint.
pub(super) type Configs = Vec<BTreeSet<u64>>;

/// True if `agreeing` holds a majority of every configuration. An empty membership decides nothing.
pub(super) fn is_majority(configs: &[BTreeSet<u64>], agreeing: &BTreeSet<u64>) -> bool {
    !configs.is_empty()
        && configs.iter().all(|voters| {
            let yes = voters.intersection(agreeing).count();
            yes * 2 > voters.len()
        })
}

/// Every voter of every configuration.
pub(super) fn voters(configs: &[BTreeSet<u64>]) -> BTreeSet<u64> {
    configs.iter().flatten().copied().collect()
}

/// How many voters go before `own` when all but `lost` act in order of their ids.
pub(super) fn rank(configs: &[BTreeSet<u64>], own: u64, lost: u64) -> u32 {
    let before = voters(configs)
        .into_iter()
        .filter(|&id| id < own && id != lost)
        .count();
    u32::try_from(before).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[u64]) -> BTreeSet<u64> {
        ids.iter().copied().collect()
    }

    #[test]
    fn two_of_three_are_a_majority_and_one_is_not() {
        let configs = vec![set(&[1, 2, 3])];
        assert!(is_majority(&configs, &set(&[1, 2])));
        assert!(!is_majority(&configs, &set(&[1])));
    }

    #[test]
    fn half_of_four_is_no_majority() {
        let configs = vec![set(&[1, 2, 3, 4])];
        assert!(!is_majority(&configs, &set(&[1, 2])));
        assert!(is_majority(&configs, &set(&[1, 2, 4])));
    }

    #[test]
    fn who_is_no_voter_does_not_count() {
        let configs = vec![set(&[1, 2, 3])];
        assert!(!is_majority(&configs, &set(&[1, 8, 9])));
    }

    #[test]
    fn joint_membership_needs_a_majority_of_each_configuration() {
        let configs = vec![set(&[1, 2, 3]), set(&[3, 4, 5])];
        assert!(!is_majority(&configs, &set(&[1, 2])));
        assert!(!is_majority(&configs, &set(&[4, 5])));
        assert!(is_majority(&configs, &set(&[1, 3, 4])));
        assert!(is_majority(&configs, &set(&[1, 2, 4, 5])));
    }

    #[test]
    fn without_members_nothing_is_decided() {
        assert!(!is_majority(&[], &set(&[1])));
        assert!(!is_majority(&[set(&[])], &set(&[1])));
    }

    #[test]
    fn rank_counts_smaller_voters_without_the_lost_one() {
        let configs = vec![set(&[10, 20, 30]), set(&[20, 30, 40])];
        assert_eq!(rank(&configs, 10, 20), 0);
        assert_eq!(rank(&configs, 30, 20), 1);
        assert_eq!(rank(&configs, 40, 20), 2);
    }
}
