//! `ticketing lock`: runs a command while holding a lock.
//!
//! Three processes, each with one duty. This one holds the lock: it talks to the servers, waits for
//! its turn, and releases at the end. The `keeper` guards the command: it ends it in time before
//! the lease ends, and when this process is gone. `launch` becomes the command. What is to happen
//! when is worked out in `plan` and decided in `watch`; neither reads a clock or sends a signal.
//!
//! Signals that this process gets are the command's: while it waits for the lock they end the wait;
//! afterwards they are handed to the keeper, which passes them on.
//!
//! **Process groups.** Without a terminal the command leads a group of its own, and a signal reaches
//! all of the group in one step. With a controlling terminal it stays in the group of this process,
//! as if it had been typed itself: it may read from the terminal, Ctrl-C and Ctrl-Z mean to it (and
//! to the script around it) what they always mean, and `fg` and `bg` work. What the terminal sends
//! then reaches the command without us and is not passed on again.
//!
//! **The exit code** is the command's, as shells report it, or one of [`exit`](super::exit); `verdict`
//! decides which, from what the release found.

mod family;
pub(super) mod keeper;
pub(super) mod launch;
mod moment;
mod plan;
mod table;
mod verdict;
mod watch;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use client::Ticket;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use self::keeper::KeeperArgs;
use self::moment::Moment;
use self::plan::{OnLeaseEnd, Plan, parse_seconds};
use self::verdict::{CommandEnd, verdict};
use super::EXIT_USAGE;
use super::ask::{AskArgs, Signals};
use super::connect::ConnectArgs;
use super::exit::{EXIT_LEASE_OVER, signal_code};
use super::signals::{Received, heed_children};
use super::{EXIT_FAILURE, block_on, or_usage};

/// The arguments of `lock`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = super::exit::help())]
pub struct LockArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    ask: AskArgs,
    /// What happens to a command that still runs when the lease is about to end
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnLeaseEnd::Term)]
    on_lease_end: OnLeaseEnd,
    /// How long a command that was told to end has until it is killed, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_seconds)]
    kill_after: Duration,
    /// How long the command needs at the least, in seconds: a lock that comes too late for that is
    /// given back, and the command is not started [default: half of what lease and end leave]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    work_budget: Option<Duration>,
    /// The lock's name
    key: String,
    #[command(flatten)]
    command: CommandArgs,
}

/// A command with its arguments.
#[derive(clap::Args, Clone, Debug)]
struct CommandArgs {
    /// What to run; TICKETING_KEY, TICKETING_TOKEN and TICKETING_LEASE_SECONDS are set for it
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Takes the lock, runs the command, releases; returns the exit code.
pub fn run(args: &LockArgs) -> u8 {
    let plan = Plan {
        on_lease_end: args.on_lease_end,
        kill_after: args.kill_after,
    };
    match plan.budget(args.ask.lease(), args.work_budget) {
        Ok(budget) => block_on(locked(args, plan, budget)),
        Err(error) => {
            complain!("{error}");
            EXIT_USAGE
        }
    }
}

async fn locked(args: &LockArgs, plan: Plan, budget: Duration) -> io::Result<u8> {
    let broker = match or_usage(args.connect.broker()) {
        Ok(broker) => broker,
        Err(code) => return Ok(code),
    };
    let mut signals = Signals::listen()?;
    let asked = args.ask.ticket(&broker, &args.key, budget, &mut signals);
    let ticket = match asked.await {
        Ok(ticket) => ticket,
        Err(code) => return Ok(code),
    };
    let granted = Moment::now();
    // In this order, so that what is read in between makes the lease look shorter.
    let lease_end = granted + ticket.remaining();
    let code = guarded(args, plan, &ticket, lease_end, &mut signals).await;
    let end = code.map(|code| CommandEnd {
        code,
        held: granted.elapsed(),
        lease_over: lease_end.left().is_zero().then(|| lease_end.elapsed()),
    });
    let released = ticket.release().await;
    let (code, said) = verdict(&args.key, end?, &released);
    if let Some(said) = said {
        complain!("{said}");
    }
    Ok(code)
}

/// Runs the command under the ticket and waits until nothing of it is left.
async fn guarded(
    args: &LockArgs,
    plan: Plan,
    ticket: &Ticket,
    lease_end: Moment,
    signals: &mut Signals,
) -> io::Result<u8> {
    let in_job = has_terminal();
    let mut keeper = KeeperArgs::new(plan, lease_end, !in_job, &args.command).into_process();
    keeper
        .env("TICKETING_KEY", &args.key)
        .env("TICKETING_TOKEN", ticket.token().to_string())
        .env(
            "TICKETING_LEASE_SECONDS",
            args.ask.lease().as_secs().to_string(),
        );
    heed_children()?;
    // Should the keeper be killed, its command is ours to end.
    family::adopt_descendants()?;
    let mut keeper = tokio::process::Command::from(keeper).spawn()?;
    let lease_over = ticket.lease_over();
    tokio::pin!(lease_over);
    let mut is_over = false;
    loop {
        tokio::select! {
            biased;
            status = keeper.wait() => return status.map(|status| ended(status, is_over)),
            signal = signals.next() => {
                if !(in_job && reached_job(&signal)) {
                    send(&keeper, signal.signal);
                }
            }
            () = &mut lease_over, if !is_over => {
                is_over = true;
                match plan.on_lease_end {
                    // The keeper is stopped, or what it kills does not end.
                    OnLeaseEnd::Term => send(&keeper, Signal::KILL),
                    OnLeaseEnd::Warn => complain!(
                        "the lease of {:?} is over and the command still runs: others may hold the lock",
                        args.key
                    ),
                }
            }
        }
    }
}

/// Whether all of the job got the signal as well: what is typed on a terminal is sent to the whole
/// job in the foreground. That the terminal is gone is told to the leader of its session alone, which
/// this process may be.
fn reached_job(signal: &Received) -> bool {
    signal.by_kernel && signal.signal != Signal::HUP
}

/// The exit code after the keeper's end. A keeper that was killed leaves its command to us.
fn ended(status: ExitStatus, lease_is_over: bool) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    if let Some(signal) = status.signal() {
        family::kill_descendants();
        return if lease_is_over {
            EXIT_LEASE_OVER
        } else {
            signal_code(signal)
        };
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.unwrap_or(EXIT_FAILURE)
}

fn send(keeper: &Child, signal: Signal) {
    // The id is the keeper's as long as it was not waited for.
    let id = keeper.id().and_then(|id| i32::try_from(id).ok());
    if let Some(id) = id.and_then(Pid::from_raw) {
        // It may have ended just now, which the next turn finds out.
        let _ = kill_process(id, signal);
    }
}

/// Whether this process has a controlling terminal.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// This program once more, even if its file was replaced meanwhile.
fn own_binary(name: &str) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut process = Command::new("/proc/self/exe");
    process.arg0(name);
    process
}
