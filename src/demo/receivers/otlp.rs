//! An OTLP/gRPC collector of logs.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::BoxFuture;
use opentelemetry_proto::tonic::{
    collector::logs::v1::{
        ExportLogsServiceRequest, ExportLogsServiceResponse,
        logs_service_server::{LogsService, LogsServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
};
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status,
    codec::CompressionEncoding,
    transport::{Server, server::TcpIncoming},
};

use super::{Arrival, Ledger, Outage, Receiver, Serving, ledger::version_of, listen};

/// The largest request taken.
const MAX_REQUEST: usize = 16 * 1024 * 1024;

/// A collector that keeps a [`Ledger`].
#[derive(Debug)]
pub struct OtlpReceiver {
    shared: Arc<Shared>,
    address: SocketAddr,
    serving: Serving,
}

#[derive(Debug, Default)]
struct Shared {
    ledger: Ledger,
    refusing: AtomicBool,
}

impl OtlpReceiver {
    /// Starts listening on a loopback port. Needs a tokio runtime.
    ///
    /// # Errors
    /// No port can be bound.
    pub fn start() -> io::Result<Self> {
        let listener = listen(None)?;
        let address = listener.local_addr()?;
        let receiver = Self { shared: Arc::default(), address, serving: Serving::default() };
        receiver.serve(listener);
        Ok(receiver)
    }

    /// `http://address`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    fn serve(&self, listener: TcpListener) {
        let service = LogsServiceServer::new(Logs(Arc::clone(&self.shared)))
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Zstd)
            .max_decoding_message_size(MAX_REQUEST);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        self.serving.start(|stopped| async move {
            let served = Server::builder()
                .add_service(service)
                .serve_with_incoming_shutdown(incoming, async {
                    let _ = stopped.await;
                })
                .await;
            if let Err(error) = served {
                tracing::warn!(%error, "demo collector");
            }
        });
    }
}

struct Logs(Arc<Shared>);

#[tonic::async_trait]
impl LogsService for Logs {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        if self.0.refusing.load(Ordering::Relaxed) {
            return Err(Status::unavailable("the collector is down for the demo"));
        }
        note(&self.0.ledger, &request.into_inner());
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

/// Notes the records of one request. Records are grouped by resource there, so within a request
/// only their versions say which came first.
fn note(ledger: &Ledger, request: &ExportLogsServiceRequest) {
    let mut arrivals = Vec::new();
    for group in &request.resource_logs {
        let resource = group.resource.as_ref().map_or(&[][..], |resource| &resource.attributes);
        let object = text(resource, "k8s.object.uid").or_else(|| text(resource, "k8s.object.name"));
        for record in group.scope_logs.iter().flat_map(|scope| &scope.log_records) {
            match text(&record.attributes, "log.record.uid") {
                Some(id) => arrivals.push(Arrival {
                    id,
                    delta: number(&record.attributes, "k8s.event.count_delta"),
                    object: object.unwrap_or_default(),
                }),
                None => ledger.note_unreadable(),
            }
        }
    }
    arrivals.sort_by_key(|arrival| version_of(arrival.id));
    for arrival in arrivals {
        ledger.note(arrival);
    }
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    attribute.value.as_ref()?.value.as_ref()
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    match value(attributes, key)? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

fn number(attributes: &[KeyValue], key: &str) -> u64 {
    match value(attributes, key) {
        Some(Value::IntValue(number)) => u64::try_from(*number).unwrap_or_default(),
        _ => 0,
    }
}

impl Receiver for OtlpReceiver {
    fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    fn take_down(&self, how: Outage) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.shared.refusing.store(true, Ordering::Relaxed);
            if how == Outage::Closed {
                self.serving.stop().await;
            }
        })
    }

    fn bring_back(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            self.shared.refusing.store(false, Ordering::Relaxed);
            if !self.serving.running() {
                self.serve(listen(Some(self.address))?);
            }
            Ok(())
        })
    }
}
