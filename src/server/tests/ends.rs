//! How sessions end, and what becomes of their waiters and grants.

use super::*;

#[tokio::test]
async fn a_client_that_closes_its_side_leaves_no_waiter_behind() {
    let server = serve().await;
    let mut holder = Peer::enter(&server).await;
    let token = holder.acquire("job").await;
    let mut gone = Peer::enter(&server).await;
    gone.send(acquire("job", 200, 30, 1)).await;
    gone.settle().await;
    let mut next = Peer::enter(&server).await;
    next.send(acquire("job", 200, 30, 2)).await;
    next.settle().await;

    gone.finish().await;
    gone.expect_last("").await;
    holder.send(release("job", token)).await;
    next.expect(granted("job", token + 1, 2)).await;
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_no_waiter_behind() {
    let server = serve().await;
    let mut holder = Peer::enter(&server).await;
    let token = holder.acquire("job").await;
    let mut gone = Peer::enter(&server).await;
    gone.send(acquire("job", 200, 30, 1)).await;
    gone.settle().await;
    let mut next = Peer::enter(&server).await;
    next.send(acquire("job", 200, 30, 2)).await;
    next.settle().await;

    socket2::SockRef::from(&gone.0)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(gone);
    // Whether the reset or the release comes first: in the end nobody but the next one holds it.
    holder.send(release("job", token)).await;
    let reply = next.take(granted("job", 0, 2).len()).await;
    assert_eq!(reply[0], b'A');
}

#[tokio::test]
async fn what_was_asked_before_the_end_of_input_is_answered() {
    let server = serve().await;
    let mut peer = Peer::enter(&server).await;
    peer.send([release("job", 1), release("job", 2)].concat())
        .await;
    peer.finish().await;
    peer.expect_last([numbered(b'N', 1, "job"), numbered(b'N', 2, "job")].concat())
        .await;
}

#[tokio::test]
async fn a_grant_outlives_the_session_that_got_it() {
    let server = serve().await;
    let mut holder = Peer::enter(&server).await;
    let token = holder.acquire("job").await;
    holder.finish().await;
    holder.expect_last("").await;
    let mut other = Peer::enter(&server).await;
    other.send(acquire("job", 0, 30, 1)).await;
    other.expect(numbered(b'T', 1, "job")).await;
    other.send(release("job", token)).await;
    other.expect(numbered(b'R', token, "job")).await;
}

#[tokio::test]
async fn requests_before_a_malformed_frame_are_answered_and_waiters_are_dropped() {
    let server = serve().await;
    let mut holder = Peer::enter(&server).await;
    let token = holder.acquire("job").await;
    let mut peer = Peer::enter(&server).await;
    let frames = [
        release("other", 5),
        acquire("job", 200, 30, 1),
        acquire("free", 0, 30, 2),
        release("other", 6),
        b"X".to_vec(),
        release("other", 7),
    ];
    peer.send(frames.concat()).await;
    let rest = peer.rest().await;
    let expected = [
        numbered(b'N', 5, "other"),
        granted("free", token + 1, 2),
        numbered(b'N', 6, "other"),
        b"Ebad_op\n".to_vec(),
    ];
    assert_eq!(text(&rest), text(&expected.concat()));

    holder.send(release("job", token)).await;
    holder.expect(numbered(b'R', token, "job")).await;
    assert_eq!(holder.acquire("job").await, token + 2);
}

#[tokio::test(start_paused = true)]
async fn input_after_the_end_is_discarded_and_the_last_reply_arrives() {
    let server = serve().await;
    let mut peer = Peer::enter(&server).await;
    peer.send([b"X".to_vec(), vec![b'k'; 100_000]].concat())
        .await;
    peer.expect_last("Ebad_op\n").await;
}

#[tokio::test(start_paused = true)]
async fn grants_that_a_client_does_not_take_are_released() {
    let house = House::single();
    let mut deaf = house.enter(NARROW).await;
    let keys: Vec<String> = (0..300).map(|number| format!("key-{number:03}")).collect();
    let frames: Vec<u8> = keys
        .iter()
        .flat_map(|key| acquire(key, 0, 250, 1))
        .collect();
    // Its first grants fit into the pipe, the rest does not.
    deaf.send(frames).await;
    let start = Instant::now();
    while house.counters().slow.get() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(start.elapsed() < Duration::from_millis(1_100));
    }
    let mut other = house.enter(WIDE).await;
    other.settle().await;
    let mut free = 0;
    for key in &keys {
        other.send(acquire(key, 0, 30, 2)).await;
        free += usize::from(other.take(1).await[0] == b'A');
        other.take(if free > 0 { 24 } else { 16 }).await;
    }
    // What the pipe took whole may have reached the client and is kept.
    let mut taken = Vec::new();
    while let Ok(Ok(1)) = timeout(PATIENCE, deaf.0.read(&mut [0])).await {
        taken.push(());
    }
    assert_eq!(300 - free, taken.len() / 25);
    assert!(free >= 290, "{free}");
}

#[tokio::test(start_paused = true)]
async fn a_grant_for_a_broken_connection_is_released() {
    let house = House::single();
    let mut holder = house.enter(WIDE).await;
    let token = holder.acquire("job").await;
    let mut gone = house.enter(NARROW).await;
    gone.send(acquire("job", 200, 250, 1)).await;
    // Answers that it does not read keep it from seeing the end of the client's input.
    for probe in 0..300 {
        gone.send(release("x", probe)).await;
        run_dry().await;
    }
    drop(gone);
    holder.send(release("job", token)).await;
    holder.expect(numbered(b'R', token, "job")).await;
    holder.send(acquire("job", 100, 30, 2)).await;
    let reply = holder.take(granted("job", 0, 2).len()).await;
    assert_eq!(reply[0], b'A');
}
