//! Breaks real clusters of the Ticketing binary, records what clients saw, and judges it.
//!
//! ```text
//!  workload ── client, raw ──►  nodes  ◄── nemesis
//!      │        (history)        ▲ │          │
//!      └──────────► history.jsonl ◄┘ observer ┘
//!                        │
//!                     checker ──► verdict, timelines, exit code
//! ```
//!
//! It sees the service as a user does: client, processes, network. It never names the server's
//! consensus or storage. [`history`] is what everything else writes to, [`checker`] is what it is
//! all for, and docs/TESTING.md says how to use it and what it has found.
//!
//! Exit codes: 0 valid and clean, 1 a promise was broken, 2 the run shows nothing (or could not be
//! done).

mod args;
mod checker;
mod cluster;
mod delay;
mod disk;
mod error;
mod history;
mod hosts;
mod nemesis;
mod observer;
mod pki;
mod process;
mod raw;
mod report;
mod run;
mod suite;
mod workload;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use args::{CommandLine, Subcommands};
use error::Error;
use history::History;
use report::{Judgement, Verdict};

fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => {
            // A closed standard output is the reader's choice.
            let _ = error.print();
            let code = if error.use_stderr() {
                Judgement::Invalid.code()
            } else {
                0
            };
            return ExitCode::from(code);
        }
    };
    let judged = match line.command {
        Subcommands::Run(args) => suite::run(&args),
        Subcommands::Check(args) => check(&args.file),
        Subcommands::Delay(args) => delay::serve(args.queue, args.reorder)
            .map(|()| Judgement::Clean)
            .map_err(|error| Error::of("delaying packets", error)),
        Subcommands::Guard(args) => hosts::guard(&args.dir).map(|()| Judgement::Clean),
    };
    match judged {
        Ok(judgement) => ExitCode::from(judgement.code()),
        Err(error) => {
            eprintln!("jepsen: {error}");
            ExitCode::from(Judgement::Invalid.code())
        }
    }
}

/// Judges a stored history again.
fn check(file: &Path) -> Result<Judgement, Error> {
    let history = History::read(file).map_err(|error| Error(error.to_string()))?;
    let verdict = Verdict::of(&history);
    print!("{}", verdict.text());
    Ok(verdict.judgement)
}
