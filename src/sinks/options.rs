//! The options that kinds of sinks have in common: secrets resolved, files read, defaults applied.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

/// A string that is never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Whether a header, by its name in small letters, is set by the protocol or by one of the sinks.
pub(crate) fn is_reserved_header(name: &str) -> bool {
    let ours = [
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "keep-alive",
        "te",
        "transfer-encoding",
        "upgrade",
    ];
    ours.contains(&name) || name.starts_with("webhook-") || name.starts_with("grpc-")
}

/// TLS towards a receiver. Without a CA the system's roots count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsOptions {
    /// Certificates of the authorities to trust, PEM.
    pub ca: Option<Vec<u8>>,
    /// The client's certificate chain, PEM; together with `key`.
    pub cert: Option<Vec<u8>>,
    /// The client's private key, PEM.
    pub key: Option<Secret>,
    /// The name that the receiver's certificate must carry, when it is not the host's.
    pub server_name: Option<String>,
}

#[cfg(any(feature = "http-client", feature = "kafka"))]
impl TlsOptions {
    /// The client's certificate chain and its key, which go together.
    pub(super) fn identity(&self) -> Result<Option<(&[u8], &Secret)>, super::SinkBuildError> {
        let (missing, there) = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => return Ok(Some((cert, key))),
            (None, None) => return Ok(None),
            (Some(_), None) => ("key", "cert"),
            (None, Some(_)) => ("cert", "key"),
        };
        let reason = format_args!("expected `{missing}` beside `{there}`, found none");
        Err(super::SinkBuildError::at(&["tls", missing], reason))
    }
}

/// How request bodies or messages are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Zstd,
}

/// The proxy of a sink over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    /// Nothing, whatever the environment says.
    #[default]
    None,
    /// The proxy that `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` name.
    Env,
    /// The proxy at this address.
    Url(Secret),
}

impl Proxy {
    /// The variables of the environment that name a proxy.
    pub const VARIABLES: [&str; 6] =
        ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

    /// The addresses that it may be at, those of the environment with the variables that name them.
    pub(crate) fn addresses(&self) -> Vec<(Option<&'static str>, String)> {
        match self {
            Self::None => Vec::new(),
            Self::Env => {
                let named = |name| Some((Some(name), std::env::var(name).ok()?));
                Self::VARIABLES.into_iter().filter_map(named).collect()
            }
            Self::Url(url) => vec![(None, url.expose().to_owned())],
        }
    }

    /// The schemes of a proxy before the API server.
    pub(crate) const SCHEMES_OF_SOURCE: [&str; 3] = ["http", "https", "socks5"];
}
