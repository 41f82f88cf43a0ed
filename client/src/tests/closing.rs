//! The end of a broker.

use super::*;

/// Closes in a task of its own.
fn close(broker: &Broker) -> JoinHandle<()> {
    let broker = broker.clone();
    tokio::spawn(async move { broker.close().await })
}

#[tokio::test(start_paused = true)]
async fn the_last_broker_settles_its_releases_before_it_hangs_up() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let ticket = ticket(&broker, &mut peer, 1).await;
    drop((ticket, broker));
    peer.expect_release(1).await;
    peer.closed().await;
    tokio::time::sleep(ms(5000)).await;
    assert!(!server.is_dialled());
}

#[tokio::test(start_paused = true)]
async fn closing_settles_releases_over_new_connections() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    drop(ticket(&broker, &mut peer, 1).await);
    let closing = close(&broker);
    assert_eq!(peer.release().await.token, Token(1));
    drop(peer);
    let mut peer = server.accept().await;
    peer.expect_release(1).await;
    peer.closed().await;
    soon("the end", closing).await.unwrap();
    assert!(!server.is_dialled());
}

#[tokio::test(start_paused = true)]
async fn closing_ends_what_is_being_asked_and_gives_back_what_is_granted_meanwhile() {
    let mut server = Server::alone();
    let broker = server.broker_with(|builder| builder.acquires_max(2));
    let mut peer = server.accept().await;
    let (granted, refused) = (ask(&broker, "k", 9000), ask(&broker, "l", 9000));
    let asked = [peer.acquire().await, peer.acquire().await];
    let unsent = ask(&broker, "m", 9000);
    tokio::time::sleep(ms(10)).await;
    let closing = close(&broker);
    assert_error!(failure(granted).await, Error::Indeterminate);
    assert_error!(failure(refused).await, Error::Indeterminate);
    assert_error!(failure(unsent).await, Error::Closed);
    peer.grant(5, &asked[0]).await;
    peer.time_out(&asked[1]).await;
    peer.expect_release(5).await;
    peer.closed().await;
    soon("the end", closing).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn closing_takes_at_most_5_s() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let held = ticket(&broker, &mut peer, 1).await;
    let release = tokio::spawn(held.release());
    peer.release().await;
    tokio::time::sleep(ms(500)).await;
    let started = Instant::now();
    broker.close().await;
    assert!(
        (4400..=5000).contains(&started.elapsed().as_millis()),
        "{:?}",
        started.elapsed()
    );
    let outcome = soon("the release", release).await.unwrap();
    assert_error!(outcome.unwrap_err(), Error::Indeterminate);
    peer.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_does_not_hold_up_the_end() {
    let network = Network::default();
    let broker = network.start(Broker::builder().addresses(["nowhere:1"]));
    let waiting = ask(&broker, "k", 9000);
    tokio::time::sleep(ms(100)).await;
    let started = Instant::now();
    broker.close().await;
    assert!(started.elapsed() < ms(100));
    assert_error!(failure(waiting).await, Error::Closed);
}

#[tokio::test(start_paused = true)]
async fn after_the_end_every_call_is_told_so() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let held = ticket(&broker, &mut peer, 1).await;
    let (clone, ()) = (broker.clone(), broker.close().await);
    assert_error!(failure(ask(&clone, "k", 9000)).await, Error::Closed);
    assert_error!(held.release().await.unwrap_err(), Error::Closed);
    assert_error!(
        clone.release("k", Token(1)).await.unwrap_err(),
        Error::Closed
    );
    assert_error!(clone.wait_ready(ms(10)).await.unwrap_err(), Error::Closed);
    // Once more is as good as once.
    clone.close().await;
}
