//! Storms of immediate tries, pipelined on one connection.

use super::Clients;
use crate::error::Error;

const CLIENTS: u32 = 2;

/// Tries under way at once.
const STORM: usize = 20;

pub(super) fn start(clients: &mut Clients) -> Result<(), Error> {
    for _ in 0..CLIENTS {
        clients.spawn(|mut worker| async move {
            let mut slot = None;
            while worker.goes_on() {
                if let Some(session) = worker.session(&mut slot).await {
                    let mut storm = Vec::with_capacity(STORM);
                    for _ in 0..STORM {
                        let key = format!("try-{}", worker.random.u8(0..4));
                        storm.push((session.acquire(&key, 0, 2).await, key));
                    }
                    for (pending, key) in storm {
                        if let Some(token) = session.end(pending).await.token() {
                            session.give_back(&key, token).await;
                        }
                    }
                }
                worker.rest(100..700).await;
            }
        });
    }
    Ok(())
}
