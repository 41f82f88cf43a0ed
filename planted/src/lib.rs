//! Ten bugs on purpose. A test that finds nothing shows little unless it is known to find what is
//! there: `jepsen` must find each of these (docs/TESTING.md says how and how fast).
//!
//! Without the feature `planted-bugs` nothing of this is compiled into any crate. With it, a
//! bug is there only in a process whose environment names it, and a build that is
//! optimised for release does not compile at all.

#[cfg(all(feature = "armed", not(debug_assertions)))]
compile_error!("planted bugs must never get into a release build");

use std::sync::OnceLock;

/// Names the bug that this process has.
pub const VARIABLE: &str = "TICKETING_PLANTED_BUG";

/// A bug, by what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The log is written, but not synced.
    SkipSync,
    /// A snapshot does not hold the token counter.
    SnapshotWithoutCounter,
    /// A node that led before goes on to end leases by its own clock.
    ExpiryOnExLeader,
    /// A lease that is over ends whatever grant the key has by then.
    ExpiryWithoutToken,
    /// Leases are counted with the wall clock.
    WallClock,
    /// Grants are told when they are proposed.
    AnswerBeforeCommit,
    /// A grant that nobody could be told of is not given back.
    VanishedKeepsGrant,
    /// A node that has lost its disk comes back under its old id.
    WipedUnderOldId,
    /// A session is told to go elsewhere although an acquire of it was proposed.
    MovedAlthoughProposed,
    /// A new leader lets every lease begin anew, with half of its length.
    HalfLeaseOnFailover,
}

/// Every bug and its name.
pub const BUGS: [(&str, Bug); 10] = [
    ("skip-sync", Bug::SkipSync),
    ("snapshot-without-counter", Bug::SnapshotWithoutCounter),
    ("expiry-on-ex-leader", Bug::ExpiryOnExLeader),
    ("expiry-without-token", Bug::ExpiryWithoutToken),
    ("wall-clock", Bug::WallClock),
    ("answer-before-commit", Bug::AnswerBeforeCommit),
    ("vanished-keeps-grant", Bug::VanishedKeepsGrant),
    ("wiped-under-old-id", Bug::WipedUnderOldId),
    ("moved-although-proposed", Bug::MovedAlthoughProposed),
    ("half-lease-on-failover", Bug::HalfLeaseOnFailover),
];

/// Whether this process has `bug`. A name that is none stops it: a test of a bug that is
/// not there would pass for the wrong reason.
///
/// # Panics
///
/// When the environment names a bug that does not exist.
pub fn has(bug: Bug) -> bool {
    static PRESENT: OnceLock<Option<Bug>> = OnceLock::new();
    let present = PRESENT.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok()?;
        let known = BUGS.iter().find(|(known, _)| *known == name);
        let (_, bug) = known.unwrap_or_else(|| panic!("{VARIABLE}={name}: there is no such bug"));
        Some(*bug)
    });
    *present == Some(bug)
}
