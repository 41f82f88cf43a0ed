//! Fencing as users do it: take the lock, read a register, think, write one more than was read.
//! Thinking sometimes takes longer than the lease.
//!
//! Two registers, each behind a lock of its own, with the same clients' habits. One refuses tokens
//! less than one that it has seen, and must lose no update. The other takes everything, and must
//! lose some.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Clients;
use crate::error::Error;
use crate::history::{Access, Recorder, What};

/// Clients of each register.
const CLIENTS: u32 = 3;

/// How many thoughts of a hundred outlive their lease.
const LONG_THOUGHT_PERCENT: u8 = 12;

/// The lease under which clients think, in seconds.
const LEASE_S: u8 = 1;

/// A register in the harness's memory.
#[derive(Default)]
struct Register {
    value: u64,
    /// The greatest token seen.
    token: u64,
}

/// All registers; used under one lock, so that the history has the order in which they were used.
struct Store {
    registers: Mutex<BTreeMap<String, Register>>,
    recorder: Arc<Recorder>,
}

impl Store {
    /// Reads, or writes `value`, under a token; what is there then, if the register took the token.
    fn access(&self, name: &str, fenced: bool, token: u64, value: Option<u64>) -> Option<u64> {
        let mut registers = self
            .registers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let register = registers.entry(name.to_owned()).or_default();
        let accepted = !fenced || token >= register.token;
        if accepted {
            register.token = register.token.max(token);
            register.value = value.unwrap_or(register.value);
        }
        self.recorder.write(What::Store(Access {
            fenced,
            name: name.to_owned(),
            write: value.is_some(),
            token,
            value: value.unwrap_or(register.value),
            accepted,
        }));
        accepted.then_some(register.value)
    }
}

pub(super) fn start(clients: &mut Clients) -> Result<(), Error> {
    let broker = clients.broker()?;
    let store = Arc::new(Store {
        registers: Mutex::default(),
        recorder: Arc::clone(&clients.base.endpoint.recorder),
    });
    for (name, fenced) in [("fenced", true), ("bare", false)] {
        for _ in 0..CLIENTS {
            let (broker, store) = (broker.clone(), Arc::clone(&store));
            clients.spawn(|mut worker| async move {
                let key = format!("register-{name}");
                while worker.goes_on() {
                    if let Some(ticket) = worker.take(&broker, &key, 6, LEASE_S).await {
                        let token = ticket.token().0;
                        if let Some(read) = store.access(name, fenced, token, None) {
                            let long = worker.random.u8(0..100) < LONG_THOUGHT_PERCENT;
                            let thought = if long { 1_200..2_500 } else { 1..60 };
                            worker.rest(thought).await;
                            store.access(name, fenced, token, Some(read + 1));
                        }
                        worker.give_back(ticket).await;
                    }
                    worker.rest(5..60).await;
                }
            });
        }
    }
    Ok(())
}
