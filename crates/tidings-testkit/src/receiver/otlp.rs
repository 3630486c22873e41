//! A receiver of OTLP logs over gRPC that is told its answers.

use std::{io, net::SocketAddr, time::Instant};

use opentelemetry_proto::tonic::{
    collector::logs::v1::{
        ExportLogsServiceRequest, ExportLogsServiceResponse,
        logs_service_server::{LogsService, LogsServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    logs::v1::LogRecord,
};
use tokio::task::JoinHandle;
use tonic::{
    Request, Response, Status,
    codec::CompressionEncoding,
    transport::{Server, server::TcpIncoming},
};

use crate::{http::listen, ledger::Delivery};

/// The receiver. It listens until it is dropped; connections that are open then are served on.
#[derive(Debug)]
pub struct OtlpReceiver {
    /// The address that it listens at.
    pub address: SocketAddr,
    serving: JoinHandle<()>,
}

/// The answers of an [`OtlpReceiver`].
pub type OtlpAnswer = Box<
    dyn Fn(Request<ExportLogsServiceRequest>) -> Result<ExportLogsServiceResponse, Status>
        + Send
        + Sync,
>;

struct Logs(OtlpAnswer);

#[tonic::async_trait]
impl LogsService for Logs {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        (self.0)(request).map(Response::new)
    }
}

impl Drop for OtlpReceiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl OtlpReceiver {
    /// Answers each request as `answer` says; one larger than `largest` bytes is refused. Needs a tokio runtime.
    ///
    /// # Errors
    /// No port can be bound.
    pub fn start(largest: usize, answer: OtlpAnswer) -> io::Result<Self> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_at(any, Server::builder(), largest, answer)
    }

    /// The same at an address, by a server that the caller has set up, for instance for TLS.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start_at(
        address: SocketAddr,
        mut server: Server,
        largest: usize,
        answer: OtlpAnswer,
    ) -> io::Result<Self> {
        let listener = listen(address)?;
        let address = listener.local_addr()?;
        let service = LogsServiceServer::new(Logs(answer))
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Zstd)
            .max_decoding_message_size(largest);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let router = server.add_service(service);
        let serving = tokio::spawn(async move {
            if let Err(error) = router.serve_with_incoming(incoming).await {
                tracing::warn!(%error, "OTLP receiver");
            }
        });
        Ok(Self { address, serving })
    }

    /// `http://address`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// The events of a request, in the order of their resourceVersions: a request has them by resource. An error has the
/// record that is none.
pub fn deliveries(request: &ExportLogsServiceRequest) -> Vec<Result<Delivery, String>> {
    let mut all = Vec::new();
    for logs in &request.resource_logs {
        let resource = logs.resource.as_ref().map_or(&[][..], |resource| &resource.attributes);
        for record in logs.scope_logs.iter().flat_map(|scope| &scope.log_records) {
            let wrong = || format!("not a record of an event: {record:?}");
            all.push(delivery(resource, record).ok_or_else(wrong));
        }
    }
    all.sort_by_key(|one| one.as_ref().map_or(0, Delivery::version));
    all
}

fn delivery(resource: &[KeyValue], record: &LogRecord) -> Option<Delivery> {
    let object = text(resource, "k8s.object.uid").or_else(|| {
        let member = |name| text(resource, name);
        let (kind, namespace) = (member("k8s.object.kind")?, member("k8s.namespace.name")?);
        Some(format!("{kind}/{namespace}/{}", member("k8s.object.name")?))
    });
    Some(Delivery {
        id: text(&record.attributes, "log.record.uid")?,
        object: object?,
        occurrences: number(&record.attributes, "k8s.event.count")?,
        delta: number(&record.attributes, "k8s.event.count_delta")?,
        body: format!("{resource:?} {record:?}"),
        at: Instant::now(),
    })
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    match value(attributes, key)? {
        Value::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

fn number(attributes: &[KeyValue], key: &str) -> Option<u64> {
    match value(attributes, key)? {
        Value::IntValue(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()
}
