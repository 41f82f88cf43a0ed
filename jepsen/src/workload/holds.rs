//! Holds that outlive their lease, with others who wait for the key: leases that must not end
//! early, whatever fails over meanwhile, and must end.

use super::Clients;
use crate::error::Error;

/// Keys, each with as many clients of either kind.
const KEYS: u32 = 3;

pub(super) fn start(clients: &mut Clients) -> Result<(), Error> {
    let broker = clients.broker()?;
    for number in 0..KEYS {
        let key = format!("hold-{number}");
        let (broker, official_key) = (broker.clone(), key.clone());
        clients.spawn(|mut worker| async move {
            while worker.goes_on() {
                let lease = worker.random.u8(4..13);
                if let Some(ticket) = worker.take(&broker, &official_key, 15, lease).await {
                    let whole = u64::from(lease) * 1000;
                    worker.rest(whole..whole + 500).await;
                    worker.give_back(ticket).await;
                }
                worker.rest(1..50).await;
            }
        });
        clients.spawn(|mut worker| async move {
            let mut slot = None;
            while worker.goes_on() {
                let lease = worker.random.u8(4..13);
                if let Some(session) = worker.session(&mut slot).await {
                    let whole = u64::from(lease) * 1000;
                    worker
                        .hold_raw(session, &key, (15, lease), whole..whole + 500)
                        .await;
                }
                worker.rest(1..50).await;
            }
        });
    }
    Ok(())
}
