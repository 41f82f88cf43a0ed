//! One file a property. Each says what is promised, why the check is sound (it never blames a
//! correct service), and is proven by histories written by hand, good ones and bad ones.
//!
//! Checkers are pure: a [`History`] in, [`Violation`]s out. What makes a run worthless instead of
//! wrong (nothing was hit, nothing happened) is [`validity`]'s business.

mod answers;
mod calm;
mod exclusion;
mod fifo;
mod linear;
mod progress;
mod release;
mod releases;
mod store;
mod stranded;
mod survival;
mod token_order;
mod validity;

pub(crate) use progress::LAST_CLIENT;
pub(crate) use validity::problems;

use serde::{Deserialize, Serialize};

use crate::history::{Call, History, MS, OpId, Operation, Outcome};

/// Violations of one kind that are reported; there may be thousands of one cause.
const VIOLATIONS_PER_CHECKER_MAX: usize = 20;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Violation {
    /// Which checker found it.
    pub(crate) checker: String,
    /// At which key, if it is about one.
    pub(crate) key: Option<String>,
    /// When, in nanoseconds since the run began.
    pub(crate) at: u64,
    /// The calls that show it.
    pub(crate) ops: Vec<OpId>,
    /// In words.
    pub(crate) text: String,
}

impl Violation {
    fn at_key(key: &str, at: u64, ops: &[&Operation], text: impl Into<String>) -> Self {
        let told: Vec<String> = ops.iter().map(|op| tell(op)).collect();
        Self {
            checker: String::new(),
            key: Some(key.to_owned()),
            at,
            ops: ops.iter().map(|op| op.id).collect(),
            text: format!("{}: {}", text.into(), told.join("; ")),
        }
    }

    fn general(at: u64, text: String) -> Self {
        Self {
            checker: String::new(),
            key: None,
            at,
            ops: Vec::new(),
            text,
        }
    }
}

/// A checker by name.
type Checker = (&'static str, fn(&History) -> Vec<Violation>);

/// All of them.
const CHECKERS: &[Checker] = &[
    ("token_order", token_order::check),
    ("exclusion", exclusion::check),
    ("linear", linear::check),
    ("release", release::check),
    ("answers", answers::check),
    ("stranded", stranded::check),
    ("fifo", fifo::check),
    ("progress", progress::check),
    ("store", store::check),
    ("survival", survival::check),
];

/// How many updates the registers without a check lost.
pub(crate) fn lost_without_check(history: &History) -> usize {
    store::lost(history, false).len()
}

/// Everything that is wrong with a history.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (name, checker) in CHECKERS {
        let mut found = checker(history);
        found.truncate(VIOLATIONS_PER_CHECKER_MAX);
        for violation in &mut found {
            (*name).clone_into(&mut violation.checker);
        }
        violations.append(&mut found);
    }
    violations
}

/// An operation in words.
fn tell(op: &Operation) -> String {
    let what = match &op.call {
        Call::Acquire {
            wait_s, lease_s, ..
        } => format!("acquire wait {wait_s} s lease {lease_s} s"),
        Call::Release { token, .. } => format!("release of token {token}"),
    };
    let came = match op.outcome {
        Outcome::Ok(answer) => format!("{answer:?}"),
        Outcome::Fail(why) => format!("refused, {why:?}"),
        Outcome::Info(why) => format!("unknown, {why:?}"),
    };
    let ended = match op.ended {
        u64::MAX => "never".to_owned(),
        at => ms(at),
    };
    format!(
        "#{} client {} {what} called {} ended {ended} ({came})",
        op.id,
        op.client,
        ms(op.called)
    )
}

/// A moment in milliseconds, with all digits that matter.
fn ms(ns: u64) -> String {
    format!("{}.{:06} ms", ns / MS, ns % MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Answer;
    use crate::history::build::Build;

    #[test]
    fn a_good_history_is_clean_for_all() {
        let history = Build::default()
            .ticket("k", 10, (0, 5), 1, 10_000)
            .grant("k", 5, 1, 2_010, 2)
            .release(
                crate::history::By::Official,
                "k",
                1,
                (2_000, 2_009),
                Answer::Released,
            )
            .grant("k", 5, 3, 7_100, 3)
            .not_current("k", 2, 7_200, 7_210)
            .released("k", 3, 7_300, 7_310)
            .history();
        assert_eq!(check(&history), []);
    }

    #[test]
    fn violations_name_their_checker_and_their_calls() {
        let history = Build::default()
            .grant("k", 10, 0, 5, 1)
            .grant("k", 10, 10, 15, 2)
            .history();
        let found = check(&history);
        let names: Vec<&str> = found.iter().map(|v| v.checker.as_str()).collect();
        assert_eq!(names, ["exclusion", "linear"]);
        assert_eq!(found[0].ops, [1, 2]);
    }
}
