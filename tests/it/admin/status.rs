//! `ticketing status` and `ticketing locks`: a picture of a cluster from outside.

use serde_json::Value;

use crate::harness::process::{binary, output};
use crate::harness::{Cluster, PATIENCE, SETTLE, Server, acquire, eventually};

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = binary();
    command.args(arguments).envs(environment.iter().copied());
    let said = output(command, 2 * PATIENCE);
    let text = [said.stdout, said.stderr].concat();
    (
        said.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

fn admins(cluster: &Cluster) -> String {
    let admins = cluster.nodes.iter().map(|node| node.admin.as_str());
    admins.collect::<Vec<_>>().join(",")
}

#[test]
fn a_cluster_is_one_picture_and_a_node_that_is_gone_is_seen() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let mut session = cluster.session(leader);
    let token = session.ask(acquire("job/1", 0, 100, 1)).token();
    session.ask(acquire("other", 0, 100, 2));
    session.send(acquire("job/1", 60, 30, 3));
    let admins = admins(&cluster);
    let text = eventually("all is well", SETTLE, || {
        let (code, text) = run(&["status", "--admin", &admins], &[]);
        (code == Some(0)).then_some(text)
    });
    let own = &cluster.nodes[leader].address;
    assert!(text.contains(&format!("{own} leads")), "{text}");
    let marked = text.lines().filter(|line| line.starts_with("* "));
    assert_eq!(marked.count(), 1, "{text}");
    assert_eq!(text.matches(" follower ").count(), 2, "{text}");
    assert!(text.contains("tokens granted 2"), "{text}");
    assert!(
        !text.contains("DIVERGED") && !text.contains('\u{1b}'),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );

    let (code, text) = run(&["locks", "--admin", &admins, "--prefix", "job/"], &[]);
    assert_eq!(code, Some(0), "{text}");
    let row: Vec<&str> = text
        .lines()
        .nth(1)
        .expect("a row")
        .split_whitespace()
        .collect();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert_eq!(row[..2], ["job/1", &token.to_string()]);
    assert_eq!(
        row.last(),
        Some(&"1"),
        "one waiter, which only the leader knows: {text}"
    );
    let json = ["locks", "--output", "json"];
    let (_, text) = run(&json, &[("TICKETING_ADMIN_ADDRS", &admins)]);
    let list: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(list["locks"].as_array().map(Vec::len), Some(2));

    let gone = cluster.others(leader)[0];
    cluster.nodes[gone].kill();
    let (code, text) = run(&["status", "--admin", &admins], &[]);
    assert_eq!(code, Some(1), "{text}");
    let line = format!("admin {}  unreachable", cluster.nodes[gone].admin);
    assert!(text.contains(&line), "{text}");
    let (code, text) = run(&["status", "--admin", &admins, "--output", "json"], &[]);
    assert_eq!(code, Some(1));
    let nodes: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(nodes["nodes"][leader]["status"]["active"], true);
    assert!(nodes["nodes"][gone]["status"].is_null());
    assert!(nodes["nodes"][gone]["error"].is_string());
}

#[test]
fn beyond_loopback_the_commands_show_their_token() {
    let server = Server::single_with_open_admin(&["--admin-token", "sixteen bytes ok"]);
    let ask =
        |environment: &[(&str, &str)]| run(&["status", "--admin", &server.admin], environment);
    let (code, text) = ask(&[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("401"), "{text}");
    let (code, text) = ask(&[("TICKETING_ADMIN_TOKEN", "sixteen bytes ok")]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("single mode"), "{text}");
    let (code, text) = run(
        &["locks", "--admin", &server.admin],
        &[("TICKETING_ADMIN_TOKEN", "sixteen bytes ok")],
    );
    assert_eq!((code, text.trim()), (Some(0), "no key is held"));
}

#[test]
fn flags_win_over_variables_and_empty_variables_count_as_not_set() {
    let server = Server::single_with_open_admin(&["--admin-token", "sixteen bytes ok"]);
    let (admin, dir) = (
        server.admin.as_str(),
        tempfile::tempdir().expect("a folder"),
    );
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        path.to_string_lossy().into_owned()
    };
    let (right, empty) = (file("right", "\nsixteen bytes ok\r\n"), file("empty", "\n"));
    const ADDRS: &str = "TICKETING_ADMIN_ADDRS";
    const TOKEN: &str = "TICKETING_ADMIN_TOKEN";
    const FILE: &str = "TICKETING_ADMIN_TOKEN_FILE";
    for (flags, environment) in [
        (
            vec![],
            [(ADDRS, admin), (TOKEN, "sixteen bytes ok"), (FILE, "")],
        ),
        (vec![], [(ADDRS, admin), (TOKEN, ""), (FILE, &right)]),
        (
            vec!["--admin", admin],
            [(ADDRS, ""), (TOKEN, ""), (FILE, &right)],
        ),
        (
            vec!["--admin", admin, "--admin-token-file", &right],
            [(ADDRS, "127.0.0.1:1"), (TOKEN, ""), (FILE, "/nowhere")],
        ),
    ] {
        for subcommand in ["status", "locks"] {
            let (code, text) = run(&[&[subcommand], flags.as_slice()].concat(), &environment);
            assert_eq!(code, Some(0), "{flags:?} {environment:?}: {text}");
        }
    }
    // Nobody given is the default, whoever may be there.
    let nobody = ["--timeout-ms", "1", "--output", "json"];
    let (_, text) = run(&[&["status"], nobody.as_slice()].concat(), &[(ADDRS, "")]);
    let nodes: Value = serde_json::from_str(&text).expect("JSON");
    let asked = nodes["nodes"].as_array().expect("a list");
    assert_eq!(
        (asked.len(), &asked[0]["admin"]),
        (3, &"127.0.0.1:7225".into())
    );

    for (variable, value, words) in [
        (ADDRS, "127.0.0.1:1,", [ADDRS, "an address is empty"]),
        (FILE, "/nowhere", [FILE, "cannot read it"]),
        (FILE, &empty, [FILE, "it holds no token"]),
    ] {
        let (code, text) = run(&["status"], &[(variable, value)]);
        assert_eq!(code, Some(64), "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
    let both = [(TOKEN, "sixteen bytes ok"), (FILE, right.as_str())];
    let (code, text) = run(&["status"], &both);
    assert_eq!(code, Some(64), "{text}");
    assert!(text.contains("give one of them"), "{text}");
}

#[test]
fn bad_arguments_are_named() {
    for (arguments, parts) in [
        (
            vec!["status", "--admin", ""],
            ["--admin", "an address is empty"],
        ),
        (vec!["locks", "--limit", "0"], ["--limit", "'0'"]),
        (vec!["status", "--timeout-ms", "x"], ["--timeout-ms", "'x'"]),
        (
            vec!["status", "--admin-token-file", "/nowhere"],
            ["--admin-token-file", "/nowhere"],
        ),
    ] {
        let (code, text) = run(&arguments, &[]);
        assert_eq!(code, Some(64), "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}
