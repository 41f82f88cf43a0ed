//! Every setting of a server: its flag, its environment variable, its default and its bounds.
//!
//! [`SETTINGS`] is the one table: the command line, `--help` and [`Config::resolve`] are made from
//! it. Values arrive as text together with where they came from, so that a bad one is named the
//! way its author wrote it: one line with the flag or variable, the value and what is allowed.
//! Nothing is clamped.

mod admin;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

pub use admin::{ADMIN_PORT_OFFSET, Admin, admin_address};

/// One setting as users see it.
#[derive(Debug)]
pub struct Setting {
    /// The flag without its dashes.
    pub flag: &'static str,
    /// The environment variable; the flag wins over it. An empty variable counts as not set.
    pub env: &'static str,
    /// What `--help` calls the value; empty for a switch.
    pub value: &'static str,
    /// The default, as text; empty when there is none.
    pub default: &'static str,
    /// True when the value must never be printed.
    pub secret: bool,
    /// One sentence for `--help`.
    pub help: &'static str,
}

macro_rules! settings {
    ($($name:ident = $flag:literal, $env:literal, $value:literal, $default:literal, $secret:literal, $help:literal;)*) => {
        $(const $name: &Setting = &Setting {
            flag: $flag, env: $env, value: $value, default: $default, secret: $secret, help: $help,
        };)*
        /// All settings, in the order in which they are documented.
        pub const SETTINGS: &[&Setting] = &[$($name),*];
    };
}

settings! {
    BIND = "bind", "SOCKET_BIND", "IP", "127.0.0.1", false,
        "Address to listen on, for clients and for peers";
    PORT = "port", "SERVER_PORT", "PORT", "5225", false,
        "Port for clients";
    AUTH_TOKEN = "auth-token", "AUTH_TOKEN", "TOKEN", "", true,
        "Token that clients prove to know; empty: none";
    AUTH_TOKEN_FILE = "auth-token-file", "AUTH_TOKEN_FILE", "FILE", "", false,
        "File whose first line is the token; a second line is a second valid token";
    ALLOW_NO_AUTH = "allow-no-auth", "ALLOW_NO_AUTH", "", "false", false,
        "Listen beyond loopback without a token, or with one shorter than 16 bytes";
    TLS_CERT = "tls-cert", "TLS_CERT", "FILE", "", false,
        "Certificate chain (PEM) for clients; needs --tls-key";
    TLS_KEY = "tls-key", "TLS_KEY", "FILE", "", false,
        "Private key (PEM) of --tls-cert";
    DATA_DIR = "data-dir", "DATA_DIR", "DIR", "", false,
        "Where a cluster's node keeps its log, vote and snapshots";
    CLUSTER_SELF = "cluster-self", "CLUSTER_SELF", "HOST:PORT", "", false,
        "This node's entry in --cluster-peers";
    CLUSTER_PEERS = "cluster-peers", "CLUSTER_PEERS", "LIST", "", false,
        "Founding members, comma separated: client host:port, each optionally =peer-host:port \
         (else client port + 1000); 1, 3, 5 or 7 of them. Without it: single mode";
    CLUSTER_SECRET = "cluster-secret", "CLUSTER_SECRET", "SECRET", "", true,
        "Secret that peers prove to know; needed when a peer is not on loopback";
    CLUSTER_SECRET_FILE = "cluster-secret-file", "CLUSTER_SECRET_FILE", "FILE", "", false,
        "File whose first line is the cluster secret";
    CLUSTER_BOOTSTRAP = "cluster-bootstrap", "CLUSTER_BOOTSTRAP", "auto|never", "auto", false,
        "Whether empty nodes that all agree may found a new cluster";
    CLUSTER_HEARTBEAT_MS = "cluster-heartbeat-ms", "CLUSTER_HEARTBEAT_MS", "MS", "100", false,
        "Interval of the leader's heartbeats, in milliseconds; at least twice the round trip between \
         nodes";
    CLUSTER_ELECTION_TIMEOUT_MS = "cluster-election-timeout-ms", "CLUSTER_ELECTION_TIMEOUT_MS",
        "MS", "1000", false,
        "Longest silence of a leader before an election, in milliseconds; elections start after \
         half of it to all of it";
    SNAPSHOT_ENTRIES = "snapshot-entries", "SNAPSHOT_ENTRIES", "N", "16384", false,
        "Log entries between two snapshots of a cluster's node, 16 to 1000000";
    MAX_WAITERS = "max-waiters", "MAX_WAITERS", "N", "2048", false,
        "Waiters per key, at most 16384";
    MAX_TOTAL_WAITERS = "max-total-waiters", "MAX_TOTAL_WAITERS", "N", "16384", false,
        "Waiters in all, at most 65536";
    MAX_CONNECTIONS = "max-connections", "MAX_CONNECTIONS", "N", "1024", false,
        "Client connections, at most 8192";
    ADMIN_BIND = "admin-bind", "ADMIN_BIND", "IP:PORT|off", "", false,
        "Address of the admin endpoint (health, status, metrics over HTTP); \
         default 127.0.0.1 with the client port + 2000";
    ADMIN_TOKEN = "admin-token", "ADMIN_TOKEN", "TOKEN", "", true,
        "Bearer token of the admin endpoint: what changes something is off without one, and beyond \
         loopback so are status and locks";
    ADMIN_TOKEN_FILE = "admin-token-file", "ADMIN_TOKEN_FILE", "FILE", "", false,
        "File whose first line is the admin token";
    LOG_FORMAT = "log-format", "LOG_FORMAT", "text|json", "text", false,
        "Format of the log on standard error; its level is set by RUST_LOG";
}

/// Shortest token (and cluster secret) accepted beyond loopback, in bytes.
pub const SECRET_BYTES_MIN: usize = 16;

/// Longest host name in an address, in bytes: with its port it must fit `M` and `L` frames.
const HOST_BYTES_MAX: usize = 185;

/// Distance from a node's client port to its peer port, where none is given.
pub const PEER_PORT_OFFSET: u16 = 1000;

/// Largest secret or token file that is read, in bytes.
const SECRET_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// Nobody set it.
    Default,
}

/// A setting that stops the start: one line that names it, its value and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen on.
    pub bind: IpAddr,
    /// Port for clients.
    pub port: u16,
    /// Valid tokens, 1 or 2; the empty one where no authentication is configured.
    pub tokens: Vec<Secret>,
    /// Certificate and key files.
    pub tls: Option<TlsFiles>,
    /// Cluster mode; `None` is single mode.
    pub cluster: Option<Cluster>,
    /// Limits of the lock service.
    pub limits: Limits,
    /// The admin endpoint; `None` when it is off.
    pub admin: Option<Admin>,
    /// How the log is written.
    pub log_format: LogFormat,
    /// What a person should know although the start goes on, a line each.
    pub warnings: Vec<String>,
}

/// Files of a TLS identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

/// What cluster mode needs.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Where log, vote and snapshots live.
    pub data_dir: PathBuf,
    /// This node's entry of `peers`.
    pub own: PeerAddress,
    /// The founding members, this node among them, in the order given.
    pub peers: Vec<PeerAddress>,
    /// What peers prove to know; empty only when all of them are on loopback.
    pub secret: Secret,
    /// Whether a set of empty nodes may found a cluster.
    pub bootstrap: bool,
    /// Interval of heartbeats, in milliseconds.
    pub heartbeat_ms: u64,
    /// Longest silence before an election, in milliseconds.
    pub election_timeout_ms: u64,
    /// Log entries between two snapshots, 16 to 1,000,000.
    pub snapshot_entries: u64,
}

/// A founding member's two addresses, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// For clients, `host:port`: what `M` and `L` announce.
    pub client: String,
    /// For peers, `host:port`.
    pub raft: String,
}

impl PeerAddress {
    /// The port of the peer address.
    pub fn raft_port(&self) -> u16 {
        split_address(&self.raft).map_or(0, |(_, port)| port)
    }
}

/// Limits that can be set; hard caps are checked in [`Config::resolve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Waiters per key, 1 to 16,384.
    pub waiters_per_key: usize,
    /// Waiters in all, 1 to 65,536.
    pub waiters: usize,
    /// Client connections, 1 to 8,192.
    pub connections: usize,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A token or secret; its debug form hides it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(pub Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

/// Looks settings up and words complaints about them.
struct Reader<'a> {
    lookup: &'a dyn Fn(&Setting) -> Option<(Source, String)>,
}

impl Reader<'_> {
    fn given(&self, setting: &Setting) -> Option<(Source, String)> {
        (self.lookup)(setting)
    }

    fn text(&self, setting: &Setting) -> String {
        self.given(setting)
            .map_or_else(|| setting.default.to_owned(), |(_, value)| value)
    }

    fn path(&self, setting: &Setting) -> Option<PathBuf> {
        self.given(setting).map(|(_, value)| PathBuf::from(value))
    }

    /// The complaint about a setting's value.
    fn refuse(&self, setting: &Setting, allowed: impl fmt::Display) -> ConfigError {
        let source = self
            .given(setting)
            .map_or(Source::Default, |(source, _)| source);
        let name = match source {
            Source::Environment => setting.env.to_owned(),
            Source::Flag | Source::Default => format!("--{}", setting.flag),
        };
        match self.given(setting) {
            None => ConfigError(format!("{name} ({}) is not set: {allowed}", setting.env)),
            Some(_) if setting.secret => ConfigError(format!("{name} (value hidden): {allowed}")),
            Some((_, value)) => ConfigError(format!("{name} is {value:?}: {allowed}")),
        }
    }

    fn number(&self, setting: &Setting, low: u64, high: u64) -> Result<u64, ConfigError> {
        match self.text(setting).parse::<u64>() {
            Ok(number) if (low..=high).contains(&number) => Ok(number),
            _ => Err(self.refuse(setting, format_args!("it must be {low} to {high}"))),
        }
    }

    fn size(&self, setting: &Setting, high: usize) -> Result<usize, ConfigError> {
        let number = self.number(setting, 1, high as u64)?;
        Ok(usize::try_from(number).expect("the bound was a usize"))
    }

    fn switch(&self, setting: &Setting) -> Result<bool, ConfigError> {
        match self.text(setting).as_str() {
            "true" | "1" | "yes" => Ok(true),
            "false" | "0" | "no" => Ok(false),
            _ => Err(self.refuse(setting, "it must be true or false")),
        }
    }

    /// The lines of a small file that holds a secret.
    fn secret_lines(&self, setting: &Setting) -> Result<Option<Vec<Secret>>, ConfigError> {
        let Some(path) = self.path(setting) else {
            return Ok(None);
        };
        let size = std::fs::metadata(&path).map(|meta| meta.len());
        let text = match size {
            Ok(bytes) if bytes > SECRET_FILE_BYTES_MAX => {
                let allowed = format_args!("the file has more than {SECRET_FILE_BYTES_MAX} bytes");
                return Err(self.refuse(setting, allowed));
            }
            Ok(_) => std::fs::read(&path),
            Err(error) => Err(error),
        };
        let text = text.map_err(|e| self.refuse(setting, format_args!("cannot read it: {e}")))?;
        let lines = text
            .split(|&byte| byte == b'\n')
            .map(|line| Secret(line.strip_suffix(b"\r").unwrap_or(line).to_vec()))
            .filter(|line| !line.0.is_empty())
            .collect();
        Ok(Some(lines))
    }

    /// A secret that is given itself or as the one line of a file, and which of the two settings it
    /// came from; empty when neither is there.
    fn secret<'s>(
        &self,
        itself: &'s Setting,
        file: &'s Setting,
    ) -> Result<(&'s Setting, Secret), ConfigError> {
        match (self.given(itself), self.secret_lines(file)?) {
            (Some(_), Some(_)) => {
                let allowed = format_args!("--{} is set too: give one of them", itself.flag);
                Err(self.refuse(file, allowed))
            }
            (_, None) => Ok((itself, Secret(self.text(itself).into_bytes()))),
            (None, Some(lines)) if lines.len() == 1 => Ok((file, lines[0].clone())),
            (None, Some(_)) => Err(self.refuse(file, "the file must hold one line")),
        }
    }
}

impl Config {
    /// Checks all settings; `lookup` gives what was set, flag before environment.
    pub fn resolve(
        lookup: &dyn Fn(&Setting) -> Option<(Source, String)>,
    ) -> Result<Self, ConfigError> {
        let reader = Reader { lookup };
        let bind = reader.text(BIND).parse::<IpAddr>().map_err(|_| {
            reader.refuse(
                BIND,
                "it must be an IP address such as 127.0.0.1, 0.0.0.0 or ::",
            )
        })?;
        let mut warnings = Vec::new();
        let tokens = tokens(&reader, bind)?;
        let tls = tls_files(&reader)?;
        if tls.is_none() && !bind.is_loopback() {
            warnings.push(format!(
                "clients are served in plaintext on {bind}: set --tls-cert and --tls-key"
            ));
        }
        let cluster = cluster(&reader, bind)?;
        let limits = Limits {
            waiters_per_key: reader.size(MAX_WAITERS, 16_384)?,
            waiters: reader.size(MAX_TOTAL_WAITERS, 65_536)?,
            connections: reader.size(MAX_CONNECTIONS, 8_192)?,
        };
        let log_format = match reader.text(LOG_FORMAT).as_str() {
            "text" => LogFormat::Text,
            "json" => LogFormat::Json,
            _ => return Err(reader.refuse(LOG_FORMAT, "it must be text or json")),
        };
        let port = u16::try_from(reader.number(PORT, 1, 65_535)?).expect("the bound was a u16");
        let admin = admin::admin(&reader, port)?;
        Ok(Self {
            bind,
            port,
            tokens,
            tls,
            cluster,
            limits,
            admin,
            log_format,
            warnings,
        })
    }
}

fn tokens(reader: &Reader<'_>, bind: IpAddr) -> Result<Vec<Secret>, ConfigError> {
    let (setting, tokens) = match (
        reader.given(AUTH_TOKEN),
        reader.secret_lines(AUTH_TOKEN_FILE)?,
    ) {
        (Some(_), Some(_)) => {
            return Err(reader.refuse(AUTH_TOKEN_FILE, "--auth-token is set too: give one of them"));
        }
        (_, None) => (
            AUTH_TOKEN,
            vec![Secret(reader.text(AUTH_TOKEN).into_bytes())],
        ),
        (None, Some(lines)) => (AUTH_TOKEN_FILE, lines),
    };
    if !(1..=2).contains(&tokens.len()) {
        return Err(reader.refuse(setting, "the file must hold one or two tokens, a line each"));
    }
    let shortest = tokens.iter().map(|token| token.0.len()).min().unwrap_or(0);
    if shortest < SECRET_BYTES_MIN && !bind.is_loopback() && !reader.switch(ALLOW_NO_AUTH)? {
        return Err(reader.refuse(
            setting,
            format_args!(
                "--bind {bind} is beyond loopback, so a token needs at least {SECRET_BYTES_MIN} \
                 bytes (--allow-no-auth starts without)"
            ),
        ));
    }
    Ok(tokens)
}

fn tls_files(reader: &Reader<'_>) -> Result<Option<TlsFiles>, ConfigError> {
    match (reader.path(TLS_CERT), reader.path(TLS_KEY)) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => Ok(Some(TlsFiles { cert, key })),
        (Some(_), None) => Err(reader.refuse(TLS_KEY, "--tls-cert needs it")),
        (None, Some(_)) => Err(reader.refuse(TLS_CERT, "--tls-key needs it")),
    }
}

fn cluster(reader: &Reader<'_>, bind: IpAddr) -> Result<Option<Cluster>, ConfigError> {
    if reader.given(CLUSTER_PEERS).is_none() {
        return match reader.given(CLUSTER_SELF) {
            None => Ok(None),
            Some(_) => Err(reader.refuse(CLUSTER_SELF, "--cluster-peers is not set")),
        };
    }
    let peers = parse_peers(&reader.text(CLUSTER_PEERS))
        .map_err(|complaint| reader.refuse(CLUSTER_PEERS, complaint))?;
    let own = reader.text(CLUSTER_SELF);
    let own = peers
        .iter()
        .find(|peer| peer.client == own)
        .cloned()
        .ok_or_else(|| {
            let known: Vec<_> = peers.iter().map(|peer| peer.client.as_str()).collect();
            reader.refuse(
                CLUSTER_SELF,
                format_args!(
                    "it must be one of the client addresses in --cluster-peers: {}",
                    known.join(", ")
                ),
            )
        })?;
    let data_dir = reader
        .path(DATA_DIR)
        .ok_or_else(|| reader.refuse(DATA_DIR, "a cluster needs it"))?;
    let secret = cluster_secret(reader, bind, &peers)?;
    let bootstrap = match reader.text(CLUSTER_BOOTSTRAP).as_str() {
        "auto" => true,
        "never" => false,
        _ => return Err(reader.refuse(CLUSTER_BOOTSTRAP, "it must be auto or never")),
    };
    let heartbeat_ms = reader.number(CLUSTER_HEARTBEAT_MS, 10, 10_000)?;
    let election_timeout_ms = reader.number(CLUSTER_ELECTION_TIMEOUT_MS, 50, 60_000)?;
    if election_timeout_ms < 4 * heartbeat_ms {
        return Err(reader.refuse(
            CLUSTER_ELECTION_TIMEOUT_MS,
            format_args!("it must be at least four heartbeats of {heartbeat_ms} ms"),
        ));
    }
    let snapshot_entries = reader.number(SNAPSHOT_ENTRIES, 16, 1_000_000)?;
    Ok(Some(Cluster {
        data_dir,
        own,
        peers,
        secret,
        bootstrap,
        heartbeat_ms,
        election_timeout_ms,
        snapshot_entries,
    }))
}

fn cluster_secret(
    reader: &Reader<'_>,
    bind: IpAddr,
    peers: &[PeerAddress],
) -> Result<Secret, ConfigError> {
    let (setting, secret) = reader.secret(CLUSTER_SECRET, CLUSTER_SECRET_FILE)?;
    let local = bind.is_loopback() && peers.iter().all(|peer| is_loopback(&peer.raft));
    if !local && secret.0.len() < SECRET_BYTES_MIN {
        return Err(reader.refuse(
            setting,
            format_args!(
                "a cluster beyond loopback needs a secret of at least {SECRET_BYTES_MIN} bytes"
            ),
        ));
    }
    Ok(secret)
}

/// Reads a list of `host:port[=host:port]`.
fn parse_peers(list: &str) -> Result<Vec<PeerAddress>, String> {
    let mut peers = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in list.split(',').map(str::trim) {
        let (client, raft) = match entry.split_once('=') {
            Some((client, raft)) => (client, Some(raft)),
            None => (entry, None),
        };
        let complaint = |part: &str| format!("{part:?} is not host:port");
        let (host, port) = split_address(client).ok_or_else(|| complaint(client))?;
        let raft = match raft {
            Some(raft) => {
                split_address(raft).ok_or_else(|| complaint(raft))?;
                raft.to_owned()
            }
            None => {
                let port = port.checked_add(PEER_PORT_OFFSET).ok_or_else(|| {
                    format!("{client:?}: its port + {PEER_PORT_OFFSET} is no port; add =host:port")
                })?;
                format!("{host}:{port}")
            }
        };
        for address in [client, raft.as_str()] {
            if !seen.insert(address.to_owned()) {
                return Err(format!("{address} stands in the list twice"));
            }
        }
        peers.push(PeerAddress {
            client: client.to_owned(),
            raft,
        });
    }
    if !matches!(peers.len(), 1 | 3 | 5 | 7) {
        return Err(format!(
            "it must have 1, 3, 5 or 7 entries, not {}",
            peers.len()
        ));
    }
    Ok(peers)
}

/// `host:port` in two; IPv6 hosts stand in brackets.
fn split_address(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let plain = !host.is_empty()
        && host.len() <= HOST_BYTES_MAX
        && host
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b',' && byte != b'=')
        && (bracketed || !host.contains(':'));
    let port = port.parse::<u16>().ok().filter(|&port| port != 0)?;
    plain.then_some((host, port))
}

fn is_loopback(address: &str) -> bool {
    let Some((host, _)) = split_address(address) else {
        return false;
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn resolve(given: &[(&str, &str)]) -> Result<Config, String> {
        let lookup = |setting: &Setting| {
            let flag = given.iter().find(|(name, _)| *name == setting.flag);
            let env = given.iter().find(|(name, _)| *name == setting.env);
            flag.map(|(_, value)| (Source::Flag, (*value).to_owned()))
                .or(env.map(|(_, value)| (Source::Environment, (*value).to_owned())))
        };
        Config::resolve(&lookup).map_err(|error| error.to_string())
    }

    pub(super) fn refused(given: &[(&str, &str)], line: &str) {
        assert_eq!(resolve(given).expect_err("it must be refused"), line);
    }

    #[test]
    fn defaults_are_single_mode_on_loopback() {
        let config = resolve(&[]).expect("the defaults are valid");
        assert_eq!(
            (config.bind.to_string(), config.port),
            ("127.0.0.1".to_owned(), 5225)
        );
        assert_eq!(config.tokens, [Secret::default()]);
        assert!(config.cluster.is_none() && config.tls.is_none() && config.warnings.is_empty());
        let limits = Limits {
            waiters_per_key: 2048,
            waiters: 16_384,
            connections: 1024,
        };
        assert_eq!(config.limits, limits);
    }

    #[test]
    fn flag_wins_over_environment_and_both_are_named_in_complaints() {
        let given = [("port", "7000"), ("SERVER_PORT", "8000")];
        assert_eq!(resolve(&given).expect("valid").port, 7000);
        refused(&[("port", "0")], "--port is \"0\": it must be 1 to 65535");
        refused(
            &[("SERVER_PORT", "x")],
            "SERVER_PORT is \"x\": it must be 1 to 65535",
        );
    }

    #[test]
    fn hard_caps_are_errors_and_never_clamped() {
        refused(
            &[("max-waiters", "16385")],
            "--max-waiters is \"16385\": it must be 1 to 16384",
        );
        refused(
            &[("MAX_TOTAL_WAITERS", "65537")],
            "MAX_TOTAL_WAITERS is \"65537\": it must be 1 to 65536",
        );
        refused(
            &[("max-connections", "8193")],
            "--max-connections is \"8193\": it must be 1 to 8192",
        );
    }

    #[test]
    fn beyond_loopback_a_short_token_is_refused_unless_allowed() {
        let line = "--auth-token (value hidden): --bind 0.0.0.0 is beyond loopback, so a token \
                    needs at least 16 bytes (--allow-no-auth starts without)";
        refused(&[("bind", "0.0.0.0"), ("auth-token", "short")], line);
        let allowed = [("bind", "0.0.0.0"), ("ALLOW_NO_AUTH", "true")];
        assert_eq!(resolve(&allowed).expect("allowed").warnings.len(), 1);
        assert!(resolve(&[("bind", "::"), ("auth-token", "0123456789abcdef")]).is_ok());
    }

    #[test]
    fn peers_get_their_default_raft_port_and_keep_their_spelling() {
        let peers = parse_peers("a.example:5225, b:5226=10.0.0.2:7000,[::1]:5227").expect("valid");
        let raft: Vec<_> = peers.iter().map(|peer| peer.raft.as_str()).collect();
        assert_eq!(raft, ["a.example:6225", "10.0.0.2:7000", "[::1]:6227"]);
        assert_eq!(peers[1].client, "b:5226");
        assert_eq!(peers[1].raft_port(), 7000);
    }

    #[test]
    fn bad_peer_lists_say_what_is_wrong() {
        let complaint = |list: &str| parse_peers(list).expect_err("it must be refused");
        assert_eq!(
            complaint("a:1,b:1"),
            "it must have 1, 3, 5 or 7 entries, not 2"
        );
        assert_eq!(complaint("a:1,b:1,a:1"), "a:1 stands in the list twice");
        assert_eq!(
            complaint("a:1,b:1,c:1=a:1001"),
            "a:1001 stands in the list twice"
        );
        assert_eq!(complaint("a:1,b,c:1"), "\"b\" is not host:port");
        assert_eq!(complaint("a:0"), "\"a:0\" is not host:port");
        assert_eq!(
            complaint("a:65000"),
            "\"a:65000\": its port + 1000 is no port; add =host:port"
        );
        assert_eq!(complaint(""), "\"\" is not host:port");
    }

    #[test]
    fn a_cluster_needs_its_own_entry_a_directory_and_beyond_loopback_a_secret() {
        let peers = ("cluster-peers", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3");
        refused(
            &[peers, ("CLUSTER_SELF", "127.0.0.1:4")],
            "CLUSTER_SELF is \"127.0.0.1:4\": it must be one of the client addresses in \
             --cluster-peers: 127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3",
        );
        let own = ("cluster-self", "127.0.0.1:2");
        refused(
            &[peers, own],
            "--data-dir (DATA_DIR) is not set: a cluster needs it",
        );
        let config = resolve(&[peers, own, ("data-dir", "/tmp/x")]).expect("valid");
        let cluster = config.cluster.expect("cluster mode");
        assert_eq!(
            (cluster.peers.len(), cluster.own.raft.as_str()),
            (3, "127.0.0.1:1002")
        );
        refused(
            &[
                ("cluster-peers", "db1:1"),
                ("cluster-self", "db1:1"),
                ("data-dir", "/tmp/x"),
            ],
            "--cluster-secret (CLUSTER_SECRET) is not set: a cluster beyond loopback needs a \
             secret of at least 16 bytes",
        );
        refused(
            &[own],
            "--cluster-self is \"127.0.0.1:2\": --cluster-peers is not set",
        );
    }

    #[test]
    fn an_election_timeout_below_four_heartbeats_is_refused() {
        let base = [
            ("cluster-peers", "127.0.0.1:1"),
            ("cluster-self", "127.0.0.1:1"),
            ("data-dir", "/tmp/x"),
            ("cluster-election-timeout-ms", "300"),
        ];
        refused(
            &base,
            "--cluster-election-timeout-ms is \"300\": it must be at least four heartbeats of \
             100 ms",
        );
    }

    #[test]
    fn a_token_file_holds_one_or_two_tokens() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("tokens");
        let file = path.to_str().expect("UTF-8");
        std::fs::write(&path, "new-token\nold-token\n").expect("written");
        let tokens = resolve(&[("auth-token-file", file)]).expect("valid").tokens;
        assert_eq!(
            tokens,
            [Secret(b"new-token".to_vec()), Secret(b"old-token".to_vec())]
        );
        std::fs::write(&path, "a\nb\nc\n").expect("written");
        assert!(resolve(&[("auth-token-file", file)]).is_err());
        let missing = resolve(&[("AUTH_TOKEN_FILE", "/nowhere")]).expect_err("refused");
        assert!(
            missing.starts_with("AUTH_TOKEN_FILE is \"/nowhere\": cannot read it"),
            "{missing}"
        );
    }
}
