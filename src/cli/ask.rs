//! How the subcommands that take a lock ask for it: the flags, the wait, and what a refusal means.

use std::io;
use std::time::Duration;

use client::{Broker, Error, Ticket};
use tokio::sync::mpsc;

use super::exit::{EXIT_AUTH, EXIT_NOT_ACQUIRED, EXIT_UNAVAILABLE, EXIT_USAGE, signal_code};
use super::signals::{Received, SPOKEN, WAITING_MAX, listen};

/// How long a single try may take to reach a server.
const IMMEDIATE_CONNECT_MAX: Duration = Duration::from_secs(5);

/// The flags about the lock itself.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct AskArgs {
    /// How long to wait for the lock, in seconds, 0 to 255, counted from when a server is reached; 0:
    /// try once
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait: u8,
    /// How long the lock is held at most, in seconds, 1 to 250
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        value_parser = clap::value_parser!(u8).range(1..=i64::from(wire::LEASE_SECONDS_MAX))
    )]
    lease: u8,
    /// The exit code when others hold the lock until the wait is over, instead of 75
    #[arg(long, value_name = "CODE")]
    conflict_exit_code: Option<u8>,
}

impl AskArgs {
    /// How long the lock is held at most.
    pub(super) fn lease(&self) -> Duration {
        Duration::from_secs(self.lease.into())
    }

    /// Waits for the lock; an exit code if that came to nothing, and then nothing is left behind. A
    /// signal ends the wait.
    pub(super) async fn ticket(
        &self,
        broker: &Broker,
        key: &str,
        budget: Duration,
        signals: &mut Signals,
    ) -> Result<Ticket, u8> {
        let wait = Duration::from_secs(self.wait.into());
        let asked = async {
            // The wait for the lock begins when there is somebody to ask. A server counts it in whole
            // seconds from when it is asked: had a part of them gone into connecting, its answer that
            // others hold the lock would come after our own deadline, as an unknown outcome.
            let patience = match self.wait {
                0 => IMMEDIATE_CONNECT_MAX,
                _ => wait,
            };
            broker.wait_ready(patience).await?;
            let asked = broker.acquire(key).wait(wait).lease(self.lease());
            asked.work_budget(budget).await
        };
        let outcome = tokio::select! {
            biased;
            signal = signals.next() => Err(signal_code(signal.signal.as_raw())),
            outcome = asked => outcome.map_err(|error| self.refused(&error, broker, key)),
        };
        // One that came together with the grant: the work has not begun yet.
        let outcome = match signals.pending() {
            Some(signal) => Err(signal_code(signal.signal.as_raw())),
            None => outcome,
        };
        if outcome.is_err() {
            // Withdraws what is queued. Whoever is in more of a hurry signals once more.
            tokio::select! {
                () = broker.close() => {}
                _ = signals.next() => {}
            }
        }
        outcome
    }

    fn refused(&self, error: &Error, broker: &Broker, key: &str) -> u8 {
        if let (Error::Timeout, Some(leader)) = (error, unlisted_leader(broker)) {
            complain!("{leader}");
            return EXIT_UNAVAILABLE;
        }
        match error {
            Error::Timeout if !broker.is_connected() => {
                complain!("no server answered");
                EXIT_UNAVAILABLE
            }
            Error::Timeout | Error::Busy | Error::InsufficientLease => {
                complain!("the lock {key:?} was not acquired: {error}");
                let conflict = matches!(error, Error::Timeout);
                let code = self.conflict_exit_code.filter(|_| conflict);
                code.unwrap_or(EXIT_NOT_ACQUIRED)
            }
            error => {
                complain!("{error}");
                code_of(error)
            }
        }
    }
}

/// What there is to say when the nodes that were asked point to one that was not given.
pub(super) fn unlisted_leader(broker: &Broker) -> Option<String> {
    let leader = broker.unlisted_leader()?;
    Some(format!(
        "the leader is at {leader}, which is not among --addrs"
    ))
}

/// The exit code for what went wrong with any call.
pub(super) fn code_of(error: &Error) -> u8 {
    match error {
        Error::Auth => EXIT_AUTH,
        Error::InvalidInput(_) | Error::UnsupportedDuration { .. } => EXIT_USAGE,
        _ => EXIT_UNAVAILABLE,
    }
}

/// The signals that this process is sent.
pub(super) struct Signals(mpsc::Receiver<Received>);

impl Signals {
    /// Catches them from now on.
    pub(super) fn listen() -> io::Result<Self> {
        let (received, signals) = mpsc::channel(WAITING_MAX);
        listen(&SPOKEN, move |signal| {
            // A full queue holds what the same signals would say.
            let _ = received.try_send(signal);
        })?;
        Ok(Self(signals))
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Received {
        match self.0.recv().await {
            Some(signal) => signal,
            // The listening thread does not end.
            None => std::future::pending().await,
        }
    }

    /// One that came already.
    fn pending(&mut self) -> Option<Received> {
        self.0.try_recv().ok()
    }
}
