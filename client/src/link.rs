//! Keeps one address connected: dials, serves, dials again.
//!
//! The first new try after a connection that worked comes at once, later ones with growing, random
//! pauses, so that many clients do not come back to a restarted server in step. Word that the node
//! there leads ends a pause: it can serve now.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::dial::dial;
use crate::dispatch::Dispatcher;
use crate::routes::Down;
use crate::session;

/// How long connecting may take, TLS and handshake included.
const DIAL_MAX: Duration = Duration::from_secs(5);

/// The pause before the second new try; it doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(100);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(3200);

/// A connection that lived so long was a good one, even if nothing was asked on it.
const STEADY: Duration = Duration::from_secs(5);

/// Runs until the dispatcher is closed.
pub(crate) async fn run(dispatcher: Arc<Dispatcher>, index: usize) {
    let address = dispatcher.address(index);
    let mut failures = 0;
    loop {
        let started = Instant::now();
        let dialled = tokio::select! {
            dialled = timeout(DIAL_MAX, dial(&address, &dispatcher.settings)) => dialled,
            () = dispatcher.closed() => return,
        };
        match dialled.unwrap_or(Err(Down::Unreachable)) {
            Ok(stream) => {
                tracing::debug!(address, "connected");
                let ended = session::run(Arc::clone(&dispatcher), index, stream).await;
                tracing::info!(address, why = ?ended.why, "connection ended");
                if ended.served || started.elapsed() >= STEADY {
                    failures = 0;
                }
            }
            Err(why) => dispatcher.down(index, why),
        }
        tokio::select! {
            biased;
            () = dispatcher.closed() => return,
            () = tokio::time::sleep(pause(failures)) => {}
            () = dispatcher.kicked(index) => {}
        }
        failures = failures.saturating_add(1);
    }
}

/// The pause after so many new tries in vain: none before the first, then a random part, a half at
/// least, of a length that doubles.
fn pause(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else {
        return Duration::ZERO;
    };
    let full = PAUSE_FIRST
        .saturating_mul(1 << doublings.min(16))
        .min(PAUSE_MAX);
    // Without randomness clients come back in step, which is no reason to stop.
    let random = getrandom::u32().unwrap_or(u32::MAX);
    full.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_new_try_is_at_once_and_pauses_grow_to_their_limit() {
        assert_eq!(pause(0), Duration::ZERO);
        for (failures, full_ms) in [(1, 100), (2, 200), (6, 3200), (7, 3200), (u32::MAX, 3200)] {
            let full = Duration::from_millis(full_ms);
            for _ in 0..100 {
                assert!((full / 2..=full).contains(&pause(failures)), "{failures}");
            }
        }
    }
}
