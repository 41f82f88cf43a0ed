//! The `ticketing` binary: run one subcommand, set the exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(ticketing::cli::command_line::run())
}
