//! What is left of a lease, and whether it is enough.

use std::time::Duration;

use client::{Broker, Error, Ticket};
use wire::{Reply, Request, Token};

use crate::server::{Server, soon};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Waits for a lock with a lease of 3 s that is granted 2.3 s after it was asked for; probes are
/// answered.
async fn granted_late(probing: bool) -> (Result<Ticket, Error>, usize) {
    let server = Server::start().await;
    let addresses = [server.address.clone()];
    let broker = Broker::builder()
        .addresses(addresses)
        .token("secret")
        .probing(probing)
        .build()
        .unwrap();
    let mut peer = server.accept().await;
    let call = tokio::spawn({
        let broker = broker.clone();
        async move {
            broker
                .acquire("k")
                .wait(ms(9000))
                .lease(ms(3000))
                .work_budget(ms(1000))
                .await
        }
    });
    let acquire = peer.acquire().await;
    let granted_at = tokio::time::Instant::now() + ms(2300);
    let mut probes = 0;
    while let Ok(request) = tokio::time::timeout_at(granted_at, peer.request()).await {
        let Request::Release(probe) = request else {
            panic!("{request:?}")
        };
        assert_eq!(probe.token, Token(0));
        peer.not_current(&probe).await;
        probes += 1;
    }
    peer.grant(5, &acquire).await;
    let outcome = soon("the end of the call", call).await.unwrap();
    if outcome.is_err() {
        peer.expect_release(5).await;
    }
    (outcome, probes)
}

#[tokio::test]
async fn a_lease_counts_from_the_newest_probe_that_was_answered_before_the_grant() {
    let (ticket, probes) = granted_late(true).await;
    assert_eq!(probes, 2, "about one a second");
    let remaining = ticket.unwrap().remaining();
    assert!(
        remaining > ms(2000) && remaining < ms(2800),
        "{remaining:?}"
    );
}

#[tokio::test]
async fn without_probes_it_counts_from_the_sending_and_too_little_is_given_back() {
    let (outcome, probes) = granted_late(false).await;
    assert_eq!(probes, 0);
    assert!(
        matches!(outcome, Err(Error::InsufficientLease)),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_probe_without_an_answer_counts_for_nothing() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = tokio::spawn({
        let broker = broker.clone();
        async move {
            broker
                .acquire("k")
                .wait(ms(9000))
                .lease(ms(3000))
                .work_budget(ms(1000))
                .await
        }
    });
    let acquire = peer.acquire().await;
    let probe = peer.release().await;
    tokio::time::sleep(ms(1100)).await;
    // The answer comes after the grant: it says nothing about the time before it.
    peer.grant(5, &acquire).await;
    peer.say(Reply::NotCurrent {
        token: probe.token,
        key: probe.key,
    })
    .await;
    let outcome = soon("the end of the call", call).await.unwrap();
    assert!(
        matches!(outcome, Err(Error::InsufficientLease)),
        "{outcome:?}"
    );
    peer.expect_release(5).await;
}
