//! When nothing was being broken: promises about time without faults hold only then.
//!
//! A fault disturbs from its beginning until [`SETTLE_NS`] after its end, a change of leader that
//! much before and after it is seen.

use crate::history::{History, S};

/// How long after a fault all is as before: elections, reconnecting clients and nodes that catch
/// up, in nanoseconds.
const SETTLE_NS: u64 = 5 * S;

/// The times that were disturbed, in order, not overlapping.
pub(super) struct Calm {
    disturbed: Vec<(u64, u64)>,
}

impl Calm {
    pub(super) fn of(history: &History) -> Self {
        let faults = history
            .faults
            .iter()
            .map(|fault| (fault.began, fault.ended.saturating_add(SETTLE_NS)));
        let leaders = history
            .leaders
            .iter()
            .map(|(at, _)| (at.saturating_sub(SETTLE_NS), at + SETTLE_NS));
        let mut times: Vec<(u64, u64)> = faults.chain(leaders).collect();
        times.sort_unstable();
        let mut disturbed: Vec<(u64, u64)> = Vec::new();
        for (from, to) in times {
            match disturbed.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(*end),
                _ => disturbed.push((from, to)),
            }
        }
        Self { disturbed }
    }

    /// Whether nothing was disturbed from `from` to `to`.
    pub(super) fn holds(&self, from: u64, to: u64) -> bool {
        let next = self.disturbed.partition_point(|(_, end)| *end < from);
        self.disturbed
            .get(next)
            .is_none_or(|(begin, _)| *begin > to)
    }

    /// Since when it has been calm at `at`; 0 if nothing happened before.
    pub(super) fn since(&self, at: u64) -> u64 {
        let next = self.disturbed.partition_point(|(_, end)| *end < at);
        next.checked_sub(1).map_or(0, |last| self.disturbed[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::MS;
    use crate::history::build::Build;

    #[test]
    fn faults_disturb_until_they_are_over_and_all_has_settled() {
        let history = Build::default()
            .fault("kill", "a", None, (10_000, 12_000), 1)
            .fault("kill", "a", None, (11_000, 11_500), 1)
            .fault("kill", "a", None, (40_000, 41_000), 1)
            .history();
        let calm = Calm::of(&history);
        assert!(calm.holds(0, 9_999 * MS));
        assert!(!calm.holds(0, 10_000 * MS));
        assert!(!calm.holds(17_000 * MS, 18_000 * MS));
        assert!(calm.holds(17_001 * MS, 39_000 * MS));
        assert_eq!(calm.since(5 * MS), 0);
        assert_eq!(calm.since(20_000 * MS), 17_000 * MS);
    }
}
