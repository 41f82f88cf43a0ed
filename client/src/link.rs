//! Keeps one address connected: dials, serves, dials again.
//!
//! Fault answered: a crowd of clients that comes back in step to a node that just restarted, or
//! that just changed its role, and keeps it from what matters more. Before each new try there is a
//! pause, random and growing: its first try after a connection that worked is spread over
//! [`PAUSE_FIRST`], and later ones take at least half of a length that doubles up to [`PAUSE_MAX`].
//! Word that the node there leads ends a pause: it can serve now.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::dial::dial;
use crate::dispatch::Working;
use crate::routes::Down;
use crate::{session, trace};

/// How long connecting may take, TLS and handshake included.
const DIAL_MAX: Duration = Duration::from_secs(5);

/// The longest pause before the first new try, and the one that doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(100);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(3200);

/// A connection that lived so long was a good one, even if nothing was asked on it.
const STEADY: Duration = Duration::from_secs(5);

/// Runs until the dispatcher is done.
pub(crate) async fn run(working: Working, index: usize) {
    let dispatcher = working.dispatcher();
    let address = dispatcher.address(index);
    let mut failures = 0;
    loop {
        let started = Instant::now();
        let dialled = tokio::select! {
            biased;
            () = dispatcher.done() => return,
            dialled = timeout(DIAL_MAX, dial(&address, &dispatcher.settings)) => dialled,
        };
        match dialled.unwrap_or(Err(Down::Unreachable)) {
            Ok(stream) => {
                trace::debug!(address, "connected");
                let served = session::run(Arc::clone(dispatcher), index, stream).await;
                if served || started.elapsed() >= STEADY {
                    failures = 0;
                }
            }
            Err(why) => dispatcher.down(index, why),
        }
        let random = (dispatcher.settings.random)();
        tokio::select! {
            biased;
            () = dispatcher.done() => return,
            () = dispatcher.kicked(index) => {}
            () = tokio::time::sleep(pause(failures, random)) => {}
        }
        failures = failures.saturating_add(1);
    }
}

/// The pause after so many new tries in vain.
fn pause(failures: u32, random: u32) -> Duration {
    let share = f64::from(random) / f64::from(u32::MAX);
    let Some(doublings) = failures.checked_sub(1) else {
        return PAUSE_FIRST.mul_f64(share);
    };
    let full = PAUSE_FIRST
        .saturating_mul(1 << doublings.min(16))
        .min(PAUSE_MAX);
    full.mul_f64(0.5 + 0.5 * share)
}

/// A random number; without randomness clients come back in step, which is no reason to stop.
pub(crate) fn random() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread_and_grow_to_their_limit() {
        for (failures, least_ms, most_ms) in [
            (0, 0, 100),
            (1, 50, 100),
            (2, 100, 200),
            (6, 1600, 3200),
            (7, 1600, 3200),
            (u32::MAX, 1600, 3200),
        ] {
            let ms = Duration::from_millis;
            assert_eq!(pause(failures, 0), ms(least_ms), "{failures}");
            assert_eq!(pause(failures, u32::MAX), ms(most_ms), "{failures}");
        }
        assert_ne!([random(), random()], [random(), random()]);
    }
}
