//! One call: its frame, its deadline, and what is definitive.

use wire::{Acquire, Reason};

use super::*;
use crate::ReleaseOutcome;

#[tokio::test(start_paused = true)]
async fn an_acquire_is_sent_as_asked_and_its_grant_is_a_ticket() {
    let mut server = Server::alone();
    let broker = server.broker();
    let call = tokio::spawn({
        let broker = broker.clone();
        async move {
            let asked = broker.acquire("order-1").lease(ms(6001)).wait(ms(4001));
            asked.work_budget(ms(2000)).await
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
    assert_eq!(ticket.remaining(), ms(7000));
    assert!(ticket.valid_until() > std::time::Instant::now() + ms(6000));
    let (released, ()) = tokio::join!(ticket.release(), peer.expect_release(42));
    assert_eq!(released.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn a_late_connection_does_not_restart_the_wait() {
    let mut server = Server::alone();
    let broker = server.broker();
    let connection = server.connection().await;
    let started = Instant::now();
    let call = ask(&broker, "k", 3000);
    tokio::time::sleep(ms(1200)).await;
    let mut peer = Peer::handshake(connection).await;
    assert_eq!(peer.acquire().await.wait.0, 2, "what remains, rounded up");
    assert_error!(failure(call).await, Error::Indeterminate);
    assert_eq!(started.elapsed(), ms(3000));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_before_anything_is_sent_is_a_timeout() {
    let mut server = Server::alone();
    let broker = server.broker();
    let _never_challenged = server.connection().await;
    let started = Instant::now();
    assert_error!(failure(ask(&broker, "k", 1000)).await, Error::Timeout);
    assert!((1000..1010).contains(&started.elapsed().as_millis()));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_without_the_lock_is_a_timeout_and_costs_nobody_the_connection() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let (short, long) = (ask(&broker, "k", 2000), ask(&broker, "l", 9000));
    let (asked, waiting) = (peer.acquire().await, peer.acquire().await);
    tokio::time::sleep(ms(1900)).await;
    let probe = peer.release().await;
    peer.not_current(&probe).await;
    peer.time_out(&asked).await;
    assert_error!(failure(short).await, Error::Timeout);
    peer.grant(1, &waiting).await;
    assert_eq!(outcome(long).await.unwrap().token(), Token(1));
    peer.expect_release(1).await;
    assert_serves(&broker, &mut peer, 2).await;
}

#[tokio::test(start_paused = true)]
async fn an_immediate_try_sends_wait_0_and_has_5_s_for_its_way() {
    let mut server = Server::alone();
    let broker = server.broker();
    let call = ask(&broker, "k", 0);
    tokio::time::sleep(ms(4900)).await;
    let mut peer = server.accept().await;
    let acquire = peer.acquire().await;
    assert_eq!(acquire.wait.0, 0);
    peer.time_out(&acquire).await;
    assert_error!(failure(call).await, Error::Timeout);
}

#[tokio::test(start_paused = true)]
async fn an_immediate_try_ends_within_5_s_whatever_the_server_does() {
    for challenged in [false, true] {
        let mut server = Server::alone();
        let broker = server.broker();
        let started = Instant::now();
        let call = tokio::spawn({
            let broker = broker.clone();
            async move { broker.try_acquire("k").work_budget(ms(0)).await }
        });
        let connection = server.connection().await;
        let error = if challenged {
            let mut peer = Peer::handshake(connection).await;
            peer.acquire().await;
            failure(call).await
        } else {
            failure(call).await
        };
        match challenged {
            false => assert_error!(error, Error::Timeout, "surely not sent"),
            true => assert_error!(error, Error::Indeterminate, "sent"),
        }
        assert!((5000..5010).contains(&started.elapsed().as_millis()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unsent_immediate_try_goes_to_another_connection_with_the_same_owner() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 0);
    let refused = peer.acquire().await;
    peer.say(Reply::Error(Reason::NotActive)).await;
    peer.closed().await;
    let mut peer = server.accept().await;
    let acquire = peer.acquire().await;
    assert_eq!((acquire.owner, acquire.wait.0), (refused.owner, 0));
    peer.grant(1, &acquire).await;
    assert_eq!(outcome(call).await.unwrap().token(), Token(1));
}

#[tokio::test(start_paused = true)]
async fn answers_find_their_calls_in_any_order() {
    let mut server = Server::alone();
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

#[tokio::test(start_paused = true)]
async fn a_grant_counts_until_the_deadline_and_is_given_back_after_it() {
    for (after_ms, in_time) in [(1999, true), (2001, false)] {
        let mut server = Server::alone();
        let broker = server.broker();
        let mut peer = server.accept().await;
        let call = ask(&broker, "k", 2000);
        let acquire = peer.acquire().await;
        let probed = tokio::time::sleep(ms(after_ms));
        let probe = peer.release().await;
        peer.not_current(&probe).await;
        probed.await;
        peer.grant(7, &acquire).await;
        match outcome(call).await {
            Ok(ticket) => {
                assert!(in_time);
                let (released, ()) = tokio::join!(ticket.release(), peer.expect_release(7));
                assert_eq!(released.unwrap(), ReleaseOutcome::Released);
            }
            Err(error) => {
                assert!(!in_time);
                assert_error!(error, Error::Indeterminate);
                peer.expect_release(7).await;
            }
        }
        assert_serves(&broker, &mut peer, 8).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_came_in_time_and_is_noticed_late_is_given_back() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let mut call = Box::pin(broker.acquire("k").wait(ms(1000)).work_budget(ms(1000)));
    let asked = tokio::select! {
        biased;
        ended = &mut call => panic!("{ended:?}"),
        acquire = peer.acquire() => acquire,
    };
    peer.grant(7, &asked).await;
    // Nobody polls the call while its deadline passes.
    tokio::time::sleep(ms(1001)).await;
    assert_error!(call.await.unwrap_err(), Error::Indeterminate);
    peer.expect_release(7).await;
    assert_serves(&broker, &mut peer, 8).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_refusal_costs_nobody_the_connection() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 1000);
    let acquire = peer.acquire().await;
    assert_error!(failure(call).await, Error::Indeterminate);
    tokio::time::sleep(ms(1499)).await;
    peer.time_out(&acquire).await;
    assert_serves(&broker, &mut peer, 1).await;
    tokio::time::sleep(ms(3000)).await;
    assert_serves(&broker, &mut peer, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_stays_silent_after_a_deadline_is_closed() {
    let mut server = Server::alone();
    let broker = server.broker_with(|builder| builder.probing(false));
    let mut peer = server.accept().await;
    let started = Instant::now();
    let (short, long) = (ask(&broker, "k", 1000), ask(&broker, "l", 9000));
    peer.acquire().await;
    peer.acquire().await;
    assert_error!(failure(short).await, Error::Indeterminate);
    assert_eq!(started.elapsed(), ms(1000));
    peer.closed().await;
    assert_eq!(started.elapsed(), ms(2500));
    assert_error!(failure(long).await, Error::Indeterminate);
    assert_serves(&broker, &mut server.accept().await, 1).await;
}

#[tokio::test(start_paused = true)]
async fn the_grant_of_a_dropped_future_is_given_back() {
    let mut server = Server::alone();
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

#[tokio::test(start_paused = true)]
async fn a_dropped_future_without_an_answer_ends_the_connection() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 9000);
    peer.acquire().await;
    let started = Instant::now();
    call.abort();
    peer.closed().await;
    assert_eq!(started.elapsed(), ms(1500));
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_may_have_been_sent_is_not_sent_again() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 5000);
    peer.acquire().await;
    drop(peer);
    assert_error!(failure(call).await, Error::Indeterminate);
    // The first request on the next connection is another one.
    assert_serves(&broker, &mut server.accept().await, 1).await;
}

#[tokio::test(start_paused = true)]
async fn refusals_of_the_session_are_definitive_and_all_calls_on_it_go_on() {
    for refusal in [
        Reply::Error(Reason::NoLeader),
        Reply::Error(Reason::NotActive),
        Reply::Moved("a:1".into()),
    ] {
        let mut server = Server::alone();
        let broker = server.broker();
        let mut peer = server.accept().await;
        let (first, second) = (ask(&broker, "k", 5000), ask(&broker, "k", 5000));
        let owners = [peer.acquire().await.owner, peer.acquire().await.owner];
        peer.say(refusal).await;
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

#[tokio::test(start_paused = true)]
async fn what_was_answered_before_a_refusal_stays_answered() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let (first, second) = (ask(&broker, "k", 5000), ask(&broker, "l", 5000));
    let (granted, refused) = (peer.acquire().await, peer.acquire().await);
    peer.grant(1, &granted).await;
    peer.say(Reply::Moved("a:1".into())).await;
    let held = outcome(first).await.unwrap();
    let mut peer = server.accept().await;
    let acquire = peer.acquire().await;
    assert_eq!(acquire.owner, refused.owner);
    peer.grant(2, &acquire).await;
    assert_eq!(outcome(second).await.unwrap().token(), Token(2));
    assert_eq!(held.token(), Token(1));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_asked_for_is_released() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 5000);
    let acquire = peer.acquire().await;
    let strays = [
        Acquire {
            key: "other".parse().unwrap(),
            ..acquire.clone()
        },
        Acquire {
            owner: wire::Owner(acquire.owner.0 + 1),
            ..acquire.clone()
        },
    ];
    for (token, stray) in (9..).zip(&strays) {
        peer.grant(token, stray).await;
        let release = peer.release().await;
        assert_eq!((release.token, &release.key), (Token(token), &stray.key));
        peer.released(&release).await;
    }
    peer.grant(11, &acquire).await;
    assert_eq!(outcome(call).await.unwrap().token(), Token(11));
}
