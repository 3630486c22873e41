//! TLS for the tests: authorities, certificates, and a server that takes every certificate of a client.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_rustls::TlsAcceptor;

use super::support::until;

/// A certificate authority.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) pem: String,
}

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(super) fn sign(&self, name: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// TLS as a kube-apiserver speaks it: every certificate is taken, and judged for each request.
    fn tls(&self) -> Arc<ServerConfig> {
        let pair = self.sign("127.0.0.1");
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(Arc::new(AnyCertificate(provider)))
            .with_single_cert(vec![pair.der()], key)
            .unwrap();
        Arc::new(config)
    }
}

impl Pair {
    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()
    }

    /// The client's name at a server.
    pub(super) fn identity(&self) -> String {
        format!("{:?}", self.der())
    }
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

pub(super) type Request = http::Request<hyper::body::Incoming>;
pub(super) type Answer = http::Response<reqwest::Body>;

/// A server over TLS.
pub(super) struct TlsServer {
    pub(super) port: u16,
    tls: Mutex<Arc<ServerConfig>>,
    /// Held by each connection; those of an earlier one are closed.
    generation: watch::Sender<Arc<()>>,
}

impl TlsServer {
    /// Serves with a certificate of this authority. A request comes with the
    /// [identity](Pair::identity) of its client's certificate.
    pub(super) async fn start<F>(
        authority: &Authority,
        answer: impl Fn(Option<String>, Request) -> F + Send + Sync + 'static,
    ) -> Arc<Self>
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            tls: Mutex::new(authority.tls()),
            generation: watch::Sender::new(Arc::default()),
        });
        let (this, answer) = (Arc::clone(&server), Arc::new(answer));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(Arc::clone(&this).connection(stream, Arc::clone(&answer)));
            }
        });
        server
    }

    async fn connection<F>(
        self: Arc<Self>,
        stream: TcpStream,
        answer: Arc<impl Fn(Option<String>, Request) -> F>,
    ) where
        F: Future<Output = Answer>,
    {
        let mut generation = self.generation.subscribe();
        let _open = Arc::clone(&generation.borrow_and_update());
        let tls = Arc::clone(&self.tls.lock().unwrap());
        let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await else { return };
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.map(|certificate| format!("{certificate:?}"));
        let service = hyper::service::service_fn(|request: Request| {
            let answer = answer(certificate.clone(), request);
            async { Ok::<_, Infallible>(answer.await) }
        });
        let http = hyper::server::conn::http1::Builder::new();
        tokio::select! {
            _ = http.serve_connection(TokioIo::new(stream), service) => {}
            _ = generation.changed() => {}
        }
    }

    /// Serves with a certificate of this authority from now on.
    pub(super) async fn move_to(&self, authority: &Authority) {
        *self.tls.lock().unwrap() = authority.tls();
        self.cut().await;
    }

    /// Closes every connection.
    pub(super) async fn cut(&self) {
        let before = self.generation.send_replace(Arc::default());
        until("every connection is closed", || Arc::strong_count(&before) == 1).await;
    }
}
