//! Queues whose order is known, and in which clients vanish: while they wait, and in the moment in
//! which they would be served.

use tokio::time::{Duration, sleep};

use super::Clients;
use crate::error::Error;
use crate::raw::Session;

/// Keys, each with clients of its own.
const KEYS: u32 = 2;

/// Clients at a key that wait until they are served.
const PATIENT: u32 = 3;

/// The lease of those who vanish: far longer than anybody waits.
const LONG_LEASE_S: u8 = 20;

/// How long those wait who are behind them, in seconds.
const HEIR_WAIT_S: u8 = 5;

pub(super) fn start(clients: &mut Clients) -> Result<(), Error> {
    for number in 0..KEYS {
        let key = format!("queue-{number}");
        for _ in 0..PATIENT {
            let key = key.clone();
            clients.spawn(|mut worker| async move {
                let mut slot: Option<Session> = None;
                while worker.goes_on() {
                    if let Some(session) = worker.session(&mut slot).await {
                        let wait = worker.random.u8(4..9);
                        let pending = session.acquire(&key, wait, 3).await;
                        session.prove_arrival(&key, pending.op).await;
                        if let Some(token) = session.end(pending).await.token() {
                            worker.rest(20..120).await;
                            session.give_back(&key, token).await;
                        }
                    }
                    worker.rest(10..200).await;
                }
            });
        }
        let key = format!("vanish-{number}");
        clients.spawn(|mut worker| async move {
            while worker.goes_on() {
                let (mut holder, mut waiter, mut heir) = (None, None, None);
                let all = worker.session(&mut holder).await.is_some()
                    && worker.session(&mut waiter).await.is_some()
                    && worker.session(&mut heir).await.is_some();
                if all && let (Some(holder), Some(waiter), Some(heir)) = (&holder, waiter, &heir) {
                    vanish(&mut worker.random, &key, holder, waiter, heir).await;
                }
                worker.rest(20..100).await;
            }
        });
    }
    Ok(())
}

/// The waiter goes away in about the moment in which the holder releases. Whoever is behind it must
/// be served all the same.
async fn vanish(
    random: &mut fastrand::Rng,
    key: &str,
    holder: &Session,
    waiter: Session,
    heir: &Session,
) {
    let Some(token) = holder.ask(key, 5, 3).await.token() else {
        return;
    };
    let pending = waiter.acquire(key, 30, LONG_LEASE_S).await;
    waiter.prove_arrival(key, pending.op).await;
    sleep(Duration::from_millis(random.u64(5..40))).await;
    let inherits = heir.acquire(key, HEIR_WAIT_S, 3).await;
    let release = holder.release(key, token).await;
    sleep(Duration::from_micros(random.u64(0..3000))).await;
    waiter.vanish().await;
    drop(pending);
    holder.end(release).await;
    if let Some(token) = heir.end(inherits).await.token() {
        heir.give_back(key, token).await;
    }
}
