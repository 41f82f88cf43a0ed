//! The whole stream as TLS.

use rustls::RootCertStore;
use rustls_pki_types::ServerName;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

/// A server's acceptor, and a connector that trusts it.
fn pair() -> (TlsAcceptor, TlsConnector) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
    std::fs::write(&chain, own.cert.pem()).unwrap();
    std::fs::write(&key, own.signing_key.serialize_pem()).unwrap();
    let acceptor = super::super::acceptor(&chain, &key).unwrap();

    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (acceptor, TlsConnector::from(Arc::new(config)))
}

async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
    connector: &TlsConnector,
    peer: Peer<S>,
) -> Peer<TlsStream<S>> {
    let name = ServerName::try_from("localhost").unwrap();
    let connected = timeout(PATIENCE, connector.connect(name, peer.0)).await;
    Peer(connected.expect("the server shakes hands").unwrap())
}

#[tokio::test]
async fn a_session_works_over_tls_and_ends_with_tls() {
    let (acceptor, connector) = pair();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::start(listener, config(9, Some(acceptor)), Backend::Single).unwrap();
    let mut peer = secure(&connector, Peer::dial(&server).await).await;
    peer.authenticate(TOKEN).await;
    let token = peer.acquire("job").await;
    peer.send(release("job", token)).await;
    peer.expect(numbered(b'R', token, "job")).await;
    peer.send("X").await;
    // The last reply and TLS's own farewell arrive: without it this would be an error.
    peer.expect_last("Ebad_op\n").await;

    let mut peer = secure(&connector, Peer::dial(&server).await).await;
    peer.authenticate("wrong").await;
    peer.expect_last("Eauth_failed\n").await;
}

#[tokio::test]
async fn plaintext_is_disconnected() {
    let (acceptor, _) = pair();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::start(listener, config(9, Some(acceptor)), Backend::Single).unwrap();
    let mut peer = Peer::dial(&server).await;
    peer.send(format!("{}\n", "x".repeat(43))).await;
    let rest = peer.rest().await;
    assert!(!rest.starts_with(b"SHA-256"), "{}", rest.escape_ascii());
    assert_eq!(server.probe().counters().failed_tls.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_ten_seconds_include_the_tls_handshake() {
    let (acceptor, connector) = pair();
    let house = House::new(Backend::Single, config(9, Some(acceptor)));
    let start = Instant::now();
    let mut silent = house.connect(WIDE);
    silent.expect_last("").await;
    assert_eq!(start.elapsed(), Duration::from_secs(10));

    let start = Instant::now();
    let late = house.connect(WIDE);
    sleep(Duration::from_secs(9)).await;
    let mut late = secure(&connector, late).await;
    late.challenge().await;
    late.expect_last("").await;
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    assert_eq!(house.counters().failed_deadline.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn grants_in_a_record_that_was_not_taken_whole_are_released() {
    let (acceptor, connector) = pair();
    let house = House::new(Backend::Single, config(9, Some(acceptor)));
    let mut deaf = secure(&connector, house.connect(NARROW)).await;
    deaf.authenticate(TOKEN).await;
    let frames: Vec<u8> = (0..300)
        .flat_map(|number| acquire(&format!("key-{number:03}"), 0, 250, 1))
        .collect();
    deaf.send(frames).await;
    let start = Instant::now();
    while house.counters().slow.get() == 0 {
        sleep(Duration::from_millis(10)).await;
        assert!(start.elapsed() < Duration::from_millis(1_500));
    }
    // The pipe took less than one record, so the client has got nothing.
    let mut other = secure(&connector, house.connect(WIDE)).await;
    other.authenticate(TOKEN).await;
    other.settle().await;
    for number in 0..300 {
        other.acquire(&format!("key-{number:03}")).await;
    }
}
