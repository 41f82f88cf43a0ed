//! Section 1: with a certificate the whole stream is TLS.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use crate::harness::process::{binary, output};
use crate::harness::raw::Received;
use crate::harness::{Frame, PATIENCE, Raw, Server, acquire, release};

/// A certificate for `localhost` and 127.0.0.1, and the authority that signed it.
struct Identity {
    authority: CertificateDer<'static>,
    cert_file: String,
    key_file: String,
    authority_file: String,
}

fn identity(dir: &Path) -> Identity {
    let authority_key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("valid names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("a certificate");
    let issuer = Issuer::from_params(&params, &authority_key);
    let key = KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let params = CertificateParams::new(names).expect("valid names");
    let cert = params.signed_by(&key, &issuer).expect("a certificate");
    let write = |name: &str, content: String| {
        let path = dir.join(name);
        fs::write(&path, content).expect("the directory is writable");
        path.display().to_string()
    };
    Identity {
        authority: authority.der().clone(),
        cert_file: write("cert.pem", cert.pem()),
        key_file: write("key.pem", key.serialize_pem()),
        authority_file: write("ca.pem", authority.pem()),
    }
}

fn trusting(authorities: impl IntoIterator<Item = CertificateDer<'static>>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).expect("a valid certificate");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

#[test]
fn the_whole_stream_is_tls() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let identity = identity(dir.path());
    let server = Server::single(&[
        "--tls-cert",
        &identity.cert_file,
        "--tls-key",
        &identity.key_file,
        "--auth-token",
        "secret",
    ]);
    let trusted = trusting([identity.authority.clone()]);
    let connect = |token: &str| {
        let mut raw = Raw::open_tls(&server.address, trusted.clone()).expect("TLS works");
        raw.authenticate(token).expect("a challenge comes");
        raw
    };

    let mut holder = connect("secret");
    let mut waiter = connect("secret");
    let token = holder.ask(acquire("k", 0, 30, 1)).token();
    waiter.send(acquire("k", 30, 30, 2));
    waiter.expect_nothing_pending();
    assert_eq!(holder.ask(release("k", token)), Frame::released(token, "k"));
    assert_eq!(waiter.reply(), Frame::granted(token + 1, 2, "k"));
    // The end of the stream is an orderly one of TLS as well.
    holder.send(b"X");
    assert_eq!(holder.reply(), Frame::error("bad_op"));
    holder.expect_end();

    let mut wrong = connect("wrong");
    assert_eq!(wrong.frame(), Frame::error("auth_failed"));
    wrong.expect_end();

    // A client that does not know the authority does not talk to this server.
    assert!(Raw::open_tls(&server.address, trusting([])).is_err());

    // Plaintext is disconnected, without a challenge.
    let mut plain = Raw::open(&server.address).expect("the server listens");
    plain.send(b"GET / HTTP/1.0\r\n\r\n");
    plain_is_disconnected(&mut plain);
    waiter.expect_nothing_pending();

    // The command line trusts what it is told to trust.
    let mut command = binary();
    command
        .args(["lock", "--addrs", &server.address, "cli", "--", "true"])
        .env("TICKETING_AUTH_TOKEN", "secret")
        .env("TICKETING_CA", &identity.authority_file);
    let output = output(command, PATIENCE);
    assert!(output.status.success(), "{output:?}");
}

/// TLS may send an alert before the end; what it never sends is `SHA-256 `.
fn plain_is_disconnected(plain: &mut Raw) {
    let start = Instant::now();
    let ended = plain.discard_until_end(Duration::from_secs(5), b"SHA-256 ");
    assert!(ended, "still connected after {:?}", start.elapsed());
}

#[test]
fn a_tls_negotiation_counts_into_the_ten_seconds() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let identity = identity(dir.path());
    let server = Server::single(&[
        "--tls-cert",
        &identity.cert_file,
        "--tls-key",
        &identity.key_file,
    ]);
    let start = Instant::now();
    std::thread::scope(|scope| {
        // One says nothing at all, one goes through TLS and then says nothing.
        scope.spawn(|| {
            let mut silent = Raw::open(&server.address).expect("the server listens");
            assert!(silent.discard_until_end(Duration::from_secs(12), b"SHA-256 "));
            assert!(
                start.elapsed() > Duration::from_millis(9_900),
                "{:?}",
                start.elapsed()
            );
        });
        scope.spawn(|| {
            let trusted = trusting([identity.authority.clone()]);
            let mut silent = Raw::open_tls(&server.address, trusted).expect("TLS works");
            silent.nonce();
            assert_eq!(silent.receive(Duration::from_secs(12)), Received::End);
            assert!(
                start.elapsed() > Duration::from_millis(9_900),
                "{:?}",
                start.elapsed()
            );
        });
    });
}
