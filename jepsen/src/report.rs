//! What came of a run: a verdict for machines and one for people, and a timeline for each
//! violation.

mod timeline;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::checker::{self, Violation};
use crate::error::Error;
use crate::history::{Call, Doubt, History, Outcome, RunInfo, S};

/// The verdict for machines.
const VERDICT: &str = "verdict.json";

/// Timelines that are drawn.
const TIMELINES_MAX: usize = 10;

/// Whether a run shows anything, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Judgement {
    /// Valid, and no promise was broken.
    Clean,
    /// Nothing is shown, neither good nor bad.
    Invalid,
    /// A promise was broken.
    Violation,
}

impl Judgement {
    /// The exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Violation => 1,
            Self::Invalid => 2,
        }
    }
}

/// How much there was of everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) seconds: u64,
    pub(crate) calls: usize,
    pub(crate) acquires: usize,
    pub(crate) grants: usize,
    pub(crate) unknown: usize,
    pub(crate) faults: usize,
    pub(crate) leader_changes: usize,
    pub(crate) snapshots_taken: usize,
    pub(crate) snapshots_installed: u64,
    pub(crate) lost_updates_without_check: usize,
}

impl Counts {
    /// Adds what another run had.
    pub(crate) fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.calls += other.calls;
        self.acquires += other.acquires;
        self.grants += other.grants;
        self.unknown += other.unknown;
        self.faults += other.faults;
        self.leader_changes += other.leader_changes;
        self.snapshots_taken += other.snapshots_taken;
        self.snapshots_installed += other.snapshots_installed;
        self.lost_updates_without_check += other.lost_updates_without_check;
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        format!(
            "{} s, {} calls, {} acquires, {} grants, {} of unknown outcome, {} faults, \
             {} changes of leader, {} snapshots taken, {} installed, {} updates lost without a check",
            self.seconds,
            self.calls,
            self.acquires,
            self.grants,
            self.unknown,
            self.faults,
            self.leader_changes,
            self.snapshots_taken,
            self.snapshots_installed,
            self.lost_updates_without_check,
        )
    }
}

/// What came of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) judgement: Judgement,
    pub(crate) run: RunInfo,
    pub(crate) counts: Counts,
    pub(crate) violations: Vec<Violation>,
    /// Why the run is invalid.
    pub(crate) problems: Vec<String>,
}

impl Verdict {
    /// Judges a history. A violation is one, even in a run that is invalid otherwise.
    pub(crate) fn of(history: &History) -> Self {
        let violations = checker::check(history);
        let problems = checker::problems(history);
        let judgement = if !violations.is_empty() {
            Judgement::Violation
        } else if !problems.is_empty() {
            Judgement::Invalid
        } else {
            Judgement::Clean
        };
        Self {
            judgement,
            run: history.info.clone(),
            counts: count(history),
            violations,
            problems,
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{}: {}\n",
            match self.judgement {
                Judgement::Clean => "clean",
                Judgement::Violation => "VIOLATION",
                Judgement::Invalid => "INVALID",
            },
            self.counts.text(),
        );
        for violation in &self.violations {
            let key = violation.key.as_deref().unwrap_or("-");
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {} [{key}] {}", violation.checker, violation.text);
        }
        for problem in &self.problems {
            let _ = writeln!(text, "  invalid: {problem}");
        }
        let _ = writeln!(text, "  repeat: {}", self.run.repeat);
        text
    }

    /// Reads what [`Verdict::write`] has left; none if the run did not come that far.
    pub(crate) fn read(dir: &Path) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(dir.join(VERDICT)).ok()?).ok()
    }

    /// Writes `verdict.json`, `verdict.txt` and the timelines beside the history.
    pub(crate) fn write(&self, history: &History, dir: &Path) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::of("writing the verdict", error);
        let json = serde_json::to_string_pretty(self);
        let json = json.map_err(|error| Error::of("writing the verdict", error))?;
        fs::write(dir.join(VERDICT), json).map_err(failed)?;
        fs::write(dir.join("verdict.txt"), self.text()).map_err(failed)?;
        for (index, violation) in self.violations.iter().take(TIMELINES_MAX).enumerate() {
            let drawn = timeline::draw(history, violation);
            let name = format!("violation-{}.svg", index + 1);
            fs::write(dir.join(name), drawn).map_err(failed)?;
        }
        Ok(())
    }
}

fn count(history: &History) -> Counts {
    let operations = &history.operations;
    let acquires = operations.iter();
    let acquires = acquires.filter(|op| matches!(op.call, Call::Acquire { .. }));
    let doubt = |outcome| matches!(outcome, Outcome::Info(why) if why != Doubt::Vanished);
    let bit =
        |fault: &&crate::history::Fault| fault.end.as_ref().is_some_and(|end| end.evidence > 0);
    // From one leader to another one; nobody in between is no leader.
    let mut leaders: Vec<&str> = history
        .leaders
        .iter()
        .filter_map(|(_, leader)| leader.as_deref())
        .collect();
    leaders.dedup();
    let snapshots: BTreeSet<(&str, u64)> = history
        .statuses
        .iter()
        .filter_map(|(_, status)| Some((status.node.as_str(), status.snapshot?)))
        .collect();
    Counts {
        seconds: history.end / S,
        calls: operations.len(),
        acquires: acquires.count(),
        grants: history.grants().count(),
        unknown: operations.iter().filter(|op| doubt(op.outcome)).count(),
        faults: history.faults.iter().filter(bit).count(),
        leader_changes: leaders.len().saturating_sub(1),
        snapshots_taken: snapshots.len(),
        snapshots_installed: history.snapshots_installed,
        lost_updates_without_check: checker::lost_without_check(history),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::build::Build;

    #[test]
    fn a_violation_counts_more_than_being_invalid() {
        let bad = Build::default()
            .grant("k", 10, 0, 5, 1)
            .grant("k", 10, 6, 9, 2);
        let verdict = Verdict::of(&bad.history());
        assert_eq!(verdict.judgement, Judgement::Violation);
        assert!(!verdict.problems.is_empty());
        assert!(
            verdict.text().contains("exclusion [k]"),
            "{}",
            verdict.text()
        );
    }

    #[test]
    fn an_empty_run_is_invalid() {
        let verdict = Verdict::of(&Build::default().history());
        assert_eq!(verdict.judgement, Judgement::Invalid);
        assert_eq!(verdict.judgement.code(), 2);
    }

    #[test]
    fn everything_of_a_violation_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let history = Build::default()
            .fault("kill", "a", Some("a"), (3, 7), 1)
            .grant("k", 10, 0, 5, 1)
            .grant("k", 10, 6, 9, 2)
            .history();
        let verdict = Verdict::of(&history);
        verdict.write(&history, dir.path()).unwrap();
        let drawn = fs::read_to_string(dir.path().join("violation-1.svg")).unwrap();
        assert!(
            drawn.contains("token 2") && drawn.contains("kill"),
            "{drawn}"
        );
        let read = Verdict::read(dir.path()).unwrap();
        assert_eq!(read.violations, verdict.violations);
    }
}
