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
        clients.spawn(|mut worker| async move {
            while worker.goes_on() {
                let mut holder = None;
                let mut waiter = None;
                let both = worker.session(&mut holder).await.is_some()
                    && worker.session(&mut waiter).await.is_some();
                if both && let (Some(holder), Some(waiter)) = (&holder, waiter.take()) {
                    vanish(&mut worker.random, &key, holder, waiter).await;
                }
                worker.rest(100..600).await;
            }
        });
    }
    Ok(())
}

/// The waiter goes away in about the moment in which the holder releases.
async fn vanish(random: &mut fastrand::Rng, key: &str, holder: &Session, waiter: Session) {
    let Some(token) = holder.ask(key, 5, 3).await.token() else {
        return;
    };
    let pending = waiter.acquire(key, 30, LONG_LEASE_S).await;
    sleep(Duration::from_millis(random.u64(5..40))).await;
    let release = holder.release(key, token).await;
    sleep(Duration::from_micros(random.u64(0..3000))).await;
    waiter.vanish();
    drop(pending);
    holder.end(release).await;
}
