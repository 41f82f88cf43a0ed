//! Who comes in, who does not, and in what time.

use tokio::time::sleep;

use super::*;

#[tokio::test]
async fn the_right_digest_gets_no_reply_and_then_frames_follow() {
    let server = serve().await;
    let mut peer = Peer::dial(&server).await;
    let nonce = peer.challenge().await;
    peer.send(format!("{}\n", digest(TOKEN, &nonce))).await;
    peer.settle().await;
    assert_eq!(server.probe().counters().sessions.get(), 1);
}

#[tokio::test]
async fn frames_may_come_right_behind_the_digest() {
    let server = serve().await;
    let mut peer = Peer::dial(&server).await;
    let nonce = peer.challenge().await;
    let line = format!("{}\n", digest(TOKEN, &nonce));
    peer.send([line.as_bytes(), &release("job", 1), b"R"].concat())
        .await;
    peer.expect(numbered(b'N', 1, "job")).await;
    peer.send(&release("job", 2)[1..]).await;
    peer.expect(numbered(b'N', 2, "job")).await;
}

#[tokio::test]
async fn each_connection_has_its_own_nonce() {
    let server = serve().await;
    let first = Peer::dial(&server).await.challenge().await;
    let second = Peer::dial(&server).await.challenge().await;
    assert_ne!(first, second);
}

#[tokio::test]
async fn other_digests_are_refused() {
    let server = serve().await;
    let stale = Peer::dial(&server).await.challenge().await;
    for line in [
        digest(TOKEN, &stale),
        String::new(),
        "x".repeat(43),
        "x".repeat(256),
    ] {
        let mut peer = Peer::dial(&server).await;
        peer.challenge().await;
        peer.send(format!("{line}\n")).await;
        peer.expect_last("Eauth_failed\n").await;
    }
    let mut peer = Peer::dial(&server).await;
    let nonce = peer.challenge().await;
    peer.send(format!("{}\r\n", digest(TOKEN, &nonce))).await;
    peer.expect_last("Eauth_failed\n").await;
    assert_eq!(server.probe().counters().failed_auth.get(), 5);
    assert_eq!(server.probe().counters().sessions.get(), 0);
}

#[tokio::test]
async fn a_long_line_is_refused_before_its_end() {
    let server = serve().await;
    let mut peer = Peer::dial(&server).await;
    peer.challenge().await;
    peer.send("x".repeat(257)).await;
    peer.expect_last("Eline_too_long\n").await;
    assert_eq!(server.probe().counters().failed_line.get(), 1);
}

#[tokio::test]
async fn either_of_two_tokens_lets_in() {
    let tokens = ["old", "new"].map(AuthToken::new).to_vec();
    let house = House::new(
        Backend::Single,
        ServerConfig {
            tokens,
            ..config(9, None)
        },
    );
    for token in ["old", "new"] {
        let mut peer = house.connect(WIDE);
        peer.authenticate(token).await;
        peer.settle().await;
    }
    let mut peer = house.connect(WIDE);
    peer.authenticate("").await;
    peer.expect_last("Eauth_failed\n").await;
}

#[tokio::test]
async fn without_a_token_the_empty_one_is_asked_for() {
    let tokens = vec![AuthToken::default()];
    let house = House::new(
        Backend::Single,
        ServerConfig {
            tokens,
            ..config(9, None)
        },
    );
    let mut peer = house.connect(WIDE);
    peer.authenticate("").await;
    peer.settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_ends_after_ten_seconds() {
    let house = House::single();
    let start = Instant::now();
    let mut peer = house.connect(WIDE);
    peer.challenge().await;
    peer.expect_last("").await;
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    assert_eq!(house.counters().failed_deadline.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dripping_handshake_ends_after_ten_seconds_as_well() {
    let house = House::single();
    let start = Instant::now();
    let mut peer = house.connect(WIDE);
    peer.challenge().await;
    for _ in 0..3 {
        sleep(Duration::from_secs(3)).await;
        peer.send("x").await;
    }
    peer.expect_last("").await;
    assert_eq!(start.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_take_the_challenge_ends_after_ten_seconds() {
    let house = House::single();
    let start = Instant::now();
    let mut peer = house.connect(4);
    sleep(Duration::from_millis(9_999)).await;
    assert_eq!(house.counters().failed_deadline.get(), 0);
    sleep(Duration::from_millis(2)).await;
    assert_eq!(house.counters().failed_deadline.get(), 1);
    peer.rest().await;
    assert!(start.elapsed() < Duration::from_secs(12));
}
