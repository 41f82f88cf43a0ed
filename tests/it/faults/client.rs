//! The official client while nodes die under it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::{Broker, Error, ReleaseOutcome, Ticket};

use crate::harness::raw::Received;
use crate::harness::{Cluster, Ending, Frame, Raw, SETTLE};

/// How long nodes are killed and restarted in turn, and how long each stays down.
const KILLING: Duration = Duration::from_secs(60);
const DOWN: Duration = Duration::from_millis(500);

const TASKS: usize = 64;
const KEYS: usize = 32;

/// Short, so that a grant which nobody knows of blocks its key for less than a wait.
const LEASE: Duration = Duration::from_secs(3);
const WAIT: Duration = Duration::from_secs(20);

/// What one key protects.
#[derive(Default)]
struct Guarded {
    held: AtomicBool,
    token: AtomicU64,
    /// Read before the work and written after it, so that a second holder loses a count.
    count: AtomicU64,
    made: AtomicU64,
}

/// What became of all calls.
#[derive(Default, Debug)]
struct Tally {
    done: u64,
    not_current: u64,
    failed: BTreeMap<String, u64>,
}

#[test]
fn calls_ride_through_nodes_that_are_killed_in_turn() {
    let mut cluster = Cluster::start(3);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let keys: Arc<Vec<Guarded>> = Arc::new((0..KEYS).map(|_| Guarded::default()).collect());
    let done = Arc::new(AtomicBool::new(false));
    let broker = broker(&runtime, &cluster);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            runtime.spawn(work(
                broker.clone(),
                Arc::clone(&keys),
                task,
                Arc::clone(&done),
            ))
        })
        .collect();
    let kills = {
        let _ending = Ending(&done);
        kill_in_turn(&mut cluster)
    };
    let mut tally = Tally::default();
    for task in tasks {
        let theirs = runtime.block_on(task).expect("no task found a violation");
        tally.done += theirs.done;
        tally.not_current += theirs.not_current;
        for (error, count) in theirs.failed {
            *tally.failed.entry(error).or_default() += count;
        }
    }
    println!("{kills} kills: {tally:?}");
    for (key, guarded) in keys.iter().enumerate() {
        let count = guarded.count.load(Ordering::SeqCst);
        assert_eq!(count, guarded.made.load(Ordering::SeqCst), "key {key}");
    }
    // Of each task one request at most is open when a node dies.
    let failed: u64 = tally.failed.values().sum();
    assert!(failed <= kills * TASKS as u64, "{tally:?}");
    assert!(tally.done > failed, "{tally:?}");
}

fn broker(runtime: &tokio::runtime::Runtime, cluster: &Cluster) -> Broker {
    let _inside = runtime.enter();
    let addresses = cluster.nodes.iter().map(|node| node.address.clone());
    let broker = Broker::builder().addresses(addresses).build();
    broker.expect("the addresses are in order")
}

/// Kills the leader and then a follower, again and again; how often.
fn kill_in_turn(cluster: &mut Cluster) -> u64 {
    let started = Instant::now();
    let mut kills = 0;
    while started.elapsed() < KILLING {
        let leader = cluster.settle();
        let victim = match kills % 2 {
            0 => leader,
            _ => cluster.others(leader)[0],
        };
        cluster.nodes[victim].kill();
        kills += 1;
        std::thread::sleep(DOWN);
        cluster.nodes[victim].spawn();
    }
    cluster.settle();
    kills
}

async fn work(
    broker: Broker,
    keys: Arc<Vec<Guarded>>,
    task: usize,
    done: Arc<AtomicBool>,
) -> Tally {
    let mut tally = Tally::default();
    for turn in 0.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let key = (task + turn) % KEYS;
        match operate(&broker, &keys[key], key).await {
            Ok(ReleaseOutcome::Released) => tally.done += 1,
            Ok(ReleaseOutcome::NotCurrent) => tally.not_current += 1,
            Err(
                error @ (Error::Indeterminate | Error::InsufficientLease | Error::NotConnected),
            ) => {
                *tally.failed.entry(error.to_string()).or_default() += 1;
            }
            Err(error) => panic!("{error:?} while nodes are killed one at a time"),
        }
    }
    tally
}

async fn operate(broker: &Broker, guarded: &Guarded, key: usize) -> Result<ReleaseOutcome, Error> {
    let name = format!("ride-{key}");
    let asked = broker.acquire(&name).wait(WAIT).lease(LEASE);
    let ticket = asked.work_budget(LEASE / 3).await?;
    use_it(&ticket, guarded).await;
    ticket.release().await
}

/// The work under the lock, and the look at whether anybody else is at it.
async fn use_it(ticket: &Ticket, guarded: &Guarded) {
    let token = ticket.token().0;
    assert!(
        !guarded.held.swap(true, Ordering::SeqCst),
        "two holders of {ticket:?}"
    );
    let before = guarded.token.swap(token, Ordering::SeqCst);
    assert!(before < token, "{token} after {before}");
    let count = guarded.count.load(Ordering::SeqCst);
    tokio::task::yield_now().await;
    guarded.count.store(count + 1, Ordering::SeqCst);
    guarded.made.fetch_add(1, Ordering::SeqCst);
    guarded.held.store(false, Ordering::SeqCst);
}

/// As many as a node's default limit on connections has room for, with some to spare.
const CROWD: usize = 1000;

/// How long it takes at most to read what has arrived.
const AT_HAND: Duration = Duration::from_millis(100);

#[test]
fn a_crowd_that_loses_its_leader_does_not_make_a_second_election() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let brokers: Vec<_> = (0..CROWD).map(|_| broker(&runtime, &cluster)).collect();
    runtime.block_on(async {
        for broker in &brokers {
            let ready = broker.wait_ready(SETTLE).await;
            ready.expect("there is room for all of them");
        }
    });
    let others = cluster.others(leader);
    let watchers: Vec<_> = others.iter().map(|node| cluster.session(*node)).collect();
    cluster.nodes[leader].kill();
    // Every one of them wants something at once.
    let calls: Vec<_> = brokers
        .iter()
        .enumerate()
        .map(|(index, broker)| runtime.spawn(lock_and_release(broker.clone(), index)))
        .collect();
    let outcomes = calls.into_iter().map(|call| runtime.block_on(call));
    let granted = outcomes.filter(|outcome| matches!(outcome, Ok(Ok(_))));
    // What was sent to the leader as it died is unknown.
    assert!(granted.count() >= CROWD * 9 / 10);
    let next = cluster.settle();
    let (former, next) = (&cluster.nodes[leader].address, &cluster.nodes[next].address);
    let until = Instant::now() + 3 * super::ELECTION_TIMEOUT;
    for watcher in watchers {
        let mut named = leaders_named(watcher, until);
        named.retain(|address| address != former);
        assert_eq!(named, std::slice::from_ref(next), "one leader, named once");
    }
}

async fn lock_and_release(broker: Broker, index: usize) -> Result<ReleaseOutcome, Error> {
    let name = format!("crowd-{index}");
    let asked = broker.acquire(&name).wait(SETTLE);
    asked.work_budget(Duration::ZERO).await?.release().await
}

/// The leaders that a node names until then.
fn leaders_named(mut watcher: Raw, until: Instant) -> Vec<String> {
    let mut named = Vec::new();
    loop {
        // What has arrived by then is read even when that moment is over.
        let left = until.saturating_duration_since(Instant::now());
        match watcher.receive(left.max(AT_HAND)) {
            Received::Frame(Frame::Leads(address)) => named.push(address),
            Received::Nothing => return named,
            other => panic!("{other:?}"),
        }
    }
}
