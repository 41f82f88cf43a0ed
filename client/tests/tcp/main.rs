//! The client over real sockets: dialling and TLS. What it says and makes of the answers is tested
//! in memory, in `src/tests`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "blocking")]
mod blocking;
#[path = "../support/peer.rs"]
mod peer;

use std::sync::Arc;
use std::time::Duration;

use client::{Broker, Error, Tls};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use wire::Token;

use self::peer::{Peer, soon};

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

async fn try_lock(broker: &Broker) -> Result<Token, Error> {
    let call = broker
        .acquire("k")
        .wait(Duration::from_secs(5))
        .work_budget(Duration::ZERO);
    let ticket = soon("the end of the call", call).await?;
    Ok(ticket.detach())
}

#[tokio::test]
async fn an_address_that_refuses_does_not_matter() {
    let (listener, address) = listener().await;
    let gone = {
        let (_listener, address) = self::listener().await;
        address
    };
    let addresses = [gone, address];
    let broker = Broker::builder().addresses(addresses).token("secret");
    let broker = broker.build().unwrap();
    let (token, _peer) = tokio::join!(try_lock(&broker), async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut peer = Peer::handshake(stream).await;
        let acquire = peer.acquire().await;
        peer.grant(1, &acquire).await;
        peer
    });
    assert_eq!(token.unwrap(), Token(1));
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
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let own = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stranger = generate_simple_self_signed(["127.0.0.1".into()]).unwrap();
    for (tls, expected) in [
        (Tls::from_pem(cert.pem().as_bytes()).unwrap(), true),
        (Tls::new(Arc::new(own)), true),
        (
            Tls::from_pem(stranger.cert.pem().as_bytes()).unwrap(),
            false,
        ),
    ] {
        let (listener, address) = listener().await;
        let broker = Broker::builder()
            .addresses([address])
            .token("secret")
            .tls(tls)
            .build()
            .unwrap();
        let (outcome, accepted) = tokio::join!(try_lock(&broker), async {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = acceptor.accept(stream).await.ok()?;
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

#[test]
fn text_that_holds_no_authority_is_refused() {
    for text in [
        "",
        "nothing",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    ] {
        let refused = Tls::from_pem(text.as_bytes());
        assert!(matches!(refused, Err(Error::InvalidInput(_))), "{text:?}");
    }
    let missing = Tls::from_pem_file("/nonexistent/ca.pem");
    assert!(matches!(missing, Err(Error::Io(_))));
}
