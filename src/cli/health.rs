//! `ticketing health`: one node's health as an exit code, for probes that have no shell and no curl.
//!
//! Without arguments it asks the server that runs with the same settings: it reads `ADMIN_BIND` and
//! `SERVER_PORT` from the environment like the server does. An address that means "all of this
//! machine" is asked on loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use clap::Args;

use super::http;
use crate::cli::{EXIT_FAILURE, block_on, or_usage};
use crate::config::admin_address;

/// The client port of a server that is not told otherwise.
const DEFAULT_PORT: u16 = 5225;

/// The arguments of `health`.
#[derive(Args, Debug)]
pub struct HealthArgs {
    /// Ask whether the process works, whatever the cluster does (/livez)
    #[arg(long, conflicts_with = "ready")]
    live: bool,
    /// Ask whether the node can do its part (/readyz); the default
    #[arg(long)]
    ready: bool,
    /// The node's admin address; without it, from ADMIN_BIND and SERVER_PORT like the server's own
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
    /// How long to wait for the answer, in milliseconds, 1 to 60000
    #[arg(long, value_name = "MS", default_value_t = 2000,
          value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
}

/// Asks, prints what the node says, and returns 0 if it is well, else 1.
pub fn run(args: &HealthArgs) -> u8 {
    let address = match &args.admin {
        Some(address) => Ok(address.clone()),
        None => own_address(&|name| std::env::var(name).ok().filter(|value| !value.is_empty())),
    };
    let address = match or_usage(address) {
        Ok(address) => address,
        Err(code) => return code,
    };
    let path = if args.live {
        "/livez"
    } else {
        "/readyz?verbose"
    };
    let patience = Duration::from_millis(args.timeout_ms);
    block_on(async {
        Ok(match http::get(&address, path, None, patience).await {
            Ok(answer) => {
                say!("{}", answer.text.trim_end());
                if answer.status.is_success() {
                    0
                } else {
                    EXIT_FAILURE
                }
            }
            Err(error) => {
                complain!("the admin endpoint at {address}: {error}");
                EXIT_FAILURE
            }
        })
    })
}

/// Where the server with these settings has its admin endpoint.
fn own_address(variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    if let Some(bind) = variable("ADMIN_BIND") {
        let address: SocketAddr = bind.parse().map_err(|_| {
            format!("ADMIN_BIND is {bind:?}: there is no endpoint to ask; give --admin HOST:PORT")
        })?;
        return Ok(SocketAddr::new(reachable(address.ip()), address.port()).to_string());
    }
    let port = match variable("SERVER_PORT") {
        None => DEFAULT_PORT,
        Some(text) => text
            .parse()
            .map_err(|_| format!("SERVER_PORT is {text:?}: it must be 1 to 65535"))?,
    };
    match admin_address(port) {
        Some(address) => Ok(address.to_string()),
        None => Err(format!(
            "SERVER_PORT is {port}: it has no admin port beside it; give --admin HOST:PORT"
        )),
    }
}

/// An address at which something that is bound to `bound` can be reached from this machine.
fn reachable(bound: IpAddr) -> IpAddr {
    match bound {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(settings: &[(&str, &str)]) -> Result<String, String> {
        own_address(&|name| {
            let found = settings.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn it_finds_the_server_of_its_own_environment() {
        assert_eq!(own(&[]).as_deref(), Ok("127.0.0.1:7225"));
        assert_eq!(
            own(&[("SERVER_PORT", "6000")]).as_deref(),
            Ok("127.0.0.1:8000")
        );
        let bound = own(&[("ADMIN_BIND", "0.0.0.0:9000"), ("SERVER_PORT", "6000")]);
        assert_eq!(bound.as_deref(), Ok("127.0.0.1:9000"));
        assert_eq!(
            own(&[("ADMIN_BIND", "[::]:9000")]).as_deref(),
            Ok("[::1]:9000")
        );
        assert_eq!(
            own(&[("ADMIN_BIND", "10.1.2.3:9")]).as_deref(),
            Ok("10.1.2.3:9")
        );
    }

    #[test]
    fn without_an_endpoint_it_says_so() {
        let off = own(&[("ADMIN_BIND", "off")]).expect_err("nothing to ask");
        assert!(off.starts_with("ADMIN_BIND is \"off\""), "{off}");
        assert!(own(&[("SERVER_PORT", "x")]).is_err());
        assert!(own(&[("SERVER_PORT", "64000")]).is_err());
    }
}
