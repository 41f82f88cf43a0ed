//! In front of a cluster, which here is a lock table behind a log that a test moves by hand.

use raft::lock::{Batch, LockTable, Stamp};
use raft::{Activation, Activity, Feed, Leader, Status};
use tokio::sync::mpsc;

use super::*;
use crate::driver::{Cluster, Propose};

/// The node's side of the seam.
struct Log {
    table: LockTable,
    proposed: mpsc::UnboundedReceiver<(Activity, Batch)>,
    feed: mpsc::Sender<Feed>,
    status: watch::Sender<Status>,
}

struct Proposer(mpsc::UnboundedSender<(Activity, Batch)>);

impl Propose for Proposer {
    fn propose(&mut self, activity: Activity, batch: Batch) {
        self.0.send((activity, batch)).unwrap();
    }

    fn expire(&mut self, _now: u64) {}
}

/// A node that follows and knows no leader.
fn node() -> (House, Log) {
    let (proposals, proposed) = mpsc::unbounded_channel();
    let (feed, feeds) = mpsc::channel(64);
    let (status, statuses) = watch::channel(Status::default());
    let cluster = Cluster {
        origin: 99,
        own: "own:1".to_owned(),
        proposer: Box::new(Proposer(proposals)),
        feed: feeds,
        status: statuses,
    };
    let house = House::new(Backend::Cluster(cluster), config(100, None));
    (
        house,
        Log {
            table: LockTable::new(1000),
            proposed,
            feed,
            status,
        },
    )
}

impl Log {
    fn follow(&self, client: &str) {
        let leader = Leader {
            id: 5,
            client: client.to_owned(),
        };
        self.status.send_modify(|status| {
            status.leader = Some(leader);
            status.leading = false;
        });
    }

    /// This node leads and may serve.
    async fn activate(&self, activity: u64) {
        let leader = Leader {
            id: 1,
            client: "own:1".to_owned(),
        };
        self.status.send_modify(|status| {
            status.leader = Some(leader);
            status.leading = true;
        });
        let activation = Activation {
            activity: Activity(activity),
            now: Stamp(0),
            moved_at: 0,
            active_keys_max: 1000,
            held: self.table.held(),
        };
        self.feed.send(Feed::Activated(activation)).await.unwrap();
    }

    fn revoke(&self, activity: u64) {
        self.status
            .send_modify(|status| status.revoked = Activity(activity));
    }

    async fn next(&mut self) -> (Activity, Batch) {
        timeout(PATIENCE, self.proposed.recv())
            .await
            .expect("a batch is proposed")
            .unwrap()
    }

    async fn apply(&mut self, (activity, batch): (Activity, Batch)) {
        let applied = self.table.apply(&batch);
        self.feed
            .send(Feed::Applied { activity, applied })
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn sessions_learn_who_leads_and_are_sent_there() {
    let (house, log) = node();
    let mut early = house.enter(WIDE).await;
    log.follow("leader:1");
    early.expect("Lleader:1\n").await;
    let mut late = house.enter(WIDE).await;
    late.expect("Lleader:1\n").await;
    late.send(acquire("job", 5, 30, 1)).await;
    late.expect("Mleader:1\n").await;
    log.activate(1).await;
    early.expect("Lown:1\n").await;
    late.expect("Lown:1\n").await;
    late.send(release("job", 1)).await;
    late.expect("Enot_active\n").await;
}

#[tokio::test]
async fn without_a_leader_requests_are_refused_as_such() {
    let (house, _log) = node();
    let mut peer = house.enter(WIDE).await;
    peer.send(acquire("job", 5, 30, 1)).await;
    peer.expect("Eno_leader\n").await;
}

#[tokio::test]
async fn a_grant_is_answered_when_it_is_applied_and_not_before() {
    let (house, mut log) = node();
    log.activate(1).await;
    let mut peer = house.enter(WIDE).await;
    peer.expect("Lown:1\n").await;
    peer.send(acquire("job", 0, 30, 1)).await;
    let batch = log.next().await;
    let early = timeout(Duration::from_millis(50), peer.0.read_u8()).await;
    assert!(early.is_err(), "{early:?}");
    log.apply(batch).await;
    peer.expect(granted("job", 1, 1)).await;
}

#[tokio::test]
async fn at_most_four_batches_are_under_way_and_the_rest_is_one_batch() {
    let (house, mut log) = node();
    log.activate(1).await;
    let mut peer = house.enter(WIDE).await;
    peer.expect("Lown:1\n").await;
    let mut batches = Vec::new();
    for number in 0..4 {
        peer.send(release("job", number)).await;
        batches.push(log.next().await);
    }
    for number in 4..10 {
        peer.send(release("job", number)).await;
        run_dry().await;
    }
    assert!(log.proposed.try_recv().is_err());
    for batch in batches {
        assert_eq!(batch.1.commands.len(), 1);
        log.apply(batch).await;
    }
    let (activity, batch) = log.next().await;
    assert_eq!(batch.commands.len(), 6);
    log.apply((activity, batch)).await;
    for number in 0..10 {
        peer.expect(numbered(b'N', number, "job")).await;
    }
}

#[tokio::test]
async fn a_session_whose_acquire_was_proposed_is_closed_at_the_loss_of_activity() {
    let (house, mut log) = node();
    log.activate(1).await;
    let mut indeterminate = house.enter(WIDE).await;
    indeterminate.expect("Lown:1\n").await;
    let mut idle = house.enter(WIDE).await;
    idle.expect("Lown:1\n").await;
    indeterminate.send(acquire("job", 5, 30, 1)).await;
    let batch = log.next().await;
    log.status.send_modify(|status| {
        status.leading = false;
        status.leader = Some(Leader {
            id: 5,
            client: "leader:1".to_owned(),
        });
        status.revoked = Activity(1);
    });
    idle.expect("Lleader:1\n").await;
    let rest = indeterminate.rest().await;
    assert!(
        !rest.contains(&b'M') && !rest.contains(&b'E'),
        "{}",
        rest.escape_ascii()
    );
    // What is applied of it later is nobody's answer any more.
    log.apply(batch).await;
    idle.send(release("job", 1)).await;
    idle.expect("Mleader:1\n").await;
}

#[tokio::test]
async fn a_revocation_that_overtakes_its_activation_still_holds() {
    let (house, log) = node();
    let mut peer = house.enter(WIDE).await;
    log.revoke(3);
    run_dry().await;
    log.activate(3).await;
    run_dry().await;
    peer.send(acquire("job", 5, 30, 1)).await;
    peer.expect("Enot_active\n").await;
}

#[tokio::test]
async fn when_the_node_is_gone_nobody_is_served_any_more() {
    let (house, log) = node();
    log.activate(1).await;
    let mut peer = house.enter(WIDE).await;
    peer.expect("Lown:1\n").await;
    drop(log);
    run_dry().await;
    peer.send(acquire("job", 5, 30, 1)).await;
    peer.expect("Eno_leader\n").await;
}

#[tokio::test]
async fn releases_beyond_their_lane_wait_unread_and_none_is_refused() {
    const COUNT: u64 = 1500;
    let (house, mut log) = node();
    log.activate(1).await;
    let mut eager = house.enter(WIDE).await;
    eager.expect("Lown:1\n").await;
    let mut other = house.enter(WIDE).await;
    other.expect("Lown:1\n").await;
    let frames: Vec<u8> = (0..COUNT)
        .flat_map(|number| release("job", number))
        .collect();
    eager.send(frames).await;
    run_dry().await;
    assert_eq!(house.front.release_lane.available_permits(), 0);
    // Acquires of others go on.
    other.send(acquire("free", 0, 30, 1)).await;
    let mut releases = 0;
    while releases < COUNT as usize {
        let (activity, batch) = log.next().await;
        releases += batch.commands.len();
        log.apply((activity, batch)).await;
    }
    for number in 0..250 {
        eager.expect(numbered(b'N', number, "job")).await;
    }
    other.expect(granted("free", 1, 1)).await;
    for number in 250..COUNT {
        eager.expect(numbered(b'N', number, "job")).await;
    }
}

#[tokio::test]
async fn a_session_that_ends_gives_its_places_in_the_release_lane_back() {
    let (house, mut log) = node();
    log.activate(1).await;
    let mut gone = house.enter(WIDE).await;
    gone.expect("Lown:1\n").await;
    let frames: Vec<u8> = (0..1500)
        .flat_map(|number| release("job", number))
        .collect();
    gone.send(frames).await;
    run_dry().await;
    drop(gone);
    log.revoke(1);
    log.follow("leader:1");
    run_dry().await;
    while log.proposed.try_recv().is_ok() {}
    let mut peer = house.enter(WIDE).await;
    peer.expect("Lleader:1\n").await;
    peer.send(release("job", 1)).await;
    peer.expect("Mleader:1\n").await;
    run_dry().await;
    let lane = house.front.release_lane.available_permits();
    assert_eq!(lane, driver::RELEASES_IN_FLIGHT_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_what_is_under_way_and_refuses_the_rest() {
    let (house, mut log) = node();
    log.activate(1).await;
    let mut peers = Vec::new();
    for _ in 0..5 {
        let mut peer = house.enter(WIDE).await;
        peer.expect("Lown:1\n").await;
        peers.push(peer);
    }
    let mut batches = Vec::new();
    for (number, peer) in peers[..4].iter_mut().enumerate() {
        peer.send(acquire(&format!("key-{number}"), 0, 30, 1)).await;
        batches.push(log.next().await);
    }
    peers[4].send(acquire("key-4", 0, 30, 1)).await;
    run_dry().await;

    let House {
        gate,
        front,
        mut driver,
        stopping,
    } = house;
    let stop = tokio::spawn(async move {
        stopping.send_replace(true);
        drop(front);
        driver.quiesce().await;
        driver.stop();
        driver.ended().await;
    });
    run_dry().await;
    for batch in batches {
        log.apply(batch).await;
    }
    for (number, peer) in peers[..4].iter_mut().enumerate() {
        let key = format!("key-{number}");
        peer.expect_last(granted(&key, number as u64 + 1, 1)).await;
    }
    peers[4].expect_last("Enot_active\n").await;
    stop.await.unwrap();
    assert!(log.proposed.try_recv().is_err());
    drop(gate);
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_log_that_stands_still() {
    let (house, mut log) = node();
    log.activate(1).await;
    let mut peer = house.enter(WIDE).await;
    peer.expect("Lown:1\n").await;
    peer.send(acquire("job", 0, 30, 1)).await;
    let _lost = log.next().await;
    let start = Instant::now();
    let House {
        gate,
        front,
        mut driver,
        stopping,
    } = house;
    stopping.send_replace(true);
    drop(front);
    driver.quiesce().await;
    driver.stop();
    // Its acquire may still be granted, so nothing is said.
    peer.expect_last("").await;
    peer.finish().await;
    driver.ended().await;
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    drop(gate);
}

#[tokio::test(start_paused = true)]
async fn after_a_malformed_frame_answers_have_five_seconds() {
    let (house, mut log) = node();
    log.activate(1).await;
    let mut peer = house.enter(WIDE).await;
    peer.expect("Lown:1\n").await;
    let start = Instant::now();
    peer.send([acquire("job", 0, 30, 1), b"X".to_vec()].concat())
        .await;
    let batch = log.next().await;
    peer.expect_last("Ebad_op\n").await;
    assert_eq!(start.elapsed(), Duration::from_secs(5));

    // The grant comes out for a session that is gone, so the next batch gives it back.
    log.apply(batch).await;
    let (activity, batch) = log.next().await;
    assert_eq!(batch.commands.len(), 1);
    log.apply((activity, batch)).await;
    let mut other = house.enter(WIDE).await;
    other.expect("Lown:1\n").await;
    other.send(acquire("job", 0, 30, 2)).await;
    let batch = log.next().await;
    log.apply(batch).await;
    other.expect(granted("job", 2, 2)).await;
}

#[tokio::test(start_paused = true)]
async fn after_the_end_of_input_answers_have_five_seconds_as_well() {
    let (house, mut log) = node();
    log.activate(1).await;
    let mut peer = house.enter(WIDE).await;
    peer.expect("Lown:1\n").await;
    let start = Instant::now();
    peer.send(release("job", 1)).await;
    let _lost = log.next().await;
    peer.finish().await;
    peer.expect_last("").await;
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}
