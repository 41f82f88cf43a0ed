//! Releases with tokens that are stale, belong to another key, or were released a moment ago. None
//! of them may free anything.

use std::collections::VecDeque;

use super::Clients;
use crate::error::Error;

const CLIENTS: u32 = 3;

/// Old tokens that a client remembers.
const TOKENS_MAX: usize = 16;

pub(super) fn start(clients: &mut Clients) -> Result<(), Error> {
    for _ in 0..CLIENTS {
        clients.spawn(|mut worker| async move {
            let mut slot = None;
            let mut old: VecDeque<(String, u64)> = VecDeque::new();
            while worker.goes_on() {
                let key = format!("stale-{}", worker.random.u8(0..3));
                if let Some(session) = worker.session(&mut slot).await
                    && let Some(token) = session.ask(&key, 3, 2).await.token()
                {
                    for (old_key, old_token) in old.iter().rev().take(3) {
                        session.give_back(old_key, *old_token).await;
                        session.give_back(&key, *old_token).await;
                    }
                    // Now and then the lease is left to end, or the release is sent twice at once.
                    match worker.random.u8(0..4) {
                        0 => worker.rest(2_000..2_600).await,
                        1 => {
                            let first = session.release(&key, token).await;
                            let second = session.release(&key, token).await;
                            session.end(first).await;
                            session.end(second).await;
                        }
                        _ => {
                            session.give_back(&key, token).await;
                        }
                    }
                    old.push_back((key, token));
                    if old.len() > TOKENS_MAX {
                        old.pop_front();
                    }
                }
                worker.rest(10..200).await;
            }
        });
    }
    Ok(())
}
