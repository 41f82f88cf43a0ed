//! `ticketing acquire`: takes a lock and leaves it held, for scripts that release it themselves.
//!
//! The lock outlives this process until `ticketing release` or the end of its lease. So its token
//! must have reached somebody: if it can't be printed the lock is given back.

use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

use client::Ticket;

use super::ask::{AskArgs, Signals};
use super::connect::ConnectArgs;
use super::{block_on, or_usage};

/// How a grant is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OutputFormat {
    /// Lines of a name and a value
    Text,
    /// One JSON object
    Json,
    /// The token alone, for a script's variable
    Token,
}

/// The arguments of `acquire`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = super::exit::help())]
pub struct AcquireArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    ask: AskArgs,
    /// How the grant is printed
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    /// The lock's name
    key: String,
}

/// Takes the lock and prints its token; returns the exit code.
pub fn run(args: &AcquireArgs) -> u8 {
    block_on(acquire(args))
}

async fn acquire(args: &AcquireArgs) -> io::Result<u8> {
    let broker = match or_usage(args.connect.broker()) {
        Ok(broker) => broker,
        Err(code) => return Ok(code),
    };
    let mut signals = Signals::listen()?;
    // How much time the work takes is the caller's to judge: what is left is printed.
    let asked = args
        .ask
        .ticket(&broker, &args.key, Duration::ZERO, &mut signals);
    let ticket = match asked.await {
        Ok(ticket) => ticket,
        Err(code) => return Ok(code),
    };
    let printed = print(&text(&ticket, args.ask.lease(), args.output));
    match printed {
        Ok(()) => {
            let _ = ticket.detach();
        }
        // Whatever comes of it, the failure to print is what is reported.
        Err(_) => drop(ticket.release().await),
    }
    broker.close().await;
    printed.map(|()| 0)
}

fn text(ticket: &Ticket, lease: Duration, format: OutputFormat) -> String {
    let (key, token) = (ticket.key().as_str(), ticket.token().0);
    // Rounded down, to the millisecond.
    let remaining = Duration::from_millis(ticket.remaining().as_millis() as u64);
    let (lease, remaining_seconds) = (lease.as_secs(), remaining.as_secs_f64());
    // By the wall clock, which may jump: for people. Programs count from `remaining`.
    let valid_until = humantime::format_rfc3339_seconds(SystemTime::now() + remaining);
    match format {
        OutputFormat::Text => format!(
            "key {key}\ntoken {token}\nlease-seconds {lease}\nremaining-seconds {remaining_seconds}\n\
             valid-until {valid_until} (wall clock, for information only)\n"
        ),
        OutputFormat::Json => {
            let grant = serde_json::json!({
                "key": key,
                "token": token,
                "lease_seconds": lease,
                "remaining_seconds": remaining_seconds,
                "valid_until_wall_clock": valid_until.to_string(),
            });
            format!("{grant}\n")
        }
        OutputFormat::Token => format!("{token}\n"),
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
