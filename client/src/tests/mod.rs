//! The client against servers that follow a script, in memory and in a runtime whose time stands
//! still while anything can be done: every moment is exact, and every run is the same.
//!
//! What needs real sockets (TLS, dialling, real time) is in `tests/tcp`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod acquire;
mod cancellation;
mod closing;
mod connection;
mod durations;
mod frames;
mod lease;
mod limits;
mod network;
#[path = "../../tests/support/peer.rs"]
mod peer;
mod release;

use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wire::{Reply, Token};

pub(crate) use self::network::Network;
use self::network::Server;
use self::peer::{bytes_of, granted, soon};
use crate::{Broker, Error, Ticket};

type Peer = peer::Peer<DuplexStream>;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Asks in a task of its own; the lease is 30 s, the budget 1 s.
fn ask(broker: &Broker, key: &'static str, wait_ms: u64) -> JoinHandle<Result<Ticket, Error>> {
    let broker = broker.clone();
    tokio::spawn(async move {
        broker
            .acquire(key)
            .wait(ms(wait_ms))
            .work_budget(ms(1000))
            .await
    })
}

async fn outcome(call: JoinHandle<Result<Ticket, Error>>) -> Result<Ticket, Error> {
    // Longer than any wait in these tests.
    let joined = tokio::time::timeout(Duration::from_secs(400), call).await;
    joined.expect("the call ends").unwrap()
}

/// The call must have ended without a ticket.
async fn failure(call: JoinHandle<Result<Ticket, Error>>) -> Error {
    outcome(call).await.expect_err("there is no ticket")
}

/// A ticket for `k` with that token.
async fn ticket(broker: &Broker, peer: &mut Peer, token: u64) -> Ticket {
    let call = ask(broker, "k", 5000);
    let acquire = peer.acquire().await;
    assert_eq!(acquire.key.as_str(), "k");
    peer.grant(token, &acquire).await;
    let ticket = outcome(call).await.unwrap();
    assert_eq!(ticket.token(), Token(token));
    ticket
}

/// Serves one whole acquire and release, which shows that the connection is in order.
async fn assert_serves(broker: &Broker, peer: &mut Peer, token: u64) {
    let ticket = ticket(broker, peer, token).await;
    let (released, ()) = tokio::join!(ticket.release(), peer.expect_release(token));
    assert!(released.is_ok());
}

/// The error must be this one; what is behind it tells which case it was.
macro_rules! assert_error {
    ($error:expr, $expected:pat) => {
        assert_error!($error, $expected, "")
    };
    ($error:expr, $expected:pat, $case:expr) => {{
        let error = $error;
        assert!(matches!(error, $expected), "{error:?} {:?}", $case);
    }};
}
use assert_error;
