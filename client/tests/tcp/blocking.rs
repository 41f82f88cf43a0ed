//! The blocking flavour.

use std::time::Duration;

use client::{Broker, Error, ReleaseOutcome};
use wire::Token;

use crate::listener;
use crate::peer::Peer;

#[test]
fn calls_block_and_releases_go_on_in_the_background() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (listener, address) = runtime.block_on(listener());
    let server = runtime.spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut peer = Peer::handshake(stream).await;
        for token in [1, 2] {
            let acquire = peer.acquire().await;
            assert_eq!(acquire.wait.0, if token == 1 { 5 } else { 0 });
            peer.grant(token, &acquire).await;
            peer.expect_release(token).await;
        }
        peer.expect_release(3).await;
        peer.closed().await;
    });
    let builder = Broker::builder().addresses([address]).token("secret");
    let broker = builder.build_blocking().unwrap();
    broker.wait_ready(Duration::from_secs(5)).unwrap();
    let asked = broker.acquire("k").wait(Duration::from_secs(5));
    let ticket = asked.work_budget(Duration::from_secs(1)).unwrap();
    assert_eq!(ticket.token(), Token(1));
    assert!(ticket.remaining() > Duration::from_secs(20));
    assert_eq!(ticket.release().unwrap(), ReleaseOutcome::Released);
    drop(broker.try_acquire("k").work_budget(Duration::ZERO).unwrap());
    assert_eq!(
        broker.release("k", Token(3)).unwrap(),
        ReleaseOutcome::Released
    );
    broker.close().unwrap();
    runtime.block_on(server).unwrap();
}

#[tokio::test]
async fn a_blocking_call_inside_a_runtime_is_refused() {
    let broker = Broker::builder()
        .addresses(["127.0.0.1:1"])
        .build_blocking();
    let broker = broker.unwrap();
    let refused = broker.try_acquire("k").work_budget(Duration::ZERO);
    assert!(
        matches!(refused, Err(Error::InvalidInput(_))),
        "{refused:?}"
    );
}
