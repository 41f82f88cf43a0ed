//! A node never ends by itself, whatever the network, its peers, its clients or its wall clock do,
//! and never panics.
//!
//! (What a node may die of is a disk that fails: then the harness notes no death.)

use super::Violation;
use crate::history::History;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let blame = |(at, node, how): &(u64, String, String)| {
        Violation::general(*at, format!("node {node} ended by itself: {how}"))
    };
    history.deaths.iter().map(blame).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::build::Build;

    #[test]
    fn a_death_is_found() {
        assert_eq!(check(&Build::default().died(5, "a").history()).len(), 1);
        let killed = Build::default().fault("kill", "a", None, (1, 2), 1);
        assert_eq!(check(&killed.history()), []);
    }
}
