//! The way to a receiver: TCP, through a proxy where one is named, and TLS.

use std::{error::Error, io, sync::Arc, time::Duration};

use ::http::{
    Uri,
    uri::{Authority, Scheme},
};
use hyper::rt::{Read, Write};
use hyper_util::{
    client::{
        legacy::connect::{
            HttpConnector,
            proxy::{SocksV4, SocksV5, Tunnel},
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tower::{Service as _, service_fn};

use super::{
    super::{Proxy, SinkBuildError, TlsOptions},
    client_refuses, innermost, tls,
};
use crate::bridge::Secrets;

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// A connection without a protocol.
pub(super) trait Stream: Read + Write + Unpin + Send {}
impl<S: Read + Write + Unpin + Send> Stream for S {}

/// Where to connect to, and how.
pub(super) struct Route {
    /// Scheme, host and port.
    pub(super) address: Uri,
    pub(super) proxy: Option<Intercept>,
    pub(super) tls: TlsOptions,
    /// How long a connection may take to be made.
    pub(super) within: Duration,
    pub(super) secrets: Secrets,
}

#[derive(Clone)]
pub(super) struct Connector {
    route: Arc<Route>,
    tcp: HttpConnector,
    tls: Option<TlsConnector>,
}

/// The proxy before an address, if one is to be asked.
pub(super) fn proxy_of(address: &Uri, proxy: &Proxy) -> Result<Option<Intercept>, SinkBuildError> {
    let proxy = match proxy {
        Proxy::None => None,
        Proxy::Env => Matcher::from_env().intercept(address),
        Proxy::Url(url) => {
            let proxy = Matcher::builder().all(url.expose()).build().intercept(address);
            Some(proxy.ok_or(SinkBuildError::at(
                &["proxy"],
                "expected the address of a proxy, found another",
            ))?)
        }
    };
    Ok(proxy)
}

impl Route {
    /// A proxy that is sent requests to pass on, rather than asked for a way through.
    pub(super) fn forwarding_proxy(&self) -> Option<&Intercept> {
        let forwards = |proxy: &&Intercept| !is_https(&self.address) && !is_socks(proxy);
        self.proxy.as_ref().filter(forwards)
    }

    /// Reads the certificates, those of the system too; nothing is connected yet.
    pub(super) fn connector(self: &Arc<Self>) -> Result<Connector, SinkBuildError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        tcp.set_keepalive_interval(Some(Duration::from_secs(15)));
        tcp.set_keepalive_retries(Some(3));
        tcp.set_tcp_user_timeout(Some(Duration::from_secs(30)));
        tcp.set_connect_timeout(Some(self.within));
        let secure =
            is_https(&self.address) || self.proxy.as_ref().is_some_and(|p| is_https(p.uri()));
        // Without TLS the system's roots are not needed, and in a bare image there are none.
        let tls = secure.then(|| self.tls_config()).transpose()?;
        let tls = tls.map(|config| TlsConnector::from(Arc::new(config)));
        Ok(Connector { route: Arc::clone(self), tcp, tls })
    }

    fn tls_config(&self) -> Result<ClientConfig, SinkBuildError> {
        let builder = ClientConfig::builder();
        let builder = match &self.tls.ca {
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    let certificate = certificate.map_err(|e| tls::bad("ca", innermost(&e)))?;
                    roots.add(certificate).map_err(|e| tls::bad("ca", innermost(&e)))?;
                }
                builder.with_root_certificates(roots)
            }
            None => {
                builder.with_platform_verifier().map_err(|e| client_refuses(&self.secrets, &e))?
            }
        };
        let mut config = match (&self.tls.cert, &self.tls.key) {
            (Some(cert), Some(key)) => {
                let chain = CertificateDer::pem_slice_iter(cert).collect::<Result<_, _>>();
                let chain = chain.map_err(|e| tls::bad("cert", innermost(&e)))?;
                let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes());
                let key = key.map_err(|e| tls::bad("key", innermost(&e)))?;
                let identity = builder.with_client_auth_cert(chain, key);
                identity.map_err(|e| tls::bad("cert", innermost(&e)))?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl Connector {
    /// Makes a connection, for requests to be sent on.
    pub(super) async fn connect(&self) -> Result<Box<dyn Stream>, BoxError> {
        let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
        timeout(self.route.within, self.clone().go()).await.unwrap_or_else(late)
    }

    async fn go(self) -> Result<Box<dyn Stream>, BoxError> {
        let address = self.route.address.clone();
        let Some(proxy) = self.route.proxy.clone() else {
            return self.open(address).await;
        };
        if self.route.forwarding_proxy().is_some() {
            return self.open(proxy.uri().clone()).await;
        }
        let stream: Box<dyn Stream> = if is_socks(&proxy) {
            Box::new(self.through_socks(&proxy).await?)
        } else {
            let this = self.clone();
            let open = service_fn(move |proxy| this.clone().open(proxy));
            let mut tunnel = Tunnel::new(proxy.uri().clone(), open);
            if let Some(user) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(user.clone());
            }
            tunnel.call(address.clone()).await?
        };
        self.secure(stream, &address).await
    }

    async fn through_socks(&self, proxy: &Intercept) -> Result<TokioIo<TcpStream>, BoxError> {
        let (server, tcp) = (proxy.uri().clone(), self.tcp.clone());
        let mut to = self.route.address.clone();
        let scheme = server.scheme_str().unwrap_or_default();
        if matches!(scheme, "socks4" | "socks5") {
            // These are asked for an IP address, the others for a name.
            let found = lookup_host(to.authority().map_or("", Authority::as_str)).await?.next();
            let found = found.ok_or("it has no address")?;
            to = format!("http://{found}").parse()?;
        }
        if scheme.starts_with("socks4") {
            return Ok(SocksV4::new(server, tcp).call(to).await?);
        }
        let mut socks = SocksV5::new(server, tcp);
        if let Some((user, password)) = proxy.raw_auth() {
            socks = socks.with_auth(user.to_owned(), password.to_owned());
        }
        Ok(socks.call(to).await?)
    }

    /// Connects to a server, with TLS where its address says so.
    async fn open(self, address: Uri) -> Result<Box<dyn Stream>, BoxError> {
        let stream = self.tcp.clone().call(address.clone()).await?;
        self.secure(Box::new(stream), &address).await
    }

    /// Speaks TLS on a connection, where the address says so.
    async fn secure(
        &self,
        stream: Box<dyn Stream>,
        address: &Uri,
    ) -> Result<Box<dyn Stream>, BoxError> {
        let Some(tls) = self.tls.as_ref().filter(|_| is_https(address)) else { return Ok(stream) };
        let other = self.route.tls.server_name.as_deref();
        let host = address.host().unwrap_or_default();
        let name = other.unwrap_or(host.trim_start_matches('[').trim_end_matches(']'));
        let name = ServerName::try_from(name.to_owned())?;
        Ok(Box::new(TokioIo::new(tls.connect(name, TokioIo::new(stream)).await?)))
    }
}

fn is_https(address: &Uri) -> bool {
    address.scheme() == Some(&Scheme::HTTPS)
}

fn is_socks(proxy: &Intercept) -> bool {
    proxy.uri().scheme_str().is_some_and(|scheme| scheme.starts_with("socks"))
}
