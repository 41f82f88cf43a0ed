//! The server's side of TLS: its certificate, from PEM files. Clients present none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_rustls::TlsAcceptor;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read, or is not PEM.
    #[error("cannot read {}: {error}", file.display())]
    Unreadable {
        /// Which one.
        file: PathBuf,
        /// What is wrong with it.
        error: pem::Error,
    },
    /// The file has no certificate.
    #[error("{} holds no certificate", file.display())]
    NoCertificate {
        /// Which one.
        file: PathBuf,
    },
    /// The two files cannot be used, or not together.
    #[error("cannot use the certificate {} with the key {}: {error}", certificate.display(), key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong with them.
        error: rustls::Error,
    },
}

/// Makes an acceptor of a certificate chain (the server's own certificate first) and its private
/// key, both PEM.
pub fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let unreadable = |file: &Path, error| TlsError::Unreadable {
        file: file.to_owned(),
        error,
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(|certificates| certificates.collect())
        .map_err(|error| unreadable(certificate, error))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate {
            file: certificate.to_owned(),
        });
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder
                .with_no_client_auth()
                .with_single_cert(chain, private)
        })
        .map(|config| TlsAcceptor::from(Arc::new(config)))
        .map_err(|error| TlsError::Unusable {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            error,
        })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Writes what is given into two files and says what comes of them.
    fn check(certificate: &str, key: &str) -> Result<(), String> {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("chain.pem"), certificate).unwrap();
        fs::write(path("key.pem"), key).unwrap();
        match acceptor(&path("chain.pem"), &path("key.pem")) {
            Ok(_) => Ok(()),
            Err(error) => Err(error
                .to_string()
                .replace(dir.path().to_str().unwrap(), "dir")),
        }
    }

    #[test]
    fn a_certificate_with_its_key_makes_an_acceptor() {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        assert_eq!(
            check(&own.cert.pem(), &own.signing_key.serialize_pem()),
            Ok(())
        );
    }

    #[test]
    fn an_error_names_the_file() {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());

        let error = check("", &key).unwrap_err();
        assert_eq!(error, "dir/chain.pem holds no certificate");
        let error = check(&certificate, &certificate).unwrap_err();
        assert!(error.starts_with("cannot read dir/key.pem: "), "{error}");
        let error = check(&certificate, &other.signing_key.serialize_pem()).unwrap_err();
        let expected = "cannot use the certificate dir/chain.pem with the key dir/key.pem: ";
        assert!(error.starts_with(expected), "{error}");

        let error = acceptor(
            Path::new("/nowhere/chain.pem"),
            Path::new("/nowhere/key.pem"),
        );
        let error = error.err().unwrap().to_string();
        assert!(
            error.starts_with("cannot read /nowhere/chain.pem: "),
            "{error}"
        );
    }
}
