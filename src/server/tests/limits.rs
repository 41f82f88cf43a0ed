//! Connections beyond the limit, and clients that do not read.

use tokio::time::sleep;

use super::*;

#[tokio::test]
async fn one_connection_too_many_is_closed_before_a_byte_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::start(listener, config(2, None), Backend::Single).unwrap();
    let mut first = Peer::enter(&server).await;
    // One in its handshake counts as well.
    let mut second = Peer::dial(&server).await;
    second.challenge().await;
    for _ in 0..3 {
        let mut third = Peer::dial(&server).await;
        // It may have sent something already, and still sees an end and no reset.
        let _ = third.0.write_all(b"hello\n").await;
        third.expect_last("").await;
    }
    assert_eq!(server.probe().counters().turned_away.get(), 3);
    first.settle().await;

    drop(second);
    loop {
        let mut peer = Peer::dial(&server).await;
        let mut op = [0];
        if timeout(PATIENCE, peer.0.read(&mut op))
            .await
            .unwrap()
            .unwrap()
            == 1
        {
            assert_eq!(op, *b"S");
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_cut_after_a_second() {
    let house = House::single();
    let mut deaf = house.enter(NARROW).await;
    for probe in 0..256 {
        deaf.send(release("job", probe)).await;
    }
    run_dry().await;
    // With 256 replies or less it may take its time.
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(house.counters().slow.get(), 0);
    for probe in 0..20 {
        deaf.send(release("job", probe)).await;
    }
    // The socket has taken nothing for an hour, so there is nothing to wait for.
    run_dry().await;
    sleep(Duration::from_millis(1)).await;
    assert_eq!(house.counters().slow.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_is_not_cut() {
    let house = House::single();
    let slow = house.enter(NARROW).await;
    let frames: Vec<u8> = (0..500).flat_map(|probe| release("job", probe)).collect();
    let expected: Vec<u8> = (0..500)
        .flat_map(|probe| numbered(b'N', probe, "job"))
        .collect();
    let (mut read, mut write) = tokio::io::split(slow.0);
    tokio::spawn(async move {
        write.write_all(&frames).await.unwrap();
        std::future::pending::<()>().await;
    });
    let mut answers = vec![0; expected.len()];
    for chunk in answers.chunks_mut(8) {
        sleep(Duration::from_millis(900)).await;
        read.read_exact(chunk).await.unwrap();
    }
    assert_eq!(text(&answers), text(&expected));
    assert_eq!(house.counters().slow.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_stalls_because_the_server_does_not_read_keeps_its_time() {
    let house = House::single();
    let deaf = house.enter(NARROW).await;
    let mut frames: Vec<u8> = (0..280).flat_map(|probe| release("job", probe)).collect();
    frames.extend(&release("job", 999)[..3]);
    let answers: Vec<u8> = (0..280)
        .flat_map(|probe| numbered(b'N', probe, "job"))
        .collect();
    let (mut read, mut write) = tokio::io::split(deaf.0);
    let sending = tokio::spawn(async move {
        write.write_all(&frames).await.unwrap();
        write
    });
    // Some answers are taken now and then, so it is not slow, but it is not read from either.
    let mut taken = vec![0; answers.len()];
    let (drip, flood) = taken.split_at_mut(12 * 20);
    for chunk in drip.chunks_mut(12) {
        sleep(Duration::from_millis(900)).await;
        read.read_exact(chunk).await.unwrap();
    }
    read.read_exact(flood).await.unwrap();
    assert_eq!(text(&taken), text(&answers));
    let mut write = sending.await.unwrap();
    sleep(Duration::from_secs(4)).await;
    write.write_all(&release("job", 999)[3..]).await.unwrap();
    let mut last = [0; 13];
    read.read_exact(&mut last).await.unwrap();
    assert_eq!(text(&last), text(&numbered(b'N', 999, "job")));
}

#[tokio::test]
async fn a_deaf_client_on_a_real_socket_is_cut_as_well() {
    let server = serve().await;
    let mut deaf = Peer::enter(&server).await;
    let frame = release(&"k".repeat(128), 1);
    let frames = frame.repeat(1000);
    let start = Instant::now();
    let mut sent = 0;
    while server.probe().counters().slow.get() == 0 {
        assert!(
            start.elapsed() < PATIENCE,
            "a client that never reads is still connected"
        );
        // It writes whenever the server reads, frame after frame.
        let rest = &frames[sent % frames.len()..];
        if let Ok(Ok(count)) = timeout(Duration::from_millis(50), deaf.0.write(rest)).await {
            sent += count;
        }
    }
    assert_eq!(server.probe().counters().malformed.get(), 0);
}
