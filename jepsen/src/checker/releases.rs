//! The releases of one key, by token.

use std::collections::BTreeMap;

use crate::history::{Call, Operation, Outcome};

/// When each token's release was first called, and first answered, whatever the answer.
#[derive(Default)]
pub(super) struct Releases {
    called: BTreeMap<u64, u64>,
    answered: BTreeMap<u64, u64>,
}

impl Releases {
    pub(super) fn of(operations: &[&Operation]) -> Self {
        let mut releases = Self::default();
        for operation in operations {
            let Call::Release { token, .. } = operation.call else {
                continue;
            };
            let earlier = |times: &mut BTreeMap<u64, u64>, at: u64| {
                let first = times.entry(token).or_insert(at);
                *first = at.min(*first);
            };
            earlier(&mut releases.called, operation.called);
            if matches!(operation.outcome, Outcome::Ok(_)) {
                earlier(&mut releases.answered, operation.ended);
            }
        }
        releases
    }

    /// When a release of `token` was first called; `u64::MAX` if never.
    pub(super) fn called(&self, token: u64) -> u64 {
        self.called.get(&token).copied().unwrap_or(u64::MAX)
    }

    /// When a release of `token` was first answered; `u64::MAX` if never.
    pub(super) fn answered(&self, token: u64) -> u64 {
        self.answered.get(&token).copied().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::MS;
    use crate::history::build::Build;

    #[test]
    fn the_first_call_and_the_first_answer_count() {
        let history = Build::default()
            .release_lost("k", 1, 5, 9)
            .not_current("k", 1, 6, 30)
            .released("k", 1, 7, 20)
            .history();
        let releases = Releases::of(&history.by_key()["k"]);
        assert_eq!(releases.called(1), 5 * MS);
        assert_eq!(releases.answered(1), 20 * MS);
        assert_eq!(releases.called(2), u64::MAX);
    }
}
