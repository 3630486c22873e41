//! The options of each transport: secrets resolved, files read, defaults applied.

use std::{fmt, time::Duration};

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
#[derive(Clone, Debug, Default)]
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

/// How request bodies or messages are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Zstd,
}

/// SASL mechanisms of Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum SaslMechanism {
    Plain,
    ScramSha256,
    ScramSha512,
}

/// SASL towards Kafka.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SaslOptions {
    pub mechanism: SaslMechanism,
    pub username: Secret,
    pub password: Secret,
}

/// The parts that the key of a Kafka message is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KafkaKey {
    /// The cluster, the Event's namespace, and the object that it is about.
    #[default]
    Qualified,
    /// The object alone: its uid, else `kind/namespace/name`.
    Object,
}

/// A Kafka producer.
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    /// The sink's name, for the log.
    pub name: String,
    /// `host:port` of brokers to start from.
    pub brokers: Vec<String>,
    /// The topic to produce to.
    pub topic: String,
    /// The parts of a message's key.
    pub key: KafkaKey,
    /// The cluster's name, for the client's id.
    pub cluster: Option<String>,
    /// TLS, where the brokers speak it.
    pub tls: Option<TlsOptions>,
    /// SASL, where the brokers ask for it.
    pub sasl: Option<SaslOptions>,
    /// Of message batches.
    pub compression: Compression,
    /// How long one attempt may take.
    pub timeout: Duration,
}

/// Through what a sink over HTTP/1.1 sends.
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

    /// The schemes of a proxy before the API server.
    pub(crate) const SCHEMES_OF_SOURCE: [&str; 3] = ["http", "https", "socks5"];
}

/// Which OTLP transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// OTLP/gRPC.
    Grpc,
    /// OTLP/HTTP with protobuf bodies.
    Http,
}

/// An OTLP logs exporter.
#[derive(Clone, Debug)]
pub struct OtlpOptions {
    /// `http://` or `https://`, host and port; for HTTP `/v1/logs` is appended unless it is there.
    pub endpoint: Secret,
    /// gRPC or HTTP.
    pub protocol: OtlpProtocol,
    /// Sent with each request.
    pub headers: Vec<(String, Secret)>,
    /// TLS, for `https`.
    pub tls: Option<TlsOptions>,
    /// For HTTP; over gRPC there is none.
    pub proxy: Proxy,
    /// Of request bodies.
    pub compression: Compression,
    /// For how long a connection is used. The next one goes to what the name stands for by then.
    pub connection_max_age: Duration,
    /// How long one attempt may take.
    pub timeout: Duration,
}

/// A webhook.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Where to POST.
    pub url: Secret,
    /// Sent with each request.
    pub headers: Vec<(String, Secret)>,
    /// TLS, for `https`.
    pub tls: Option<TlsOptions>,
    /// Through what it sends.
    pub proxy: Proxy,
    /// Standard Webhooks secrets, `whsec_` or `whsk_` and base64; each signs. None: unsigned.
    pub signing_secrets: Vec<Secret>,
    /// Of request bodies.
    pub compression: Compression,
    /// For how long a connection is used. The next one goes to what the name stands for by then.
    pub connection_max_age: Duration,
    /// One object a request instead of an array; the batches then hold one event each.
    pub single: bool,
    /// How long one attempt may take.
    pub timeout: Duration,
}
