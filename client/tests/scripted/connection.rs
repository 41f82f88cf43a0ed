//! Which node is asked, and what a handshake that fails means.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Broker, Error, Tls};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls_pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;
use wire::{Nonce, Reply, Token};

use crate::server::{Peer, Server, broker, soon};

async fn try_lock(broker: &Broker) -> Result<Token, Error> {
    let call = broker
        .acquire("k")
        .wait(Duration::from_secs(5))
        .work_budget(Duration::ZERO);
    soon("the end of the call", call)
        .await
        .map(|ticket| ticket.token())
}

async fn serve(peer: &mut Peer, token: u64) {
    let acquire = peer.acquire().await;
    peer.grant(token, &acquire).await;
}

#[tokio::test]
async fn requests_go_to_the_node_that_the_newest_word_names() {
    let servers = [
        Server::start().await,
        Server::start().await,
        Server::start().await,
    ];
    let broker = broker([&servers[0], &servers[1], &servers[2]]);
    let mut peers = Vec::new();
    for server in &servers {
        peers.push(server.accept().await);
    }
    peers[0]
        .say(Reply::Leader(servers[1].address.clone()))
        .await;
    let (token, ()) = tokio::join!(try_lock(&broker), serve(&mut peers[1], 1));
    assert_eq!(token.unwrap(), Token(1));
    peers[1].expect_release(1).await;
    // The leader dies; a follower knows the next one, and the open connection is used at once.
    drop(peers.remove(1));
    let _noticed = servers[1].connection().await;
    let started = Instant::now();
    peers[0]
        .say(Reply::Leader(servers[2].address.clone()))
        .await;
    let (token, ()) = tokio::join!(try_lock(&broker), serve(&mut peers[1], 2));
    assert_eq!(token.unwrap(), Token(2));
    assert!(
        started.elapsed() < Duration::from_millis(500),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn an_address_that_is_not_configured_is_not_dialled() {
    let (known, other) = (Server::start().await, Server::start().await);
    let broker = known.broker();
    let mut peer = known.accept().await;
    peer.say(Reply::Leader(other.address.clone())).await;
    let (token, ()) = tokio::join!(try_lock(&broker), async {
        peer.acquire().await;
        peer.say(Reply::Moved(other.address.clone())).await;
        peer.closed().await;
        serve(&mut known.accept().await, 1).await;
    });
    assert_eq!(token.unwrap(), Token(1));
    assert!(!other.is_dialled_within(Duration::from_millis(200)).await);
}

#[tokio::test]
async fn an_address_that_refuses_costs_no_time() {
    let server = Server::start().await;
    let gone = Server::start().await.address;
    let addresses = [gone, server.address.clone()];
    let broker = Broker::builder()
        .addresses(addresses)
        .token("secret")
        .build()
        .unwrap();
    let started = Instant::now();
    let (token, _peer) = tokio::join!(try_lock(&broker), async {
        let mut peer = server.accept().await;
        serve(&mut peer, 1).await;
        peer
    });
    assert_eq!(token.unwrap(), Token(1));
    assert!(
        started.elapsed() < Duration::from_millis(500),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_refused_auth_token_ends_calls_at_once() {
    let server = Server::start().await;
    let broker = server.broker();
    let (outcome, ()) = tokio::join!(try_lock(&broker), async {
        let mut stream = server.connection().await;
        stream
            .write_all(&Nonce::from_random([0; 6]).challenge())
            .await
            .unwrap();
        stream.read_exact(&mut [0; 44]).await.unwrap();
        stream.write_all(b"Eauth_failed\n").await.unwrap();
        // The server waits for the client's end of the stream before it closes.
        while stream.read(&mut [0; 64]).await.unwrap_or(0) > 0 {}
    });
    assert!(matches!(outcome, Err(Error::Auth)), "{outcome:?}");
}

#[tokio::test]
async fn something_else_than_a_server_is_found_out_at_once() {
    for greeting in [
        "SSH-2.0-OpenSSH\n",
        "SHA-256 AAAAAAAA\nLtoo:1\n",
        &"x".repeat(300),
    ] {
        let server = Server::start().await;
        let broker = server.broker();
        let (outcome, _stream) = tokio::join!(try_lock(&broker), async {
            let mut stream = server.connection().await;
            stream.write_all(greeting.as_bytes()).await.unwrap();
            stream
        });
        assert!(
            matches!(outcome, Err(Error::Protocol)),
            "{greeting:?}: {outcome:?}"
        );
    }
}

#[tokio::test]
async fn addresses_are_checked() {
    for addresses in [
        vec![],
        vec!["host"],
        vec![":1:"],
        vec!["h:0"],
        vec!["h:65536"],
    ] {
        let built = Broker::builder().addresses(addresses.clone()).build();
        assert!(
            matches!(built, Err(Error::InvalidInput(_))),
            "{addresses:?}"
        );
    }
}

#[tokio::test]
async fn tls_is_spoken_with_a_server_that_proves_itself_and_with_no_other() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["127.0.0.1".into()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let stranger = generate_simple_self_signed(["127.0.0.1".into()]).unwrap();
    for (believed, expected) in [(cert.pem(), true), (stranger.cert.pem(), false)] {
        let server = Server::start().await;
        let broker = Broker::builder()
            .addresses([server.address.clone()])
            .token("secret")
            .tls(Tls::from_pem(believed.as_bytes()).unwrap())
            .build()
            .unwrap();
        let (outcome, accepted) = tokio::join!(try_lock(&broker), async {
            let stream = acceptor.accept(server.connection().await).await.ok()?;
            let mut peer = Peer::handshake(stream).await;
            let acquire = peer.acquire().await;
            peer.grant(1, &acquire).await;
            Some(peer)
        });
        assert_eq!(accepted.is_some(), expected);
        match outcome {
            Ok(token) => assert_eq!((token, expected), (Token(1), true)),
            Err(error) => assert!(matches!(error, Error::Protocol) && !expected, "{error:?}"),
        }
    }
}
