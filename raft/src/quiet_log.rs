//! Log lines that somebody outside can cause, a few at a time.
//!
//! Fault answered: whoever can connect can make a server write to its log, as often as it likes; a
//! full disk or a drowned line is then his doing. Each kind of line has a limit of its own, so a
//! flood of one does not hide the first of another, and the next line that is written says how many
//! were not.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// At most one line in this time.
pub const LINE_EVERY: Duration = Duration::from_secs(1);

/// Lets one line in a second through and counts the others.
#[derive(Debug, Default)]
pub struct QuietLog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    dropped: u64,
}

impl QuietLog {
    /// Whether a line may be written now, and how many were dropped since the one before it.
    pub fn admit(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.admit_at(Instant::now())
    }
}

impl State {
    fn admit_at(&mut self, now: Instant) -> Option<u64> {
        if self
            .last
            .is_some_and(|last| now.duration_since(last) < LINE_EVERY)
        {
            self.dropped = self.dropped.saturating_add(1);
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_and_the_next_one_says_how_many_were_dropped() {
        let mut state = State::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(state.admit_at(at(0)), Some(0));
        for ms in [0, 1, 999] {
            assert_eq!(state.admit_at(at(ms)), None);
        }
        assert_eq!(state.admit_at(at(1000)), Some(3));
        assert_eq!(state.admit_at(at(1001)), None);
        assert_eq!(state.admit_at(at(9000)), Some(1));
    }
}
