//! The client's front: how it is made, and what it does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wire::{AuthToken, Token, is_address};

use crate::acquire::check_key;
use crate::clock::Clock;
use crate::dial::Transport;
use crate::dispatch::{ACQUIRES, ACQUIRES_MAX, Dispatcher, RELEASE_PATIENCE, Settings};
use crate::{Acquire, Error, ReleaseOutcome, Tls, link};

/// How many addresses a broker may have.
pub const ADDRESSES_MAX: usize = 16;

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
    /// Where the nodes are, each as `host:port`, spelled as in the cluster's own configuration; 1 to
    /// [`ADDRESSES_MAX`]. Nothing else is ever dialled. Names are resolved anew at each dial.
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

    /// How many acquires may be under way at once, 1 to 16,384; 1,024 unless set. More of them wait
    /// for a place, within their time.
    pub fn acquires_max(mut self, acquires: usize) -> Self {
        self.acquires_max = acquires;
        self
    }

    /// Starts connecting, in the tokio runtime that this is called in.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`]: an address is none, there are too few or too many, the limit is out
    /// of its range, or there is no runtime.
    pub fn build(self) -> Result<Broker, Error> {
        let transport = self.tls.clone().map_or(Transport::Tcp, Transport::Tls);
        self.start(transport, Clock::System, link::random)
    }

    pub(crate) fn start(
        self,
        transport: Transport,
        clock: Clock,
        random: fn() -> u32,
    ) -> Result<Broker, Error> {
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
        if !(1..=ACQUIRES_MAX).contains(&self.acquires_max) {
            return Err(invalid(format!(
                "1 to {ACQUIRES_MAX} acquires can be under way, not {}",
                self.acquires_max
            )));
        }
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| invalid("a broker is built inside a tokio runtime"))?;
        let count = addresses.len();
        let settings = Settings {
            auth_token: self.auth_token,
            transport,
            probing: self.probing,
            acquires_max: self.acquires_max,
            clock,
            random,
        };
        let dispatcher = Arc::new(Dispatcher::new(addresses, settings));
        for index in 0..count {
            runtime.spawn(link::run(dispatcher.working(), index));
        }
        let keeper = dispatcher.working();
        runtime.spawn(async move { keeper.dispatcher().keep().await });
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
            acquires_max: ACQUIRES,
        }
    }

    /// Begins to ask for the lock `key`; [`Acquire::work_budget`] or [`Acquire::with_lock`] ends it.
    pub fn acquire<'a>(&'a self, key: &'a str) -> Acquire<'a> {
        Acquire::new(self, key)
    }

    /// Begins to try for the lock `key` once: it is there now, or the answer is
    /// [`Error::Timeout`]. The same as a wait of 0.
    pub fn try_acquire<'a>(&'a self, key: &'a str) -> Acquire<'a> {
        self.acquire(key).wait(Duration::ZERO)
    }

    /// Releases a grant of which only the token is known, see [`Ticket::detach`]. Tried for 5 s;
    /// dropping the future leaves the trying to the background.
    ///
    /// # Errors
    ///
    /// As [`Ticket::release`], and [`Error::InvalidInput`] for what is no key.
    ///
    /// [`Ticket::detach`]: crate::Ticket::detach
    /// [`Ticket::release`]: crate::Ticket::release
    pub async fn release(&self, key: &str, token: Token) -> Result<ReleaseOutcome, Error> {
        let key = check_key(key)?;
        let deadline = Instant::now() + RELEASE_PATIENCE;
        let permit = self.dispatcher().admit_release(deadline).await?;
        self.dispatcher()
            .release(key, token, deadline, permit)
            .await
    }

    /// Comes back once a request could be sent: there is a connection to the node that leads, as far
    /// as one can tell before asking it. Nothing has to call this.
    ///
    /// # Errors
    ///
    /// [`Error::NotConnected`] when `patience` is over; at once [`Error::Auth`] and
    /// [`Error::Protocol`] if waiting does not help, and [`Error::Closed`].
    pub async fn wait_ready(&self, patience: Duration) -> Result<(), Error> {
        let now = Instant::now();
        let deadline = now.checked_add(patience).unwrap_or(now + LONG_TIME);
        self.dispatcher().ready(deadline).await
    }

    /// Whether any server is connected at the moment.
    pub fn is_connected(&self) -> bool {
        self.dispatcher().is_connected()
    }

    /// Where the leader is, if the newest word is that of a node that refused a request for it and that
    /// address is none of this broker's: it is not dialled, and calls go nowhere until it is added or
    /// another node leads.
    pub fn unlisted_leader(&self) -> Option<String> {
        self.dispatcher().unlisted_leader()
    }

    /// Ends this broker and its clones: what is being asked ends with [`Error::Closed`], or
    /// [`Error::Indeterminate`] if it may have been sent; releases are settled, over new connections
    /// if need be; then the connections are closed. At most 5 s. Tickets that are still held end
    /// with their leases.
    pub async fn close(&self) {
        self.dispatcher().close();
        self.dispatcher().closed().await;
    }

    pub(crate) fn dispatcher(&self) -> &Dispatcher {
        &self.0.dispatcher
    }
}

/// Stands for a patience that no clock can express.
const LONG_TIME: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Broker(..)")
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

fn invalid(what: impl Into<String>) -> Error {
    Error::InvalidInput(what.into())
}
