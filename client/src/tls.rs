//! Whose certificates a client believes.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::Error;

/// TLS towards the servers, which must prove themselves by a certificate of these authorities.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// As configured there: other roots, certificates of one's own, another provider.
    pub fn new(config: Arc<ClientConfig>) -> Self {
        Self(config)
    }

    /// Believes the certificate authorities of the system.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if the system has none.
    #[cfg(feature = "system-roots")]
    pub fn system_roots() -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        // Systems carry some that are out of use; the others count.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self::from_roots(roots, "on this system")
    }

    /// Believes the certificate authorities in this PEM text.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if there is none in it, or something else.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| invalid(&error))?;
            roots.add(certificate).map_err(|error| invalid(&error))?;
        }
        Self::from_roots(roots, "in the PEM text")
    }

    fn from_roots(roots: RootCertStore, place: &str) -> Result<Self, Error> {
        if roots.is_empty() {
            return Err(Error::InvalidInput(format!(
                "no certificate authority {place}"
            )));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }

    /// Believes the certificate authorities in this PEM file.
    ///
    /// # Errors
    ///
    /// As [`Tls::from_pem`], and [`Error::Io`].
    pub fn from_pem_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::from_pem(&std::fs::read(path)?)
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

fn invalid(error: &dyn fmt::Display) -> Error {
    Error::InvalidInput(format!("certificate authorities: {error}"))
}
