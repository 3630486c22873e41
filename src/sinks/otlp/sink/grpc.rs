//! OTLP/gRPC.
//!
//! The call is made on the channel itself, not by a generated client. The request is encoded already;
//! and the answer is looked at as HTTP before it is read as gRPC, because proxies, ingresses and
//! login pages answer in HTTP, with bodies that are no gRPC messages: what is not 200, or not
//! `application/grpc`, means what that status means to the other sinks over HTTP.
//!
//! Only the receiver's own `grpc-status` says what became of a batch. With OK it is delivered,
//! whether the message can be read or not; of a long one the start is kept, where the number
//! stands that was rejected. An answer that ends before
//! its status has come says nothing: the batch is sent again, under the same ids.
//!
//! A proxy in between may have forgotten a connection that was idle. So a call on one that was used
//! before, and that ends without an answer, is made again at once.

use std::{
    error::Error as _,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{CONTENT_TYPE, TE},
    response,
};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use tokio::time::{Instant, timeout};
use tonic::{
    Code, Status,
    body::Body,
    client::GrpcService as _,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use super::{Messages, answer, grpc_status, taken};
use crate::{
    bridge::{Failure, FailureClass, Fault, Outcome, Secrets, Sink, Status as Answer},
    event::Batch,
    sinks::{
        Compression, HttpOptions, SinkBuildError,
        http::{self, BODY_WAIT, REASON_BYTES, Reply, USER_AGENT, compress, net_error, tls},
        own_deadline,
    },
};

/// How much of an answer is kept. Words about each of a thousand rejected records fit in it.
const RESPONSE_BYTES: usize = 1 << 20;
/// In front of a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

pub(super) struct GrpcSink {
    messages: Messages,
    endpoint: Endpoint,
    peer: String,
    /// Opened by the first call. All calls share it.
    open: Mutex<Option<Open>>,
    /// For how long a channel, and so a connection, is used.
    max_age: Duration,
    /// Of every request.
    headers: HeaderMap,
    compression: Compression,
    secrets: Secrets,
    deadline: Duration,
}

/// A channel; it connects, and connects again, by itself.
#[derive(Clone)]
struct Open {
    channel: Channel,
    since: Instant,
    /// Whether the connection that it has was answered on before.
    used: Arc<AtomicBool>,
}

impl GrpcSink {
    pub(super) fn new(
        options: &HttpOptions,
        messages: Messages,
        secrets: Secrets,
    ) -> Result<Self, SinkBuildError> {
        let url = http::parse_url(&["endpoint"], options.url.expose())?;
        if url.path() != "/" {
            let reason = "gRPC takes no path; is protocol: http meant?";
            return Err(SinkBuildError::at(&["endpoint"], reason));
        }
        let mut headers = http::headers(&options.headers, true)?;
        let deadline = own_deadline(options.timeout);
        let connected_within = (deadline / 2).max(Duration::from_millis(1));
        let client = |e: tonic::transport::Error| http::client_refuses(&secrets, &e);
        let mut endpoint = Endpoint::from_shared(url.to_string())
            .map_err(client)?
            .user_agent(USER_AGENT)
            .map_err(client)?
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(30)))
            // A call that waits is what is worth a ping; receivers punish pings without one.
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(false)
            .connect_timeout(connected_within);
        let tls_options = options.tls.clone().unwrap_or_default();
        let https = url.scheme() == "https";
        tls::check(&tls_options, https)?;
        if https {
            // Without it a handshake that is not answered keeps its socket for ever.
            let mut tls = ClientTlsConfig::new().timeout(connected_within);
            tls = match &tls_options.ca {
                Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
                None => tls.with_native_roots(),
            };
            if let (Some(cert), Some(key)) = (&tls_options.cert, &tls_options.key) {
                tls = tls.identity(Identity::from_pem(cert, key.expose()));
            }
            if let Some(name) = &tls_options.server_name {
                tls = tls.domain_name(name);
            }
            endpoint = endpoint.tls_config(tls).map_err(client)?;
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        if let Some(encoding) = compress::content_encoding(options.compression) {
            headers.insert("grpc-encoding", HeaderValue::from_static(encoding));
        }
        // A little more than ours, so that it is ours that ends the call. Eight digits at most.
        let millis = options.timeout.as_millis().min(99_999_999);
        let told = HeaderValue::try_from(format!("{millis}m"));
        headers.extend(told.ok().map(|told| (HeaderName::from_static("grpc-timeout"), told)));
        Ok(Self {
            endpoint,
            messages,
            peer: http::peer(&url),
            open: Mutex::default(),
            max_age: options.connection_max_age,
            headers,
            compression: options.compression,
            secrets,
            deadline,
        })
    }

    async fn export(&self, sent: &Batch) -> Result<ExportLogsServiceResponse, Failure> {
        let message = self.messages.of(sent, &self.secrets)?;
        let open = self.open();
        match timeout(self.deadline, self.call(&open, message, sent)).await {
            Ok(answer) => answer,
            Err(_) => {
                // A connection whose other end is gone looks like this until TCP gives up, after
                // minutes. A new one costs little; another call may have opened it already.
                self.current().take_if(|current| current.since == open.since);
                Err(net_error::silence(self.deadline, &self.peer, &self.secrets))
            }
        }
    }

    /// The channel for a call.
    fn open(&self) -> Open {
        let mut current = self.current();
        // Another one asks for the addresses of the name again.
        current.take_if(|open| open.since.elapsed() >= self.max_age);
        let open = || Open {
            channel: self.endpoint.connect_lazy(),
            since: Instant::now(),
            used: Arc::default(),
        };
        current.get_or_insert_with(open).clone()
    }

    fn current(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(
        &self,
        open: &Open,
        message: Bytes,
        sent: &Batch,
    ) -> Result<ExportLogsServiceResponse, Failure> {
        let framed = self.framed(message).await?;
        let was_used = open.used.load(Ordering::Relaxed);
        let mut answer = self.ask(open, framed.clone()).await;
        if was_used && answer.as_ref().is_err_and(is_connected) {
            tracing::debug!(peer = self.peer, "a connection that was idle is gone");
            open.used.store(false, Ordering::Relaxed);
            answer = self.ask(open, framed).await;
        }
        let (head, body) = answer
            .map_err(|error| {
                net_error::to_failure(&error, is_connected(&error), &self.peer, &self.secrets)
            })?
            .into_parts();
        open.used.store(true, Ordering::Relaxed);
        if !is_grpc(&head) {
            return Err(not_grpc(&head, body, sent, &self.secrets).await);
        }
        self.read(&head, body, sent).await
    }

    /// One call with a message that is framed.
    async fn ask(
        &self,
        open: &Open,
        framed: Bytes,
    ) -> Result<Response<Body>, tonic::transport::Error> {
        let mut request = Request::new(Body::new(Full::new(framed)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(self.messages.signal.method);
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = self.headers.clone();
        let mut channel = open.channel.clone();
        poll_fn(|context| channel.poll_ready(context)).await?;
        channel.call(request).await
    }

    /// A message as gRPC frames it.
    async fn framed(&self, message: Bytes) -> Result<Bytes, Failure> {
        let message = compress::compress(self.compression, message).await?;
        let mut framed = BytesMut::with_capacity(PREFIX_BYTES + message.len());
        framed.put_u8((self.compression != Compression::None).into());
        framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        framed.put(message);
        Ok(framed.freeze())
    }

    /// Reads a gRPC answer.
    async fn read(
        &self,
        head: &response::Parts,
        mut body: Body,
        sent: &Batch,
    ) -> Result<ExportLogsServiceResponse, Failure> {
        // An answer without a message has it here, one with a message behind that.
        let mut status = Status::from_header_map(&head.headers);
        let mut message = Vec::new();
        while status.is_none()
            && let Some(frame) = body.frame().await
        {
            let frame = frame.map_err(|error| {
                // tonic's frame around it repeats it.
                let innermost = error.source().unwrap_or(&error);
                net_error::to_failure(innermost, true, &self.peer, &self.secrets)
            })?;
            if let Some(data) = frame.data_ref() {
                let room = RESPONSE_BYTES - message.len();
                message.extend_from_slice(&data[..data.len().min(room)]);
            }
            status = frame.trailers_ref().and_then(Status::from_header_map);
        }
        match status {
            Some(status) if status.code() == Code::Ok => Ok(decode(&message)),
            Some(status) => Err(grpc_status::to_failure(&status, sent, &self.secrets)),
            None => {
                let words = format_args!("the answer of {} ends without a gRPC status", self.peer);
                let failure = Failure::new(FailureClass::Unavailable, self.secrets.reason(words));
                Err(Failure { fault: Fault::RecordForNow, status: Answer::Cut, ..failure })
            }
        }
    }
}

impl Sink for GrpcSink {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(async {
            match self.export(batch).await {
                Ok(response) => taken(response, (self.messages.signal.items)(batch), &self.secrets),
                Err(failure) => Outcome::Failed(failure),
            }
        })
    }
}

/// Whether there was a connection that an error is about.
fn is_connected(error: &tonic::transport::Error) -> bool {
    let mut next = error.source();
    while let Some(current) = next {
        if current.is::<tonic::ConnectError>() {
            return false;
        }
        next = current.source();
    }
    true
}

/// Whether an answer is the receiver's own, in gRPC.
fn is_grpc(head: &response::Parts) -> bool {
    let grpc = |kind: &str| kind.starts_with("application/grpc");
    head.status == StatusCode::OK && content_type(head).is_some_and(grpc)
}

fn content_type(head: &response::Parts) -> Option<&str> {
    head.headers.get(CONTENT_TYPE)?.to_str().ok()
}

/// The meaning of an answer in mere HTTP, with the start of its body.
async fn not_grpc(
    head: &response::Parts,
    mut body: Body,
    sent: &Batch,
    secrets: &Secrets,
) -> Failure {
    let mut start = Vec::new();
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            start.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if start.len() >= REASON_BYTES {
                break;
            }
        }
    };
    // The status decides; what it says of itself may be as slow as it likes.
    let _ = timeout(BODY_WAIT, reading).await;
    start.truncate(REASON_BYTES);
    let mut words = String::from_utf8_lossy(&start).into_owned();
    if head.status == StatusCode::OK {
        let kind = content_type(head).unwrap_or("unknown");
        words = format!("no gRPC, but content of the type {kind}: {words}");
    }
    Reply::new(head.status, head.headers.clone(), Vec::new()).failure(&words, sent, secrets)
}

/// The one message of an answer, behind the prefix; none that is compressed was asked for.
fn decode(message: &[u8]) -> ExportLogsServiceResponse {
    answer::decode(message.get(PREFIX_BYTES..).unwrap_or_default())
}
