mod connection;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{Full, StreamBody};
use hyper::body::Frame;
use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::{ExportLogsPartialSuccess, ExportLogsServiceRequest},
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
    },
    metrics::v1::ResourceMetrics,
};
use prost::Message as _;
use tidings_testkit::receiver::{HttpReceiver, OtlpReceiver, Step};
use tonic::{
    Code, Request, Response, Status,
    body::Body,
    metadata::MetadataMap,
    service::Routes,
    transport::{Certificate, Identity, Server, ServerTlsConfig, server::TcpIncoming},
};

use super::{
    grpc_status::{Delay, Detail, RetryInfo, RpcStatus},
    *,
};
use crate::{
    bridge::{self, FailureClass, Secrets},
    event::Record,
    sinks::{
        BuildSink as _, Compression, HttpOptions, Secret, TlsOptions, fixtures::batch,
        http::pki::Pki,
    },
};

fn options(endpoint: String, protocol: OtlpProtocol) -> OtlpOptions {
    OtlpOptions {
        http: HttpOptions {
            headers: vec![("x-token".into(), Secret::new("s3cret"))],
            timeout: Duration::from_secs(5),
            ..HttpOptions::new(endpoint)
        },
        protocol,
        resource: BTreeMap::default(),
    }
}

fn partial(rejected: i64, words: &str) -> ExportLogsServiceResponse {
    let partial_success = Some(ExportLogsPartialSuccess {
        rejected_log_records: rejected,
        error_message: words.into(),
    });
    ExportLogsServiceResponse { partial_success }
}

type Change = fn(&mut OtlpOptions);

type Answer = Result<ExportLogsServiceResponse, Status>;

/// An OTLP/gRPC receiver that gives one answer.
struct Receiver {
    answer: Arc<Mutex<Answer>>,
    received: Arc<Mutex<Vec<(MetadataMap, ExportLogsServiceRequest)>>>,
    _server: OtlpReceiver,
}

impl Receiver {
    fn start(answer: Answer) -> (Self, SocketAddr) {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), Server::builder(), answer)
    }

    fn start_at(address: SocketAddr, server: Server, answer: Answer) -> (Self, SocketAddr) {
        let (answer, received) = (Arc::new(Mutex::new(answer)), Arc::<Mutex<Vec<_>>>::default());
        let (told, kept) = (Arc::clone(&answer), Arc::clone(&received));
        let server = OtlpReceiver::start_at(
            address,
            server,
            100_000,
            Box::new(move |request| {
                let (metadata, _, message) = request.into_parts();
                kept.lock().unwrap().push((metadata, message));
                told.lock().unwrap().clone()
            }),
        );
        let server = server.unwrap();
        let address = server.address;
        (Self { answer, received, _server: server }, address)
    }

    fn received(&self) -> MutexGuard<'_, Vec<(MetadataMap, ExportLogsServiceRequest)>> {
        self.received.lock().unwrap()
    }

    fn set(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }
}

async fn send(options: &OtlpOptions, batch: &Batch) -> Outcome {
    options.build().unwrap().send(batch).await
}

fn parts(outcome: Outcome) -> (FailureClass, Option<Duration>, String) {
    match outcome {
        Outcome::Failed(Failure { after, class, reason, .. }) => (class, after, reason.into()),
        other => panic!("{other:?}"),
    }
}

fn throttled(seconds: i64) -> Status {
    let info = RetryInfo { retry_delay: Some(Delay { seconds, nanos: 500_000_000 }) };
    let detail = Detail {
        type_url: "type.googleapis.com/google.rpc.RetryInfo".into(),
        value: info.encode_to_vec(),
    };
    let details = RpcStatus { code: 8, message: "busy".into(), details: vec![detail] };
    Status::with_details(Code::ResourceExhausted, "busy", details.encode_to_vec().into())
}

#[tokio::test]
async fn grpc_delivers_and_reads_the_answer() {
    let (receiver, address) = Receiver::start(Ok(partial(0, "a warning")));
    let mut options = options(format!("http://{address}"), OtlpProtocol::Grpc);
    let sink = options.build().unwrap();
    assert_eq!(
        sink.send(&batch(1..=3)).await,
        Outcome::Partial { rejected: 0, reason: Secrets::none().reason("a warning") }
    );
    receiver.set(Ok(partial(2, "too old")));
    assert_eq!(
        sink.send(&batch(1..=3)).await,
        Outcome::Partial { rejected: 2, reason: Secrets::none().reason("too old") }
    );
    receiver.set(Ok(ExportLogsServiceResponse::default()));
    for compression in [Compression::Gzip, Compression::Zstd] {
        options.http.compression = compression;
        let sink = options.build().unwrap();
        assert_eq!(sink.send(&batch(1..=3)).await, Outcome::Delivered);
    }
    let received = receiver.received();
    assert_eq!(received.len(), 4);
    for (metadata, request) in received.iter() {
        assert_eq!(metadata.get("x-token").unwrap(), "s3cret");
        assert_eq!(request.resource_logs.len(), 3);
    }
    assert!(received[0].0.get("user-agent").unwrap().to_str().unwrap().starts_with("tidings/"));
}

#[derive(Clone, Default)]
struct MetricsReceiver(Arc<Mutex<Vec<ExportMetricsServiceRequest>>>);

#[tonic::async_trait]
impl MetricsService for MetricsReceiver {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.0.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[tokio::test]
async fn metrics_go_to_a_method_and_a_path_of_their_own() {
    let request =
        ExportMetricsServiceRequest { resource_metrics: vec![ResourceMetrics::default()] };
    let message = Bytes::from(request.encode_to_vec());
    let receiver = MetricsReceiver::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Server::builder().add_service(MetricsServiceServer::new(receiver.clone()));
    tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener)));
    let server = HttpReceiver::always("200 OK", "", "").unwrap();
    for options in
        [options(url, OtlpProtocol::Grpc), options(server.url("http"), OtlpProtocol::Http)]
    {
        let batch = Batch { records: vec![Record { seq: 0, envelope: message.clone() }] };
        let sink = options.build_for_metrics().unwrap();
        assert_eq!(sink.send(&batch).await, Outcome::Delivered);
    }
    assert_eq!(*receiver.0.lock().unwrap(), [request]);
    let received = server.received();
    assert_eq!(
        (received[0].line(), &received[0].body[..]),
        ("POST /v1/metrics HTTP/1.1", &message[..])
    );
}

#[tokio::test]
async fn grpc_statuses_become_outcomes() {
    let (receiver, address) = Receiver::start(Err(Status::ok("")));
    let options = options(format!("http://{address}"), OtlpProtocol::Grpc);
    let sink = options.build().unwrap();
    let outcome = async |status: Status| {
        receiver.set(Err(status));
        sink.send(&batch(1..=2)).await
    };
    let refused = |reason| Failure::refused(RefusedClass::Invalid, Secrets::none().reason(reason));
    let invalid = refused("gRPC InvalidArgument: no logs");
    assert_eq!(
        outcome(Status::invalid_argument("no\nlogs")).await,
        Outcome::Failed(Failure { status: bridge::Status::Grpc(3), ..invalid })
    );
    let (class, after, _) = parts(outcome(throttled(3)).await);
    assert_eq!((class, after), (FailureClass::Throttled, Some(Duration::from_millis(3500))));
    let (class, after, _) = parts(outcome(throttled(-3)).await);
    assert_eq!((class, after), (FailureClass::Throttled, None));
    // The receiver's own limit on a message.
    let (class, ..) = parts(sink.send(&batch(1..=2000)).await);
    assert_eq!(class, FailureClass::Refused(RefusedClass::TooLarge));
}

/// A server that answers over HTTP/2 in any way, gRPC or not.
async fn front(
    answer: impl Fn() -> ::http::Response<Body> + Clone + Send + Sync + 'static,
) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new().fallback(move || {
        let answer = answer();
        async move { answer.map(axum::body::Body::new) }
    });
    let server = Server::builder().add_routes(Routes::from(router));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    format!("http://{address}")
}

fn grpc_head() -> ::http::response::Builder {
    ::http::Response::builder().header("content-type", "application/grpc")
}

/// A message as gRPC frames it, and behind it a status.
fn framed(length: u32, message: Vec<u8>, status: Option<&'static str>) -> Body {
    let prefix = [&[0], &length.to_be_bytes()[..]].concat();
    let trailers = status.map(|status| {
        ::http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())])
    });
    let frames = [prefix, message].map(|data| Frame::data(Bytes::from(data))).into_iter();
    let frames = frames.chain(trailers.map(Frame::trailers)).map(Ok::<_, Status>);
    Body::new(StreamBody::new(futures_util::stream::iter(frames)))
}

/// Proxies, ingresses and login pages know no gRPC: the status is theirs, and so are the words.
#[tokio::test]
async fn grpc_behind_a_front_means_what_its_http_status_means() {
    let page = "<html>\n<h1>Who are you?</h1>";
    for (status, class, words) in [
        (401, FailureClass::Misconfigured, "HTTP 401 Unauthorized: <html> <h1>Who are you?</h1>"),
        (403, FailureClass::Misconfigured, "HTTP 403 Forbidden: <html> <h1>Who are you?</h1>"),
        (404, FailureClass::Misconfigured, "HTTP 404 Not Found: <html> <h1>Who are you?</h1>"),
        (429, FailureClass::Throttled, "HTTP 429 Too Many Requests: <html> <h1>Who are you?</h1>"),
        (
            503,
            FailureClass::Unavailable,
            "HTTP 503 Service Unavailable: <html> <h1>Who are you?</h1>",
        ),
        (
            200,
            FailureClass::Misconfigured,
            "HTTP 200 OK: no gRPC, but content of the type text/html: <html> <h1>Who are you?</h1>",
        ),
    ] {
        let url = front(move || {
            let head = ::http::Response::builder().status(status).header("retry-after", "7");
            let head = head.header("content-type", "text/html");
            head.body(Body::new(Full::new(Bytes::from(page)))).unwrap()
        })
        .await;
        let sink = options(url, OtlpProtocol::Grpc).build().unwrap();
        let (found, after, reason) = parts(sink.send(&batch(1..=2)).await);
        assert_eq!((found, reason.as_str()), (class, words));
        let asked = (class != FailureClass::Misconfigured).then_some(Duration::from_secs(7));
        assert_eq!(after, asked, "{status}");
    }
    // The same in the guise of gRPC, and one that never ends.
    let url = front(|| {
        let endless = futures_util::stream::repeat_with(|| {
            Ok::<_, Status>(Frame::data(Bytes::from_static(&[b'<'; 1 << 14])))
        });
        grpc_head().status(403).body(Body::new(StreamBody::new(endless))).unwrap()
    })
    .await;
    let sink = options(url, OtlpProtocol::Grpc).build().unwrap();
    let (class, _, reason) = parts(sink.send(&batch(1..=2)).await);
    assert_eq!(class, FailureClass::Misconfigured);
    assert!(reason.starts_with("HTTP 403 Forbidden: <<<") && reason.len() < 400, "{reason}");
}

/// More words than are kept take nothing from the number before them, nor does an end in the midst of
/// them.
#[tokio::test]
async fn the_rejected_count_is_read_from_the_start_of_a_long_answer() {
    let message = partial(2, &"ä".repeat(1 << 20)).encode_to_vec();
    let body = message.clone();
    let url = front(move || {
        let body = framed(body.len() as u32, body.clone(), Some("0"));
        grpc_head().body(body).unwrap()
    })
    .await;
    let server = HttpReceiver::recording(move |i, _| {
        let length = message.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").into_bytes();
        let sent = if i == 0 { length } else { 1001 };
        let mut steps = vec![Step::Write([&*head, &message[..sent]].concat())];
        if i > 0 {
            steps.push(Step::Cut);
        }
        steps
    })
    .unwrap();
    let sink = |url, protocol| options(url, protocol).build().unwrap();
    let http = sink(server.url("http"), OtlpProtocol::Http);
    for outcome in [
        sink(url, OtlpProtocol::Grpc).send(&batch(1..=3)).await,
        http.send(&batch(1..=3)).await,
        http.send(&batch(1..=3)).await,
    ] {
        let Outcome::Partial { rejected: 2, reason } = outcome else { panic!("{outcome:?}") };
        assert!(reason.starts_with("äää"), "{reason}");
    }
}

/// Our own limits are none of the receiver's.
#[tokio::test]
async fn a_long_answer_of_grpc_refuses_nothing() {
    let send = async |body: fn() -> Body| {
        let url = front(move || grpc_head().body(body()).unwrap()).await;
        options(url, OtlpProtocol::Grpc).build().unwrap().send(&batch(1..=3)).await
    };
    let long = || {
        let message = partial(2, &"w".repeat(100_000)).encode_to_vec();
        framed(message.len() as u32, message, Some("0"))
    };
    let Outcome::Partial { rejected: 2, reason } = send(long).await else { panic!() };
    assert!(reason.starts_with("www"), "{reason}");
    // A length of 2 GiB, of which little comes. The status says that it was taken.
    assert_eq!(send(|| framed(1 << 31, vec![0; 9], Some("0"))).await, Outcome::Delivered);
    // Without a status nobody knows.
    let (class, _, reason) = parts(send(|| framed(1 << 31, vec![0; 9], None)).await);
    assert_eq!(class, FailureClass::Unavailable);
    assert!(reason.ends_with("ends without a gRPC status"), "{reason}");
    // Nor what stands behind more than is kept.
    let long = || framed(3 << 20, vec![0; 3 << 20], Some("0"));
    assert_eq!(send(long).await, Outcome::Delivered);
    let (class, ..) = parts(send(|| framed(3 << 20, vec![0; 3 << 20], Some("3"))).await);
    assert_eq!(class, FailureClass::Refused(RefusedClass::Invalid));
    let (class, _, reason) = parts(send(|| framed(3 << 20, vec![0; 3 << 20], None)).await);
    assert_eq!(class, FailureClass::Unavailable);
    assert!(reason.ends_with("ends without a gRPC status"), "{reason}");
}

#[tokio::test]
async fn grpc_survives_a_receiver_that_is_away() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut options = options(format!("http://{address}"), OtlpProtocol::Grpc);
    options.http.timeout = Duration::from_secs(3);
    let sink = options.build().unwrap();
    let (class, _, reason) = parts(sink.send(&batch(1..=1)).await);
    assert_eq!(
        (class, reason),
        (FailureClass::Unavailable, format!("connection refused by {address}"))
    );
    // Something that accepts and says nothing.
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let (class, ..) = parts(sink.send(&batch(1..=1)).await);
    assert_eq!(class, FailureClass::Timeout);
    drop(listener);
    let _receiver = Receiver::start_at(address, Server::builder(), Ok(partial(0, "")));
    assert_eq!(sink.send(&batch(1..=1)).await, Outcome::Delivered);
}

#[tokio::test]
async fn grpc_over_tls_verifies_the_server() {
    let pki = Pki::new("collector.example.com");
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(&pki.server.0, &pki.server.1))
        .client_ca_root(Certificate::from_pem(&pki.ca));
    let server = Server::builder().tls_config(tls).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (_receiver, address) = Receiver::start_at(any, server, Ok(partial(0, "")));
    let mut options = options(format!("https://{address}"), OtlpProtocol::Grpc);
    let outcome = async |options: &OtlpOptions| options.build().unwrap().send(&batch(1..=1)).await;
    options.http.tls = Some(pki.options(true));
    let (class, _, reason) = parts(outcome(&options).await);
    assert_eq!(class, FailureClass::Misconfigured);
    assert!(reason.contains("is for another name (tls.serverName)"), "{reason}");
    options.http.tls.as_mut().unwrap().server_name = Some("collector.example.com".into());
    assert_eq!(outcome(&options).await, Outcome::Delivered);
    options.http.tls.as_mut().unwrap().ca = Some(Pki::new("x").ca.into());
    let (class, _, reason) = parts(outcome(&options).await);
    assert_eq!(class, FailureClass::Misconfigured);
    assert!(reason.contains("not trusted (tls.ca)"), "{reason}");
}

#[tokio::test]
async fn http_delivers_and_reads_the_answer() {
    let bodies = [partial(0, "a warning").encode_to_vec(), partial(2, "too old").encode_to_vec()];
    let server = HttpReceiver::recording(move |i, _| {
        vec![Step::answer("200 OK", "", bodies.get(i).map_or(&[][..], Vec::as_slice))]
    })
    .unwrap();
    let mut options = options(server.url("http"), OtlpProtocol::Http);
    let sink = options.build().unwrap();
    assert_eq!(
        sink.send(&batch(1..=3)).await,
        Outcome::Partial { rejected: 0, reason: Secrets::none().reason("a warning") }
    );
    assert_eq!(
        sink.send(&batch(1..=3)).await,
        Outcome::Partial { rejected: 2, reason: Secrets::none().reason("too old") }
    );
    options.http.compression = Compression::Gzip;
    assert_eq!(options.build().unwrap().send(&batch(1..=3)).await, Outcome::Delivered);
    let received = server.received();
    assert_eq!(received[0].line(), "POST /v1/logs HTTP/1.1");
    assert_eq!(received[0].header("content-type"), Some("application/x-protobuf"));
    assert_eq!(received[0].header("x-token"), Some("s3cret"));
    let request = ExportLogsServiceRequest::decode(&*received[0].body).unwrap();
    assert_eq!(request.resource_logs.len(), 3);
    assert_eq!(received[2].header("content-encoding"), Some("gzip"));
}

#[tokio::test]
async fn http_reasons_are_read_from_the_status_message() {
    let status = RpcStatus { code: 3, message: "bad batch".into(), details: vec![] };
    let body = String::from_utf8(status.encode_to_vec()).unwrap();
    let server = HttpReceiver::always("400 Bad Request", "", &body).unwrap();
    let sink = options(server.url("http"), OtlpProtocol::Http).build().unwrap();
    let (class, _, reason) = parts(sink.send(&batch(1..=1)).await);
    assert_eq!(class, FailureClass::Refused(RefusedClass::Invalid));
    assert_eq!(reason, "HTTP 400 Bad Request: bad batch");
    let server = HttpReceiver::always("502 Bad Gateway", "", "<html>upstream").unwrap();
    let sink = options(server.url("http"), OtlpProtocol::Http).build().unwrap();
    let (class, _, reason) = parts(sink.send(&batch(1..=1)).await);
    assert_eq!(class, FailureClass::Unavailable);
    assert_eq!(reason, "HTTP 502 Bad Gateway: <html>upstream");
}

#[tokio::test]
async fn an_answer_that_repeats_the_request_gives_no_secret_away() {
    let words = "no X-Token s3cret, no s%33cret, no czNjcmV0 for /tenants/T0-k3n/v1/logs";
    let shown = "no X-Token …, no …, no … for …/v1/logs";
    let server = HttpReceiver::always("400 Bad Request", "", words).unwrap();
    let endpoint = server.url("http") + "/tenants/T0-k3n";
    let outcome = send(&options(endpoint, OtlpProtocol::Http), &batch(1..=1)).await;
    let (_, _, reason) = parts(outcome);
    assert_eq!(reason, format!("HTTP 400 Bad Request: {shown}"));

    let words = words.split(" for").next().unwrap();
    let shown = shown.split(" for").next().unwrap();
    let (receiver, address) = Receiver::start(Err(Status::invalid_argument(words)));
    let options = options(format!("http://{address}"), OtlpProtocol::Grpc);
    let outcome = send(&options, &batch(1..=1)).await;
    let (_, _, reason) = parts(outcome);
    assert_eq!(reason, format!("gRPC InvalidArgument: {shown}"));
    receiver.set(Ok(partial(1, words)));
    let outcome = send(&options, &batch(1..=1)).await;
    let Outcome::Partial { reason, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(&*reason, shown);
}

#[test]
fn options_are_checked_without_a_network() {
    let error = |protocol, endpoint: &str, change: Change| {
        let mut options = options(endpoint.into(), protocol);
        change(&mut options);
        options.build().map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(error(OtlpProtocol::Grpc, "https://collector:4317", |_| ()), Ok(()));
    assert_eq!(error(OtlpProtocol::Http, "https://collector:4318", |_| ()), Ok(()));
    let bad: [(_, _, Change, _); 5] = [
        (
            OtlpProtocol::Grpc,
            "collector:4317",
            |_| (),
            "endpoint: expected `http://` or `https://` in front, found no scheme",
        ),
        (
            OtlpProtocol::Grpc,
            "http://collector:4317/v1/logs",
            |_| (),
            "endpoint: gRPC takes no path; is protocol: http meant?",
        ),
        (
            OtlpProtocol::Grpc,
            "http://c:1",
            |o| o.http.headers[0].0 = "x-bin".into(),
            "headers.x-bin: expected a header of text, found `x-bin`, which is binary in gRPC",
        ),
        (
            OtlpProtocol::Http,
            "http://c:1",
            |o| o.http.headers[0].0 = "content-type".into(),
            "headers.content-type: expected another header, found `content-type`, which is set by the \
             bridge",
        ),
        (
            OtlpProtocol::Grpc,
            "https://c:1",
            |o| o.http.tls = Some(TlsOptions { ca: Some(vec![]), ..Default::default() }),
            "tls.ca: expected a certificate in PEM, found none",
        ),
    ];
    for (protocol, endpoint, change, message) in bad {
        assert_eq!(error(protocol, endpoint, change), Err(message.into()));
    }
}

#[tokio::test]
async fn a_record_without_an_envelope_is_refused() {
    let sink = options("http://127.0.0.1:1".into(), OtlpProtocol::Http).build().unwrap();
    let record = crate::event::Record { seq: 1, envelope: "{}".into() };
    let outcome = sink.send(&Batch { records: vec![record] }).await;
    assert_eq!(parts(outcome).0, FailureClass::Refused(RefusedClass::Unsendable));
}

/// All requests of a sink are on one connection then.
#[tokio::test]
async fn http_2_is_spoken_where_the_receiver_offers_it() {
    let pki = Pki::new("127.0.0.1");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let router = axum::Router::new().fallback({
        let seen = Arc::clone(&seen);
        move |request: axum::extract::Request| {
            let said = (request.version(), request.uri().to_string());
            seen.lock().unwrap().push(said);
            async { ::http::StatusCode::OK }
        }
    });
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(&pki.server.0, &pki.server.1));
    let server = Server::builder().tls_config(tls).unwrap().add_routes(Routes::from(router));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let mut options = options(format!("https://{address}/otlp"), OtlpProtocol::Http);
    options.http.tls = Some(pki.options(false));
    let sink = options.build().unwrap();
    assert_eq!(sink.send(&batch(1..=3)).await, Outcome::Delivered);
    let expected = (::http::Version::HTTP_2, format!("https://{address}/otlp/v1/logs"));
    assert_eq!(*seen.lock().unwrap(), [expected]);
}
