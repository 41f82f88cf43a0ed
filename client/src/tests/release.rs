//! Releases: tried until answered, never believed without an answer.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::{Nonce, Reason};

use super::network::broker as brokers;
use super::*;
use crate::ReleaseOutcome;

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_not_current_any_more_is_told() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let ticket = ticket(&broker, &mut peer, 1).await;
    let (outcome, ()) = tokio::join!(ticket.release(), async {
        let release = peer.release().await;
        peer.not_current(&release).await;
    });
    assert_eq!(outcome.unwrap(), ReleaseOutcome::NotCurrent);
}

#[tokio::test(start_paused = true)]
async fn a_release_goes_on_after_a_lost_connection_and_a_refusal() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let ticket = ticket(&broker, &mut peer, 1).await;
    let (outcome, ()) = tokio::join!(ticket.release(), async {
        assert_eq!(peer.release().await.token, Token(1));
        drop(peer);
        let mut peer = server.accept().await;
        assert_eq!(peer.release().await.token, Token(1));
        peer.say(Reply::Error(Reason::NoLeader)).await;
        peer.closed().await;
        server.accept().await.expect_release(1).await;
    });
    assert_eq!(outcome.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_is_no_success_and_ends_the_connection_later() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let ticket = ticket(&broker, &mut peer, 1).await;
    let started = Instant::now();
    let (outcome, _) = tokio::join!(ticket.release(), peer.release());
    assert_error!(outcome.unwrap_err(), Error::Indeterminate);
    assert_eq!(started.elapsed(), ms(5000));
    peer.closed().await;
    assert_eq!(started.elapsed(), ms(6500));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_could_not_be_sent_says_so() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let ticket = ticket(&broker, &mut peer, 1).await;
    drop(peer);
    let _never_challenged = server.connection().await;
    let outcome = soon("the end of the release", ticket.release()).await;
    assert_error!(outcome.unwrap_err(), Error::NotConnected);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_sent_once_stays_unknown_however_it_goes_on() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let ticket = ticket(&broker, &mut peer, 1).await;
    let (outcome, _connection) = tokio::join!(ticket.release(), async {
        peer.release().await;
        drop(peer);
        server.connection().await
    });
    assert_error!(outcome.unwrap_err(), Error::Indeterminate);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_ticket_and_a_dropped_release_still_release() {
    let mut server = Server::alone();
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

#[tokio::test(start_paused = true)]
async fn an_unanswered_release_follows_the_leader() {
    let ([mut former, mut next], broker) = brokers();
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

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_left_held_can_be_released_by_its_token() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let token = ticket(&broker, &mut peer, 7).await.detach();
    assert!(
        tokio::time::timeout(ms(500), peer.next()).await.is_err(),
        "nothing is released"
    );
    let (outcome, ()) = tokio::join!(broker.release("k", token), async {
        let release = peer.release().await;
        assert_eq!((release.token, release.key.as_str()), (Token(7), "k"));
        peer.released(&release).await;
    });
    assert_eq!(outcome.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_sent_with_a_refused_auth_token_surely_did_nothing() {
    let mut server = Server::alone();
    let broker = server.broker();
    let (outcome, ()) = tokio::join!(broker.release("k", Token(1)), async {
        let mut stream = server.connection().await;
        stream
            .write_all(&Nonce::from_random([0; 6]).challenge())
            .await
            .unwrap();
        let digest_and_frame = &mut [0; 44 + 11];
        stream.read_exact(digest_and_frame).await.unwrap();
        assert_eq!(digest_and_frame[44], b'R');
        stream.write_all(b"Eauth_failed\n").await.unwrap();
    });
    assert_error!(outcome.unwrap_err(), Error::Auth);
}
