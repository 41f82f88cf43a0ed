//! What is left of a lease, and whether it is enough.

use wire::Request;

use super::*;

/// Waits `wait_s` for a lock with a lease of `lease_s`, which is granted after `after_ms`; probes are
/// answered, and counted.
async fn granted_after(
    after_ms: u64,
    wait_s: u64,
    lease_s: u64,
    budget_ms: u64,
    probing: bool,
) -> (Result<Ticket, Error>, usize) {
    let mut server = Server::alone();
    let broker = server.broker_with(|builder| builder.probing(probing));
    let mut peer = server.accept().await;
    let call = tokio::spawn({
        let broker = broker.clone();
        async move {
            let asked = broker.acquire("k").wait(ms(wait_s * 1000));
            asked
                .lease(ms(lease_s * 1000))
                .work_budget(ms(budget_ms))
                .await
        }
    });
    let acquire = peer.acquire().await;
    let granted_at = Instant::now() + ms(after_ms);
    let mut probes = 0;
    while let Ok(request) = tokio::time::timeout_at(granted_at, peer.next()).await {
        let Some(Request::Release(probe)) = request else {
            panic!("{request:?}")
        };
        assert_eq!(probe.token, Token(0));
        peer.not_current(&probe).await;
        probes += 1;
    }
    peer.grant(5, &acquire).await;
    let outcome = outcome(call).await;
    if outcome.is_err() {
        peer.expect_release(5).await;
    }
    (outcome, probes)
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_from_the_newest_probe_that_was_answered_before_the_grant() {
    let (ticket, probes) = granted_after(2300, 9, 3, 1000, true).await;
    assert_eq!(probes, 2, "one a second");
    assert_eq!(ticket.unwrap().remaining(), ms(2700));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_longer_than_the_lease_ends_in_nearly_the_whole_lease() {
    let (ticket, probes) = granted_after(59_500, 60, 10, 9000, true).await;
    assert_eq!(probes, 59);
    assert_eq!(ticket.unwrap().remaining(), ms(9500));
}

#[tokio::test(start_paused = true)]
async fn without_probes_it_counts_from_the_sending_and_too_little_is_given_back() {
    let (outcome, probes) = granted_after(2300, 9, 3, 1000, false).await;
    assert_eq!(probes, 0);
    assert_error!(outcome.unwrap_err(), Error::InsufficientLease);
    let (outcome, _) = granted_after(2000, 9, 3, 1000, false).await;
    assert_eq!(outcome.unwrap().remaining(), ms(1000), "just enough");
}

#[tokio::test(start_paused = true)]
async fn a_grant_without_anything_left_is_no_ticket() {
    let (outcome, _) = granted_after(3000, 9, 3, 0, false).await;
    assert_error!(outcome.unwrap_err(), Error::InsufficientLease);
}

#[tokio::test(start_paused = true)]
async fn a_probe_without_an_answer_counts_for_nothing() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = tokio::spawn({
        let broker = broker.clone();
        async move {
            let asked = broker.acquire("k").wait(ms(9000)).lease(ms(3000));
            asked.work_budget(ms(1000)).await
        }
    });
    let acquire = peer.acquire().await;
    let probe = peer.release().await;
    tokio::time::sleep(ms(1100)).await;
    // The answer comes after the grant: it says nothing about the time before it.
    peer.grant(5, &acquire).await;
    peer.not_current(&probe).await;
    assert_error!(failure(call).await, Error::InsufficientLease);
    peer.expect_release(5).await;
}

#[tokio::test(start_paused = true)]
async fn a_probe_counts_from_its_sending_however_late_its_answer_is() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 9000);
    let acquire = peer.acquire().await;
    let probe = peer.release().await;
    tokio::time::sleep(ms(600)).await;
    peer.not_current(&probe).await;
    peer.grant(5, &acquire).await;
    assert_eq!(outcome(call).await.unwrap().remaining(), ms(29_400));
}

#[tokio::test(start_paused = true)]
async fn an_answered_release_of_the_same_session_is_as_good_as_a_probe() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let held = ticket(&broker, &mut peer, 1).await;
    let call = ask(&broker, "k", 9000);
    let acquire = peer.acquire().await;
    tokio::time::sleep(ms(900)).await;
    let (released, ()) = tokio::join!(held.release(), peer.expect_release(1));
    assert_eq!(released.unwrap(), crate::ReleaseOutcome::Released);
    tokio::time::sleep(ms(50)).await;
    peer.grant(2, &acquire).await;
    assert_eq!(outcome(call).await.unwrap().remaining(), ms(29_950));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_lease_is_told_when_nothing_is_left_of_it() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let ticket = ticket(&broker, &mut peer, 1).await;
    let (over, started) = (ticket.lease_over(), Instant::now());
    let told = tokio::time::timeout(ms(60_000), over).await;
    assert!(told.is_ok(), "it is told at all");
    assert_eq!(ticket.remaining(), ms(0));
    assert!((30_000..30_010).contains(&started.elapsed().as_millis()));
}

#[tokio::test(start_paused = true)]
async fn work_under_a_lock_is_followed_by_the_release() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    // As a task, which has to be movable between threads.
    let work = tokio::spawn({
        let broker = broker.clone();
        async move {
            let ask = broker.acquire("k").lease(ms(3000));
            ask.with_lock(ms(1000), async |ticket| {
                tokio::time::sleep(ms(500)).await;
                ticket.token()
            })
            .await
        }
    });
    let acquire = peer.acquire().await;
    let started = Instant::now();
    peer.grant(7, &acquire).await;
    peer.expect_release(7).await;
    assert_eq!(started.elapsed(), ms(500));
    assert_eq!(soon("the end", work).await.unwrap().unwrap(), Token(7));
}

#[tokio::test(start_paused = true)]
async fn work_is_cancelled_when_the_lease_is_over() {
    struct Cancelled<'a>(&'a std::cell::Cell<Option<Instant>>);
    impl Drop for Cancelled<'_> {
        fn drop(&mut self) {
            self.0.set(Some(Instant::now()));
        }
    }
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let (asked, cancelled) = (Instant::now(), std::cell::Cell::new(None));
    let ask = broker.acquire("k").lease(ms(3000));
    let work = ask.with_lock(ms(1000), async |_| {
        let _cancelled = Cancelled(&cancelled);
        std::future::pending::<()>().await;
    });
    let granted = async {
        let acquire = peer.acquire().await;
        peer.grant(7, &acquire).await;
    };
    let both = async { tokio::join!(work, granted) };
    let ended = tokio::time::timeout(ms(60_000), both).await;
    let (outcome, ()) = ended.expect("the work is cancelled at all");
    assert_error!(outcome.unwrap_err(), Error::LeaseOver);
    let after = cancelled.get().unwrap() - asked;
    assert!((3000..3010).contains(&after.as_millis()), "{after:?}");
    peer.expect_release(7).await;
}
