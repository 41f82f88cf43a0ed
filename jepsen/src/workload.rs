//! What clients do. One file a workload; each starts a few clients that work until they are told to
//! stop, and then come to the end of what they are doing.

mod churn;
mod holds;
mod keys;
mod mutex;
mod queues;
mod register;
mod stale;
mod tries;

use std::ops::Range;
use std::time::Duration;

use clap::ValueEnum;
use client::{Broker, ReleaseOutcome, Ticket, Tls};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cluster::AUTH_TOKEN;
use crate::error::Error;
use crate::history::{Answer, By, Call, Doubt, Refusal, What};
use crate::raw::{Came, Endpoint, Session};

/// A workload by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Workload {
    /// Few keys, many clients of both kinds
    Mutex,
    /// Many keys, each with one client that tries
    Keys,
    /// Holds that outlive their lease
    Holds,
    /// Queues in which clients vanish
    Queues,
    /// Storms of immediate tries
    Tries,
    /// Releases with stale and foreign tokens
    Stale,
    /// Connections that come and go
    Churn,
    /// A register behind a lock, with and without a check of tokens
    Register,
}

impl Workload {
    /// Its name.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value().expect("no workload is hidden");
        value.get_name().to_owned()
    }

    /// Starts its clients.
    pub(crate) fn start(self, clients: &mut Clients) -> Result<(), Error> {
        match self {
            Self::Mutex => mutex::start(clients),
            Self::Keys => keys::start(clients),
            Self::Holds => holds::start(clients),
            Self::Queues => queues::start(clients),
            Self::Tries => tries::start(clients),
            Self::Stale => stale::start(clients),
            Self::Churn => churn::start(clients),
            Self::Register => register::start(clients),
        }
    }
}

/// All clients of a run.
pub(crate) struct Clients {
    base: Base,
    random: fastrand::Rng,
    next: u32,
    tasks: JoinSet<()>,
}

/// What every client is made of.
#[derive(Clone)]
pub(crate) struct Base {
    pub(crate) endpoint: Endpoint,
    /// Client addresses of all nodes.
    pub(crate) nodes: Vec<String>,
    /// The certificate that the official client believes.
    pub(crate) pem: Option<String>,
    /// Who leads, as the observer has it.
    pub(crate) leader: watch::Receiver<Option<String>>,
    /// Becomes true when clients are to stop.
    pub(crate) stop: watch::Receiver<bool>,
}

impl Base {
    /// A new official client.
    pub(crate) fn broker(&self) -> Result<Broker, Error> {
        let failed = |error| Error::of("making a client", error);
        let mut builder = Broker::builder().addresses(&self.nodes).token(AUTH_TOKEN);
        if let Some(pem) = &self.pem {
            builder = builder.tls(Tls::from_pem(pem.as_bytes()).map_err(failed)?);
        }
        builder.build().map_err(failed)
    }
}

impl Clients {
    /// No clients yet.
    pub(crate) fn new(base: Base, seed: u64) -> Self {
        Self {
            base,
            random: fastrand::Rng::with_seed(seed),
            next: crate::checker::LAST_CLIENT + 1,
            tasks: JoinSet::new(),
        }
    }

    /// Starts one client.
    fn spawn<W, F>(&mut self, work: W)
    where
        W: FnOnce(Worker) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let worker = Worker {
            id: self.next,
            random: fastrand::Rng::with_seed(self.random.u64(..)),
            base: self.base.clone(),
        };
        self.next += 1;
        self.tasks.spawn(work(worker));
    }

    /// A new official client.
    fn broker(&self) -> Result<Broker, Error> {
        self.base.broker()
    }

    /// Waits until all have come to their end; false when one is stuck.
    pub(crate) async fn finish(&mut self, within: Duration) -> bool {
        let all = async {
            let mut well = true;
            while let Some(ended) = self.tasks.join_next().await {
                well &= ended.is_ok();
            }
            well
        };
        timeout(within, all).await.unwrap_or(false)
    }
}

/// One client.
pub(crate) struct Worker {
    pub(crate) id: u32,
    pub(crate) random: fastrand::Rng,
    pub(crate) base: Base,
}

impl Worker {
    /// False once it is to stop.
    pub(crate) fn goes_on(&self) -> bool {
        !*self.base.stop.borrow()
    }

    /// Waits for some time of the range, in milliseconds; less if it is to stop.
    pub(crate) async fn rest(&mut self, ms: Range<u64>) {
        let time = Duration::from_millis(self.random.u64(ms));
        let mut stop = self.base.stop.clone();
        // Over in either way.
        let _ = timeout(time, stop.wait_for(|stop| *stop)).await;
    }

    /// A connection of the raw client: the one at hand, if it can still be asked, or a new one to
    /// whom seems to lead.
    pub(crate) async fn session<'s>(
        &mut self,
        slot: &'s mut Option<Session>,
    ) -> Option<&'s Session> {
        let mut told = None;
        if let Some(session) = slot {
            told = session.leader();
            let elsewhere = told.as_ref().is_some_and(|leader| *leader != session.node);
            if session.is_over() || elsewhere {
                *slot = None;
            }
        }
        if slot.is_none() {
            let seen = self.base.leader.borrow().clone();
            let node = told
                .filter(|_| self.random.bool())
                .or(seen)
                .filter(|_| self.random.u8(..) > 20)
                .or_else(|| self.random.choice(&self.base.nodes).cloned())?;
            *slot = Session::open(&self.base.endpoint, self.id, &node)
                .await
                .ok();
        }
        if slot.is_none() {
            self.rest(50..300).await;
        }
        slot.as_ref()
    }

    /// Acquires with the official client; the ticket, if there is one.
    pub(crate) async fn take(
        &self,
        broker: &Broker,
        key: &str,
        wait_s: u8,
        lease_s: u8,
    ) -> Option<Ticket> {
        take(&self.base.endpoint, self.id, broker, key, wait_s, lease_s).await
    }

    /// Releases a ticket.
    pub(crate) async fn give_back(&self, ticket: Ticket) {
        give_back(&self.base.endpoint, self.id, ticket).await;
    }

    /// Takes a key with the raw client, holds it for some milliseconds, and releases it.
    pub(crate) async fn hold_raw(
        &mut self,
        session: &Session,
        key: &str,
        (wait_s, lease_s): (u8, u8),
        hold_ms: Range<u64>,
    ) -> Came {
        let came = session.ask(key, wait_s, lease_s).await;
        if let Some(token) = came.token() {
            self.rest(hold_ms).await;
            session.give_back(key, token).await;
        }
        came
    }
}

/// Acquires with the official client, for `client`; the ticket, if there is one.
pub(crate) async fn take(
    endpoint: &Endpoint,
    client: u32,
    broker: &Broker,
    key: &str,
    wait_s: u8,
    lease_s: u8,
) -> Option<Ticket> {
    let recorder = &endpoint.recorder;
    let call = Call::Acquire {
        key: key.to_owned(),
        wait_s,
        lease_s,
        by: By::Official,
        node: String::new(),
    };
    let op = recorder.invoke(client, call);
    let taken = broker
        .acquire(key)
        .wait(Duration::from_secs(wait_s.into()))
        .lease(Duration::from_secs(lease_s.into()))
        .work_budget(Duration::ZERO)
        .await;
    match taken {
        Ok(ticket) => {
            let now = recorder.now();
            let remaining = u64::try_from(ticket.remaining().as_nanos()).unwrap_or(0);
            let answer = Answer::Granted {
                token: ticket.token().0,
                valid_until: Some(now + remaining),
            };
            recorder.write(What::Ok { op, answer });
            Some(ticket)
        }
        Err(error) => {
            let why = match error {
                client::Error::Timeout => Some(Refusal::TimedOut),
                client::Error::Busy => Some(Refusal::Busy),
                client::Error::NotConnected | client::Error::ClientCapacity => {
                    Some(Refusal::Unsent)
                }
                _ => None,
            };
            recorder.write(match why {
                Some(why) => What::Fail { op, why },
                None => What::Info {
                    op,
                    why: Doubt::Indeterminate,
                },
            });
            None
        }
    }
}

/// Releases a ticket, for `client`.
pub(crate) async fn give_back(endpoint: &Endpoint, client: u32, ticket: Ticket) {
    let recorder = &endpoint.recorder;
    let call = Call::Release {
        key: ticket.key().as_str().to_owned(),
        token: ticket.token().0,
        by: By::Official,
    };
    let op = recorder.invoke(client, call);
    recorder.write(match ticket.release().await {
        Ok(ReleaseOutcome::Released) => What::Ok {
            op,
            answer: Answer::Released,
        },
        Ok(ReleaseOutcome::NotCurrent) => What::Ok {
            op,
            answer: Answer::NotCurrent,
        },
        Err(_) => What::Info {
            op,
            why: Doubt::Indeterminate,
        },
    });
}
