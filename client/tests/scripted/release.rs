//! Releases: tried until answered, never believed without an answer.

use std::time::{Duration, Instant};

use client::{Broker, Error, ReleaseOutcome, Ticket};
use wire::{Reply, Token};

use crate::server::{Peer, Server, broker, soon};

async fn ticket(broker: &Broker, peer: &mut Peer, token: u64) -> Ticket {
    let call = broker.acquire("k").work_budget(Duration::from_secs(1));
    let server = async {
        let acquire = peer.acquire().await;
        peer.grant(token, &acquire).await;
    };
    let (ticket, ()) = tokio::join!(soon("the grant", call), server);
    ticket.unwrap()
}

#[tokio::test]
async fn a_grant_that_is_not_current_any_more_is_told() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    let ticket = ticket(&broker, &mut peer, 1).await;
    let (outcome, ()) = tokio::join!(ticket.release(), async {
        let release = peer.release().await;
        peer.not_current(&release).await;
    });
    assert_eq!(outcome.unwrap(), ReleaseOutcome::NotCurrent);
}

#[tokio::test]
async fn a_release_goes_on_after_a_lost_connection_and_a_refusal() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    let ticket = ticket(&broker, &mut peer, 1).await;
    let (outcome, ()) = tokio::join!(ticket.release(), async {
        assert_eq!(peer.release().await.token, Token(1));
        drop(peer);
        let mut peer = server.accept().await;
        assert_eq!(peer.release().await.token, Token(1));
        peer.say(Reply::Error(wire::Reason::NoLeader)).await;
        peer.closed().await;
        server.accept().await.expect_release(1).await;
    });
    assert_eq!(outcome.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_release_without_an_answer_is_no_success() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    let ticket = ticket(&broker, &mut peer, 1).await;
    let started = Instant::now();
    let (outcome, _) = tokio::join!(ticket.release(), peer.release());
    assert!(matches!(outcome, Err(Error::Indeterminate)), "{outcome:?}");
    assert!(
        (4900..5500).contains(&started.elapsed().as_millis()),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_release_that_could_not_be_sent_says_so() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    let ticket = ticket(&broker, &mut peer, 1).await;
    drop(peer);
    let _never_challenged = server.connection().await;
    let outcome = soon("the end of the release", ticket.release()).await;
    assert!(matches!(outcome, Err(Error::NotConnected)), "{outcome:?}");
}

#[tokio::test]
async fn a_dropped_ticket_and_a_dropped_release_still_release() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    drop(ticket(&broker, &mut peer, 1).await);
    peer.expect_release(1).await;

    let ticket = ticket(&broker, &mut peer, 2).await;
    let release = tokio::spawn(ticket.release());
    let asked = peer.release().await;
    release.abort();
    drop(peer);
    let mut peer = server.accept().await;
    assert_eq!(peer.release().await, asked);
    peer.released(&asked).await;
}

#[tokio::test]
async fn the_last_broker_settles_its_releases_before_it_hangs_up() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    let ticket = ticket(&broker, &mut peer, 1).await;
    drop((ticket, broker));
    peer.expect_release(1).await;
    peer.closed().await;
    assert!(!server.is_dialled_within(Duration::from_millis(300)).await);
}

#[tokio::test]
async fn an_unanswered_release_follows_the_leader() {
    let (former, next) = (Server::start().await, Server::start().await);
    let broker = broker([&former, &next]);
    let mut old = former.accept().await;
    let mut new = next.accept().await;
    old.say(Reply::Leader(former.address.clone())).await;
    let ticket = ticket(&broker, &mut old, 1).await;
    let (outcome, ()) = tokio::join!(ticket.release(), async {
        assert_eq!(old.release().await.token, Token(1));
        new.say(Reply::Leader(next.address.clone())).await;
        new.expect_release(1).await;
    });
    assert_eq!(outcome.unwrap(), ReleaseOutcome::Released);
}
