//! The adapter on its own: entries in, feed, snapshots and clock readings out.

use std::sync::Arc;

use openraft::vote::RaftLeaderIdExt;
use wire::{Key, Lease, Token};

use super::*;
use crate::clock::ManualClock;
use crate::feed::Activity;
use crate::lock::{Attempt, Batch, Command, Outcome};

const ORIGIN: u64 = 11;
const OTHER: u64 = 22;

/// One process's state machine and what it tells.
struct Process {
    machine: StateMachine,
    feed: mpsc::Receiver<Feed>,
    progress: watch::Receiver<Progress>,
    clock: Arc<ManualClock>,
    snapshots: Snapshots,
    index: u64,
}

impl Process {
    fn start(snapshots: Snapshots) -> Self {
        let clock = Arc::new(ManualClock::default());
        clock.advance(1_000);
        let (machine, feed, progress) = StateMachine::new(ORIGIN, clock.clone(), snapshots.clone());
        Self {
            machine,
            feed,
            progress,
            clock,
            snapshots,
            index: 0,
        }
    }

    /// Applies one more entry, in a run of its own.
    async fn apply(&mut self, term: u64, payload: Payload) -> io::Result<()> {
        self.index += 1;
        let entry = entry(term, self.index, payload);
        self.machine
            .apply(futures_util::stream::iter([Ok((entry, None))]))
            .await
    }

    async fn activate(&mut self, term: u64, origin: u64, activity: u64) {
        let activity = Activity(activity);
        let entry = Entry::Activate {
            origin,
            activity,
            active_keys_max: 100,
        };
        self.apply(term, entry.encode()).await.unwrap();
    }

    async fn batch(&mut self, term: u64, stamp: u64, commands: Vec<Command>) {
        self.apply(term, batch(stamp, commands)).await.unwrap();
    }

    /// The next message, which must be there already.
    fn told(&mut self) -> Feed {
        self.feed.try_recv().expect("the desk was told something")
    }

    fn activated(&mut self) -> Activation {
        match self.told() {
            Feed::Activated(activation) => activation,
            other => panic!("not an activation: {other:?}"),
        }
    }

    fn told_nothing(&mut self) -> bool {
        self.feed.try_recv().is_err()
    }

    async fn snapshot(&mut self) -> SnapshotOf<TypeConfig, Bytes> {
        self.machine
            .get_snapshot_builder()
            .await
            .build_snapshot()
            .await
            .unwrap()
    }

    /// Where openraft would go on after a restart: behind the current snapshot.
    async fn restart(self) -> Self {
        let mut next = Self::start(self.snapshots);
        if let Some(current) = next.machine.get_current_snapshot().await.unwrap() {
            next.index = current.meta.last_log_id.map_or(0, |log_id| log_id.index);
            next.machine
                .install_snapshot(&current.meta, current.snapshot)
                .await
                .unwrap();
        }
        next
    }
}

fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(
        <TypeConfig as openraft::RaftTypeConfig>::LeaderId::new_committed(term, 0),
        index,
    )
}

fn entry(term: u64, index: u64, payload: Payload) -> EntryOf<TypeConfig> {
    EntryOf::<TypeConfig> {
        log_id: log_id(term, index),
        payload: EntryPayload::Normal(payload),
    }
}

fn batch(stamp: u64, commands: Vec<Command>) -> Payload {
    Entry::Batch(Batch {
        origin: ORIGIN,
        sequence: 1,
        stamp: Stamp(stamp),
        commands,
    })
    .encode()
}

fn acquire(key: &str) -> Vec<Command> {
    let key: Key = key.parse().unwrap();
    vec![Command::Acquire {
        key,
        lease: Lease::from_seconds(250).unwrap(),
    }]
}

#[tokio::test]
async fn the_own_activation_tells_all_that_is_known() {
    let mut process = Process::start(storage::memory::snapshots());
    process.activate(1, OTHER, 1).await;
    process.clock.advance(500);
    process.batch(1, 70, acquire("b")).await;
    process.batch(1, 70, acquire("a")).await;
    process.clock.advance(500);
    assert!(process.told_nothing());

    process.activate(2, ORIGIN, 9).await;
    let activation = process.activated();
    assert_eq!(activation.activity, Activity(9));
    assert_eq!(activation.now, Stamp(70));
    assert_eq!(
        activation.moved_at, 1_500,
        "when the first batch moved the time"
    );
    assert_eq!(activation.active_keys_max, 100);
    let held: Vec<_> = activation
        .held
        .iter()
        .map(|lock| lock.key.as_str())
        .collect();
    assert_eq!(held, ["b", "a"], "in order of token");
}

#[tokio::test]
async fn batches_are_told_in_order_from_the_activation_on() {
    let mut process = Process::start(storage::memory::snapshots());
    process.activate(3, ORIGIN, 5).await;
    process.activated();
    for key in ["a", "b"] {
        process.batch(3, 10, acquire(key)).await;
    }
    for token in 1..=2 {
        let Feed::Applied { activity, applied } = process.told() else {
            panic!("not a batch")
        };
        assert_eq!(activity, Activity(5));
        let [Outcome::Acquired(Attempt::Granted(grant))] = applied.outcomes[..] else {
            panic!("not a grant: {applied:?}")
        };
        assert_eq!(grant.token, Token(token));
    }
    assert!(process.told_nothing());
}

#[tokio::test]
async fn a_new_activity_in_the_same_term_takes_over() {
    let mut process = Process::start(storage::memory::snapshots());
    process.activate(3, ORIGIN, 5).await;
    process.activate(3, ORIGIN, 6).await;
    assert_eq!(process.activated().activity, Activity(5));
    assert_eq!(process.activated().activity, Activity(6));
    process.batch(3, 10, acquire("a")).await;
    assert!(matches!(
        process.told(),
        Feed::Applied {
            activity: Activity(6),
            ..
        }
    ));
}

#[tokio::test]
async fn nothing_is_told_of_another_term_or_after_another_activation() {
    let mut process = Process::start(storage::memory::snapshots());
    process.activate(2, OTHER, 1).await;
    process.batch(2, 10, acquire("a")).await;
    process.batch(3, 10, Vec::new()).await;
    assert!(process.told_nothing(), "not activated yet");

    process.activate(3, ORIGIN, 5).await;
    process.activated();
    process.batch(4, 20, acquire("b")).await;
    assert!(
        process.told_nothing(),
        "another term, whose activation is still to come"
    );

    process.activate(4, OTHER, 1).await;
    process.batch(4, 30, acquire("c")).await;
    assert!(process.told_nothing(), "another process serves");

    process.activate(5, ORIGIN, 6).await;
    assert_eq!(
        process.activated().held.len(),
        3,
        "all were applied nevertheless"
    );

    process.activate(5, OTHER, 2).await;
    process.batch(5, 40, Vec::new()).await;
    assert!(
        process.told_nothing(),
        "another process serves, even in the same term"
    );
}

#[tokio::test]
async fn an_installed_snapshot_ends_the_span_and_counts_from_when_it_came() {
    let mut source = Process::start(storage::memory::snapshots());
    source.activate(1, OTHER, 1).await;
    source.batch(1, 70, acquire("a")).await;
    let snapshot = source.snapshot().await;

    let mut process = Process::start(storage::memory::snapshots());
    process.activate(1, ORIGIN, 5).await;
    process.activated();
    process.clock.advance(800);
    process
        .machine
        .install_snapshot(&snapshot.meta, snapshot.snapshot)
        .await
        .unwrap();
    process.index = 2;
    process.batch(1, 70, acquire("b")).await;
    assert!(process.told_nothing());

    process.activate(2, ORIGIN, 6).await;
    let activation = process.activated();
    assert_eq!((activation.now, activation.moved_at), (Stamp(70), 1_800));
    assert_eq!(activation.held.len(), 2);
}

#[tokio::test]
async fn only_an_entry_that_moves_the_time_sets_when_it_moved() {
    let mut process = Process::start(storage::memory::snapshots());
    process.batch(1, 70, Vec::new()).await;
    process.clock.advance(400);
    for stamp in [70, 69, 0] {
        process.batch(1, stamp, Vec::new()).await;
    }
    process.activate(1, ORIGIN, 1).await;
    assert_eq!(process.activated().moved_at, 1_000);
}

#[tokio::test]
async fn the_clock_is_read_after_each_entry_has_come() {
    // In one run of entries the last one is stamped, and comes, long after the run began. A clock read
    // at the beginning would let cluster time run ahead.
    let mut process = Process::start(storage::memory::snapshots());
    let clock = process.clock.clone();
    let entries = (1..=3).map(move |index| {
        clock.advance(100);
        Ok((entry(1, index, batch(index * 100, Vec::new())), None))
    });
    process
        .machine
        .apply(futures_util::stream::iter(entries))
        .await
        .unwrap();
    process.index = 3;
    process.activate(1, ORIGIN, 1).await;
    let activation = process.activated();
    assert_eq!((activation.now, activation.moved_at), (Stamp(300), 1_300));
}

#[tokio::test]
async fn a_replay_counts_from_the_replay() {
    let mut process = Process::start(storage::memory::snapshots());
    process.activate(1, ORIGIN, 1).await;
    process.batch(1, 70, acquire("a")).await;
    process.snapshot().await;

    let mut process = process.restart().await;
    process.clock.advance(5_000);
    process.batch(1, 80, acquire("b")).await;
    process.clock.advance(1);
    process.activate(2, ORIGIN, 1).await;
    let activation = process.activated();
    assert_eq!((activation.now, activation.moved_at), (Stamp(80), 6_000));
}

#[tokio::test]
async fn the_first_activation_fixes_the_cap_on_keys() {
    let mut process = Process::start(storage::memory::snapshots());
    for active_keys_max in [2, 50] {
        let activity = Activity(u64::from(active_keys_max));
        let activate = Entry::Activate {
            origin: ORIGIN,
            activity,
            active_keys_max,
        };
        process.apply(1, activate.encode()).await.unwrap();
        assert_eq!(process.activated().active_keys_max, 2);
    }
}

#[tokio::test]
async fn an_entry_of_an_unknown_version_stops_applying() {
    let mut process = Process::start(storage::memory::snapshots());
    process.batch(1, 70, acquire("a")).await;
    let mut bytes = batch(80, Vec::new()).0.to_vec();
    bytes[0] = 2;
    let error = process.apply(1, Payload(bytes.into())).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot apply 1.2: a log entry has format version 2, but this build reads only version 1: \
         start a build that knows version 2"
    );
    assert_eq!(
        process.machine.applied_state().await.unwrap().0,
        Some(log_id(1, 1))
    );
}

#[tokio::test]
async fn applying_goes_on_when_nobody_listens() {
    let mut process = Process::start(storage::memory::snapshots());
    process.feed.close();
    process.activate(1, ORIGIN, 1).await;
    process.batch(1, 70, acquire("a")).await;
    assert_eq!(process.machine.table.active_keys(), 1);
}

#[tokio::test]
async fn a_slow_listener_misses_nothing() {
    let Process {
        mut machine,
        mut feed,
        ..
    } = Process::start(storage::memory::snapshots());
    let count = 3 * FEED_MESSAGES_MAX as u64;
    let activate = Entry::Activate {
        origin: ORIGIN,
        activity: Activity(1),
        active_keys_max: 9,
    }
    .encode();
    let payloads = std::iter::once(activate).chain((1..=count).map(|n| batch(n, Vec::new())));
    let entries: Vec<_> = (1..)
        .zip(payloads)
        .map(|(index, payload)| Ok((entry(1, index, payload), None)))
        .collect();
    let applying =
        tokio::spawn(async move { machine.apply(futures_util::stream::iter(entries)).await });
    assert!(matches!(feed.recv().await, Some(Feed::Activated(_))));
    for stamp in 1..=count {
        let Some(Feed::Applied { applied, .. }) = feed.recv().await else {
            panic!("batch {stamp} is missing")
        };
        assert_eq!(applied.now, Stamp(stamp));
    }
    applying.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_restart_from_snapshot_and_tail_is_where_it_was() {
    let mut process = Process::start(storage::memory::snapshots());
    process.activate(1, OTHER, 1).await;
    process.batch(1, 70, acquire("a")).await;
    process.snapshot().await;
    process.batch(1, 80, acquire("b")).await;
    let before = process.progress.borrow().clone();
    assert_eq!(before.last_applied, Some(log_id(1, 3)));
    assert_eq!(
        (before.now, before.active_keys, before.tokens_granted),
        (Stamp(80), 2, 2)
    );

    let mut process = process.restart().await;
    assert_eq!(process.progress.borrow().last_applied, Some(log_id(1, 2)));
    process.batch(1, 80, acquire("b")).await;
    assert_eq!(*process.progress.borrow(), before);
}

#[tokio::test]
async fn a_build_that_finishes_late_does_not_replace_a_newer_snapshot() {
    let mut source = Process::start(storage::memory::snapshots());
    let mut process = Process::start(storage::memory::snapshots());
    for process in [&mut source, &mut process] {
        process.batch(1, 70, Vec::new()).await;
    }
    let mut builder = process.machine.get_snapshot_builder().await;
    source.batch(1, 80, Vec::new()).await;
    let newer = source.snapshot().await;
    process
        .machine
        .install_snapshot(&newer.meta, newer.snapshot)
        .await
        .unwrap();

    let late = builder.build_snapshot().await.unwrap();
    assert_eq!(late.meta.last_log_id, Some(log_id(1, 1)));
    let current = process
        .machine
        .get_current_snapshot()
        .await
        .unwrap()
        .unwrap();
    assert_eq!(current.meta, newer.meta);
}

#[tokio::test]
async fn a_snapshot_is_of_the_moment_it_was_asked_for() {
    let mut process = Process::start(storage::memory::snapshots());
    process.batch(1, 70, Vec::new()).await;
    let mut builder = process.machine.get_snapshot_builder().await;
    process.batch(1, 80, Vec::new()).await;
    let snapshot = builder.build_snapshot().await.unwrap();
    assert_eq!(snapshot.meta.last_log_id, Some(log_id(1, 1)));
    assert_eq!(
        LockTable::decode(&snapshot.snapshot).unwrap().now(),
        Stamp(70)
    );
}

#[tokio::test]
async fn a_damaged_snapshot_replaces_nothing() {
    let mut process = Process::start(storage::memory::snapshots());
    process.batch(1, 70, Vec::new()).await;
    let good = process.snapshot().await;
    let mut meta = good.meta.clone();
    meta.last_log_id = Some(log_id(1, 9));
    let mut bytes = good.snapshot.to_vec();
    bytes[5] ^= 1;
    let error = process
        .machine
        .install_snapshot(&meta, bytes.into())
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "a snapshot is damaged: its checksum does not match"
    );
    let current = process
        .machine
        .get_current_snapshot()
        .await
        .unwrap()
        .unwrap();
    assert_eq!(current.meta, good.meta);
    assert_eq!(
        process.machine.applied_state().await.unwrap().0,
        Some(log_id(1, 1))
    );
}
