//! `ticketing bench`: the reference workload, with its own check.
//!
//! Tasks share a few keys through one client: acquire, check exclusion, yield, release with an
//! acknowledgement. Each key protects a counter that is read before the yield and written after it,
//! so that an exclusion that failed loses a count; tokens of a key must grow. Throughput under
//! contention is bounded by the hand-over of a key, which is what the workload measures.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::{Broker, Error, ReleaseOutcome};

use super::connect::ConnectArgs;
use super::{EXIT_FAILURE, block_on, or_usage};

/// The wait and the lease of every operation.
const WAIT: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(30);

/// What must be left of a lease for the work, which takes next to nothing.
const WORK: Duration = Duration::from_secs(1);

/// The arguments of `bench`.
#[derive(clap::Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// How many locks the operations are spread over
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    keys: u32,
    /// How many tasks work at the same time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tasks: u32,
    /// How many acquires and releases there are in all
    #[arg(
        long,
        default_value_t = 40_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000_000)
    )]
    operations: u32,
}

/// Runs the workload and prints what it measured; returns the exit code.
pub fn run(args: &BenchArgs) -> u8 {
    // On one thread: the tasks do next to nothing, and the other cores are the servers'.
    block_on(bench(args))
}

/// What one key protects.
struct Guarded {
    name: String,
    held: AtomicBool,
    /// Read before the yield, written after it.
    count: AtomicU64,
    /// What `count` would be if nothing was lost.
    made: AtomicU64,
    token: AtomicU64,
}

/// What one task saw.
#[derive(Default)]
struct Seen {
    nanos: Vec<u64>,
    overlaps: u64,
    /// Releases that found nothing to release: after a lost connection an earlier try did it.
    not_current: u64,
    failures: BTreeMap<String, u64>,
}

async fn bench(args: &BenchArgs) -> io::Result<u8> {
    let broker = match or_usage(args.connect.broker()) {
        Ok(broker) => broker,
        Err(code) => return Ok(code),
    };
    let run = getrandom::u32().map_err(|error| io::Error::other(error.to_string()))?;
    let guarded: Arc<[Guarded]> = (0..args.keys).map(|key| Guarded::new(run, key)).collect();
    // The first operation connects, which is not what is measured.
    if let Err(error) = operate(&broker, &Guarded::new(run, args.keys), &mut Seen::default()).await
    {
        complain!("{error}");
        return Ok(EXIT_FAILURE);
    }
    let started = Instant::now();
    let tasks: Vec<_> = (0..args.tasks)
        .map(|task| {
            let mine = (task..args.operations).step_by(args.tasks as usize);
            tokio::spawn(work(broker.clone(), Arc::clone(&guarded), mine))
        })
        .collect();
    let mut all = Seen::default();
    for task in tasks {
        all.add(task.await?);
    }
    Ok(report(args, &guarded, all, started.elapsed()))
}

async fn work(
    broker: Broker,
    guarded: Arc<[Guarded]>,
    operations: impl Iterator<Item = u32>,
) -> Seen {
    let mut seen = Seen::default();
    for operation in operations {
        let key = &guarded[operation as usize % guarded.len()];
        let started = Instant::now();
        match operate(&broker, key, &mut seen).await {
            Ok(()) => {
                let nanos = started.elapsed().as_nanos();
                seen.nanos.push(u64::try_from(nanos).unwrap_or(u64::MAX));
            }
            Err(error) => *seen.failures.entry(error.to_string()).or_default() += 1,
        }
    }
    seen
}

async fn operate(broker: &Broker, key: &Guarded, seen: &mut Seen) -> Result<(), Error> {
    let asked = broker.acquire(&key.name).wait(WAIT).lease(LEASE);
    let ticket = asked.work_budget(WORK).await?;
    let overlap = key.held.swap(true, Ordering::SeqCst);
    let late = key.token.swap(ticket.token().0, Ordering::SeqCst) >= ticket.token().0;
    let count = key.count.load(Ordering::SeqCst);
    tokio::task::yield_now().await;
    key.count.store(count + 1, Ordering::SeqCst);
    key.made.fetch_add(1, Ordering::SeqCst);
    key.held.store(false, Ordering::SeqCst);
    seen.overlaps += u64::from(overlap || late);
    let outcome = ticket.release().await?;
    seen.not_current += u64::from(outcome == ReleaseOutcome::NotCurrent);
    Ok(())
}

impl Guarded {
    /// The name is one of this run, so that locks which an interrupted run left held are not met.
    fn new(run: u32, key: u32) -> Self {
        Self {
            name: format!("bench-{run:08x}-{key}"),
            held: AtomicBool::new(false),
            count: AtomicU64::new(0),
            made: AtomicU64::new(0),
            token: AtomicU64::new(0),
        }
    }
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.nanos.extend(other.nanos);
        self.overlaps += other.overlaps;
        self.not_current += other.not_current;
        for (failure, count) in other.failures {
            *self.failures.entry(failure).or_default() += count;
        }
    }
}

fn report(args: &BenchArgs, guarded: &[Guarded], mut seen: Seen, elapsed: Duration) -> u8 {
    seen.nanos.sort_unstable();
    let done = seen.nanos.len();
    say!(
        "{done} operations, {} keys, {} tasks, {:.2} s: {:.0} operations/s",
        args.keys,
        args.tasks,
        elapsed.as_secs_f64(),
        done as f64 / elapsed.as_secs_f64()
    );
    let ms = |share: f64| {
        let index = (done.saturating_sub(1) as f64 * share) as usize;
        seen.nanos
            .get(index)
            .map_or(0.0, |nanos| *nanos as f64 / 1e6)
    };
    say!(
        "acquire to acknowledged release, ms: p50 {:.2}, p90 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.2}",
        ms(0.5),
        ms(0.9),
        ms(0.99),
        ms(0.999),
        ms(1.0)
    );
    for (failure, count) in &seen.failures {
        say!("failed: {count} times {failure}");
    }
    if seen.not_current > 0 {
        say!("{} releases found nothing to release", seen.not_current);
    }
    judge(args, guarded, &seen)
}

/// Whether exclusion held, and everything was done.
fn judge(args: &BenchArgs, guarded: &[Guarded], seen: &Seen) -> u8 {
    let mut off = 0;
    for key in guarded {
        let (count, made) = (
            key.count.load(Ordering::SeqCst),
            key.made.load(Ordering::SeqCst),
        );
        if count != made {
            say!("{}: the counter is {count}, not {made}", key.name);
            off += 1;
        }
    }
    if off > 0 || seen.overlaps > 0 {
        say!(
            "EXCLUSION FAILED: {off} counters are off, {} overlaps",
            seen.overlaps
        );
        return EXIT_FAILURE;
    }
    say!("every counter is exact, and no two held a key at once");
    if seen.nanos.len() < args.operations as usize {
        return EXIT_FAILURE;
    }
    0
}
