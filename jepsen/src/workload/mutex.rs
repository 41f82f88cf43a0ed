//! Few keys, many clients: the everyday contended mutex, by clients of both kinds.

use super::Clients;
use crate::error::Error;

const OFFICIAL: u32 = 5;
const RAW: u32 = 3;

pub(super) fn start(clients: &mut Clients) -> Result<(), Error> {
    let broker = clients.broker()?;
    for _ in 0..OFFICIAL {
        let broker = broker.clone();
        clients.spawn(|mut worker| async move {
            while worker.goes_on() {
                let key = format!("mutex-{}", worker.random.u8(0..2));
                let (wait, lease) = (worker.random.u8(1..8), worker.random.u8(1..6));
                if let Some(ticket) = worker.take(&broker, &key, wait, lease).await {
                    worker.rest(1..40).await;
                    worker.give_back(ticket).await;
                }
                worker.rest(10..100).await;
            }
        });
    }
    for _ in 0..RAW {
        clients.spawn(|mut worker| async move {
            let mut slot = None;
            while worker.goes_on() {
                let key = format!("mutex-{}", worker.random.u8(0..2));
                let times = (worker.random.u8(1..8), worker.random.u8(1..6));
                if let Some(session) = worker.session(&mut slot).await {
                    worker.hold_raw(session, &key, times, 1..40).await;
                }
                worker.rest(10..100).await;
            }
        });
    }
    Ok(())
}
