//! What can be typed: every subcommand, and what becomes of one that can't be understood.

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};

use super::lock::{keeper, launch};
use super::{EXIT_USAGE, acquire, bench, dev, health, lock, locks, pages, release, serve, status};

/// The version, and what it was built from and for.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("TICKETING_BUILD"),
    ")"
);

/// A clustered lock service: named locks with leases and fencing tokens.
#[derive(Parser)]
#[command(name = "ticketing", version = VERSION, disable_help_subcommand = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Run one node: a single server, or a member of a cluster
    Serve(Box<serve::ServeArgs>),
    /// Run a local cluster of server processes on loopback
    Dev(dev::DevArgs),
    /// Run a command while holding a lock
    Lock(lock::LockArgs),
    /// Take a lock and leave it held: prints the token that releases it
    Acquire(acquire::AcquireArgs),
    /// Release a lock with the token that it was taken under
    Release(release::ReleaseArgs),
    /// Measure a server or cluster with the reference workload
    Bench(bench::BenchArgs),
    /// Show what the nodes of a cluster say of themselves
    Status(status::StatusArgs),
    /// List the locks that are held
    Locks(locks::LocksArgs),
    /// Ask one node whether it is ready, or live: exit code 0 or 1, for probes
    Health(health::HealthArgs),
    /// Print the completions for a shell
    Completions(pages::CompletionsArgs),
    /// Print the man page, or write those of all subcommands to a folder
    Man(pages::ManArgs),
}

/// What this program starts itself as; nothing that one types, so it is in no help and no page.
#[derive(Parser)]
enum Internal {
    /// Guards the command of a `lock`
    #[command(name = keeper::NAME)]
    Keeper(keeper::KeeperArgs),
    /// Becomes the command of a `lock`
    #[command(name = launch::NAME)]
    Launch(launch::LaunchArgs),
}

/// Parses the command line and runs one subcommand; returns the exit code.
pub fn run() -> u8 {
    let name = std::env::args_os().nth(1).unwrap_or_default();
    if name == keeper::NAME || name == launch::NAME {
        return match Internal::try_parse() {
            Ok(Internal::Keeper(args)) => keeper::run(&args),
            Ok(Internal::Launch(args)) => launch::run(&args),
            Err(error) => refuse(&error),
        };
    }
    match CommandLine::try_parse() {
        Ok(line) => dispatch(line.command),
        Err(error) => refuse(&error),
    }
}

fn dispatch(command: Subcommands) -> u8 {
    match command {
        Subcommands::Serve(args) => serve::run(&args),
        Subcommands::Dev(args) => dev::run(&args),
        Subcommands::Lock(args) => lock::run(&args),
        Subcommands::Acquire(args) => acquire::run(&args),
        Subcommands::Release(args) => release::run(&args),
        Subcommands::Bench(args) => bench::run(&args),
        Subcommands::Status(args) => status::run(&args),
        Subcommands::Locks(args) => locks::run(&args),
        Subcommands::Health(args) => health::run(&args),
        Subcommands::Completions(args) => pages::completions(&args, definition()),
        Subcommands::Man(args) => pages::man(&args, definition()),
    }
}

/// The definition that completions and man pages are made from.
fn definition() -> clap::Command {
    CommandLine::command()
}

/// Help and version are answers, everything else is one line and the usage exit code.
fn refuse(error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // A closed standard output is the reader's choice, not an error.
            let _ = error.print();
            if error.use_stderr() { EXIT_USAGE } else { 0 }
        }
        _ => {
            complain!("{}", in_one_line(&error.to_string()));
            EXIT_USAGE
        }
    }
}

/// The first paragraph: what is missing stands on lines of its own.
fn in_one_line(text: &str) -> String {
    let paragraph = text.lines().take_while(|line| !line.trim().is_empty());
    let words: Vec<_> = paragraph.map(str::trim).collect();
    let line = words.join(" ");
    line.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(arguments: &[&str]) -> String {
        let line = ["ticketing"].iter().chain(arguments);
        match CommandLine::try_parse_from(line) {
            Ok(_) => panic!("{arguments:?} is understood"),
            Err(error) => in_one_line(&error.to_string()),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn a_refusal_names_what_is_wrong_in_one_line() {
        assert_eq!(
            said(&["lock", "job"]),
            "the following required arguments were not provided: <COMMAND>..."
        );
        assert_eq!(
            said(&["lock", "--kill-after", "soon", "job", "true"]),
            "invalid value 'soon' for '--kill-after <SECONDS>': not a number of seconds"
        );
        assert_eq!(
            said(&["release", "job", "-1"]),
            "unexpected argument '-1' found"
        );
    }
}
