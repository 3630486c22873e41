//! Receivers that refuse, and say why with all that they were sent.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceResponse,
};
use prost::Message as _;
use tidings_testkit::receiver::{HttpReceiver, OtlpReceiver, Step};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tonic::{Code, Status};

use super::forms::{words, words_in_parts};

/// Each way to refuse is gone so often.
const TIMES: usize = 2;

/// Where it listens, and how much it has said.
pub(super) struct Receiver {
    pub(super) address: String,
    said: Arc<AtomicUsize>,
    ways: usize,
    /// Ends with it.
    _server: Option<Box<dyn Any + Send>>,
}

impl Receiver {
    /// Whether it has refused in each way. From then on it takes what comes.
    pub(super) fn has_said_all(&self) -> bool {
        self.said.load(Ordering::SeqCst) >= self.ways * TIMES
    }

    fn listen(ways: usize) -> (Self, TcpListener) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let receiver = Self { address, said: Arc::default(), ways, _server: None };
        (receiver, TcpListener::from_std(listener).unwrap())
    }
}

/// For a sink that has none.
pub(super) fn none(_: &[&str]) -> Receiver {
    Receiver::listen(0).0
}

/// A proxy that lets everybody through to everywhere; answers its address.
pub(super) fn tunnel() -> String {
    let (Receiver { address, .. }, listener) = Receiver::listen(0);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.ok()?);
                }
                let head = String::from_utf8_lossy(&head);
                let target = head.strip_prefix("CONNECT ")?.split(' ').next()?;
                let mut through = TcpStream::connect(target).await.ok()?;
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
                tokio::io::copy_bidirectional(&mut stream, &mut through).await.ok()
            });
        }
    });
    address
}

fn partial(words: &str) -> ExportLogsServiceResponse {
    let partial =
        ExportLogsPartialSuccess { rejected_log_records: 1, error_message: words.to_owned() };
    ExportLogsServiceResponse { partial_success: Some(partial) }
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

const HTTP_WAYS: usize = 12;

/// The answer over HTTP in some way, to a request with this head.
fn http_answer(way: usize, words: &str, head: &str) -> Step {
    let answer = |status: &str, headers: &str, body: &[u8]| Step::answer(status, headers, body);
    let body = words.as_bytes();
    let path = head.split(' ').nth(1).unwrap_or_default();
    match way {
        0 => answer("400 Bad Request", "", body),
        1 => answer("403 Forbidden", "", body),
        2 => answer(&format!("403 {words}"), "", b""),
        3 => answer(
            "500 Internal Server Error",
            &format!("x-echo: {words}\r\nretry-after: {words}\r\n"),
            body,
        ),
        4 => answer(
            "307 Temporary Redirect",
            &format!("location: https://127.0.0.1{path}\r\n"),
            body,
        ),
        5 => {
            // A word of the address, where it is one of the sink's secrets.
            let word = ["Pl4nted-T0"].into_iter().find(|word| path.contains(word));
            let word = word.unwrap_or("other");
            answer("302 Found", &format!("location: https://{word}.example/{word}\r\n"), body)
        }
        6 => answer(
            "200 OK",
            "content-type: application/x-protobuf\r\n",
            &partial(words).encode_to_vec(),
        ),
        7 => answer(
            "400 Bad Request",
            "",
            &RpcStatus { code: 3, message: words.into() }.encode_to_vec(),
        ),
        8 => answer("422 Unprocessable Entity", "", head.as_bytes()),
        9 => answer(
            "413 Payload Too Large",
            "",
            serde_json::json!({"got": head, "no": words}).to_string().as_bytes(),
        ),
        10 => Step::Write(format!("{words}\r\n\r\n").into_bytes()),
        // Broken off in the midst of a secret.
        _ => answer(
            "400 Bad Request",
            "",
            &head.as_bytes()[..head.find("Pl4nted").map_or(9, |at| at + 9)],
        ),
    }
}

/// Of HTTP/1.1, for webhooks and OTLP.
pub(super) fn http(secrets: &[&str]) -> Receiver {
    http_and_then(secrets, |_, _| String::new())
}

/// The same of Elasticsearch, which says it of an event, too, before it takes what comes.
pub(super) fn elasticsearch(secrets: &[&str]) -> Receiver {
    http_and_then(secrets, |nth, words| {
        let fault = serde_json::json!({ "type": words, "reason": words });
        let item = serde_json::json!({ "create": { "status": 503, "error": fault } });
        let errors = nth < 2;
        serde_json::json!({ "errors": errors, "items": if errors { vec![item] } else { vec![] } })
            .to_string()
    })
}

/// The same of Splunk, which says it beside a code, too, and acknowledges what it is asked for.
pub(super) fn splunk(secrets: &[&str]) -> Receiver {
    http_and_then(secrets, |nth, words| {
        let code = if nth < 2 { 9 } else { 0 };
        serde_json::json!({ "text": words, "code": code, "ackId": 0, "acks": { "0": true } })
            .to_string()
    })
}

/// Once it has refused in each way, it answers 200 and a body, which is made of the number of the answer and the words.
fn http_and_then(secrets: &[&str], body: fn(usize, &str) -> String) -> Receiver {
    let said = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&said);
    // In a header and a status line there are printable characters alone.
    let words = words(secrets).replace(|c: char| c.is_control() || !c.is_ascii(), "?");
    let http = HttpReceiver::start(move |nth, request| {
        counted.fetch_add(1, Ordering::SeqCst);
        match nth.checked_sub(HTTP_WAYS * TIMES) {
            None if nth % HTTP_WAYS == 10 => {
                vec![http_answer(10, &words, &request.head), Step::Cut]
            }
            None => vec![http_answer(nth % HTTP_WAYS, &words, &request.head)],
            Some(nth) => vec![Step::answer("200 OK", "", body(nth, &words))],
        }
    });
    let http = http.unwrap();
    Receiver {
        address: http.address.to_string(),
        said,
        ways: HTTP_WAYS,
        _server: Some(Box::new(http)),
    }
}

const GRPC_CODES: [Code; 7] = [
    Code::InvalidArgument,
    Code::Unauthenticated,
    Code::PermissionDenied,
    Code::Unavailable,
    Code::ResourceExhausted,
    Code::Internal,
    Code::DeadlineExceeded,
];

/// Of gRPC.
pub(super) fn grpc(secrets: &[&str]) -> Receiver {
    let ways = GRPC_CODES.len() + 1;
    // A header holds some forms, not all.
    let words: [String; TIMES] = words_in_parts(secrets);
    let said = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&said);
    let server = OtlpReceiver::start(
        4 << 20,
        Box::new(move |request| {
            let nth = counted.fetch_add(1, Ordering::SeqCst);
            if nth >= ways * TIMES {
                return Ok(ExportLogsServiceResponse::default());
            }
            let Some(code) = GRPC_CODES.get(nth % ways) else {
                return Ok(partial(&words.concat()));
            };
            let details =
                RpcStatus { code: *code as i32, message: format!("{:?}", request.metadata()) }
                    .encode_to_vec();
            let mut metadata = tonic::metadata::MetadataMap::new();
            for name in ["authorization", "x-key"] {
                if let Some(value) = request.metadata().get(name) {
                    metadata.insert(name, value.clone());
                }
            }
            let (words, details) = (&words[nth / ways], details.into());
            Err(Status::with_details_and_metadata(*code, words, details, metadata))
        }),
    );
    let server = server.unwrap();
    Receiver { address: server.address.to_string(), said, ways, _server: Some(Box::new(server)) }
}

/// A broker that refuses whoever comes, by the words of its SASL mechanism.
pub(super) fn kafka(secrets: &[&str]) -> Receiver {
    let (receiver, listener) = Receiver::listen(1);
    let (said, words) = (Arc::clone(&receiver.said), words(secrets));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (said, words) = (Arc::clone(&said), words.clone());
            tokio::spawn(async move {
                while answer_kafka(&mut stream, &words, &said).await.is_some() {}
            });
        }
    });
    receiver
}

/// Answers one request of the protocol.
async fn answer_kafka(stream: &mut TcpStream, words: &str, said: &AtomicUsize) -> Option<()> {
    const SASL_HANDSHAKE: i16 = 17;
    const API_VERSIONS: i16 = 18;
    const SASL_AUTHENTICATE: i16 = 36;
    let size = usize::try_from(stream.read_i32().await.ok()?).ok()?;
    let mut request = vec![0; size];
    stream.read_exact(&mut request).await.ok()?;
    let short = |at: usize| i16::from_be_bytes([request[at], request[at + 1]]);
    let mut answer = request[4..8].to_vec();
    match short(0) {
        API_VERSIONS if short(2) > 0 => {
            // Not that version: 35, and no list.
            answer.extend(35i16.to_be_bytes());
            answer.extend(0i32.to_be_bytes());
        }
        API_VERSIONS => {
            answer.extend(0i16.to_be_bytes());
            let apis = [
                (0, 7),
                (1, 4),
                (3, 5),
                (SASL_HANDSHAKE, 1),
                (API_VERSIONS, 0),
                (22, 0),
                (SASL_AUTHENTICATE, 0),
            ];
            answer.extend(i32::try_from(apis.len()).unwrap().to_be_bytes());
            for (api, newest) in apis {
                for number in [api, 0i16, newest] {
                    answer.extend(number.to_be_bytes());
                }
            }
        }
        SASL_HANDSHAKE => {
            answer.extend(0i16.to_be_bytes());
            answer.extend(1i32.to_be_bytes());
            answer.extend(5i16.to_be_bytes());
            answer.extend(b"PLAIN");
        }
        SASL_AUTHENTICATE => {
            // SASL_AUTHENTICATION_FAILED, and why.
            answer.extend(58i16.to_be_bytes());
            answer.extend(i16::try_from(words.len()).unwrap().to_be_bytes());
            answer.extend(words.as_bytes());
            answer.extend(0i32.to_be_bytes());
            said.fetch_add(1, Ordering::SeqCst);
        }
        _ => return None,
    }
    stream.write_i32(i32::try_from(answer.len()).ok()?).await.ok()?;
    stream.write_all(&answer).await.ok()
}
