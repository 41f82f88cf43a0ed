//! How the client subcommands reach the servers.

use std::path::{Path, PathBuf};

use client::{Broker, Error, Tls};

/// Where `ticketing dev` listens unless told otherwise.
const DEV_ADDRESSES: &str = "127.0.0.1:5225,127.0.0.1:5226,127.0.0.1:5227";

/// The environment variable that holds the auth token itself. There is no flag for it: every user
/// of the machine sees command lines.
const AUTH_TOKEN_VARIABLE: &str = "TICKETING_AUTH_TOKEN";

/// The arguments that all client subcommands share.
#[derive(clap::Args, Clone, Debug)]
pub struct ConnectArgs {
    /// The nodes' client addresses, spelled as in the cluster's configuration
    #[arg(
        long,
        env = "TICKETING_ADDRS",
        value_name = "HOST:PORT,...",
        value_delimiter = ',',
        default_value = DEV_ADDRESSES
    )]
    pub addrs: Vec<String>,
    /// File whose first line is the auth token [or the token itself in env TICKETING_AUTH_TOKEN]
    #[arg(long, env = "TICKETING_AUTH_TOKEN_FILE", value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
    /// Certificate authorities (PEM) that the nodes' certificates must come from; turns TLS on
    #[arg(long, env = "TICKETING_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

impl ConnectArgs {
    /// A broker for these servers; what is wrong with the arguments, in one line.
    pub fn broker(&self) -> Result<Broker, String> {
        let mut builder = Broker::builder().addresses(self.addrs.iter().map(|addr| addr.trim()));
        builder = builder.token(self.auth_token()?);
        if let Some(path) = &self.ca {
            let tls = Tls::from_pem_file(path);
            builder = builder.tls(tls.map_err(|error| unreadable("--ca", path, &error))?);
        }
        builder.build().map_err(|error| error.to_string())
    }

    fn auth_token(&self) -> Result<Vec<u8>, String> {
        let given = std::env::var_os(AUTH_TOKEN_VARIABLE).filter(|token| !token.is_empty());
        match (given, &self.auth_token_file) {
            (Some(_), Some(_)) => Err(format!(
                "{AUTH_TOKEN_VARIABLE} and an auth token file are set: give one of them"
            )),
            (Some(token), None) => Ok(token.into_encoded_bytes()),
            (None, Some(path)) => {
                let text = std::fs::read(path)
                    .map_err(|error| unreadable("--auth-token-file", path, &error.into()))?;
                // As servers read theirs: the first line that is not empty.
                let lines = text.split(|byte| *byte == b'\n');
                let mut lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
                Ok(lines
                    .find(|line| !line.is_empty())
                    .unwrap_or_default()
                    .to_vec())
            }
            (None, None) => Ok(Vec::new()),
        }
    }
}

fn unreadable(flag: &str, path: &Path, error: &Error) -> String {
    format!("{flag} is {:?}: {error}", path.display().to_string())
}
