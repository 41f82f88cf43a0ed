//! `ticketing release`: ends a grant with its token, whoever took it.

use std::io;

use client::{ReleaseOutcome, Token};

use super::ask::{code_of, unlisted_leader};
use super::connect::ConnectArgs;
use super::exit::EXIT_NOT_CURRENT;
use super::{block_on, or_usage};

/// The arguments of `release`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = super::exit::help())]
pub struct ReleaseArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// The lock's name
    key: String,
    /// The token that the lock was taken under
    token: u64,
}

/// Releases; returns the exit code.
pub fn run(args: &ReleaseArgs) -> u8 {
    block_on(release(args))
}

async fn release(args: &ReleaseArgs) -> io::Result<u8> {
    let broker = match or_usage(args.connect.broker()) {
        Ok(broker) => broker,
        Err(code) => return Ok(code),
    };
    // A signal just ends this process: nothing is left behind by that.
    Ok(match broker.release(&args.key, Token(args.token)).await {
        Ok(ReleaseOutcome::Released) => 0,
        Ok(ReleaseOutcome::NotCurrent) => {
            complain!("{} is not the current token of {:?}", args.token, args.key);
            EXIT_NOT_CURRENT
        }
        Err(error) => {
            match unlisted_leader(&broker) {
                Some(leader) => complain!("release: {error}: {leader}"),
                None => complain!("release: {error}"),
            }
            code_of(&error)
        }
    })
}
