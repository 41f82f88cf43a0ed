//! Whether the desk beside this process is told what was applied.
//!
//! A desk may act only on what belongs to its own span of leadership. The log says where that
//! begins: with an `Activate` entry that carries this process's origin. It says also where it ends
//! for certain: with somebody else's `Activate`, or an entry of another term (a new leader's
//! entries come before its `Activate`, and this process may yet be the one that is deposed). Other
//! ends, such as a quorum that is not heard any more, are not in the log; the status tells them.

use crate::feed::Activity;

/// Follows the activations in the log.
#[derive(Debug)]
pub(super) struct Speaker {
    origin: u64,
    /// The newest activation of all, if it is this process's own.
    span: Option<Span>,
}

/// An activation of this process.
#[derive(Clone, Copy, Debug)]
struct Span {
    term: u64,
    activity: Activity,
}

impl Speaker {
    /// Silent until `origin` is activated.
    pub(super) fn new(origin: u64) -> Self {
        Self { origin, span: None }
    }

    /// An `Activate` entry of this term was applied; whether it is this process's own.
    pub(super) fn activate(&mut self, term: u64, origin: u64, activity: Activity) -> bool {
        self.span = (origin == self.origin).then_some(Span { term, activity });
        self.span.is_some()
    }

    /// The span that a batch of this term belongs to, if the desk is to hear of it.
    pub(super) fn serving(&self, term: u64) -> Option<Activity> {
        self.span
            .filter(|span| span.term == term)
            .map(|span| span.activity)
    }

    /// Entries were skipped: what came of the span is not known.
    pub(super) fn fall_silent(&mut self) {
        self.span = None;
    }
}
