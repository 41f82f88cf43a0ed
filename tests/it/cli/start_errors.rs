//! Starts that must not succeed: one clear line, and an exit code that is not 0.

use std::fs;
use std::net::TcpListener;
use std::process::Output;

use crate::harness::ports::Ports;
use crate::harness::process::{binary, output};
use crate::harness::{Cluster, Frame, PATIENCE, SETTLE, acquire, gate, release};

/// The command line is wrong.
const USAGE: i32 = 64;

/// What the process says in the end: exactly one line is addressed to the person.
fn complaint(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("ticketing: "))
        .collect();
    assert_eq!(lines.len(), 1, "one line, not {said}");
    assert!(output.stdout.is_empty(), "{output:?}");
    lines[0].to_owned()
}

/// Runs `serve`, which must refuse to start; gives back its exit code and its line.
fn refused(flags: &[&str], environment: &[(&str, &str)]) -> (i32, String) {
    let mut command = binary();
    command
        .arg("serve")
        .args(flags)
        .envs(environment.iter().copied());
    let output = output(command, SETTLE);
    let code = output.status.code().expect("it exits by itself");
    assert_ne!(code, 0);
    (code, complaint(&output))
}

fn assert_contains(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in: {line}");
    }
}

#[test]
fn a_bad_setting_is_named_with_its_value_and_what_is_allowed() {
    let peers = "127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003";
    let cluster = ["--cluster-peers", peers, "--cluster-self", "127.0.0.1:7001"];
    let with = |more: &[&'static str]| [&cluster[..], &["--data-dir", "/nowhere"], more].concat();
    let rows: Vec<(Vec<&str>, &[&str])> = vec![
        (vec!["--port", "0"], &["--port", "\"0\"", "1 to 65535"]),
        (
            vec!["--port", "65536"],
            &["--port", "\"65536\"", "1 to 65535"],
        ),
        (vec!["--port", "http"], &["--port", "\"http\""]),
        (
            vec!["--bind", "localhost"],
            &["--bind", "\"localhost\"", "IP address"],
        ),
        (
            vec!["--max-waiters", "0"],
            &["--max-waiters", "\"0\"", "1 to 16384"],
        ),
        (
            vec!["--max-waiters", "16385"],
            &["--max-waiters", "\"16385\"", "1 to 16384"],
        ),
        (
            vec!["--max-total-waiters", "65537"],
            &["--max-total-waiters", "1 to 65536"],
        ),
        (
            vec!["--max-connections", "8193"],
            &["--max-connections", "1 to 8192"],
        ),
        (
            vec!["--max-connections=-1"],
            &["--max-connections", "\"-1\"", "1 to 8192"],
        ),
        (
            vec!["--log-format", "xml"],
            &["--log-format", "\"xml\"", "text or json"],
        ),
        (
            vec!["--tls-cert", "cert.pem"],
            &["--tls-key", "--tls-cert needs it"],
        ),
        (
            vec!["--tls-key", "key.pem"],
            &["--tls-cert", "--tls-key needs it"],
        ),
        (
            vec!["--auth-token-file", "/nowhere/token"],
            &["--auth-token-file", "/nowhere/token"],
        ),
        (
            vec!["--cluster-self", "127.0.0.1:7001"],
            &["--cluster-self", "--cluster-peers"],
        ),
        (cluster.to_vec(), &["--data-dir", "a cluster needs it"]),
        (
            vec!["--cluster-peers", peers, "--cluster-self", "127.0.0.1:7009"],
            &[
                "--cluster-self",
                "\"127.0.0.1:7009\"",
                "127.0.0.1:7001, 127.0.0.1:7002",
            ],
        ),
        (
            vec![
                "--cluster-peers",
                "127.0.0.1:7001,127.0.0.1:7001,127.0.0.1:7002",
            ],
            &["--cluster-peers", "127.0.0.1:7001"],
        ),
        (
            vec!["--cluster-peers", "127.0.0.1:7001,127.0.0.1:7002"],
            &["--cluster-peers", "1, 3, 5 or 7"],
        ),
        (
            vec!["--cluster-peers", "nonsense"],
            &["--cluster-peers", "\"nonsense\"", "host:port"],
        ),
        (
            with(&["--cluster-heartbeat-ms", "5"]),
            &["--cluster-heartbeat-ms", "\"5\""],
        ),
        (
            with(&["--cluster-election-timeout-ms", "200"]),
            &[
                "--cluster-election-timeout-ms",
                "\"200\"",
                "four heartbeats",
            ],
        ),
        (
            with(&["--cluster-bootstrap", "yes"]),
            &["--cluster-bootstrap", "auto or never"],
        ),
    ];
    for (flags, parts) in rows {
        let (code, line) = refused(&flags, &[]);
        assert_eq!(code, USAGE, "{line}");
        assert_contains(&line, parts);
    }
    // What came from the environment is named as its author wrote it.
    let (code, line) = refused(&[], &[("MAX_WAITERS", "many")]);
    assert_eq!(code, USAGE, "{line}");
    assert_contains(&line, &["MAX_WAITERS", "\"many\"", "1 to 16384"]);
}

#[test]
fn an_unknown_flag_or_command_is_a_usage_error() {
    for arguments in [
        &["serve", "--no-such-flag"][..],
        &["no-such-command"],
        &["serve", "stray"],
    ] {
        let mut command = binary();
        command.args(arguments);
        let output = output(command, PATIENCE);
        assert_eq!(
            output.status.code(),
            Some(USAGE),
            "{arguments:?}: {output:?}"
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert_contains(&said, &[arguments[arguments.len() - 1]]);
    }
}

#[test]
fn beyond_loopback_a_token_and_a_cluster_secret_are_needed() {
    let (code, line) = refused(&["--bind", "0.0.0.0"], &[]);
    assert_eq!(code, USAGE);
    assert_contains(&line, &["AUTH_TOKEN", "beyond loopback", "16 bytes"]);
    // A short one is none, and is not shown.
    let (code, line) = refused(&["--bind", "0.0.0.0", "--auth-token", "hunter2"], &[]);
    assert_eq!(code, USAGE);
    assert_contains(&line, &["--auth-token", "16 bytes"]);
    assert!(!line.contains("hunter2"), "{line}");

    let peers = "10.0.0.1:7001,10.0.0.2:7001,10.0.0.3:7001";
    let flags = [
        "--cluster-peers",
        peers,
        "--cluster-self",
        "10.0.0.1:7001",
        "--data-dir",
        "/nowhere",
    ];
    let (code, line) = refused(&flags, &[]);
    assert_eq!(code, USAGE);
    assert_contains(&line, &["CLUSTER_SECRET", "16 bytes"]);
}

#[test]
fn an_address_in_use_is_named() {
    let _gate = gate::shared();
    let mut ports = Ports::reserve(2);
    let (client, peer) = (ports.next(), ports.next());
    let dir = tempfile::tempdir().expect("a temporary directory");
    let own = format!("127.0.0.1:{client}");
    let peers = format!("{own}=127.0.0.1:{peer}");
    let client = client.to_string();

    let taken = TcpListener::bind(&own).expect("a reserved port is free");
    let (_, line) = refused(&["--port", &client], &[]);
    assert_contains(&line, &[&own, "in use"]);
    drop(taken);

    let _taken = TcpListener::bind(("127.0.0.1", peer)).expect("a reserved port is free");
    let data_dir = dir.path().join("data");
    let data_dir = data_dir.to_str().expect("a plain path");
    let flags = [
        "--port",
        &client,
        "--cluster-self",
        &own,
        "--cluster-peers",
        &peers,
    ];
    let (_, line) = refused(&[&flags[..], &["--data-dir", data_dir]].concat(), &[]);
    assert_contains(&line, &[&format!("127.0.0.1:{peer}"), "in use"]);
}

#[test]
fn a_certificate_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, content: &str| {
        let path = dir.path().join(name);
        fs::write(&path, content).expect("the directory is writable");
        path.display().to_string()
    };
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
    let cert = write("cert.pem", &certified.cert.pem());
    let key = write("key.pem", &certified.signing_key.serialize_pem());
    let nonsense = write("nonsense.pem", "no certificate in here\n");
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
    let other = write("other.pem", &other.signing_key.serialize_pem());

    let mut ports = Ports::reserve(1);
    let port = ports.next().to_string();
    let missing = dir.path().join("missing.pem").display().to_string();
    let rows = [
        (&missing, &key, &missing),
        (&cert, &missing, &missing),
        (&nonsense, &key, &nonsense),
        (&cert, &nonsense, &nonsense),
        (&cert, &other, &other),
    ];
    for (cert, key, named) in rows {
        let flags = ["--port", &port, "--tls-cert", cert, "--tls-key", key];
        let (_, line) = refused(&flags, &[]);
        assert_contains(&line, &[named]);
    }
}

/// Starts one node of a stopped cluster on what is in its data directory; it must end by itself.
fn node_refuses(cluster: &mut Cluster, index: usize) -> String {
    let before = cluster.nodes[index].log().lines().count();
    cluster.nodes[index].spawn();
    let status = cluster.nodes[index].wait(SETTLE);
    assert_ne!(status.code(), Some(0));
    assert!(status.code().is_some(), "it exits by itself: {status}");
    let log = cluster.nodes[index].log();
    let new: Vec<_> = log.lines().skip(before).collect();
    let lines: Vec<_> = new
        .iter()
        .filter(|line| line.starts_with("ticketing: "))
        .collect();
    assert_eq!(lines.len(), 1, "one line, not {new:#?}");
    (*lines[0]).to_owned()
}

#[test]
fn a_data_directory_of_another_node_or_another_cluster_is_refused() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let (strange, right) = (cluster.others(leader)[0], cluster.others(leader)[1]);
    cluster.nodes[strange].kill();

    // Another node's: the members would look for it at that node's address.
    let mut other = Cluster::start(1);
    other.nodes[0].kill();
    let own_data = cluster.dir().join("own-data");
    fs::rename(cluster.nodes[strange].data_dir(), &own_data).expect("it is there");
    let place = cluster.nodes[strange].data_dir().to_owned();
    fs::rename(other.nodes[0].data_dir(), &place).expect("both are in the temporary directory");
    let line = node_refuses(&mut cluster, strange);
    let addresses = [&other.nodes[0].address, &cluster.nodes[strange].address];
    assert_contains(&line, &addresses.map(String::as_str));
    assert_eq!(cluster.settle(), leader);

    // Its own, but the other members have become another cluster.
    fs::remove_dir_all(&place).expect("it is there");
    for node in [leader, right] {
        cluster.nodes[node].kill();
        cluster.nodes[node].wipe();
    }
    cluster.start_all();
    cluster.nodes[strange].kill();
    cluster.nodes[strange].wipe();
    fs::rename(&own_data, &place).expect("it is there");
    let line = node_refuses(&mut cluster, strange);
    assert_contains(&line, &["cluster", "another cluster", "data directory"]);
    cluster.settle();
}

#[test]
fn nodes_with_different_peer_lists_found_no_cluster() {
    let mut cluster = Cluster::prepare(gate::shared(), 3, &[]);
    // The third node has the right members, but another address for the first.
    let mut ports = Ports::reserve(1);
    let stray = format!("127.0.0.1:{}", ports.next());
    let peers = cluster.nodes[2]
        .flags()
        .iter()
        .position(|flag| flag == "--cluster-peers");
    let peers = cluster.nodes[2].flags()[peers.expect("it is there") + 1].clone();
    let first = cluster.nodes[0].peer_address.clone();
    cluster.nodes[2].set_flag("--cluster-peers", &peers.replace(&first, &stray));
    for node in &mut cluster.nodes {
        node.spawn();
    }
    // Whoever notices says so and ends; nobody starts a cluster.
    let line = {
        crate::harness::eventually("a node refuses", SETTLE, || {
            let said = cluster.nodes.iter().find_map(|node| {
                let log = node.log();
                log.lines()
                    .find(|line| line.starts_with("ticketing: "))
                    .map(str::to_owned)
            });
            assert!(
                cluster
                    .nodes
                    .iter()
                    .all(|node| node.names_leader().is_none())
            );
            said
        })
    };
    assert_contains(&line, &[&stray]);
}

#[test]
fn a_data_directory_in_use_is_refused() {
    let mut cluster = Cluster::start(1);
    let mut ports = Ports::reserve(2);
    let (client, peer) = (ports.next(), ports.next());
    let own = format!("127.0.0.1:{client}");
    let data_dir = cluster.nodes[0].data_dir().display().to_string();
    let mut command = binary();
    command
        .args([
            "serve",
            "--port",
            &client.to_string(),
            "--cluster-self",
            &own,
        ])
        .args([
            "--cluster-peers",
            &format!("{own}=127.0.0.1:{peer}"),
            "--data-dir",
            &data_dir,
        ]);
    // It waits for the other one to end, which does not happen.
    let output = output(command, SETTLE);
    assert_ne!(output.status.code(), Some(0));
    assert_contains(&complaint(&output), &[&data_dir]);
    cluster.nodes[0].assert_running();
}

#[test]
fn data_that_this_program_does_not_know_or_cannot_trust_is_refused_and_left_alone() {
    let mut cluster = Cluster::start(1);
    let token = cluster.ask(&acquire("k", 0, 250, 1)).token();
    cluster.nodes[0].kill();
    let data = cluster.nodes[0].data_dir().to_owned();

    let format = data.join("format");
    let known = fs::read_to_string(&format).expect("the format is written down");
    fs::write(&format, "ticketing data, format 999\n").expect("it can be written");
    let line = node_refuses(&mut cluster, 0);
    assert_contains(&line, &[&format.display().to_string(), "format 999"]);
    fs::write(&format, known).expect("it can be written");

    // The oldest part of the log, which later parts prove to have been there.
    let log = data.join("wal/0000000000000001.log");
    let whole = fs::read(&log).expect("the log is there");
    fs::write(&log, &whole[..whole.len() - 1]).expect("it can be written");
    let line = node_refuses(&mut cluster, 0);
    assert_contains(&line, &[&log.display().to_string()]);
    fs::write(&log, &whole).expect("it can be written");

    cluster.start_all();
    assert_eq!(
        cluster.ask(&release("k", token)),
        Frame::released(token, "k")
    );
}
