//! A receiver for tests: speaks just enough HTTP/1.1 to record requests, and answers them with
//! scripted bytes, pauses and cut connections, over TLS if asked.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::{Secret, TlsOptions};

/// A step of the server at a request.
#[derive(Clone)]
pub(crate) enum Step {
    Write(Vec<u8>),
    Wait(Duration),
    /// Cuts the connection.
    Cut,
}

pub(crate) struct Received {
    head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) connection: usize,
}

impl Received {
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) received: Arc<Mutex<Vec<Received>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TestServer {
    /// Answers the n-th request with what `script` says.
    pub(crate) async fn start(
        tls: Option<ServerConfig>,
        script: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let log = Arc::clone(&received);
        let script = Arc::new(script);
        let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let task = tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (log, script, acceptor) = (log.clone(), script.clone(), acceptor.clone());
                tokio::spawn(async move {
                    match acceptor {
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, connection, &log, &*script).await;
                            }
                        }
                        None => serve(stream, connection, &log, &*script).await,
                    }
                });
            }
        });
        Self { address, received, task }
    }

    /// Answers every request with one status line, headers (with their line ends) and body.
    pub(crate) async fn always(status: &str, headers: &str, body: &str) -> Self {
        let answer = answer(status, headers, body);
        Self::start(None, move |_| vec![Step::Write(answer.clone())]).await
    }

    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address)
    }
}

pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into()
}

async fn serve(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    connection: usize,
    log: &Mutex<Vec<Received>>,
    script: &(dyn Fn(usize) -> Vec<Step> + Send + Sync),
) {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = memchr::memmem::find(&buffer, b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
        let mut received = Received { head, body: Vec::new(), connection };
        let length: usize = received.header("content-length").unwrap_or("0").parse().unwrap();
        while buffer.len() < length {
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        }
        received.body = buffer.drain(..length).collect();
        let index = {
            let mut log = log.lock().unwrap();
            log.push(received);
            log.len() - 1
        };
        for step in script(index) {
            match step {
                Step::Write(bytes) => {
                    if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                }
                Step::Wait(time) => tokio::time::sleep(time).await,
                Step::Cut => return,
            }
        }
    }
}

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
