//! `ticketing lock`: runs a command while holding a lock.
//!
//! The exit code tells what happened: the command's own if it ran, as shells report it, and
//! otherwise one of the codes of sysexits. The lock is a lease: if the command outlives it, another
//! may get the lock meanwhile, which is why the command is told the fencing token. It is warned
//! about, not killed: only the command knows what state it would leave behind.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use client::{Broker, Error, ReleaseOutcome, Ticket};
use rustix::process::{Pid, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::connect::ConnectArgs;
use super::{EXIT_FAILURE, EXIT_USAGE};

/// No server answered, or what became of the request is unknown.
const EXIT_UNAVAILABLE: u8 = 69;

/// The lock was not acquired: held by others, or the server is at a limit.
const EXIT_NOT_ACQUIRED: u8 = 75;

/// The auth token was refused.
const EXIT_AUTH: u8 = 77;

/// The command could not be executed, and it was not found: as shells report it.
const EXIT_CANNOT_EXECUTE: u8 = 126;
const EXIT_NOT_FOUND: u8 = 127;

/// What is added to the number of the signal that ended something.
const EXIT_SIGNAL: i32 = 128;

/// The arguments of `lock`.
#[derive(clap::Args, Clone, Debug)]
pub struct LockArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// How long to wait for the lock, in seconds, 0 to 255; 0: try once
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait: u8,
    /// How long the lock is held at most, in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        value_parser = clap::value_parser!(u8).range(1..=i64::from(wire::LEASE_SECONDS_MAX))
    )]
    lease: u8,
    /// The lock's name
    key: String,
    /// What to run; TICKETING_KEY, TICKETING_TOKEN and TICKETING_LEASE_SECONDS are set for it
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Takes the lock, runs the command, releases; returns the exit code.
pub fn run(args: &LockArgs) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime.and_then(|runtime| runtime.block_on(locked(args))) {
        Ok(code) => code,
        Err(error) => {
            complain(&error);
            EXIT_FAILURE
        }
    }
}

async fn locked(args: &LockArgs) -> io::Result<u8> {
    let broker = match args.connect.broker() {
        Ok(broker) => broker,
        Err(error) => {
            complain(&error);
            return Ok(EXIT_USAGE);
        }
    };
    let mut signals = Signals::new()?;
    let acquired = tokio::select! {
        acquired = acquire(&broker, args) => acquired,
        // The request is withdrawn with the connection.
        signal = signals.next() => return Ok(signal_code(signal.as_raw())),
    };
    let ticket = match acquired {
        Ok(ticket) => ticket,
        Err(error) => return Ok(refused(&error, &broker, &args.key)),
    };
    let code = match start(args, &ticket) {
        Ok(child) => code_of(attend(child, &ticket, &mut signals).await?),
        Err(error) => {
            complain(&format_args!("{}: {error}", args.command[0].display()));
            match error.kind() {
                io::ErrorKind::NotFound => EXIT_NOT_FOUND,
                _ => EXIT_CANNOT_EXECUTE,
            }
        }
    };
    match ticket.release().await {
        Ok(ReleaseOutcome::Released) => {}
        Ok(ReleaseOutcome::NotCurrent) => {
            complain(&format_args!(
                "the lock {:?} was over before the command was",
                args.key
            ));
        }
        Err(error) => {
            complain(&format_args!(
                "release: {error}; the lock ends with its lease"
            ));
        }
    }
    Ok(code)
}

/// A command takes as long as it takes; that half of the lease is left for it when it starts is the
/// least that makes a lock worth having.
async fn acquire(broker: &Broker, args: &LockArgs) -> Result<Ticket, Error> {
    let lease = Duration::from_secs(args.lease.into());
    let wait = Duration::from_secs(args.wait.into());
    broker
        .acquire(&args.key)
        .wait(wait)
        .lease(lease)
        .work_budget(lease / 2)
        .await
}

fn refused(error: &Error, broker: &Broker, key: &str) -> u8 {
    match error {
        Error::Timeout if !broker.is_connected() => {
            complain(&"no server answered");
            EXIT_UNAVAILABLE
        }
        Error::Timeout | Error::Busy | Error::InsufficientLease => {
            complain(&format_args!("the lock {key:?} was not acquired: {error}"));
            EXIT_NOT_ACQUIRED
        }
        Error::Auth => {
            complain(error);
            EXIT_AUTH
        }
        Error::InvalidInput(_) | Error::UnsupportedDuration { .. } => {
            complain(error);
            EXIT_USAGE
        }
        _ => {
            complain(error);
            EXIT_UNAVAILABLE
        }
    }
}

fn start(args: &LockArgs, ticket: &Ticket) -> io::Result<Child> {
    Command::new(&args.command[0])
        .args(&args.command[1..])
        .env("TICKETING_KEY", &args.key)
        .env("TICKETING_TOKEN", ticket.token().to_string())
        .env("TICKETING_LEASE_SECONDS", args.lease.to_string())
        .spawn()
}

/// Waits for the command, passes signals on to it, and says when the lease is over before it is.
async fn attend(
    mut child: Child,
    ticket: &Ticket,
    signals: &mut Signals,
) -> io::Result<ExitStatus> {
    let lease_over = tokio::time::sleep(ticket.remaining());
    tokio::pin!(lease_over);
    let mut warned = false;
    loop {
        // The process id is the child's as long as the child was not waited for.
        let pid = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        tokio::select! {
            status = child.wait() => return status,
            signal = signals.next() => {
                if let Some(pid) = pid {
                    // It may have ended just now, which the next turn finds out.
                    let _ = kill_process(pid, signal);
                }
            }
            () = &mut lease_over, if !warned => {
                warned = true;
                complain(&format_args!(
                    "the lease of {:?} is over and the command still runs: others may hold the lock",
                    ticket.key().as_str()
                ));
            }
        }
    }
}

/// The signals that ask for an end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> rustix::process::Signal {
        tokio::select! {
            _ = self.interrupt.recv() => rustix::process::Signal::INT,
            _ = self.terminate.recv() => rustix::process::Signal::TERM,
        }
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.unwrap_or_else(|| status.signal().map_or(EXIT_FAILURE, signal_code))
}

fn signal_code(signal: i32) -> u8 {
    u8::try_from(EXIT_SIGNAL + signal).unwrap_or(EXIT_FAILURE)
}

fn complain(what: &dyn std::fmt::Display) {
    eprintln!("ticketing: {what}");
}
