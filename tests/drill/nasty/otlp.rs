//! A receiver of OTLP logs, over gRPC and HTTP, that pushes back and drops as it is told.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response as HttpResponse};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message as _;
use tokio::net::TcpListener;
use tonic::transport::{Server, server::TcpIncoming};
use tonic::{Code, Request, Response, Status};

use super::patience::Patience;
use crate::ledger::{Delivery, SharedLedger};

/// The way of the receiver with a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Collects {
    /// Takes it.
    All,
    /// Takes nothing: RESOURCE_EXHAUSTED or 429, with this wait in RetryInfo or Retry-After.
    Nothing { retry_after: Option<Duration> },
    /// Takes it but for the last so many records, as a partial success.
    AllBut(usize),
    /// The same, but for the records that hold this text.
    AllWithout(&'static str),
    /// Takes nothing: UNAVAILABLE or 503.
    Unavailable,
    /// Takes nothing of more than so many bytes, as the real one with a limit of its own.
    AtMost(usize),
    /// Takes nothing of a request with a record that holds this text: this code, or 500.
    Refuses(Code, &'static str),
}

/// Why a request is not taken.
enum Turned {
    /// The quota is used up; with the wait to ask for, if one is.
    Exhausted(Option<Duration>),
    Unavailable,
    TooLarge(String),
    Refused(Code),
}

struct Shared {
    ledger: SharedLedger,
    collects: Mutex<Collects>,
    patience: Patience,
    requests: Mutex<usize>,
    rejected: Mutex<HashSet<String>>,
}

/// A receiver on two ports of its own. It ends with the runtime.
pub(crate) struct NastyCollector {
    pub(crate) ledger: SharedLedger,
    shared: Arc<Shared>,
    grpc: SocketAddr,
    http: SocketAddr,
}

impl NastyCollector {
    /// Starts one that takes everything.
    pub(crate) async fn start() -> Self {
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let (grpc, http) = (bind().await.expect("a port"), bind().await.expect("a port"));
        let address = |listener: &TcpListener| listener.local_addr().expect("the port");
        let ledger = SharedLedger::default();
        let shared = Arc::new(Shared {
            ledger: ledger.clone(),
            collects: Mutex::new(Collects::All),
            patience: Patience::default(),
            requests: Mutex::default(),
            rejected: Mutex::default(),
        });
        let receiver =
            Self { ledger, shared: shared.clone(), grpc: address(&grpc), http: address(&http) };
        // How large is too large it decides itself.
        let service =
            LogsServiceServer::new(Logs(shared.clone())).max_decoding_message_size(usize::MAX);
        let incoming = TcpIncoming::from(grpc).with_nodelay(Some(true));
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        let routes = Router::new()
            .route("/v1/logs", post(over_http))
            .layer(DefaultBodyLimit::disable())
            .with_state(shared);
        tokio::spawn(async move { axum::serve(http, routes).await });
        receiver
    }

    pub(crate) fn grpc_url(&self) -> String {
        format!("http://{}", self.grpc)
    }

    pub(crate) fn http_url(&self) -> String {
        format!("http://{}", self.http)
    }

    /// Whoever was asked to wait may have been killed.
    pub(crate) fn forget_waits(&self) {
        self.shared.patience.forget();
    }

    pub(crate) fn set(&self, collects: Collects) {
        *lock(&self.shared.collects) = collects;
        *lock(&self.shared.requests) = 0;
    }

    /// How many requests came since it was last told what to do.
    pub(crate) fn requests(&self) -> usize {
        *lock(&self.shared.requests)
    }

    /// The ids of all that it dropped from what it took.
    pub(crate) fn rejected(&self) -> HashSet<String> {
        lock(&self.shared.rejected).clone()
    }
}

impl Shared {
    /// Answers a request.
    fn collect(
        &self,
        request: &ExportLogsServiceRequest,
    ) -> Result<ExportLogsServiceResponse, Turned> {
        *lock(&self.requests) += 1;
        self.patience.somebody_comes(&self.ledger);
        let mut arrived = deliveries(request, &self.ledger);
        let rejected = match *lock(&self.collects) {
            Collects::All => Vec::new(),
            Collects::Nothing { retry_after } => {
                self.patience.ask(retry_after.unwrap_or_default());
                return Err(Turned::Exhausted(retry_after));
            }
            Collects::AllBut(last) => arrived.split_off(arrived.len().saturating_sub(last)),
            Collects::AllWithout(text) => {
                let (taken, rejected) =
                    arrived.into_iter().partition(|delivery| !delivery.body.contains(text));
                arrived = taken;
                rejected
            }
            Collects::Unavailable => return Err(Turned::Unavailable),
            Collects::AtMost(most) => {
                let length = request.encoded_len();
                if length > most {
                    let larger = format!("received message larger than max ({length} vs. {most})");
                    return Err(Turned::TooLarge(larger));
                }
                Vec::new()
            }
            Collects::Refuses(code, text) => {
                if arrived.iter().any(|delivery| delivery.body.contains(text)) {
                    return Err(Turned::Refused(code));
                }
                Vec::new()
            }
        };
        for delivery in arrived {
            self.ledger.record(delivery);
        }
        let partial_success = (!rejected.is_empty()).then(|| ExportLogsPartialSuccess {
            rejected_log_records: rejected.len().cast_signed() as i64,
            error_message: "attribute limit exceeded".to_owned(),
        });
        lock(&self.rejected).extend(rejected.into_iter().map(|delivery| delivery.id));
        Ok(ExportLogsServiceResponse { partial_success })
    }
}

struct Logs(Arc<Shared>);

#[tonic::async_trait]
impl LogsService for Logs {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.0.collect(&request.into_inner()).map(Response::new).map_err(turned_away)
    }
}

async fn over_http(State(shared): State<Arc<Shared>>, body: Bytes) -> HttpResponse {
    let Ok(request) = ExportLogsServiceRequest::decode(body) else {
        shared.ledger.complain("not a request of OTLP".to_owned());
        return StatusCode::BAD_REQUEST.into_response();
    };
    match shared.collect(&request) {
        Ok(response) => {
            ([("content-type", "application/x-protobuf")], response.encode_to_vec()).into_response()
        }
        Err(Turned::TooLarge(words)) => (StatusCode::PAYLOAD_TOO_LARGE, words).into_response(),
        Err(Turned::Unavailable) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Err(Turned::Refused(_)) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Err(Turned::Exhausted(None)) => {
            (StatusCode::TOO_MANY_REQUESTS, "the quota is used up").into_response()
        }
        Err(Turned::Exhausted(Some(wait))) => {
            let header = [("retry-after", wait.as_secs().to_string())];
            (StatusCode::TOO_MANY_REQUESTS, header, "the quota is used up").into_response()
        }
    }
}

/// `google.rpc.Status`, of which only the details are of use here.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`, in whole seconds.
#[derive(Clone, PartialEq, prost::Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

fn turned_away(why: Turned) -> Status {
    let retry_after = match why {
        Turned::Exhausted(retry_after) => retry_after,
        Turned::Unavailable => return Status::unavailable("shutting down"),
        Turned::Refused(code) => return Status::new(code, "blocked by a rule about texts"),
        // What the real one says, which is written in Go.
        Turned::TooLarge(words) => return Status::resource_exhausted(format!("grpc: {words}")),
    };
    let words = "the quota is used up";
    let Some(wait) = retry_after else { return Status::resource_exhausted(words) };
    let delay = Delay { seconds: wait.as_secs().cast_signed() };
    let info = Any {
        type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
        value: RetryInfo { retry_delay: Some(delay) }.encode_to_vec(),
    };
    let details = RpcStatus { details: vec![info] }.encode_to_vec();
    Status::with_details(Code::ResourceExhausted, words, details.into())
}

/// The events of a request, in the order in which they happened: there they are grouped by
/// resource.
fn deliveries(request: &ExportLogsServiceRequest, ledger: &SharedLedger) -> Vec<Delivery> {
    let mut all = Vec::new();
    for logs in &request.resource_logs {
        let resource = logs.resource.as_ref().map_or(&[][..], |resource| &resource.attributes);
        for record in logs.scope_logs.iter().flat_map(|scope| &scope.log_records) {
            match delivery(resource, record) {
                Some(delivery) => all.push(delivery),
                None => ledger.complain(format!("not a record of an event: {record:?}")),
            }
        }
    }
    all.sort_by_key(|delivery| delivery.id.rsplit('-').next().and_then(|v| v.parse::<u64>().ok()));
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
