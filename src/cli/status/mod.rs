//! `ticketing status`: what the nodes say of themselves and their cluster, in one picture.
//!
//! Each node is asked; its role and what it has applied are its own words, how far it lags and when
//! it last answered are the leader's. What does not fit together is said below the table: a cluster
//! without a leader, two leaders, nodes of different clusters, equal indices with different states.

mod complaints;
mod picture;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;

use clap::Args;
use serde::Serialize;

use super::admin::{AdminArgs, Output};
use crate::admin::Status;
use crate::cli::{EXIT_FAILURE, block_on, or_usage};

/// The arguments of `status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// A node that was asked.
#[derive(Clone, Debug, Serialize)]
struct Asked {
    /// Its admin address.
    admin: String,
    /// What it said.
    status: Option<Status>,
    /// Why it said nothing.
    error: Option<String>,
}

/// The answer in JSON.
#[derive(Serialize)]
struct Nodes<'a> {
    nodes: &'a [Asked],
}

/// Asks and shows. The exit code is 0 if every node answered and is ready, else 1.
pub fn run(args: &StatusArgs) -> u8 {
    let endpoints = match or_usage(args.admin.endpoints()) {
        Ok(endpoints) => endpoints,
        Err(code) => return code,
    };
    block_on(async {
        let answers = endpoints.ask_all::<Status>("/v1/status").await;
        let asked = answers.into_iter().map(|(admin, answer)| {
            let (status, error) = match answer {
                Ok(status) => (Some(status), None),
                Err(error) => (None, Some(error)),
            };
            Asked {
                admin,
                status,
                error,
            }
        });
        let asked: Vec<Asked> = asked.collect();
        match args.admin.output {
            Output::Json => {
                let text = serde_json::to_string_pretty(&Nodes { nodes: &asked });
                say!("{}", text.expect("plain data always encodes"));
            }
            Output::Table => {
                let colours = std::io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
                for line in picture::of(&asked) {
                    say!("{}", line.text(colours));
                }
            }
        }
        let well = |asked: &Asked| asked.status.as_ref().is_some_and(|status| status.ready);
        Ok(if asked.iter().all(well) {
            0
        } else {
            EXIT_FAILURE
        })
    })
}
