//! Connections that come and go: a new client for each lock, of either kind, sometimes leaving
//! while it holds.

use super::Clients;
use crate::error::Error;
use crate::raw::Session;

pub(super) fn start(clients: &mut Clients) -> Result<(), Error> {
    clients.spawn(|mut worker| async move {
        while worker.goes_on() {
            if let Ok(broker) = worker.base.broker() {
                let key = format!("churn-{}", worker.random.u8(0..3));
                if let Some(ticket) = worker.take(&broker, &key, 3, 2).await {
                    worker.give_back(ticket).await;
                }
            }
            worker.rest(100..500).await;
        }
    });
    clients.spawn(|mut worker| async move {
        while worker.goes_on() {
            let mut slot: Option<Session> = None;
            if let Some(session) = worker.session(&mut slot).await {
                let key = format!("churn-{}", worker.random.u8(0..3));
                if let Some(token) = session.ask(&key, 3, 2).await.token()
                    && worker.random.bool()
                {
                    session.give_back(&key, token).await;
                }
            }
            worker.rest(50..300).await;
        }
    });
    Ok(())
}
