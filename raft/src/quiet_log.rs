//! Log lines that a stranger can cause, a few at a time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// At most one line in this time.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Lets one line in a second through and counts the others.
#[derive(Debug, Default)]
pub(crate) struct QuietLog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    dropped: u64,
}

impl QuietLog {
    /// Whether a line may be written now, and how many were dropped since the one before it.
    pub(crate) fn admit(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state
            .last
            .is_some_and(|last| now.duration_since(last) < LINE_EVERY)
        {
            state.dropped = state.dropped.saturating_add(1);
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.dropped))
    }
}
