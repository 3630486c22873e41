//! A certificate authority of the drill's own, and what it signs for 127.0.0.1.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

/// See the [module](self).
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes its certificate, for `tls.ca`.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let file = folder.join("ca.pem");
        fs::write(&file, &self.pem).expect("a file of the certificate");
        file
    }

    /// A server with a certificate that holds today.
    pub(crate) fn valid(&self) -> ServerConfig {
        self.server(4096)
    }

    /// A server with a certificate that ended years ago.
    pub(crate) fn expired(&self) -> ServerConfig {
        self.server(2020)
    }

    fn server(&self, ends: i32) -> ServerConfig {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("parameters");
        params.not_after = date_time_ymd(ends, 1, 1);
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        let certificate = CertificateDer::from_pem_slice(signed.as_bytes()).expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("PEM");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a certificate with its key")
    }
}
