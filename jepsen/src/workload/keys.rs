//! Many keys, each used by one client alone. After a refusal the client tries the very same key
//! where it was sent: the refusal was definitive, so the key must be free, and a `T` would show
//! that it was not.

use super::Clients;
use crate::error::Error;
use crate::raw::Session;

const RAW: u32 = 6;
const OFFICIAL: u32 = 2;

/// Keys of one client.
const KEYS: u8 = 12;

/// How often a refused try is tried again.
const TRIES_MAX: u32 = 40;

pub(super) fn start(clients: &mut Clients) -> Result<(), Error> {
    for _ in 0..RAW {
        clients.spawn(|mut worker| async move {
            let mut slot: Option<Session> = None;
            while worker.goes_on() {
                let key = format!("own-{}-{}", worker.id, worker.random.u8(0..KEYS));
                for _ in 0..TRIES_MAX {
                    let lease = worker.random.u8(3..10);
                    let Some(session) = worker.session(&mut slot).await else {
                        continue;
                    };
                    let came = worker.hold_raw(session, &key, (0, lease), 0..5).await;
                    if !came.is_refusal() || !worker.goes_on() {
                        break;
                    }
                    worker.rest(10..50).await;
                }
                worker.rest(2..20).await;
            }
        });
    }
    let broker = clients.broker()?;
    for _ in 0..OFFICIAL {
        let broker = broker.clone();
        clients.spawn(|mut worker| async move {
            while worker.goes_on() {
                let key = format!("own-{}-{}", worker.id, worker.random.u8(0..KEYS));
                if let Some(ticket) = worker.take(&broker, &key, 3, 3).await {
                    worker.give_back(ticket).await;
                }
                worker.rest(5..50).await;
            }
        });
    }
    Ok(())
}
