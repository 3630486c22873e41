//! OTLP/HTTP with protobuf bodies.

use ::http::StatusCode;
use prost::Message as _;
use reqwest::Url;

use super::{Messages, answer, grpc_status::RpcStatus, taken};
use crate::{
    bridge::{Failure, Outcome, Secrets},
    event::Batch,
    sinks::{
        HttpOptions, SinkBuildError,
        http::{HttpKind, HttpSink, Part, Reading, Reply, Request, parse_url},
    },
};

/// Posts messages to one URL.
pub(super) struct OtlpHttp {
    url: Url,
    messages: Messages,
}

pub(super) fn sink(
    options: &HttpOptions,
    messages: Messages,
    secrets: Vec<String>,
) -> Result<HttpSink<OtlpHttp>, SinkBuildError> {
    let url = parse_url(&["endpoint"], &url_of(options.url.expose(), messages.signal.path))?;
    HttpSink::new(OtlpHttp { url: url.clone(), messages }, options, &url, secrets)
}

impl HttpKind for OtlpHttp {
    /// A partial success and the start of its words.
    fn reads(&self, status: StatusCode) -> Reading {
        if status.is_success() { Reading::Start(64 << 10) } else { Reading::Status }
    }

    fn requests(&self, batch: &Batch, secrets: &Secrets) -> Result<Vec<Part>, Failure> {
        let message = self.messages.of(batch, secrets)?;
        Ok(Part::all(batch, Request::post(&self.url, "application/x-protobuf", message)))
    }

    fn outcome(&self, reply: &Reply, sent: &Batch, secrets: &Secrets) -> Outcome {
        outcome(reply, sent, (self.messages.signal.items)(sent), secrets)
    }
}

pub(super) fn outcome(reply: &Reply, sent: &Batch, events: u64, secrets: &Secrets) -> Outcome {
    if reply.is_success() {
        // The status says that it was taken. A body that cannot be read takes nothing back.
        return taken(answer::decode(&reply.body), events, secrets);
    }
    // Receivers answer with google.rpc.Status, what stands in front of them with text.
    let words = match RpcStatus::decode(&*reply.body) {
        Ok(status) if !status.message.is_empty() => status.message,
        _ => reply.text(),
    };
    Outcome::Failed(reply.failure(&words, sent, secrets))
}

/// The endpoint with the path of the signal, unless its own ends so already. A query stays behind the path.
fn url_of(endpoint: &str, signal: &str) -> String {
    let (path, query) = match endpoint.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (endpoint, String::new()),
    };
    let path = path.trim_end_matches('/');
    let suffix = if path.ends_with(signal) { "" } else { signal };
    format!("{path}{suffix}{query}")
}

#[cfg(test)]
mod tests {
    use super::url_of;

    #[test]
    fn the_path_is_appended_once() {
        for (endpoint, url) in [
            ("http://c:4318", "http://c:4318/v1/logs"),
            ("http://c:4318/", "http://c:4318/v1/logs"),
            ("http://c:4318/otlp?key=1", "http://c:4318/otlp/v1/logs?key=1"),
            ("http://c:4318/v1/logs", "http://c:4318/v1/logs"),
            ("http://c:4318/v1/logs/", "http://c:4318/v1/logs"),
        ] {
            assert_eq!(url_of(endpoint, "/v1/logs"), url);
        }
    }
}
