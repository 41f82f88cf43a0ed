//! What may be asked for: durations, budgets and keys.

use super::*;

const fn nanos(seconds: u64, nanos: u32) -> Duration {
    Duration::new(seconds, nanos)
}

/// What the frame says that is sent for these, as wait and lease in seconds, or the error.
async fn sent(wait: Duration, lease: Duration, budget: Duration) -> Result<(u8, u8), Error> {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = broker.acquire("k").wait(wait).lease(lease);
    tokio::select! {
        biased;
        ended = call.work_budget(budget) => match ended {
            Err(error) => {
                // Nothing was sent.
                drop(broker);
                peer.closed().await;
                Err(error)
            }
            Ok(ticket) => panic!("{ticket:?}"),
        },
        acquire = peer.acquire() => Ok((acquire.wait.0, acquire.lease.seconds())),
    }
}

#[tokio::test(start_paused = true)]
async fn durations_are_rounded_up_to_seconds_and_never_clamped() {
    let some = nanos(30, 0);
    let cases = [
        (nanos(0, 0), Some(0), None),
        (nanos(0, 1), Some(1), Some(1)),
        (nanos(0, 999_000_000), Some(1), Some(1)),
        (nanos(1, 0), Some(1), Some(1)),
        (nanos(1, 1), Some(2), Some(2)),
        (nanos(249, 1), Some(250), Some(250)),
        (nanos(250, 0), Some(250), Some(250)),
        (nanos(250, 1_000_000), Some(251), None),
        (nanos(255, 0), Some(255), None),
        (nanos(255, 500_000_000), None, None),
        (nanos(256, 0), None, None),
        (Duration::MAX, None, None),
    ];
    for (duration, as_wait, as_lease) in cases {
        match (sent(duration, some, ms(0)).await, as_wait) {
            (Ok((wait, _)), Some(expected)) => assert_eq!(wait, expected, "{duration:?}"),
            (Err(Error::UnsupportedDuration { what, min, max }), None) => {
                assert_eq!((what, min, max), ("wait", 0, 255));
            }
            (result, _) => panic!("{duration:?}: {result:?}"),
        }
        match (sent(some, duration, ms(0)).await, as_lease) {
            (Ok((_, lease)), Some(expected)) => assert_eq!(lease, expected, "{duration:?}"),
            (Err(Error::UnsupportedDuration { what, min, max }), None) => {
                assert_eq!((what, min, max), ("lease", 1, 250));
            }
            (result, _) => panic!("{duration:?}: {result:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_at_most_the_lease_as_it_is_sent() {
    let wait = nanos(5, 0);
    for (lease, budget) in [
        (nanos(30, 0), nanos(0, 0)),
        (nanos(30, 0), nanos(30, 0)),
        (nanos(29, 1), nanos(30, 0)),
        (nanos(250, 0), nanos(250, 0)),
    ] {
        assert!(sent(wait, lease, budget).await.is_ok(), "{budget:?}");
    }
    for (lease, budget) in [
        (nanos(30, 0), nanos(30, 1)),
        (nanos(30, 0), nanos(31, 0)),
        (nanos(1, 0), nanos(250, 0)),
    ] {
        let error = sent(wait, lease, budget).await.unwrap_err();
        assert_error!(error, Error::InsufficientLease, budget);
    }
    for budget in [nanos(250, 1), Duration::MAX] {
        let error = sent(wait, nanos(250, 0), budget).await.unwrap_err();
        assert_error!(
            error,
            Error::UnsupportedDuration {
                what: "work budget",
                max: 250,
                ..
            }
        );
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_checked_before_anything_is_sent() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let long = "k".repeat(128);
    for key in [
        "",
        "a b",
        " ",
        "a\n",
        "a\r",
        "\r",
        &"k".repeat(129),
        &"ü".repeat(65),
    ] {
        let error = broker.acquire(key).work_budget(ms(0)).await.unwrap_err();
        assert_error!(error, Error::InvalidInput(_), key);
        let error = broker.release(key, Token(1)).await.unwrap_err();
        assert_error!(error, Error::InvalidInput(_), key);
    }
    for key in ["k", "a\tb", "在庫", "\0", &long] {
        let (outcome, ()) = tokio::join!(broker.release(key, Token(1)), async {
            let release = peer.release().await;
            assert_eq!(release.key.as_str(), key);
            peer.released(&release).await;
        });
        assert_eq!(outcome.unwrap(), crate::ReleaseOutcome::Released);
    }
}
