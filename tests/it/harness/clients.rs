//! Clients that go on through whatever is done to the servers, and look whether exclusion and the
//! order of tokens hold.
//!
//! They are users of the official client. Some locks are held for the whole test. For a few other
//! keys more tasks compete than there are keys: each notes in memory that it holds, for as long as
//! its lease is good by its own clock, and two at once or a token that is not greater than the
//! key's last one is a violation. Failed calls are no violations; that the work goes on at all is
//! asked for step by step.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Broker, Error, ReleaseOutcome, Ticket};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::{SETTLE, eventually};

/// Locks that are held for the whole test.
const HELD: usize = 5;

/// Their lease: the longest there is. A test must be over before it is.
const HELD_LEASE: Duration = Duration::from_secs(250);

/// Keys that are competed for, and the tasks that compete for each.
const KEYS: usize = 3;
const TASKS_PER_KEY: usize = 3;

/// An acquire whose answer was lost keeps its key for a lease, so the wait is longer.
const LEASE: Duration = Duration::from_secs(3);
const WAIT: Duration = Duration::from_secs(20);

/// How long a lock is held, and how much of the lease must be left for it.
const WORK: Duration = Duration::from_millis(3);
const WORK_MAX: Duration = Duration::from_secs(1);

/// How long a task that was refused waits before it asks again.
const PAUSE: Duration = Duration::from_millis(50);

/// Grants that show that the service works again.
const PROGRESS: u64 = 50;

/// A running workload.
pub(crate) struct Clients {
    runtime: Runtime,
    broker: Broker,
    held: Vec<Ticket>,
    tasks: Vec<JoinHandle<()>>,
    seen: Arc<Seen>,
}

/// What the tasks saw.
#[derive(Default)]
struct Seen {
    done: AtomicBool,
    grants: AtomicU64,
    failures: AtomicU64,
    violation: Mutex<Option<String>>,
}

/// One key that is competed for.
struct Guarded {
    name: String,
    holder: Mutex<Holder>,
}

#[derive(Default)]
struct Holder {
    token: u64,
    /// While somebody holds: when the lease is over by the holder's own count.
    until: Option<Instant>,
}

impl Clients {
    /// Takes the locks that stay held, and begins to work.
    pub(crate) fn start(addresses: &[String], token: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let entered = runtime.enter();
        let broker = Broker::builder().addresses(addresses).token(token).build();
        let broker = broker.expect("the addresses are good");
        let seen = Arc::new(Seen::default());
        let held = (0..HELD)
            .map(|number| {
                let key = held_key(number);
                let asked = broker.acquire(&key).wait(WAIT).lease(HELD_LEASE);
                runtime
                    .block_on(asked.work_budget(Duration::ZERO))
                    .expect("a free lock is granted")
            })
            .collect();
        let tasks = (0..KEYS)
            .map(|number| Arc::new(Guarded::new(format!("guarded{number}"))))
            .flat_map(|guarded| std::iter::repeat_n(guarded, TASKS_PER_KEY))
            .map(|guarded| tokio::spawn(work(broker.clone(), guarded, Arc::clone(&seen))))
            .collect();
        drop(entered);
        Self {
            runtime,
            broker,
            held,
            tasks,
            seen,
        }
    }

    /// Waits until the work goes on, and looks whether the held locks are held.
    pub(crate) fn check(&self, when: &str) {
        let before = self.seen.grants.load(Ordering::Relaxed);
        eventually(&format!("grants, {when}"), SETTLE, || {
            self.seen.assert_clean(when);
            (self.seen.grants.load(Ordering::Relaxed) >= before + PROGRESS).then_some(())
        });
        for ticket in &self.held {
            let asked = self.broker.acquire(ticket.key().as_str());
            let asked = asked.wait(Duration::ZERO).lease(LEASE);
            let answer = self.runtime.block_on(asked.work_budget(Duration::ZERO));
            if let Ok(second) = answer {
                panic!(
                    "{when}: {:?} is held under {} and was granted under {}",
                    ticket.key(),
                    ticket.token(),
                    second.token()
                );
            }
        }
    }

    /// Ends the work and gives the held locks back: each must still be the holder's own.
    pub(crate) fn finish(self) {
        self.seen.done.store(true, Ordering::Relaxed);
        for task in self.tasks {
            self.runtime.block_on(task).expect("a task does not panic");
        }
        self.seen.assert_clean("at the end");
        for ticket in self.held {
            let key = ticket.key().clone();
            assert!(!ticket.remaining().is_zero(), "the test outlived its lease");
            let outcome = self.runtime.block_on(ticket.release());
            assert_eq!(
                outcome.expect("an answer"),
                ReleaseOutcome::Released,
                "{key:?}"
            );
        }
        println!(
            "{} grants, {} failed calls",
            self.seen.grants.load(Ordering::Relaxed),
            self.seen.failures.load(Ordering::Relaxed)
        );
    }
}

fn held_key(number: usize) -> String {
    format!("held{number}")
}

async fn work(broker: Broker, guarded: Arc<Guarded>, seen: Arc<Seen>) {
    while !seen.done.load(Ordering::Relaxed) {
        let asked = broker.acquire(&guarded.name).wait(WAIT).lease(LEASE);
        match asked.work_budget(WORK_MAX).await {
            Ok(ticket) => {
                let token = ticket.token().0;
                if let Err(violation) = guarded.enter(token, ticket.remaining()) {
                    seen.report(violation);
                }
                seen.grants.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(WORK).await;
                guarded.leave(token);
                if ticket.release().await.is_err() {
                    seen.failures.fetch_add(1, Ordering::Relaxed);
                }
            }
            Err(
                Error::Timeout
                | Error::Busy
                | Error::Indeterminate
                | Error::InsufficientLease
                | Error::NotConnected,
            ) => {
                seen.failures.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return seen.report(format!("{}: {error}", guarded.name)),
        }
    }
}

impl Guarded {
    fn new(name: String) -> Self {
        Self {
            name,
            holder: Mutex::default(),
        }
    }

    /// Somebody holds from now on under this token, for so long at most.
    fn enter(&self, token: u64, remaining: Duration) -> Result<(), String> {
        let mut holder = self.holder.lock().expect("nobody panics in here");
        let now = Instant::now();
        let entered = Holder {
            token,
            until: Some(now + remaining),
        };
        let before = std::mem::replace(&mut *holder, entered);
        let complaint = if before.until.is_some_and(|until| now < until) {
            "which is held"
        } else if token <= before.token {
            "which is not smaller"
        } else {
            return Ok(());
        };
        let Self { name, .. } = self;
        Err(format!(
            "{name}: token {token} after {}, {complaint}",
            before.token
        ))
    }

    /// The one who holds under this token does not any more.
    fn leave(&self, token: u64) {
        let mut holder = self.holder.lock().expect("nobody panics in here");
        // Else the lease was over, and somebody else is the holder.
        if holder.token == token {
            holder.until = None;
        }
    }
}

impl Seen {
    fn report(&self, violation: String) {
        let mut first = self.violation.lock().expect("nobody panics in here");
        first.get_or_insert(violation);
    }

    fn assert_clean(&self, when: &str) {
        let violation = self.violation.lock().expect("nobody panics in here");
        if let Some(violation) = &*violation {
            panic!("{when}: {violation}");
        }
    }
}

#[test]
fn two_holders_at_once_and_tokens_that_do_not_grow_are_violations() {
    let lease = Duration::from_secs(60);
    let guarded = Guarded::new("k".to_owned());
    assert_eq!(guarded.enter(5, lease), Ok(()));
    let violation = guarded.enter(6, lease);
    assert_eq!(
        violation,
        Err("k: token 6 after 5, which is held".to_owned())
    );
    guarded.leave(5);
    let violation = guarded.enter(7, lease);
    assert_eq!(
        violation,
        Err("k: token 7 after 6, which is held".to_owned())
    );
    guarded.leave(7);
    for stale in [7, 6] {
        let violation = guarded.enter(stale, lease);
        let expected = format!("k: token {stale} after 7, which is not smaller");
        assert_eq!(violation, Err(expected));
        guarded.leave(stale);
        // The next stale one is held against 7 again.
        guarded.holder.lock().expect("not poisoned").token = 7;
    }
    // A holder whose lease is over is none.
    assert_eq!(guarded.enter(8, Duration::ZERO), Ok(()));
    assert_eq!(guarded.enter(9, lease), Ok(()));
}
