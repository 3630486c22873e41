//! Certificates for the tests of sinks over TLS.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use super::{Secret, TlsOptions};

/// A CA, a server certificate for a name, and a client certificate.
pub(crate) struct Pki {
    pub(crate) ca: String,
    pub(crate) server: (String, String),
    pub(crate) client: (String, String),
}

impl Pki {
    pub(crate) fn new(server_name: &str) -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new([]).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let issuer = Issuer::new(ca, ca_key);
        let issue = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new([name.to_owned()]).unwrap();
            (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
        };
        Self { server: issue(server_name), client: issue("client"), ca: ca_pem }
    }

    /// Asks for client certificates if `mutual`.
    pub(crate) fn server_config(&self, mutual: bool) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(self.ca.as_bytes()).unwrap()).unwrap();
            builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                    .build()
                    .unwrap(),
            )
        } else {
            builder.with_no_client_auth()
        };
        let certificate = CertificateDer::from_pem_slice(self.server.0.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(self.server.1.as_bytes()).unwrap();
        builder.with_single_cert(vec![certificate], key).unwrap()
    }

    pub(crate) fn options(&self, mutual: bool) -> TlsOptions {
        TlsOptions {
            ca: Some(self.ca.clone().into()),
            cert: mutual.then(|| self.client.0.clone().into()),
            key: mutual.then(|| Secret::new(&self.client.1)),
            server_name: None,
        }
    }
}
