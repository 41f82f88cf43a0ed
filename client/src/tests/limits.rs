//! What there is only so much of in one client.

use super::*;

/// What the documentation says of releases in the background.
const BACKGROUND_MAX: u64 = 512;

#[tokio::test(start_paused = true)]
async fn a_call_too_many_waits_for_a_place_within_its_time() {
    let mut server = Server::alone();
    let broker = server.broker_with(|builder| builder.acquires_max(1));
    let mut peer = server.accept().await;
    let first = ask(&broker, "k", 9000);
    let acquire = peer.acquire().await;
    let (impatient, patient) = (ask(&broker, "l", 500), ask(&broker, "m", 5000));
    let started = Instant::now();
    assert_error!(failure(impatient).await, Error::ClientCapacity);
    assert_eq!(started.elapsed(), ms(1000), "its wait, rounded up");
    peer.expect_probe().await;
    peer.time_out(&acquire).await;
    assert_error!(failure(first).await, Error::Timeout);
    let acquire = peer.acquire().await;
    assert_eq!((acquire.key.as_str(), acquire.wait.0), ("m", 4));
    peer.grant(1, &acquire).await;
    assert!(outcome(patient).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_keeps_its_place_until_it_is_answered() {
    let mut server = Server::alone();
    let broker = server.broker_with(|builder| builder.acquires_max(1));
    let mut peer = server.accept().await;
    let dropped = ask(&broker, "k", 9000);
    let acquire = peer.acquire().await;
    dropped.abort();
    let next = ask(&broker, "l", 5000);
    let early = tokio::time::timeout(ms(900), peer.next()).await;
    assert!(early.is_err(), "{early:?}");
    peer.time_out(&acquire).await;
    let acquire = peer.acquire().await;
    assert_eq!((acquire.key.as_str(), acquire.wait.0), ("l", 5));
    peer.grant(1, &acquire).await;
    assert!(outcome(next).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_limit_on_calls_has_a_range() {
    for (acquires, fits) in [(0, false), (1, true), (16_384, true), (16_385, false)] {
        let addresses = ["127.0.0.1:1"];
        let builder = Broker::builder().addresses(addresses);
        match builder.acquires_max(acquires).build() {
            Ok(_) => assert!(fits, "{acquires}"),
            Err(error) => {
                assert!(!fits, "{acquires}");
                assert_error!(error, Error::InvalidInput(_));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn owners_that_are_used_up_close_the_client_to_acquires() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    broker.dispatcher().set_next_owner(u64::MAX - 1);
    let call = ask(&broker, "k", 5000);
    let acquire = peer.acquire().await;
    assert_eq!(acquire.owner.0, u64::MAX - 1);
    peer.grant(1, &acquire).await;
    let ticket = outcome(call).await.unwrap();
    for _ in 0..3 {
        assert_error!(failure(ask(&broker, "k", 5000)).await, Error::Closed);
    }
    let (released, ()) = tokio::join!(ticket.release(), peer.expect_release(1));
    assert_eq!(released.unwrap(), crate::ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_the_queue_of_compensating_releases_is_left_to_its_lease() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let mut tickets = Vec::new();
    for token in 1..=BACKGROUND_MAX + 2 {
        tickets.push(ticket(&broker, &mut peer, token).await);
    }
    drop(tickets);
    let mut releases = Vec::new();
    for token in 1..=BACKGROUND_MAX {
        let release = peer.release().await;
        assert_eq!(release.token, Token(token));
        releases.push(release);
    }
    assert!(
        tokio::time::timeout(ms(100), peer.next()).await.is_err(),
        "no more"
    );
    for release in &releases {
        peer.released(release).await;
    }
    // There is room again.
    drop(ticket(&broker, &mut peer, 1000).await);
    peer.expect_release(1000).await;
}
