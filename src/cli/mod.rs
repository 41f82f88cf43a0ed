//! The command line: one file a subcommand.
//!
//! Exit codes follow sysexits where they have a word for it, so that scripts can tell a refusal
//! from a failure.

/// `println!` that survives a reader who went away (`ticketing dev | head`).
macro_rules! say {
    ($($argument:tt)*) => { $crate::cli::say(format_args!($($argument)*)) };
}

mod admin;
pub mod bench;
pub mod connect;
pub mod dev;
pub mod health;
mod http;
pub mod lock;
pub mod locks;
pub mod serve;
pub mod status;
mod table;

/// The command line or a setting is wrong.
pub const EXIT_USAGE: u8 = 64;

/// A node could not start, or had to stop.
pub const EXIT_FAILURE: u8 = 1;

/// Writes one line to standard output. A closed pipe is the reader's choice and no reason to stop:
/// a local cluster goes on serving although nobody reads its news.
fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
