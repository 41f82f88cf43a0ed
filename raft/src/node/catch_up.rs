//! Whether this node has what the cluster has committed.
//!
//! Fault answered: a node that counts as ready while it still replays or receives what it missed.
//! During a rolling update the next node would then be stopped too early, and the cluster be without
//! a quorum that has everything.
//!
//! A leader says in every message how far the log is committed. When contact to a leader begins (or
//! begins again), what it says first is the goal, and only when that is applied has this node caught
//! up. Under load the log goes on meanwhile, so that the newest word of the leader may never be
//! reached at the moment of a look; a lag of [`LAG_ENTRIES_MAX`] is therefore nothing to mention
//! for a node that had caught up, and one that is further behind has a new goal.

/// Entries that a node may be behind without being taken for one that catches up: about a second at
/// full load.
const LAG_ENTRIES_MAX: u64 = 4096;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct CatchUp {
    state: State,
}

#[derive(Debug, Default, PartialEq)]
enum State {
    /// Nobody says how far the log is committed.
    #[default]
    Blind,
    /// Everything up to this index has to be applied.
    Goal(u64),
    Done,
}

impl CatchUp {
    /// Takes a look: `committed` is what the leader says, `None` without a leader; `applied` is what
    /// this node has applied. Says whether it has caught up.
    pub(super) fn observe(&mut self, committed: Option<u64>, applied: Option<u64>) -> bool {
        let Some(committed) = committed else {
            self.state = State::Blind;
            return false;
        };
        if self.state == State::Blind {
            self.state = State::Goal(committed);
        }
        let behind = committed.saturating_sub(applied.unwrap_or(0)) > LAG_ENTRIES_MAX;
        let reached = match self.state {
            State::Goal(goal) => applied.is_some_and(|applied| applied >= goal),
            State::Blind | State::Done => true,
        };
        match (reached, behind) {
            (true, false) => self.state = State::Done,
            (true, true) => self.state = State::Goal(committed),
            (false, _) => {}
        }
        self.state == State::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_leader_nothing_is_known() {
        let mut node = CatchUp::default();
        assert!(!node.observe(None, Some(10)));
    }

    #[test]
    fn what_the_leader_says_first_has_to_be_applied_and_no_more() {
        let mut node = CatchUp::default();
        assert!(!node.observe(Some(10), None));
        assert!(!node.observe(Some(20), Some(9)));
        assert!(node.observe(Some(30), Some(10)));
        assert!(node.observe(Some(LAG_ENTRIES_MAX + 10), Some(10)));
    }

    #[test]
    fn a_node_that_falls_far_behind_has_to_catch_up_again() {
        let mut node = CatchUp::default();
        assert!(node.observe(Some(0), Some(0)));
        let far = LAG_ENTRIES_MAX + 1;
        assert!(!node.observe(Some(far), Some(0)));
        assert!(!node.observe(Some(far + 5), Some(far - 1)));
        assert!(node.observe(Some(far + 5), Some(far)));
    }

    #[test]
    fn a_leader_found_again_sets_a_new_goal() {
        let mut node = CatchUp::default();
        assert!(node.observe(Some(5), Some(5)));
        assert!(!node.observe(None, Some(5)));
        assert!(!node.observe(Some(8), Some(7)));
        assert!(node.observe(Some(9), Some(8)));
    }
}
