//! The register that checks tokens loses no update: each value that it took is one more than the
//! one before. This is fencing as users do it, read, think, write, with work that sometimes
//! outlives its lease.
//!
//! The same without the check must lose some, or the faults did not bite: see [`lost`], which
//! [`validity`](super::validity) asks.

use std::collections::BTreeMap;

use super::Violation;
use crate::history::{Access, History};

pub(super) fn check(history: &History) -> Vec<Violation> {
    lost(history, true)
        .into_iter()
        .map(|(at, access, before)| {
            let text = format!(
                "register {} lost an update: {} was written under token {} over {before}",
                access.name, access.value, access.token
            );
            Violation::general(at, text)
        })
        .collect()
}

/// Writes that were taken and are not one more than what was there: when, which, and what was
/// there.
pub(super) fn lost(history: &History, fenced: bool) -> Vec<(u64, &Access, u64)> {
    let mut values: BTreeMap<&str, u64> = BTreeMap::new();
    let writes = history
        .accesses
        .iter()
        .filter(|(_, access)| access.fenced == fenced && access.write && access.accepted);
    writes
        .filter_map(|(at, access)| {
            let before = values.insert(&access.name, access.value).unwrap_or(0);
            (access.value != before + 1).then_some((*at, access, before))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::build::Build;

    fn write(fenced: bool, token: u64, value: u64, accepted: bool) -> Access {
        Access {
            fenced,
            name: "r".into(),
            write: true,
            token,
            value,
            accepted,
        }
    }

    #[test]
    fn one_more_each_time_is_fine() {
        let history = Build::default()
            .access(1, write(true, 1, 1, true))
            .access(2, write(true, 3, 2, true))
            .access(3, write(true, 2, 2, false))
            .history();
        assert_eq!(check(&history), []);
    }

    #[test]
    fn a_lost_update_is_found_only_behind_the_check() {
        let history = Build::default()
            .access(1, write(true, 1, 1, true))
            .access(2, write(true, 1, 1, true))
            .access(1, write(false, 1, 1, true))
            .access(2, write(false, 1, 1, true))
            .history();
        assert_eq!(check(&history).len(), 1);
        assert_eq!(lost(&history, false).len(), 1);
    }
}
