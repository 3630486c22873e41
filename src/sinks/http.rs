//! The ground that the sinks over HTTP share: keys and options, one client, one sink that asks a kind for
//! its request and for the meaning of the answer, and what of it all no reason may hold.

#[cfg_attr(not(feature = "webhook"), allow(dead_code, reason = "checked only"))]
pub(super) mod address;
pub(super) mod auth;
#[cfg(feature = "http-client")]
mod client;
#[cfg(feature = "http-client")]
pub(super) mod compress;
#[cfg(feature = "http-client")]
pub(super) mod credentials;
pub(super) mod keys;
#[cfg(feature = "http-client")]
pub(super) mod net_error;
#[cfg(feature = "elasticsearch")]
mod nodes;
#[cfg(all(test, any(feature = "otlp", feature = "syslog", feature = "webhook")))]
pub(super) mod pki;
pub(super) mod secrets;
#[cfg(feature = "http-client")]
mod sink;
#[cfg(feature = "http-client")]
mod status;
#[cfg(feature = "http-client")]
pub(super) mod tls;
#[cfg(feature = "http-client")]
mod tokens;

use std::time::Duration;

pub use self::auth::{Auth, OAuth2Options};
#[cfg(feature = "http-client")]
pub(super) use self::{client::*, sink::*};
#[cfg(feature = "elasticsearch")]
pub(super) use self::{nodes::Nodes, status::to_failure};
use super::{Compression, Proxy, Secret, TlsOptions};

/// The options of a sink over HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpOptions {
    /// `http://` or `https://`, and where to.
    pub url: Secret,
    /// Sent with each request.
    pub headers: Vec<(String, Secret)>,
    /// Credentials, beside those of the headers.
    pub auth: Option<Auth>,
    /// TLS, for `https`.
    pub tls: Option<TlsOptions>,
    /// The proxy that it sends through; over gRPC there is none.
    pub proxy: Proxy,
    /// Of request bodies.
    pub compression: Compression,
    /// For how long a connection is used. The next one goes to what the name stands for by then.
    pub connection_max_age: Duration,
    /// How long one attempt may take.
    pub timeout: Duration,
}

impl HttpOptions {
    /// Those of an address alone.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: Secret::new(url),
            headers: Vec::new(),
            auth: None,
            tls: None,
            proxy: Proxy::None,
            compression: Compression::None,
            connection_max_age: Duration::from_mins(10),
            timeout: crate::bridge::TIMEOUT,
        }
    }
}
