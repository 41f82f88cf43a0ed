//! Sockets that say nothing, and sockets that say nonsense.

use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::raw::Received;
use crate::harness::{Cluster, Frame, Raw, Server, acquire, eventually, release};

/// Sockets that connect and say nothing.
const SILENT: usize = 2_000;

/// What the handshake has, from accept.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// This process holds the other ends of all the sockets.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("up to the hard limit is allowed");
}

#[test]
fn two_thousand_silent_sockets_delay_nobody_and_are_gone_after_ten_seconds() {
    raise_file_limit();
    let server = Server::single(&["--max-connections", "4096"]);
    let mut silent: Vec<_> = (0..SILENT)
        .map(|_| Raw::open(&server.address).expect("the server listens"))
        .collect();
    let opened = Instant::now();
    for number in 0..10 {
        let asked = Instant::now();
        let mut session = Raw::connect(&server.address);
        let key = format!("k{number}");
        let token = session.ask(acquire(&key, 0, 30, 1)).token();
        assert_eq!(
            session.ask(release(&key, token)),
            Frame::released(token, &key)
        );
        assert!(
            asked.elapsed() < Duration::from_secs(1),
            "{:?}",
            asked.elapsed()
        );
    }
    for socket in &mut silent {
        socket.nonce();
        let left = (HANDSHAKE + Duration::from_secs(3)).saturating_sub(opened.elapsed());
        assert_eq!(socket.receive(left), Received::End);
    }
    assert_eq!(
        Raw::connect(&server.address).ask(release("k", 0)),
        Frame::not_released(0, "k")
    );
}

#[test]
fn a_peer_port_closes_on_nonsense_and_the_node_goes_on() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let mut holder = cluster.session(leader);
    let token = holder.ask(acquire("k", 0, 60, 1)).token();
    let noise: Vec<u8> = (0..100_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let nonsense: [&[u8]; 6] = [
        &[0xFF; 4],
        &[0xFF; 4_096],
        &[0; 4_096],
        b"\x00\x00\x00\x10GET / HTTP/1.1\r\n\r\n",
        &noise,
        b"SHA-256 abcdefgh\n",
    ];
    for index in 0..3 {
        let node = &cluster.nodes[index];
        let before = node.process().resident_kib();
        for bytes in nonsense {
            let mut socket = Raw::open(&node.peer_address).expect("the peer port listens");
            // The node may close before it has taken all of it.
            let _ = socket.try_send(bytes);
            let closed = socket.discard_until_end(HANDSHAKE + Duration::from_secs(2), b"SHA-256 ");
            assert!(
                closed,
                "open after {}",
                bytes[..bytes.len().min(20)].escape_ascii()
            );
        }
        let grown = node.process().resident_kib().saturating_sub(before);
        assert!(grown < 32 * 1_024, "node {index} grew by {grown} KiB");
    }
    assert_eq!(cluster.settle(), leader);
    assert_eq!(holder.ask(release("k", token)), Frame::released(token, "k"));
}

#[test]
fn silent_peers_are_closed_and_use_no_time() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    let node = &cluster.nodes[leader];
    let sockets: Vec<_> = (0..200)
        .map(|_| Raw::open(&node.peer_address).expect("the peer port listens"))
        .collect();
    let busy = node.process().busy_ms();
    let start = Instant::now();
    for mut socket in sockets {
        assert!(socket.discard_until_end(2 * HANDSHAKE, b"SHA-256 "));
    }
    // A loop that spins while it waits would use about all of it.
    let used = Duration::from_millis(node.process().busy_ms() - busy);
    assert!(
        used < start.elapsed() / 2 + Duration::from_millis(500),
        "{used:?}"
    );
    assert_eq!(cluster.settle(), leader);
}

#[test]
fn a_server_out_of_file_descriptors_waits_and_recovers() {
    let server = Server::single(&["--max-connections", "8192"]);
    let limit = Rlimit {
        current: Some(64),
        maximum: Some(64),
    };
    rustix::process::prlimit(Some(server.process().id()), Resource::Nofile, limit)
        .expect("a child's limit can be lowered");
    let sockets: Vec<_> = (0..100)
        .map(|_| Raw::open(&server.address).expect("the kernel queues it"))
        .collect();
    let busy = server.process().busy_ms();
    std::thread::sleep(Duration::from_secs(1));
    let used = Duration::from_millis(server.process().busy_ms() - busy);
    assert!(
        used < Duration::from_millis(500),
        "it spins: {used:?} in a second"
    );
    drop(sockets);
    eventually("it accepts again", HANDSHAKE, || {
        let mut raw = Raw::try_connect(&server.address, b"").ok()?;
        (raw.ask(release("k", 0)) == Frame::not_released(0, "k")).then_some(())
    });
}
