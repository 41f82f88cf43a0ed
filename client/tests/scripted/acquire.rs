//! One call: its frame, its deadline, and what is definitive.

use std::time::{Duration, Instant};

use client::{Broker, Error, Ticket};
use tokio::task::JoinHandle;
use wire::{Acquire, Reason, Reply, Token};

use crate::server::{Peer, Server, broker, soon};

/// Asks in a task of its own; the lease is 30 s, the budget 1 s.
fn ask(broker: &Broker, key: &'static str, wait_ms: u64) -> JoinHandle<Result<Ticket, Error>> {
    let broker = broker.clone();
    tokio::spawn(async move {
        let wait = Duration::from_millis(wait_ms);
        broker
            .acquire(key)
            .wait(wait)
            .work_budget(Duration::from_secs(1))
            .await
    })
}

async fn outcome(call: JoinHandle<Result<Ticket, Error>>) -> Result<Ticket, Error> {
    soon("the end of the call", call).await.unwrap()
}

/// Serves one whole acquire and release, which shows that the connection is in order.
async fn assert_serves(broker: &Broker, peer: &mut Peer, token: u64) {
    let call = ask(broker, "after", 5000);
    let acquire = peer.acquire().await;
    assert_eq!(acquire.key.as_str(), "after");
    peer.grant(token, &acquire).await;
    let ticket = outcome(call).await.unwrap();
    assert_eq!(ticket.token(), Token(token));
    let (released, ()) = tokio::join!(ticket.release(), peer.expect_release(token));
    assert!(released.is_ok());
}

#[tokio::test]
async fn an_acquire_is_sent_as_asked_and_its_grant_is_a_ticket() {
    let server = Server::start().await;
    let broker = server.broker();
    let call = tokio::spawn({
        let broker = broker.clone();
        async move {
            let asked = broker.acquire("order-1").lease(Duration::from_millis(6001));
            asked
                .wait(Duration::from_millis(4001))
                .work_budget(Duration::from_secs(2))
                .await
        }
    });
    let mut peer = server.accept().await;
    let acquire = peer.acquire().await;
    assert_eq!(
        (acquire.wait.0, acquire.lease.seconds()),
        (5, 7),
        "rounded up"
    );
    assert_eq!(acquire.key.as_str(), "order-1");
    assert_ne!(acquire.owner.0, 0);
    peer.grant(42, &acquire).await;
    let ticket = outcome(call).await.unwrap();
    assert_eq!(ticket.token(), Token(42));
    assert_eq!(ticket.key().as_str(), "order-1");
    assert!(ticket.remaining() <= Duration::from_secs(7));
    assert!(ticket.remaining() > Duration::from_secs(6));
    assert!(ticket.valid_until() > Instant::now() + Duration::from_secs(6));
    let (released, ()) = tokio::join!(ticket.release(), peer.expect_release(42));
    assert_eq!(released.unwrap(), client::ReleaseOutcome::Released);
}

#[tokio::test]
async fn what_is_out_of_range_is_an_error_before_anything_is_sent() {
    let server = Server::start().await;
    let broker = server.broker();
    let seconds = Duration::from_secs;
    let just_over = |whole: u64| seconds(whole) + Duration::from_nanos(1);
    let ask = |wait, lease, budget| {
        broker
            .acquire("k")
            .wait(wait)
            .lease(lease)
            .work_budget(budget)
    };
    for (wait, lease, budget) in [
        (just_over(255), seconds(30), seconds(1)),
        (seconds(1), seconds(0), seconds(0)),
        (seconds(1), just_over(250), seconds(1)),
        (seconds(1), seconds(250), just_over(250)),
        (Duration::MAX, seconds(30), seconds(1)),
    ] {
        let error = ask(wait, lease, budget).await.unwrap_err();
        assert!(
            matches!(error, Error::UnsupportedDuration { .. }),
            "{error:?}"
        );
    }
    let error = ask(seconds(1), seconds(30), just_over(30))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::InsufficientLease));
    for key in ["", "a b", "a\n", "a\r", &"k".repeat(129)] {
        let error = broker
            .acquire(key)
            .work_budget(seconds(1))
            .await
            .unwrap_err();
        assert!(
            matches!(error, Error::InvalidInput(_)),
            "{key:?}: {error:?}"
        );
    }
    assert_serves(&broker, &mut server.accept().await, 1).await;
}

#[tokio::test]
async fn a_late_connection_does_not_restart_the_wait() {
    let server = Server::start().await;
    let broker = server.broker();
    let connection = server.connection().await;
    let started = Instant::now();
    let call = ask(&broker, "k", 3000);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let mut peer = Peer::handshake(connection).await;
    assert_eq!(peer.acquire().await.wait.0, 2, "what remains, rounded up");
    let error = outcome(call).await.unwrap_err();
    assert!(
        matches!(error, Error::Indeterminate),
        "sent and not answered: {error:?}"
    );
    assert!(
        (2900..3300).contains(&started.elapsed().as_millis()),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_deadline_that_passes_before_anything_is_sent_is_a_timeout() {
    let server = Server::start().await;
    let broker = server.broker();
    let _never_challenged = server.connection().await;
    let started = Instant::now();
    let error = outcome(ask(&broker, "k", 1000)).await.unwrap_err();
    assert!(matches!(error, Error::Timeout), "{error:?}");
    assert!(
        (990..1300).contains(&started.elapsed().as_millis()),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn an_immediate_try_sends_wait_0_and_has_time_for_its_way() {
    let server = Server::start().await;
    let broker = server.broker();
    let call = ask(&broker, "k", 0);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let mut peer = server.accept().await;
    let acquire = peer.acquire().await;
    assert_eq!(acquire.wait.0, 0);
    peer.time_out(&acquire).await;
    assert!(matches!(outcome(call).await, Err(Error::Timeout)));
}

#[tokio::test]
async fn answers_find_their_calls_in_any_order() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    let calls: Vec<_> = (0..50).map(|_| ask(&broker, "k", 9000)).collect();
    let mut acquires: Vec<Acquire> = Vec::new();
    for _ in &calls {
        acquires.push(peer.acquire().await);
    }
    let mut owners: Vec<_> = acquires.iter().map(|acquire| acquire.owner).collect();
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), 50, "owners are unique");
    for acquire in acquires.iter().rev() {
        let (owner, key) = (acquire.owner, acquire.key.clone());
        match owner.0 % 3 {
            0 => peer.grant(owner.0, acquire).await,
            1 => peer.time_out(acquire).await,
            _ => peer.say(Reply::Busy { owner, key }).await,
        }
    }
    let mut tickets = Vec::new();
    let (mut timeouts, mut busy) = (0, 0);
    for call in calls {
        match outcome(call).await {
            Ok(ticket) => tickets.push(ticket),
            Err(Error::Timeout) => timeouts += 1,
            Err(Error::Busy) => busy += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    let granted = owners.iter().filter(|owner| owner.0 % 3 == 0).count();
    assert_eq!(tickets.len(), granted);
    assert_eq!(timeouts + busy, 50 - granted);
    assert!(timeouts > 0 && busy > 0);
}

#[tokio::test]
async fn a_late_refusal_costs_nobody_the_connection() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 1000);
    let acquire = peer.acquire().await;
    assert!(matches!(outcome(call).await, Err(Error::Indeterminate)));
    peer.time_out(&acquire).await;
    assert_serves(&broker, &mut peer, 1).await;
    tokio::time::sleep(Duration::from_millis(1600)).await;
    assert_serves(&broker, &mut peer, 2).await;
}

#[tokio::test]
async fn a_late_grant_is_given_back_on_the_same_connection() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 1000);
    let acquire = peer.acquire().await;
    assert!(matches!(outcome(call).await, Err(Error::Indeterminate)));
    peer.grant(7, &acquire).await;
    peer.expect_release(7).await;
    assert_serves(&broker, &mut peer, 8).await;
}

#[tokio::test]
async fn a_connection_that_stays_silent_after_a_deadline_is_closed() {
    let server = Server::start().await;
    let broker = Broker::builder()
        .addresses([server.address.clone()])
        .token("secret")
        .probing(false)
        .build()
        .unwrap();
    let mut peer = server.accept().await;
    let started = Instant::now();
    let (short, long) = (ask(&broker, "k", 1000), ask(&broker, "l", 9000));
    peer.acquire().await;
    peer.acquire().await;
    assert!(matches!(outcome(short).await, Err(Error::Indeterminate)));
    peer.closed().await;
    assert!(
        (2400..3000).contains(&started.elapsed().as_millis()),
        "{:?}",
        started.elapsed()
    );
    assert!(matches!(outcome(long).await, Err(Error::Indeterminate)));
    assert_serves(&broker, &mut server.accept().await, 1).await;
}

#[tokio::test]
async fn the_grant_of_a_dropped_future_is_given_back() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 9000);
    let acquire = peer.acquire().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    peer.grant(7, &acquire).await;
    peer.expect_release(7).await;
    assert_serves(&broker, &mut peer, 8).await;
}

#[tokio::test]
async fn a_dropped_future_without_an_answer_ends_the_connection() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 9000);
    peer.acquire().await;
    let started = Instant::now();
    call.abort();
    peer.closed().await;
    assert!(
        (1400..2000).contains(&started.elapsed().as_millis()),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn an_acquire_that_may_have_been_sent_is_not_sent_again() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 5000);
    peer.acquire().await;
    drop(peer);
    assert!(matches!(outcome(call).await, Err(Error::Indeterminate)));
    // The first request on the next connection is another one.
    assert_serves(&broker, &mut server.accept().await, 1).await;
}

#[tokio::test]
async fn refusals_of_the_session_are_definitive_and_the_call_goes_on() {
    for reason in [Reason::NoLeader, Reason::NotActive] {
        let server = Server::start().await;
        let broker = server.broker();
        let mut peer = server.accept().await;
        let (first, second) = (ask(&broker, "k", 5000), ask(&broker, "k", 5000));
        let owners = [peer.acquire().await.owner, peer.acquire().await.owner];
        peer.say(Reply::Error(reason)).await;
        peer.closed().await;
        let mut peer = server.accept().await;
        for token in [1, 2] {
            let acquire = peer.acquire().await;
            assert!(owners.contains(&acquire.owner), "the same request");
            peer.grant(token, &acquire).await;
        }
        assert!(outcome(first).await.is_ok());
        assert!(outcome(second).await.is_ok());
    }
}

#[tokio::test]
async fn a_moved_call_goes_on_at_the_leader_with_the_same_owner() {
    let (follower, leader) = (Server::start().await, Server::start().await);
    let broker = broker([&follower, &leader]);
    let mut peer = follower.accept().await;
    let challenged_late = leader.connection().await;
    let call = ask(&broker, "k", 5000);
    let refused = peer.acquire().await;
    peer.say(Reply::Moved(leader.address.clone())).await;
    peer.closed().await;
    let mut peer = Peer::handshake(challenged_late).await;
    let acquire = peer.acquire().await;
    assert_eq!(acquire.owner, refused.owner);
    peer.grant(3, &acquire).await;
    assert_eq!(outcome(call).await.unwrap().token(), Token(3));
}

#[tokio::test]
async fn any_other_error_leaves_the_outcome_unknown() {
    for bytes in [
        b"Ebad_key\n" as &[u8],
        b"X",
        b"T\0\0\0\0\0\0\0\x63nobody\n",
        b"Ewhat\n",
    ] {
        let server = Server::start().await;
        let broker = server.broker();
        let mut peer = server.accept().await;
        let call = ask(&broker, "k", 5000);
        peer.acquire().await;
        peer.raw(bytes).await;
        peer.closed().await;
        assert!(
            matches!(outcome(call).await, Err(Error::Indeterminate)),
            "{bytes:?}"
        );
    }
}

#[tokio::test]
async fn a_grant_that_nobody_asked_for_is_released() {
    let server = Server::start().await;
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 5000);
    let acquire = peer.acquire().await;
    let stray = Acquire {
        key: "other".parse().unwrap(),
        ..acquire.clone()
    };
    peer.grant(9, &stray).await;
    let release = peer.release().await;
    assert_eq!((release.token, release.key.as_str()), (Token(9), "other"));
    peer.released(&release).await;
    peer.grant(10, &acquire).await;
    assert_eq!(outcome(call).await.unwrap().token(), Token(10));
}

#[tokio::test]
async fn one_call_too_many_is_refused_here() {
    let server = Server::start().await;
    let broker = Broker::builder()
        .addresses([server.address.clone()])
        .token("secret")
        .acquires_max(1)
        .build()
        .unwrap();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 5000);
    let acquire = peer.acquire().await;
    assert!(matches!(
        outcome(ask(&broker, "l", 5000)).await,
        Err(Error::ClientCapacity)
    ));
    peer.time_out(&acquire).await;
    assert!(matches!(outcome(call).await, Err(Error::Timeout)));
    assert_serves(&broker, &mut peer, 1).await;
}
