//! `ticketing completions` and `ticketing man`: made from the definitions that the command line is
//! parsed with, so that they can't say anything else.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use super::EXIT_FAILURE;

/// The arguments of `completions`.
#[derive(clap::Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// The arguments of `man`.
#[derive(clap::Args, Clone, Debug)]
pub struct ManArgs {
    /// The folder that gets a page for each subcommand; without it the main page is printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the completions for a shell; returns the exit code.
pub fn completions(args: &CompletionsArgs, mut definition: Command) -> u8 {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut definition, "ticketing", &mut text);
    code_of(io::stdout().write_all(&text))
}

/// Prints the man page, or writes all of them; returns the exit code.
pub fn man(args: &ManArgs, definition: Command) -> u8 {
    let Some(dir) = &args.out else {
        return code_of(Man::new(definition).render(&mut io::stdout()));
    };
    match clap_mangen::generate_to(definition, dir) {
        Ok(()) => 0,
        Err(error) => {
            complain!("--out is {:?}: {error}", dir.display().to_string());
            EXIT_FAILURE
        }
    }
}

fn code_of(written: io::Result<()>) -> u8 {
    match written {
        Ok(()) => 0,
        Err(error) => {
            complain!("standard output: {error}");
            EXIT_FAILURE
        }
    }
}
