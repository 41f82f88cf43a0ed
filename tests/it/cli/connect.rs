//! The environment variables that stand in for the flags about reaching the servers.

use super::code;
use crate::harness::process::{detached, output};
use crate::harness::{PATIENCE, Server};

fn try_once(flags: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = detached();
    command.args(["lock", "--wait", "1"]).args(flags);
    command
        .args(["job", "--", "true"])
        .envs(environment.iter().copied());
    let output = output(command, PATIENCE);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn variables_stand_in_for_flags_and_empty_ones_count_as_not_set() {
    let server = Server::single(&["--auth-token", "secret"]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("the file can be written");
        path.to_string_lossy().into_owned()
    };
    let (right, wrong) = (path("right", "\nsecret\r\n"), path("wrong", "public\n"));
    let (empty, addrs) = (path("empty", "\n"), server.address.as_str());
    let all = ("TICKETING_ADDRS", addrs);
    let token = ("TICKETING_AUTH_TOKEN", "secret");

    let allowed = |flags: &[&str], environment: &[(&str, &str)]| {
        let (code, said) = try_once(flags, environment);
        assert_eq!(
            (code, said.as_str()),
            (Some(0), ""),
            "{flags:?} {environment:?}"
        );
    };
    allowed(&[], &[all, token]);
    allowed(&[], &[all, ("TICKETING_AUTH_TOKEN_FILE", &right)]);
    allowed(
        &[],
        &[
            all,
            token,
            ("TICKETING_AUTH_TOKEN_FILE", ""),
            ("TICKETING_CA", ""),
        ],
    );
    allowed(
        &[],
        &[
            all,
            ("TICKETING_AUTH_TOKEN", ""),
            ("TICKETING_AUTH_TOKEN_FILE", &right),
        ],
    );
    // Flags win.
    allowed(
        &["--addrs", addrs],
        &[("TICKETING_ADDRS", "127.0.0.1:1"), token],
    );
    allowed(&["--addrs", addrs], &[("TICKETING_ADDRS", ""), token]);
    allowed(
        &["--auth-token-file", &right],
        &[all, ("TICKETING_AUTH_TOKEN_FILE", &wrong)],
    );

    let refused = |flags: &[&str], environment: &[(&str, &str)], expected, words: &[&str]| {
        let (code, said) = try_once(flags, environment);
        assert_eq!(code, Some(expected), "{flags:?} {environment:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        for word in words {
            assert!(said.contains(word), "{word:?} is not in {said}");
        }
    };
    let wrong_token = [all, ("TICKETING_AUTH_TOKEN_FILE", wrong.as_str())];
    refused(
        &[],
        &wrong_token,
        code::NOT_ALLOWED,
        &["auth token was refused"],
    );
    // A mistake is named with what it was made in.
    let both = [all, token, ("TICKETING_AUTH_TOKEN_FILE", right.as_str())];
    let names = ["TICKETING_AUTH_TOKEN ", "TICKETING_AUTH_TOKEN_FILE"];
    refused(&[], &both, code::USAGE, &names);
    let missing = [all, ("TICKETING_AUTH_TOKEN_FILE", "/nowhere")];
    refused(
        &[],
        &missing,
        code::USAGE,
        &["TICKETING_AUTH_TOKEN_FILE", "/nowhere"],
    );
    let no_token = ["--auth-token-file", empty.as_str()];
    refused(
        &no_token,
        &[all],
        code::USAGE,
        &["--auth-token-file", &empty, "no token"],
    );
    let no_ca = [all, token, ("TICKETING_CA", "/nowhere")];
    refused(&[], &no_ca, code::USAGE, &["TICKETING_CA", "/nowhere"]);
    refused(&["--addrs", ""], &[all, token], code::USAGE, &["host:port"]);
    let no_port = [("TICKETING_ADDRS", "localhost"), token];
    refused(&[], &no_port, code::USAGE, &["host:port", "localhost"]);
}
