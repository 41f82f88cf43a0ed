//! The command line: one file a subcommand.

/// `println!` that survives a reader who went away (`ticketing dev | head`).
macro_rules! say {
    ($($argument:tt)*) => { $crate::cli::say(format_args!($($argument)*)) };
}

/// One line about what went wrong, on standard error.
macro_rules! complain {
    ($($argument:tt)*) => { $crate::cli::complain(format_args!($($argument)*)) };
}

pub mod acquire;
mod admin;
mod ask;
pub mod bench;
pub mod command_line;
pub mod connect;
pub mod dev;
pub mod exit;
pub mod health;
mod http;
pub mod lock;
pub mod locks;
pub mod pages;
pub mod release;
pub mod serve;
mod signals;
pub mod status;
mod table;

pub use exit::{EXIT_FAILURE, EXIT_USAGE};

/// Writes one line to standard output. A closed pipe is the reader's choice and no reason to stop:
/// a local cluster goes on serving although nobody reads its news.
fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Writes one line to standard error; a closed one is no reason to panic.
fn complain(line: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "ticketing: {line}");
}

/// What was checked, or the exit code of a command line that is wrong; why it is gets told.
fn or_usage<T>(checked: Result<T, String>) -> Result<T, u8> {
    checked.map_err(|why| {
        complain!("{why}");
        EXIT_USAGE
    })
}

/// Runs a client subcommand to its end, on one thread: it waits more than it works. An error of the
/// machine is reported and becomes an exit code.
fn block_on(work: impl Future<Output = std::io::Result<u8>>) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime.and_then(|runtime| runtime.block_on(work)) {
        Ok(code) => code,
        Err(error) => {
            complain!("{error}");
            EXIT_FAILURE
        }
    }
}
