//! `ticketing health`: the answer as an exit code.

use std::process::Output;

use crate::harness::ports::Ports;
use crate::harness::process::{binary, output};
use crate::harness::{Cluster, PATIENCE, SETTLE, Server, eventually};

fn health(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = binary();
    command.arg("health").args(arguments);
    command.envs(environment.iter().copied());
    let Output {
        status,
        stdout,
        stderr,
    } = output(command, PATIENCE);
    let said = [stdout, stderr].concat();
    (status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_node_that_serves_is_live_and_ready() {
    let server = Server::single(&[]);
    let admin = server.admin.as_str();
    let (code, said) = health(&["--admin", admin], &[]);
    assert_eq!((code, said.lines().last()), (Some(0), Some("ready")));
    let (code, said) = health(&["--live", "--admin", admin], &[]);
    assert_eq!((code, said.trim()), (Some(0), "live"));
    // As in the server's own container: everything from the environment.
    let (code, _) = health(&[], &[("ADMIN_BIND", admin)]);
    assert_eq!(code, Some(0));
}

#[test]
fn a_node_without_its_quorum_is_live_but_not_ready() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    for other in cluster.others(leader) {
        cluster.nodes[other].kill();
    }
    let admin = cluster.nodes[leader].admin.clone();
    let said = eventually("the node is not ready", SETTLE, || {
        let (code, said) = health(&["--ready", "--admin", &admin], &[]);
        (code == Some(1)).then_some(said)
    });
    assert!(said.contains("[-] leader: "), "{said}");
    assert_eq!(health(&["--live", "--admin", &admin], &[]).0, Some(0));
}

#[test]
fn nobody_there_or_nobody_who_answers_is_not_well() {
    let mut ports = Ports::reserve(1);
    let address = format!("127.0.0.1:{}", ports.next());
    let (code, said) = health(&["--admin", &address], &[]);
    assert_eq!(code, Some(1));
    assert!(said.contains(&address), "{said}");

    let server = Server::single(&[]);
    server.pause();
    let (code, said) = health(&["--admin", &server.admin, "--timeout-ms", "300"], &[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("no answer within 300ms"), "{said}");
    server.resume();

    assert_eq!(health(&[], &[("ADMIN_BIND", "off")]).0, Some(64));
    assert_eq!(health(&["--timeout-ms", "0"], &[]).0, Some(64));
}
