//! The `ticketing` binary: parse, run one subcommand, set the exit code.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use ticketing::cli::{self, EXIT_USAGE};

/// A clustered lock service: named locks with leases and fencing tokens.
#[derive(Parser)]
#[command(name = "ticketing", version, disable_help_subcommand = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Run one node: a single server, or a member of a cluster
    Serve(Box<cli::serve::ServeArgs>),
    /// Run a local cluster of server processes on loopback
    Dev(cli::dev::DevArgs),
    /// Run a command while holding a lock
    Lock(cli::lock::LockArgs),
    /// Measure a server or cluster with the reference workload
    Bench(cli::bench::BenchArgs),
    /// Show what the nodes of a cluster say of themselves
    Status(cli::status::StatusArgs),
    /// List the locks that are held
    Locks(cli::locks::LocksArgs),
    /// Ask one node whether it is ready, or live: exit code 0 or 1, for probes
    Health(cli::health::HealthArgs),
}

fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => return refuse(&error),
    };
    ExitCode::from(match line.command {
        Subcommands::Serve(args) => cli::serve::run(&args),
        Subcommands::Dev(args) => cli::dev::run(&args),
        Subcommands::Lock(args) => cli::lock::run(&args),
        Subcommands::Bench(args) => cli::bench::run(&args),
        Subcommands::Status(args) => cli::status::run(&args),
        Subcommands::Locks(args) => cli::locks::run(&args),
        Subcommands::Health(args) => cli::health::run(&args),
    })
}

/// Help and version are answers, everything else is one line and the usage exit code.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // A closed standard output is the reader's choice, not an error.
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 })
        }
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or("error: bad usage");
            eprintln!("ticketing: {}", line.trim_start_matches("error: "));
            ExitCode::from(EXIT_USAGE)
        }
    }
}
