//! How the client subcommands reach the servers.
//!
//! Each flag has a twin in the environment; the flag wins. An empty variable counts as not set, as it
//! does for servers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use client::{Broker, Error, Tls};

/// Where `ticketing dev` listens unless told otherwise.
const DEV_ADDRESSES: &str = "127.0.0.1:5225,127.0.0.1:5226,127.0.0.1:5227";

const ADDRESSES_VARIABLE: &str = "TICKETING_ADDRS";

/// The environment variable that holds the auth token itself. There is no flag for it: every user
/// of the machine sees command lines.
const AUTH_TOKEN_VARIABLE: &str = "TICKETING_AUTH_TOKEN";

const AUTH_TOKEN_FILE_VARIABLE: &str = "TICKETING_AUTH_TOKEN_FILE";

const CA_VARIABLE: &str = "TICKETING_CA";

/// The arguments that all client subcommands share.
#[derive(clap::Args, Clone, Debug)]
pub struct ConnectArgs {
    /// The nodes' client addresses, spelled as in the cluster's configuration [env TICKETING_ADDRS,
    /// default 127.0.0.1:5225,127.0.0.1:5226,127.0.0.1:5227]
    #[arg(long, value_name = "HOST:PORT,...")]
    addrs: Option<String>,
    /// File whose first line is the auth token [env TICKETING_AUTH_TOKEN_FILE, or the token itself
    /// in env TICKETING_AUTH_TOKEN]
    #[arg(long, value_name = "FILE")]
    auth_token_file: Option<PathBuf>,
    /// Certificate authorities (PEM) that the nodes' certificates must come from; turns TLS on [env
    /// TICKETING_CA]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl ConnectArgs {
    /// A broker for these servers; what is wrong with the arguments, in one line.
    pub fn broker(&self) -> Result<Broker, String> {
        let mut builder = Broker::builder()
            .addresses(self.addresses()?)
            .token(self.auth_token()?);
        if let Some((source, path)) = file("--ca", self.ca.as_ref(), CA_VARIABLE) {
            let tls = Tls::from_pem_file(&path);
            builder = builder.tls(tls.map_err(|error| unreadable(source, &path, &error))?);
        }
        builder.build().map_err(|error| error.to_string())
    }

    fn addresses(&self) -> Result<Vec<String>, String> {
        let list = match (&self.addrs, variable(ADDRESSES_VARIABLE)) {
            (Some(list), _) => list.clone(),
            (None, Some(list)) => list
                .into_string()
                .map_err(|list| format!("{ADDRESSES_VARIABLE} is {list:?}: not UTF-8"))?,
            (None, None) => DEV_ADDRESSES.to_owned(),
        };
        Ok(list.split(',').map(|addr| addr.trim().to_owned()).collect())
    }

    fn auth_token(&self) -> Result<Vec<u8>, String> {
        let path = self.auth_token_file.as_ref();
        let file = file("--auth-token-file", path, AUTH_TOKEN_FILE_VARIABLE);
        match (variable(AUTH_TOKEN_VARIABLE), file) {
            (Some(_), Some((source, _))) => Err(format!(
                "{AUTH_TOKEN_VARIABLE} and {source} are set: give one of them"
            )),
            (Some(token), None) => Ok(token.into_encoded_bytes()),
            (None, Some((source, path))) => {
                let text = std::fs::read(&path)
                    .map_err(|error| unreadable(source, &path, &error.into()))?;
                // As servers read theirs: the first line that is not empty.
                let lines = text.split(|byte| *byte == b'\n');
                let mut lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
                let token = lines.find(|line| !line.is_empty());
                token.map(<[u8]>::to_vec).ok_or_else(|| {
                    format!(
                        "{source} is {:?}: it holds no token",
                        path.display().to_string()
                    )
                })
            }
            (None, None) => Ok(Vec::new()),
        }
    }
}

/// The file that a flag or its twin in the environment names, and which of them does.
pub(super) fn file(
    flag: &'static str,
    given: Option<&PathBuf>,
    twin: &'static str,
) -> Option<(&'static str, PathBuf)> {
    match given {
        Some(path) => Some((flag, path.clone())),
        None => variable(twin).map(|path| (twin, path.into())),
    }
}

/// What is set there.
pub(super) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn unreadable(source: &str, path: &Path, error: &Error) -> String {
    format!("{source} is {:?}: {error}", path.display().to_string())
}
