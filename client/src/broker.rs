//! The client's front: how it is made, and how a lock is asked for.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use wire::{AuthToken, Key, LEASE_SECONDS_MAX, Lease, Owner, is_address};

use crate::call::{AcquireCall, Call, seconds_up};
use crate::dispatch::{ACQUIRES_MAX, Dispatcher, Settings};
use crate::{Error, Ticket, Tls, link};

/// How many addresses a broker may have.
pub const ADDRESSES_MAX: usize = 16;

/// The wait of an acquire that names none.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// The lease of an acquire that names none.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// How long an immediate try may take on its way.
const IMMEDIATE_MAX: Duration = Duration::from_secs(5);

/// A client of one server or cluster. Cheap to clone; connections close when the last clone and
/// the last ticket are gone, and the releases under way are settled.
#[derive(Clone)]
pub struct Broker(Arc<Inner>);

struct Inner {
    dispatcher: Arc<Dispatcher>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.dispatcher.close();
    }
}

/// What a [`Broker`] is made of.
#[derive(Debug)]
pub struct Builder {
    addresses: Vec<String>,
    auth_token: AuthToken,
    tls: Option<Tls>,
    probing: bool,
    acquires_max: usize,
}

impl Builder {
    /// Where the nodes are, each as `host:port`, spelled as in the cluster's own configuration.
    /// Nothing else is ever dialled.
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.addresses = addresses.into_iter().map(Into::into).collect();
        self
    }

    /// The auth token; empty unless set.
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.auth_token = AuthToken::new(token);
        self
    }

    /// Connects with TLS; without unless set.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Whether waits are accompanied by releases of token 0 that tell how much of a lease is left;
    /// they are unless switched off. Sound only with servers that answer in the order in which they
    /// decide. Without it a lease counts from the sending of its acquire.
    pub fn probing(mut self, probing: bool) -> Self {
        self.probing = probing;
        self
    }

    /// How many acquires may be under way at once, 16,384 unless set.
    pub fn acquires_max(mut self, acquires: usize) -> Self {
        self.acquires_max = acquires;
        self
    }

    /// Starts connecting, in the tokio runtime that this is called in.
    pub fn build(self) -> Result<Broker, Error> {
        let mut addresses: Vec<String> = Vec::new();
        for address in self.addresses {
            check_address(&address)?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
            return Err(invalid(format!(
                "1 to {ADDRESSES_MAX} addresses are needed"
            )));
        }
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| invalid("a broker is built inside a tokio runtime"))?;
        let count = addresses.len();
        let settings = Settings {
            auth_token: self.auth_token,
            tls: self.tls,
            probing: self.probing,
        };
        let dispatcher = Arc::new(Dispatcher::new(addresses, settings, self.acquires_max));
        for index in 0..count {
            runtime.spawn(link::run(Arc::clone(&dispatcher), index));
        }
        runtime.spawn(Arc::clone(&dispatcher).keep());
        Ok(Broker(Arc::new(Inner { dispatcher })))
    }
}

impl Broker {
    /// A broker to be.
    pub fn builder() -> Builder {
        Builder {
            addresses: Vec::new(),
            auth_token: AuthToken::default(),
            tls: None,
            probing: true,
            acquires_max: ACQUIRES_MAX,
        }
    }

    /// Begins to ask for the lock `key`; [`Acquire::work_budget`] ends it.
    pub fn acquire<'a>(&'a self, key: &'a str) -> Acquire<'a> {
        Acquire {
            broker: self,
            key,
            wait: DEFAULT_WAIT,
            lease: DEFAULT_LEASE,
        }
    }

    /// Whether any server is connected at the moment.
    pub fn is_connected(&self) -> bool {
        self.0.dispatcher.is_connected()
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Broker(..)")
    }
}

/// A lock being asked for.
#[derive(Clone, Copy, Debug)]
#[must_use = "nothing is asked before the work budget is named and awaited"]
pub struct Acquire<'a> {
    broker: &'a Broker,
    key: &'a str,
    wait: Duration,
    lease: Duration,
}

impl Acquire<'_> {
    /// How long the whole call may take, connecting and queueing included: 0 to 255 s, fractions
    /// of a second rounded up. 0 is one immediate try, which may take 5 s on its way.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long the grant lasts at most: 1 to 250 s, fractions of a second rounded up.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Asks for the lock, for work that takes up to `budget`: the critical work, the longest pause
    /// to be expected in it, and its commit or rollback. A grant whose lease does not cover that any
    /// more when it arrives is given back. 0 s to the lease, which is judged rounded up.
    pub async fn work_budget(self, budget: Duration) -> Result<Ticket, Error> {
        let started = Instant::now();
        let key = check_key(self.key)?;
        let wait = seconds(self.wait, "wait", 0, u8::MAX)?;
        let lease = seconds(self.lease, "lease", 1, LEASE_SECONDS_MAX)?;
        let budget_seconds = seconds(budget, "work budget", 0, LEASE_SECONDS_MAX)?;
        if budget_seconds > lease {
            return Err(Error::InsufficientLease);
        }
        let patience = match wait {
            0 => IMMEDIATE_MAX,
            wait => Duration::from_secs(wait.into()),
        };
        let deadline = started + patience;
        let grant = self.grant(key, wait == 0, lease, deadline).await?;
        // A grant that this task came to see too late is given back as it is dropped.
        if Instant::now() > deadline {
            return Err(Error::Indeterminate);
        }
        let remaining = grant.remaining();
        if remaining < budget || remaining.is_zero() {
            return Err(Error::InsufficientLease);
        }
        Ok(Ticket::new(grant, self.broker.clone()))
    }

    async fn grant(
        &self,
        key: Key,
        immediate: bool,
        lease: u8,
        deadline: Instant,
    ) -> Result<crate::call::Grant, Error> {
        let dispatcher = &self.broker.0.dispatcher;
        let permit = dispatcher.admit().ok_or(Error::ClientCapacity)?;
        let owner = dispatcher.next_owner().ok_or(Error::Closed)?;
        let lease = Lease::from_seconds(lease).expect("its range was checked");
        let (reply, answer) = oneshot::channel();
        let mut caller = Caller {
            dispatcher,
            owner,
            answered: false,
        };
        dispatcher.submit(Call::Acquire(AcquireCall {
            owner,
            key,
            lease,
            immediate,
            deadline,
            reply,
            _permit: permit,
        }));
        let answer = answer.await;
        caller.answered = true;
        answer.unwrap_or(Err(Error::Indeterminate))
    }
}

/// Tells the dispatcher when the future that waits for an answer is dropped without it.
struct Caller<'a> {
    dispatcher: &'a Dispatcher,
    owner: Owner,
    answered: bool,
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.dispatcher.abandon(self.owner);
        }
    }
}

fn check_address(address: &str) -> Result<(), Error> {
    let port = address
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse::<u16>().ok());
    if is_address(address) && port.is_some_and(|port| port != 0) {
        Ok(())
    } else {
        Err(invalid(format!(
            "not an address of the form host:port: {address:?}"
        )))
    }
}

fn check_key(key: &str) -> Result<Key, Error> {
    if key.contains('\r') {
        return Err(invalid("a key must not contain a carriage return"));
    }
    Key::from_bytes(key.as_bytes()).map_err(|error| invalid(error.to_string()))
}

/// The duration in whole seconds, rounded up.
fn seconds(duration: Duration, what: &'static str, min: u8, max: u8) -> Result<u8, Error> {
    let whole = seconds_up(duration).and_then(|seconds| u8::try_from(seconds).ok());
    whole
        .filter(|seconds| (min..=max).contains(seconds))
        .ok_or(Error::UnsupportedDuration { what, min, max })
}

fn invalid(what: impl Into<String>) -> Error {
    Error::InvalidInput(what.into())
}
