//! How the operators' subcommands reach the nodes' admin endpoints.
//!
//! As in [`connect`](super::connect), each flag has a twin in the environment, the flag wins, and an
//! empty variable counts as not set.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::connect::{file, variable};
use super::http::{self, Answer};

/// Where the nodes of `ticketing dev` have their endpoints unless told otherwise.
const DEV_ADDRESSES: &str = "127.0.0.1:7225,127.0.0.1:7226,127.0.0.1:7227";

const ADDRESSES_VARIABLE: &str = "TICKETING_ADMIN_ADDRS";

const TOKEN_FILE_VARIABLE: &str = "TICKETING_ADMIN_TOKEN_FILE";

/// The environment variable that holds the admin token itself. There is no flag for it: every user
/// of the machine sees command lines.
const TOKEN_VARIABLE: &str = "TICKETING_ADMIN_TOKEN";

/// Most nodes that are asked.
const NODES_MAX: usize = 32;

/// The arguments that these subcommands share.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct AdminArgs {
    /// The nodes' admin addresses [env TICKETING_ADMIN_ADDRS, default
    /// 127.0.0.1:7225,127.0.0.1:7226,127.0.0.1:7227]
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    admin: Vec<String>,
    /// File whose first line is the admin token [env TICKETING_ADMIN_TOKEN_FILE, or the token itself
    /// in env TICKETING_ADMIN_TOKEN]
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// How long to wait for each node, in milliseconds, 1 to 60000
    #[arg(long, value_name = "MS", default_value_t = 2000,
          value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
    /// A table for people, or JSON
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,
}

/// How the answer is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// A table.
    Table,
    /// One JSON value.
    Json,
}

/// The endpoints of some nodes.
pub(super) struct Endpoints {
    addresses: Vec<String>,
    token: Option<String>,
    patience: Duration,
}

impl AdminArgs {
    /// The endpoints; what is wrong with the arguments, in one line.
    pub(super) fn endpoints(&self) -> Result<Endpoints, String> {
        Ok(Endpoints {
            addresses: self.addresses()?,
            token: self.token()?,
            patience: Duration::from_millis(self.timeout_ms),
        })
    }

    fn addresses(&self) -> Result<Vec<String>, String> {
        let (source, list) = match variable(ADDRESSES_VARIABLE) {
            _ if !self.admin.is_empty() => ("--admin", self.admin.join(",")),
            Some(list) => (ADDRESSES_VARIABLE, text(ADDRESSES_VARIABLE, list)?),
            None => ("", DEV_ADDRESSES.to_owned()),
        };
        let addresses: Vec<String> = list.split(',').map(|addr| addr.trim().to_owned()).collect();
        if addresses.iter().any(String::is_empty) {
            return Err(format!("{source} is {list:?}: an address is empty"));
        }
        let count = addresses.len();
        if count > NODES_MAX {
            return Err(format!(
                "{source} has {count} addresses: at most {NODES_MAX} are asked"
            ));
        }
        Ok(addresses)
    }

    fn token(&self) -> Result<Option<String>, String> {
        let path = self.admin_token_file.as_ref();
        let file = file("--admin-token-file", path, TOKEN_FILE_VARIABLE);
        match (variable(TOKEN_VARIABLE), file) {
            (Some(_), Some((source, _))) => Err(format!(
                "{TOKEN_VARIABLE} and {source} are set: give one of them"
            )),
            (Some(token), None) => text(TOKEN_VARIABLE, token).map(Some),
            (None, None) => Ok(None),
            (None, Some((source, path))) => {
                let text = std::fs::read_to_string(&path)
                    .map_err(|error| format!("{source} is {path:?}: cannot read it: {error}"))?;
                let token = text.lines().find(|line| !line.is_empty());
                let token = token.ok_or_else(|| format!("{source} is {path:?}: it holds no token"));
                token.map(|token| Some(token.to_owned()))
            }
        }
    }
}

/// A variable's value; it is not shown, it may be a secret.
fn text(name: &str, value: OsString) -> Result<String, String> {
    value
        .into_string()
        .map_err(|_| format!("{name} is not UTF-8"))
}

impl Endpoints {
    /// Asks every node for `path`, all at the same time; the answers in the order of the addresses.
    pub(super) async fn ask_all<T: DeserializeOwned + Send + 'static>(
        &self,
        path: &str,
    ) -> Vec<(String, Result<T, String>)> {
        let asked: Vec<_> = self
            .addresses
            .iter()
            .map(|address| {
                let (address, token) = (address.clone(), self.token.clone());
                let (path, patience) = (path.to_owned(), self.patience);
                tokio::spawn(async move {
                    let answer = http::get(&address, &path, token.as_deref(), patience).await;
                    (address, answer.and_then(read))
                })
            })
            .collect();
        let mut answers = Vec::with_capacity(asked.len());
        for task in asked {
            answers.push(task.await.expect("asking does not panic"));
        }
        answers
    }

    /// Asks one node for `path`.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        address: &str,
        path: &str,
    ) -> Result<T, String> {
        let answer = http::get(address, path, self.token.as_deref(), self.patience).await;
        answer.and_then(read)
    }
}

fn read<T: DeserializeOwned>(answer: Answer) -> Result<T, String> {
    let Answer { status, text } = answer;
    if !status.is_success() {
        let line = text.lines().next().unwrap_or_default();
        return Err(format!("{}: {line}", status.as_u16()));
    }
    serde_json::from_str(&text).map_err(|error| format!("its answer is not understood: {error}"))
}
