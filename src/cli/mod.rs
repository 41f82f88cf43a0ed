//! The command line: one file a subcommand.
//!
//! Exit codes follow sysexits where they have a word for it, so that scripts can tell a refusal
//! from a failure.

pub mod bench;
pub mod connect;
pub mod dev;
pub mod lock;
pub mod serve;

/// The command line or a setting is wrong.
pub const EXIT_USAGE: u8 = 64;

/// A node could not start, or had to stop.
pub const EXIT_FAILURE: u8 = 1;
