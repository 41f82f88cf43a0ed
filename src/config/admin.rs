//! The settings of the admin endpoint.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{
    ADMIN_BIND, ADMIN_TOKEN, ADMIN_TOKEN_FILE, ConfigError, PORT, Reader, SECRET_BYTES_MIN, Secret,
};

/// Distance from a node's client port to the port of its admin endpoint, where none is given.
pub const ADMIN_PORT_OFFSET: u16 = 2000;

/// What turns the endpoint off.
const OFF: &str = "off";

/// Where the admin endpoint listens and who may use it.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Its address.
    pub address: SocketAddr,
    /// The bearer token; without one nothing can be changed, and beyond loopback little be seen.
    pub token: Option<Secret>,
}

/// Where a server with this client port has its admin endpoint unless it is told otherwise; `None`
/// when the port would be none.
pub fn admin_address(client_port: u16) -> Option<SocketAddr> {
    let port = client_port.checked_add(ADMIN_PORT_OFFSET)?;
    Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
}

pub(super) fn admin(reader: &Reader<'_>, client_port: u16) -> Result<Option<Admin>, ConfigError> {
    let (setting, token) = reader.secret(ADMIN_TOKEN, ADMIN_TOKEN_FILE)?;
    let given = reader.given(ADMIN_BIND).map(|(_, text)| text);
    let address = match given.as_deref() {
        Some(OFF) => return Ok(None),
        Some(text) => text
            .parse::<SocketAddr>()
            .ok()
            .filter(|address| address.port() != 0)
            .ok_or_else(|| {
                let allowed = "it must be IP:PORT such as 127.0.0.1:7225 or [::]:7225, or off";
                reader.refuse(ADMIN_BIND, allowed)
            })?,
        None => admin_address(client_port).ok_or_else(|| {
            let allowed = format_args!(
                "its port + {ADMIN_PORT_OFFSET}, for the admin endpoint, is no port: set \
                 --admin-bind"
            );
            reader.refuse(PORT, allowed)
        })?,
    };
    let token = Some(token).filter(|token| !token.0.is_empty());
    if !address.ip().is_loopback()
        && let Some(token) = &token
        && token.0.len() < SECRET_BYTES_MIN
    {
        let allowed = format_args!(
            "--admin-bind {address} is beyond loopback, so the token needs at least \
             {SECRET_BYTES_MIN} bytes"
        );
        return Err(reader.refuse(setting, allowed));
    }
    Ok(Some(Admin { address, token }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refused, resolve};
    use super::*;

    #[test]
    fn by_default_it_is_on_loopback_beside_the_client_port() {
        let admin = resolve(&[("port", "6000")])
            .expect("valid")
            .admin
            .expect("on");
        assert_eq!(admin.address.to_string(), "127.0.0.1:8000");
        assert_eq!(admin.token, None);
        let off = resolve(&[("ADMIN_BIND", "off")]).expect("valid");
        assert!(off.admin.is_none());
    }

    #[test]
    fn a_port_without_a_neighbour_needs_an_address_or_off() {
        refused(
            &[("port", "64000")],
            "--port is \"64000\": its port + 2000, for the admin endpoint, is no port: set \
             --admin-bind",
        );
        for bind in ["off", "127.0.0.1:1"] {
            assert!(resolve(&[("port", "64000"), ("admin-bind", bind)]).is_ok());
        }
    }

    #[test]
    fn a_bad_address_and_a_short_token_beyond_loopback_are_refused() {
        for bad in ["localhost:1", "7225", "127.0.0.1:0", "on"] {
            let line = format!(
                "--admin-bind is {bad:?}: it must be IP:PORT such as 127.0.0.1:7225 or [::]:7225, \
                 or off"
            );
            refused(&[("admin-bind", bad)], &line);
        }
        refused(
            &[("admin-bind", "0.0.0.0:7225"), ("ADMIN_TOKEN", "short")],
            "ADMIN_TOKEN (value hidden): --admin-bind 0.0.0.0:7225 is beyond loopback, so the \
             token needs at least 16 bytes",
        );
        assert!(resolve(&[("admin-bind", "127.0.0.1:7225"), ("ADMIN_TOKEN", "short")]).is_ok());
        assert!(resolve(&[("admin-bind", "[::]:7225")]).is_ok());
    }

    #[test]
    fn the_token_may_stand_in_a_file() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("token");
        std::fs::write(&path, "of the admin\n").expect("written");
        let file = path.to_str().expect("UTF-8");
        let admin = resolve(&[("admin-token-file", file)]).expect("valid").admin;
        let token = admin.expect("on").token;
        assert_eq!(token, Some(Secret(b"of the admin".to_vec())));
        refused(
            &[("admin-token", "x"), ("ADMIN_TOKEN_FILE", file)],
            &format!("ADMIN_TOKEN_FILE is {file:?}: --admin-token is set too: give one of them"),
        );
    }
}
