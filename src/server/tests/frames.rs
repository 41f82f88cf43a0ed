//! Frames as they come: whole, in pieces, in heaps, and wrong.

use tokio::time::sleep;

use super::*;

#[tokio::test]
async fn a_lock_is_taken_and_given_back() {
    let server = serve().await;
    let mut peer = Peer::enter(&server).await;
    peer.send(acquire("job", 0, 30, 77)).await;
    peer.expect(granted("job", 1, 77)).await;
    peer.send(acquire("job", 0, 30, 78)).await;
    peer.expect(numbered(b'T', 78, "job")).await;
    peer.send(release("job", 1)).await;
    peer.expect(numbered(b'R', 1, "job")).await;
    peer.send(release("job", 1)).await;
    peer.expect(numbered(b'N', 1, "job")).await;
}

#[tokio::test]
async fn a_waiter_is_served_when_the_holder_releases() {
    let server = serve().await;
    let (mut holder, mut waiter) = (Peer::enter(&server).await, Peer::enter(&server).await);
    let token = holder.acquire("job").await;
    waiter.send(acquire("job", 50, 30, 5)).await;
    waiter.settle().await;
    holder.send(release("job", token)).await;
    holder.expect(numbered(b'R', token, "job")).await;
    waiter.expect(granted("job", token + 1, 5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_shortly_before_its_limit() {
    let house = House::single();
    let (mut holder, mut waiter) = (house.enter(WIDE).await, house.enter(WIDE).await);
    holder.acquire("job").await;
    let start = Instant::now();
    waiter.send(acquire("job", 3, 30, 5)).await;
    waiter.expect(numbered(b'T', 5, "job")).await;
    let waited = start.elapsed().as_millis();
    assert!((2_900..2_950).contains(&waited), "{waited} ms");
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_by_itself_and_not_before_its_time() {
    let house = House::single();
    let mut peer = house.enter(WIDE).await;
    let start = Instant::now();
    peer.send(acquire("job", 0, 2, 1)).await;
    peer.expect(granted("job", 1, 1)).await;
    peer.send(acquire("job", 50, 2, 2)).await;
    peer.expect(granted("job", 2, 2)).await;
    let held = start.elapsed().as_millis();
    assert!((2_000..3_000).contains(&held), "{held} ms");
}

#[tokio::test]
async fn frames_may_come_byte_by_byte_with_keep_alives_between() {
    let server = serve().await;
    let mut peer = Peer::enter(&server).await;
    // Token and owner hold newlines, so that the header can't be searched for one.
    let newlines = 0x0A0A_0A0A_0A0A_0A0A;
    let owner = newlines - 1;
    for frame in [
        b"\n\n".to_vec(),
        acquire("order-1", 10, 10, owner),
        b"\n".to_vec(),
        release("\u{5728}\u{5eab}\t\r", newlines),
        b"\n".to_vec(),
    ] {
        for byte in frame {
            peer.send([byte]).await;
        }
    }
    peer.expect(granted("order-1", 1, owner)).await;
    peer.expect(numbered(b'N', newlines, "\u{5728}\u{5eab}\t\r"))
        .await;
}

#[tokio::test]
async fn ten_thousand_pipelined_requests_of_a_reading_client_are_all_answered() {
    const COUNT: u64 = 10_000;
    let server = serve().await;
    let (mut read, mut write) = Peer::enter(&server).await.0.into_split();
    let sending = tokio::spawn(async move {
        let mut frames = Vec::new();
        for number in 0..COUNT {
            frames.extend(acquire(&format!("key-{number:05}"), 0, 30, number));
            frames.extend(release("probe", number));
        }
        write.write_all(&frames).await.unwrap();
        write
    });
    // Both kinds of answer come in order, whatever is between them.
    let (mut grants, mut probes) = (0, 0);
    while grants < COUNT || probes < COUNT {
        let mut op = [0];
        timeout(PATIENCE, read.read_exact(&mut op))
            .await
            .unwrap()
            .unwrap();
        let mut rest = vec![0; if op[0] == b'A' { 26 } else { 14 }];
        read.read_exact(&mut rest).await.unwrap();
        if op[0] == b'A' {
            let key = format!("key-{grants:05}");
            assert_eq!(text(&rest), text(&granted(&key, grants + 1, grants)[1..]));
            grants += 1;
        } else {
            assert_eq!(text(&rest), text(&numbered(b'N', probes, "probe")[1..]));
            probes += 1;
        }
    }
    sending.await.unwrap();
    assert_eq!(server.probe().counters().slow.get(), 0);
}

#[tokio::test]
async fn malformed_frames_end_the_session_with_their_reason() {
    let server = serve().await;
    let long_key = "k".repeat(129);
    let endless = "k".repeat(200);
    let cases: [(&str, Vec<u8>); 13] = [
        ("bad_op", b"X".to_vec()),
        ("bad_op", b"\n\nT".to_vec()),
        ("bad_op", b"\r\n".to_vec()),
        ("bad_lease", acquire("job", 0, 0, 1)),
        ("bad_lease", acquire("job", 0, 251, 1)),
        ("bad_lease", acquire("a b", 0, 255, 1)),
        ("bad_key", acquire("", 0, 1, 1)),
        ("bad_key", acquire("a b", 0, 1, 1)),
        ("bad_key", acquire(&long_key, 0, 1, 1)),
        ("bad_key", release(&long_key, 1)),
        ("bad_key", [&release("", 1)[..9], b"\xff\n"].concat()),
        ("line_too_long", acquire(&endless, 0, 1, 1)),
        ("line_too_long", release(&endless, 1)),
    ];
    let count = cases.len() as u64;
    for (reason, frame) in cases {
        let mut peer = Peer::enter(&server).await;
        peer.send(&frame).await;
        peer.expect_last(format!("E{reason}\n")).await;
    }
    assert_eq!(server.probe().counters().malformed.get(), count);
}

#[tokio::test]
async fn the_longest_frame_is_taken_and_one_byte_more_is_not() {
    let server = serve().await;
    let longest = release(&"k".repeat(183), 1);
    assert_eq!(longest.len(), 192 + 1);
    let mut peer = Peer::enter(&server).await;
    peer.send(&longest).await;
    peer.expect_last("Ebad_key\n").await;
    let mut peer = Peer::enter(&server).await;
    peer.send(&release(&"k".repeat(184), 1)[..193]).await;
    peer.expect_last("Eline_too_long\n").await;
}

#[tokio::test]
async fn the_end_of_the_stream_inside_a_frame_is_a_bad_request() {
    let server = serve().await;
    let frame = acquire("job", 0, 1, 1);
    for cut in [1, 5, frame.len() - 1] {
        let mut peer = Peer::enter(&server).await;
        peer.send(&frame[..cut]).await;
        peer.finish().await;
        peer.expect_last("Ebad_request\n").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_has_five_seconds_from_its_op_byte_however_it_drips() {
    let house = House::single();
    let mut peer = house.enter(WIDE).await;
    peer.settle().await;
    // Quiet time between frames does not count, nor do keep-alives begin one.
    sleep(Duration::from_secs(3600)).await;
    peer.send("\n").await;
    sleep(Duration::from_secs(3600)).await;
    let start = Instant::now();
    for byte in &release("job", 1)[..5] {
        peer.send([*byte]).await;
        sleep(Duration::from_millis(990)).await;
    }
    assert_eq!(house.counters().malformed.get(), 0);
    peer.expect_last("Ebad_request\n").await;
    assert_eq!(start.elapsed().as_millis() / 10, 500);
}

#[tokio::test(start_paused = true)]
async fn each_frame_has_five_seconds_of_its_own() {
    let house = House::single();
    let mut peer = house.enter(WIDE).await;
    for token in 0..4 {
        let frame = release("job", token);
        let (front, back) = frame.split_at(9);
        peer.send(front).await;
        sleep(Duration::from_secs(4)).await;
        // The rest of this frame comes together with the beginning of the next.
        peer.send([back, b"R"].concat()).await;
        peer.expect(numbered(b'N', token, "job")).await;
        sleep(Duration::from_secs(4)).await;
        peer.send(&release("job", 99)[1..]).await;
        peer.expect(numbered(b'N', 99, "job")).await;
    }
}
