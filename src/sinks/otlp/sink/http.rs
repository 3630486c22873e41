//! OTLP/HTTP with protobuf bodies.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message as _;

use super::{answer, grpc_status::RpcStatus};
use crate::{
    bridge::{Failure, Secrets},
    event::Batch,
    sinks::{
        HttpOptions, SinkBuildError,
        http::{Address, HttpPoster, Reply},
    },
};

/// How much of a 2xx answer is read: a partial success and the start of its words.
const RESPONSE_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct HttpExporter {
    poster: HttpPoster,
}

impl HttpExporter {
    pub(super) fn new(options: &HttpOptions, secrets: Secrets) -> Result<Self, SinkBuildError> {
        let address = Address::parse("endpoint", &logs_url(options.url.expose()))?;
        let mut poster = HttpPoster::new(&address, options, "application/x-protobuf", secrets)?;
        poster.success_bytes = RESPONSE_BYTES;
        Ok(Self { poster })
    }

    pub(super) async fn export(
        &self,
        request: Bytes,
        sent: &Batch,
    ) -> Result<ExportLogsServiceResponse, Failure> {
        read(&self.poster.post(request).await?, sent, self.poster.secrets())
    }
}

pub(super) fn read(
    reply: &Reply,
    sent: &Batch,
    secrets: &Secrets,
) -> Result<ExportLogsServiceResponse, Failure> {
    if reply.is_success() {
        // The status says that it was taken. A body that cannot be read takes nothing back.
        return Ok(answer::decode(&reply.body));
    }
    // Receivers answer with google.rpc.Status, what stands in front of them with text.
    let words = match RpcStatus::decode(&*reply.body) {
        Ok(status) if !status.message.is_empty() => status.message,
        _ => String::from_utf8_lossy(&reply.body).into_owned(),
    };
    Err(reply.failure(&words, sent, secrets))
}

/// The endpoint with `/v1/logs`, unless its path ends so already. A query stays behind the path.
fn logs_url(endpoint: &str) -> String {
    let (path, query) = match endpoint.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (endpoint, String::new()),
    };
    let path = path.trim_end_matches('/');
    let suffix = if path.ends_with("/v1/logs") { "" } else { "/v1/logs" };
    format!("{path}{suffix}{query}")
}

#[cfg(test)]
mod tests {
    use super::logs_url;

    #[test]
    fn the_path_is_appended_once() {
        for (endpoint, url) in [
            ("http://c:4318", "http://c:4318/v1/logs"),
            ("http://c:4318/", "http://c:4318/v1/logs"),
            ("http://c:4318/otlp?key=1", "http://c:4318/otlp/v1/logs?key=1"),
            ("http://c:4318/v1/logs", "http://c:4318/v1/logs"),
            ("http://c:4318/v1/logs/", "http://c:4318/v1/logs"),
        ] {
            assert_eq!(logs_url(endpoint), url);
        }
    }
}
