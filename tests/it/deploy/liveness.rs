//! The liveness probes of a set of pods, at work all the time.
//!
//! A pod that has once said that it lives must say so until it is told to end, whatever becomes of
//! the others: a red probe is a restart.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::pods::PODS;
use crate::harness::http;

/// How long a probe waits: as in the manifest.
const PROBE_TIME_MAX: Duration = Duration::from_secs(5);

/// How often every pod is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// The probes of all pods.
pub(crate) struct Liveness {
    expected: Arc<Mutex<[Option<Alive>; PODS]>>,
    red: Arc<Mutex<Vec<String>>>,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Alive {
    address: String,
    /// Whether it has said so once: before that it starts.
    once: bool,
}

impl Liveness {
    /// Begins to look; nothing is expected yet.
    pub(crate) fn watch() -> Self {
        let expected = Arc::<Mutex<[Option<Alive>; PODS]>>::default();
        let red = Arc::<Mutex<Vec<String>>>::default();
        let done = Arc::<AtomicBool>::default();
        let thread = std::thread::spawn({
            let (expected, red, done) = (expected.clone(), red.clone(), done.clone());
            move || {
                while !done.load(Ordering::Relaxed) {
                    for ordinal in 0..PODS {
                        probe(&expected, ordinal, &red);
                    }
                    std::thread::sleep(LOOK);
                }
            }
        });
        Self {
            expected,
            red,
            done,
            thread: Some(thread),
        }
    }

    /// From now on this pod is expected at an address, or not at all.
    pub(crate) fn expect(&self, ordinal: usize, address: Option<String>) {
        let alive = address.map(|address| Alive {
            address,
            once: false,
        });
        self.expected.lock().expect("no panic in here")[ordinal] = alive;
    }

    /// Fails when a probe was red.
    pub(crate) fn assert_clean(&self) {
        let red = self.red.lock().expect("no panic in here").clone();
        assert!(red.is_empty(), "liveness was red: {red:?}");
    }
}

fn probe(expected: &Mutex<[Option<Alive>; PODS]>, ordinal: usize, red: &Mutex<Vec<String>>) {
    let Some(alive) = expected.lock().expect("no panic in here")[ordinal].clone() else {
        return;
    };
    let asked = Instant::now();
    let answer = http::try_get(&alive.address, "/livez");
    let green = answer.as_ref().is_some_and(|answer| answer.status == 200);
    let in_time = asked.elapsed() < PROBE_TIME_MAX;
    let mut expected = expected.lock().expect("no panic in here");
    // What was asked for may have been told to end meanwhile.
    if expected[ordinal].as_ref() != Some(&alive) {
        return;
    }
    if green && in_time {
        expected[ordinal] = Some(Alive {
            once: true,
            ..alive
        });
    } else if alive.once {
        let mut red = red.lock().expect("no panic in here");
        red.push(format!(
            "pod {ordinal} after {:?}: {answer:?}",
            asked.elapsed()
        ));
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it was started");
        // Its panic would only hide the one that ends the test.
        let _ = thread.join();
    }
}
