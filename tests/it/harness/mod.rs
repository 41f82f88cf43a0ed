//! Processes, ports, and a client that speaks in bytes.

pub(crate) mod clients;
pub(crate) mod cluster;
pub(crate) mod gate;
pub(crate) mod http;
pub(crate) mod metrics;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod raw;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) use cluster::{Cluster, Server};
pub(crate) use raw::{Frame, Raw, acquire, release};

/// Deadline for what should come at once, with a slow and busy machine in mind.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Deadline for what needs an election, a bootstrap or a restart. A node that starts writes and
/// syncs its first log segments, which takes long on a disk that others use as well.
pub(crate) const SETTLE: Duration = Duration::from_secs(60);

/// Distance between two looks at a condition that nobody announces.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until `look` sees something, and gives that back.
///
/// The servers of the failing test print their logs when they are dropped, so the panic itself
/// says only what was awaited.
pub(crate) fn eventually<T>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(
            start.elapsed() < within,
            "not seen within {within:?}: {what}"
        );
        std::thread::sleep(LOOK);
    }
}

/// Tells the threads of a scope that it ends, also when it ends by a panic: else they would go on
/// and be waited for.
pub(crate) struct Ending<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The middle value; the greater one of two.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
