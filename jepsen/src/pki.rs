//! The certificate of a run's nodes, and a client's trust in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;

use crate::error::Error;

/// One certificate for all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// PEM file.
    pub(crate) certificate: PathBuf,
    /// PEM file.
    pub(crate) key: PathBuf,
    /// The certificate's text.
    pub(crate) pem: String,
    der: CertificateDer<'static>,
}

impl Identity {
    /// Makes a certificate for `ips` in `dir`.
    pub(crate) fn create(dir: &Path, ips: Vec<String>) -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::of("making a certificate", error);
        let made = rcgen::generate_simple_self_signed(ips).map_err(|error| failed(&error))?;
        let identity = Self {
            certificate: dir.join("certificate.pem"),
            key: dir.join("key.pem"),
            pem: made.cert.pem(),
            der: made.cert.der().clone(),
        };
        fs::write(&identity.certificate, &identity.pem).map_err(|error| failed(&error))?;
        fs::write(&identity.key, made.signing_key.serialize_pem())
            .map_err(|error| failed(&error))?;
        Ok(identity)
    }

    /// What the raw client believes.
    pub(crate) fn trust(&self) -> Result<Arc<ClientConfig>, Error> {
        let failed = |error: rustls::Error| Error::of("trusting a certificate", error);
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).map_err(failed)?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}
