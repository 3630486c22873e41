//! The keys of an OTLP sink, and the options that come of them.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    bridge::Sink,
    document::{Checks, Text, wrong},
    sinks::{
        BuildSink, HttpOptions, Proxy, SinkBuildError,
        http::keys::{HttpModel, Urls, base_url},
        keys::{Keys, Shared, tls::TlsModel},
    },
};

/// Exports as OTLP logs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Otlp")]
pub(crate) struct OtlpModel {
    /// `http://` or `https://`, host and port. For `protocol: http`, the path `/v1/logs` (of `telemetry`:
    /// `/v1/metrics`) is appended unless it is there.
    #[schemars(extend("x-shown" = "address"))]
    endpoint: Text,
    /// `grpc`, or `http` with protobuf bodies.
    #[serde(default)]
    #[schemars(extend("default" = "grpc"))]
    protocol: OtlpProtocol,
    /// Sent with each request.
    #[serde(default)]
    headers: BTreeMap<String, Text>,
    /// Attributes of each resource, which say what sends. Default: `service.name: tidings`.
    #[serde(default)]
    resource: BTreeMap<String, Text>,
    /// TLS, for `https://`. Default: the system's authorities.
    tls: Option<TlsModel>,
}

/// An OTLP transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// OTLP/gRPC.
    #[default]
    Grpc,
    /// OTLP/HTTP with protobuf bodies.
    Http,
}

/// An OTLP logs exporter.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpOptions {
    /// Where to, and how. For HTTP `/v1/logs`, or for metrics `/v1/metrics`, is appended to the URL unless it is there.
    pub http: HttpOptions,
    /// gRPC or HTTP.
    pub protocol: OtlpProtocol,
    /// Attributes of each resource.
    pub resource: BTreeMap<String, String>,
}

impl OtlpOptions {
    /// A client of metrics: a batch has one record, whose envelope is an encoded message.
    #[cfg(feature = "otlp")]
    pub(crate) fn build_for_metrics(&self) -> Result<Arc<dyn Sink>, SinkBuildError> {
        super::sink::metrics(self)
    }
}

impl BuildSink for OtlpOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, SinkBuildError> {
        #[cfg(feature = "otlp")]
        return super::sink::logs(self);
        #[cfg(not(feature = "otlp"))]
        Err(SinkBuildError::at(&[], "expected a kind that is built in, found another"))
    }

    fn proxy(&self) -> Option<&Proxy> {
        (self.protocol == OtlpProtocol::Http).then_some(&self.http.proxy)
    }
}

impl OtlpModel {
    pub(crate) fn resolve(&self, sink: &Shared<'_>, checks: &mut Checks<'_>) -> OtlpOptions {
        let model = HttpModel {
            headers: &self.headers,
            tls: self.tls.as_ref(),
            grpc: self.protocol == OtlpProtocol::Grpc,
            ..HttpModel::new(&sink.path.key("otlp"), "endpoint", Urls::One(&self.endpoint))
        };
        let http = model.resolve(sink, checks, |value| Ok(base_url(value).map(drop)?));
        let place = sink.path.key("otlp").key("resource");
        let mut resource = BTreeMap::from([("service.name".to_owned(), "tidings".to_owned())]);
        for (key, text) in &self.resource {
            if key.is_empty() {
                let wrong = wrong("expected the name of an attribute, found an empty one");
                checks.wrong_key(&place, wrong.hint("write for instance `service.name`"));
            }
            let value = checks.text(&place.key(key), text).unwrap_or_default();
            resource.insert(key.clone(), value);
        }
        OtlpOptions { http, protocol: self.protocol, resource }
    }
}

impl Keys for OtlpModel {
    fn options(&self, sink: &Shared<'_>, checks: &mut Checks<'_>) -> Arc<dyn BuildSink> {
        sink.no_format(checks, "an `otlp` sink sends OTLP log records");
        Arc::new(self.resolve(sink, checks))
    }
}
