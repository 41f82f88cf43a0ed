//! Peers that are wrong, hostile or silent, and servers that are full or stopping.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::*;
use crate::transport::auth::Lane;
use crate::transport::{CONTROL_BYTES_MAX, Dialer, Error, Identity, Refusal};

/// Control requests may take long here: the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends bytes and waits until the server closes the connection.
async fn closed_after(address: &str, bytes: &[u8]) -> Duration {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let began = Instant::now();
    stream.write_all(bytes).await.unwrap();
    let mut rest = Vec::new();
    match tokio::time::timeout(SOON, stream.read_to_end(&mut rest))
        .await
        .unwrap()
    {
        Ok(_) => assert!(rest.is_empty(), "the server answered {rest:?}"),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
    began.elapsed()
}

#[tokio::test]
async fn garbage_and_lying_lengths_close_the_connection_at_once() {
    let server = bare(&identity(2));
    let mut long_noise = vec![0, 0, 4, 0];
    long_noise.extend([0xA5; 1024]);
    for bytes in [
        &[0xFF; 4][..],
        &[0, 0, 4, 1],
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        &[0, 0, 0, 0],
        &[0, 0, 0, 3, 1, 2, 3],
        &long_noise,
    ] {
        let took = closed_after(&server.address, bytes).await;
        assert!(took < Duration::from_secs(2), "{bytes:?} took {took:?}");
    }
    // Nobody else is disturbed.
    let dialer = Dialer::new(identity(1));
    assert!(
        dialer
            .control(&server.address, b"hi".to_vec(), PATIENCE)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn silence_and_half_a_frame_are_closed_by_the_deadline() {
    let server = bare(&identity(2));
    let half = [0, 0, 0, 100, b'T', b'K', b'T'];
    let (silent, halved) = tokio::join!(
        closed_after(&server.address, &[]),
        closed_after(&server.address, &half)
    );
    for took in [silent, halved] {
        assert!(
            took >= Duration::from_secs(2) && took < Duration::from_secs(8),
            "{took:?}"
        );
    }
}

#[tokio::test]
async fn an_authenticated_peer_cannot_announce_a_frame_above_the_cap() {
    let server = bare(&identity(2));
    let dialer = Dialer::new(identity(1));
    let mut connection = dialer
        .dial(&server.address, Lane::Control, None)
        .await
        .unwrap();
    connection.send_raw(&[0xFF; 4]).await;
    assert!(matches!(
        connection.next().await,
        Ok(None) | Err(Error::Lost(_))
    ));
}

#[tokio::test]
async fn control_requests_need_neither_raft_nor_a_cluster() {
    let newcomer = Arc::new(Identity::new(7, None, SECRET));
    let server = bare(&newcomer);
    let dialer = Dialer::new(Arc::new(Identity::new(8, None, SECRET)));
    let answer = dialer
        .control(&server.address, b"who are you".to_vec(), PATIENCE)
        .await
        .unwrap();
    assert_eq!(answer, [&8_u64.to_be_bytes()[..], b"who are you"].concat());

    let raft = dialer.dial(&server.address, Lane::Raft, None).await;
    assert!(
        matches!(raft, Err(Error::Refused(Refusal::NoCluster))),
        "{raft:?}"
    );
}

#[tokio::test]
async fn a_control_request_above_its_cap_is_not_served() {
    let server = bare(&identity(2));
    let dialer = Dialer::new(identity(1));
    let request = vec![1; CONTROL_BYTES_MAX + 1];
    assert!(
        dialer
            .control(&server.address, request, PATIENCE)
            .await
            .is_err()
    );
    let request = vec![1; CONTROL_BYTES_MAX - 8];
    assert!(
        dialer
            .control(&server.address, request, PATIENCE)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn another_secret_is_refused_with_a_clear_reason() {
    let server = bare(&identity(2));
    let stranger = Dialer::new(Arc::new(Identity::new(1, Some(CLUSTER), b"another secret")));
    let refused = stranger.control(&server.address, vec![], PATIENCE).await;
    assert!(
        matches!(refused, Err(Error::Refused(Refusal::Secret))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn another_cluster_and_another_id_are_refused() {
    let server = bare(&identity(2));
    let other = Dialer::new(Arc::new(Identity::new(1, Some(CLUSTER + 1), SECRET)));
    let refused = other.control(&server.address, vec![], PATIENCE).await;
    assert!(
        matches!(refused, Err(Error::Refused(Refusal::OtherCluster))),
        "{refused:?}"
    );

    let dialer = Dialer::new(identity(1));
    let refused = dialer.dial(&server.address, Lane::Control, Some(3)).await;
    let other = Refusal::OtherNode { node_id: 2 };
    assert!(
        matches!(&refused, Err(Error::Refused(why)) if *why == other),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_starting_node_refuses_raft_and_serves_it_once_it_runs() {
    let starting = bare(&identity(2));
    let dialer = Dialer::new(identity(1));
    let refused = dialer.dial(&starting.address, Lane::Raft, Some(2)).await;
    assert!(
        matches!(refused, Err(Error::Refused(Refusal::NotReady))),
        "{refused:?}"
    );

    let running = node(2, false).await;
    dialer
        .dial(&running.bare.address, Lane::Raft, Some(2))
        .await
        .unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_joined_node_uses_its_cluster_id_from_the_next_handshake_on() {
    let newcomer = Arc::new(Identity::new(2, None, SECRET));
    let server = bare(&newcomer);
    newcomer.set_cluster_id(CLUSTER).unwrap();
    newcomer.set_cluster_id(CLUSTER).unwrap();
    assert!(newcomer.set_cluster_id(CLUSTER + 1).is_err());
    let dialer = Dialer::new(identity(1));
    let refused = dialer.dial(&server.address, Lane::Raft, Some(2)).await;
    assert!(
        matches!(refused, Err(Error::Refused(Refusal::NotReady))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_full_server_says_so_and_keeps_its_peers() {
    let server = bare(&identity(2));
    let dialer = Dialer::new(identity(1));
    let mut peer = dialer
        .dial(&server.address, Lane::Control, None)
        .await
        .unwrap();
    let mut silent = Vec::new();
    let busy = loop {
        silent.push(TcpStream::connect(&server.address).await.unwrap());
        assert!(silent.len() < 90, "nobody was refused");
        if silent.len() >= 64 {
            match dialer.dial(&server.address, Lane::Control, None).await {
                Err(error) => break error,
                Ok(connection) => drop(connection),
            }
        }
    };
    assert!(matches!(busy, Error::Refused(Refusal::Busy)), "{busy:?}");

    let request = bytes::Bytes::from_static(b"still here");
    use crate::transport::wire::{Kind, encode};
    peer.send(|out| encode(Kind::Control, &request, out))
        .await
        .unwrap();
    assert!(peer.expect().await.is_ok());

    drop(silent);
    eventually_dials(&dialer, &server.address).await;
}

async fn eventually_dials(dialer: &Dialer, address: &str) {
    let dialled = tokio::time::timeout(SOON, async {
        while dialer.control(address, vec![], PATIENCE).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    dialled.await.expect("places become free again");
}

#[tokio::test]
async fn shutdown_closes_every_socket_at_once() {
    let server = bare(&identity(2));
    let dialer = Dialer::new(identity(1));
    let mut peer = dialer
        .dial(&server.address, Lane::Control, None)
        .await
        .unwrap();
    let mut silent = TcpStream::connect(&server.address).await.unwrap();
    // The server has accepted `silent` when it has answered a later connection.
    dialer
        .control(&server.address, vec![], PATIENCE)
        .await
        .unwrap();

    let began = Instant::now();
    server.server.shutdown().await;
    assert!(matches!(peer.next().await, Ok(None) | Err(Error::Lost(_))));
    assert!(matches!(silent.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        dialer.probe(&server.address).await,
        crate::transport::Probe::Refused
    );
}

#[tokio::test]
async fn dropping_the_server_closes_its_sockets() {
    let server = bare(&identity(2));
    let dialer = Dialer::new(identity(1));
    let mut peer = dialer
        .dial(&server.address, Lane::Control, None)
        .await
        .unwrap();
    drop(server);
    assert!(matches!(peer.next().await, Ok(None) | Err(Error::Lost(_))));
}
