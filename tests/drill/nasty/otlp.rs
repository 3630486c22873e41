//! A receiver of OTLP logs, over gRPC and HTTP, that pushes back and drops as it is told.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use prost::Message as _;
use tidings_testkit::ledger::SharedLedger;
use tidings_testkit::receiver::{HttpReceiver, OtlpReceiver, Step, deliveries};
use tonic::{Code, Status};

use super::patience::Patience;

/// What it does with a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Collects {
    /// Takes it.
    All,
    /// Takes nothing: RESOURCE_EXHAUSTED or 429, with this wait in RetryInfo or Retry-After.
    Nothing { retry_after: Option<Duration> },
    /// Takes it but for the records that hold this text, as a partial success.
    AllWithout(&'static str),
    /// Takes nothing: UNAVAILABLE or 503.
    Unavailable,
    /// Takes nothing of more than so many bytes, as the real one with a limit of its own.
    AtMost(usize),
}

/// Why a request is not taken.
enum Turned {
    /// The quota is used up; with the wait to ask for, if one is.
    Exhausted(Option<Duration>),
    Unavailable,
    TooLarge(String),
}

struct Shared {
    ledger: SharedLedger,
    collects: Mutex<Collects>,
    patience: Patience,
    rejected: Mutex<HashSet<String>>,
}

/// A receiver on two ports of its own. It ends with the runtime.
pub(crate) struct NastyCollector {
    pub(crate) ledger: SharedLedger,
    shared: Arc<Shared>,
    grpc: OtlpReceiver,
    http: HttpReceiver,
}

impl NastyCollector {
    /// Starts one that takes everything.
    pub(crate) fn start() -> Self {
        let ledger = SharedLedger::default();
        let shared = Arc::new(Shared {
            ledger: ledger.clone(),
            collects: Mutex::new(Collects::All),
            patience: Patience::default(),
            rejected: Mutex::default(),
        });
        let (over_grpc, over_http) = (shared.clone(), shared.clone());
        // How large is too large it decides itself.
        let grpc = OtlpReceiver::start(
            usize::MAX,
            Box::new(move |request| over_grpc.collect(request.get_ref()).map_err(turned_away)),
        );
        let http = HttpReceiver::start(move |_, request| {
            if request.line() != "POST /v1/logs HTTP/1.1" {
                over_http
                    .ledger
                    .complain(format!("expected POST /v1/logs, found {}", request.line()));
            }
            vec![over_http.answer(&request.body)]
        });
        let (grpc, http) = (grpc.expect("a port"), http.expect("a port"));
        Self { ledger, shared, grpc, http }
    }

    pub(crate) fn grpc_url(&self) -> String {
        self.grpc.url()
    }

    pub(crate) fn http_url(&self) -> String {
        self.http.url("http")
    }

    /// Whoever was asked to wait may have been killed.
    pub(crate) fn forget_waits(&self) {
        self.shared.patience.forget();
    }

    pub(crate) fn set(&self, collects: Collects) {
        *lock(&self.shared.collects) = collects;
    }

    /// The ids of all that it dropped from what it took.
    pub(crate) fn rejected(&self) -> HashSet<String> {
        lock(&self.shared.rejected).clone()
    }
}

impl Shared {
    /// What becomes of a request.
    fn collect(
        &self,
        request: &ExportLogsServiceRequest,
    ) -> Result<ExportLogsServiceResponse, Turned> {
        self.patience.somebody_comes(&self.ledger);
        let mut arrived = Vec::new();
        for delivery in deliveries(request) {
            match delivery {
                Ok(delivery) => arrived.push(delivery),
                Err(complaint) => self.ledger.complain(complaint),
            }
        }
        let rejected = match *lock(&self.collects) {
            Collects::All => Vec::new(),
            Collects::Nothing { retry_after } => {
                self.patience.ask(retry_after.unwrap_or_default());
                return Err(Turned::Exhausted(retry_after));
            }
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

    /// The answer to a request over HTTP.
    fn answer(&self, body: &[u8]) -> Step {
        let Ok(request) = ExportLogsServiceRequest::decode(body) else {
            self.ledger.complain("not a request of OTLP".to_owned());
            return Step::answer("400 Bad Request", "", "");
        };
        const EXHAUSTED: (&str, &str) = ("429 Too Many Requests", "the quota is used up");
        match self.collect(&request) {
            Ok(response) => {
                let headers = "content-type: application/x-protobuf\r\n";
                Step::answer("200 OK", headers, response.encode_to_vec())
            }
            Err(Turned::TooLarge(words)) => Step::answer("413 Payload Too Large", "", words),
            Err(Turned::Unavailable) => Step::answer("503 Service Unavailable", "", ""),
            Err(Turned::Exhausted(None)) => Step::answer(EXHAUSTED.0, "", EXHAUSTED.1),
            Err(Turned::Exhausted(Some(wait))) => {
                let header = format!("retry-after: {}\r\n", wait.as_secs());
                Step::answer(EXHAUSTED.0, &header, EXHAUSTED.1)
            }
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
