//! The last step before the command: this process becomes it, so that no shell and no other process
//! stands between.
//!
//! Fault answered: a command that starts although its lock is lost, because the machine slept or was
//! busy between the grant and here. The lease is looked at right before the `exec`: less than the
//! end of the command takes must not be left. And the kernel is asked to kill this process when its
//! parent, the keeper, is gone; that stays over the `exec` (except of a program with privileges of
//! its own, like sudo).

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::moment::Moment;
use super::plan::{Plan, parse_seconds};
use super::{CommandArgs, own_binary};
use crate::cli::EXIT_FAILURE;
use crate::cli::exit::{EXIT_CANNOT_EXECUTE, EXIT_LEASE_OVER, EXIT_NOT_FOUND};

/// The subcommand's name.
pub(in crate::cli) const NAME: &str = "lock-launch";

/// What the launching process is told.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LaunchArgs {
    /// The keeper
    #[arg(long)]
    parent: i32,
    /// When the lease ends
    #[arg(long)]
    lease_end: Moment,
    /// How much of the lease the end of the command takes
    #[arg(long, value_parser = parse_seconds)]
    ending: Duration,
    #[command(flatten)]
    command: CommandArgs,
}

impl LaunchArgs {
    /// The command line of a launch below the calling process.
    pub(super) fn new(plan: Plan, lease_end: Moment, command: &CommandArgs) -> Self {
        Self {
            parent: getpid().as_raw_nonzero().get(),
            lease_end,
            ending: plan.ending(),
            command: command.clone(),
        }
    }

    /// The process to start.
    pub(super) fn into_process(self) -> Command {
        let mut process = own_binary("ticketing-lock-launch");
        process
            .arg(NAME)
            .args(["--parent", &self.parent.to_string()])
            .args(["--lease-end", &self.lease_end.to_string()])
            .args(["--ending", &self.ending.as_secs_f64().to_string()])
            .arg("--")
            .args(self.command.command);
        process
    }
}

/// Becomes the command; an exit code if it can't.
pub(crate) fn run(args: &LaunchArgs) -> u8 {
    let asked = set_parent_process_death_signal(Some(Signal::KILL));
    // The keeper may have ended before the kernel was asked.
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
    if asked.is_err() || parent != Some(args.parent) {
        return EXIT_FAILURE;
    }
    let [program, arguments @ ..] = args.command.command.as_slice() else {
        return EXIT_FAILURE;
    };
    if args.lease_end.left() <= args.ending {
        return EXIT_LEASE_OVER;
    }
    refused(program, &Command::new(program).args(arguments).exec())
}

fn refused(program: &OsString, error: &io::Error) -> u8 {
    complain!("{}: {error}", program.display());
    match error.kind() {
        io::ErrorKind::NotFound => EXIT_NOT_FOUND,
        _ => EXIT_CANNOT_EXECUTE,
    }
}
