//! Who may see and do what, and what a bad client gets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::harness::http::{get, request, send};
use crate::harness::ports::Ports;
use crate::harness::process::{binary, output};
use crate::harness::{PATIENCE, SETTLE, Server, eventually, gate};

const TOKEN: &str = "a token for operators";

#[test]
fn on_loopback_reading_is_free_and_changing_needs_the_token() {
    let server = Server::single(&["--admin-token", TOKEN]);
    let admin = &server.admin;
    for path in ["/livez", "/readyz", "/v1/status", "/v1/locks", "/metrics"] {
        assert_eq!(get(admin, path).status, 200, "{path}");
    }
    let transfer = |shown: &str| request("POST", admin, "/v1/leader/transfer", shown);
    let unasked = transfer("");
    assert_eq!(unasked.status, 401);
    assert!(
        unasked
            .head
            .to_lowercase()
            .contains("www-authenticate: bearer")
    );
    assert_eq!(transfer("Bearer another").status, 401);
    let single = transfer(&format!("Bearer {TOKEN}"));
    assert_eq!(
        (single.status, single.body.trim()),
        (409, "in single mode there is no lead")
    );
    assert_eq!(get(admin, "/v1/leader/transfer").status, 405);
    assert_eq!(get(admin, "/elsewhere").status, 404);
}

#[test]
fn without_a_token_nothing_can_be_changed() {
    let server = Server::single(&[]);
    let refused = request("POST", &server.admin, "/v1/leader/transfer", "Bearer x");
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("ADMIN_TOKEN"), "{}", refused.body);
}

#[test]
fn beyond_loopback_names_are_shown_to_the_token_only() {
    let server = Server::single_with_open_admin(&[]);
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(&server.admin, path).status, 200, "{path}");
    }
    for path in ["/v1/status", "/v1/locks"] {
        let refused = get(&server.admin, path);
        assert_eq!(refused.status, 403, "{path}");
        assert!(refused.body.contains("ADMIN_TOKEN"), "{}", refused.body);
    }
    let server = Server::single_with_open_admin(&["--admin-token", TOKEN]);
    for path in ["/v1/status", "/v1/locks"] {
        let ask = |shown: &str| request("GET", &server.admin, path, shown).status;
        assert_eq!(
            (ask(""), ask("Bearer x"), ask(&format!("Bearer {TOKEN}"))),
            (401, 401, 200)
        );
    }
}

#[test]
fn a_port_that_is_taken_is_an_error_of_the_start() {
    let _gate = gate::shared();
    let mut ports = Ports::reserve(2);
    let (client, admin) = (ports.next(), ports.next());
    let _taken = TcpListener::bind(("127.0.0.1", admin)).expect("it was free");
    let mut command = binary();
    command.args(["serve", "--port", &client.to_string()]);
    command.args(["--admin-bind", &format!("127.0.0.1:{admin}")]);
    let said = output(command, SETTLE);
    assert_eq!(said.status.code(), Some(1));
    let line = String::from_utf8_lossy(&said.stderr).into_owned();
    let expected = format!("cannot listen on 127.0.0.1:{admin} for the admin endpoint");
    assert!(line.contains(&expected), "{line}");
}

#[test]
fn clients_that_stall_or_send_too_much_are_cut_off_and_hold_nobody_up() {
    let server = Server::single(&[]);
    let admin = &server.admin;
    // Twice as many as are served at the same time; none of them ever asks anything.
    let stalled: Vec<TcpStream> = (0..128)
        .map(|_| {
            let mut stream = eventually("a connection", SETTLE, || TcpStream::connect(admin).ok());
            stream.write_all(b"GET /livez HT").expect("sent");
            stream
        })
        .collect();
    eventually("an answer behind the stalled ones", SETTLE, || {
        (get(admin, "/livez").status == 200).then_some(())
    });
    for mut stream in stalled {
        stream
            .set_read_timeout(Some(2 * PATIENCE))
            .expect("a timeout can be set");
        let mut rest = Vec::new();
        // The end of the stream or a reset: both are a cut; a timeout is not.
        if let Err(error) = stream.read_to_end(&mut rest) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock);
        }
    }
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(64 * 1024));
    assert!(send(admin, &long).is_none_or(|answer| answer.status >= 400));
    assert_eq!(get(admin, "/livez").status, 200);
}
