//! The sink that most want: the API server.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::api::core::v1::Event;
use kube::{
    Client,
    client::Body,
    core::{ObjectMeta, Status},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use super::{sink::EventSink, sink_error::SinkError};
use crate::{correlator::Patch, text::with_causes, workqueue::TokenBucket};

/// How long a write may take, all told; what has no answer by then counts as no answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// An answer is read so far; etcd takes no object above 1.5 MiB.
const MAX_ANSWER: usize = 4 << 20;

/// Writes events to the API server: client-go's `EventSinkImpl` over `Events(namespace)`. It is a sink
/// for the events of core/v1 and for those of [events.k8s.io/v1](super::events_v1) alike.
///
/// Whoever writes needs the verbs `create` and `patch` on the resource `events`.
#[derive(Clone, Debug)]
pub struct ApiServerSink {
    client: ClientOf,
    namespace: Option<String>,
    limit: Option<Arc<TokenBucket>>,
}

/// `kube::Client` does not say what it is.
#[derive(Clone)]
struct ClientOf(Client);

impl std::fmt::Debug for ClientOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl ApiServerSink {
    /// A sink for events of every namespace: each goes to the one that it names. What a recorder
    /// wants nearly always.
    ///
    /// The client should not retry by itself, because that hides errors from the recording, whose
    /// own waits are the rule: see [`client_without_retry`](crate::client_without_retry).
    pub fn new(client: Client) -> Self {
        Self { client: ClientOf(client), namespace: None, limit: None }
    }

    /// A sink for events of one namespace; those of others are refused as
    /// [`SinkError::RequestConstruction`], before they are sent.
    pub fn for_namespace(client: Client, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::new(client) }
    }

    /// At most `burst` requests at once and `qps` a second afterwards, over all clones. The kubelet
    /// writes its events with 50 and 100; client-go's default is 5 and 10. Without this call there
    /// is no limit.
    #[must_use]
    pub fn with_rate_limit(self, qps: NonZeroU32, burst: NonZeroU32) -> Self {
        let limit = TokenBucket::new(f64::from(qps.get()), burst.get());
        Self { limit: Some(Arc::new(limit)), ..self }
    }

    /// The path of the events of the namespace that an event lies in, below the root of an API.
    pub(super) fn path(&self, api: &str, meta: &ObjectMeta) -> Result<String, SinkError> {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        if let Some(own) = self.namespace.as_deref().filter(|own| *own != namespace) {
            return Err(SinkError::RequestConstruction(format!(
                "the event's namespace is {namespace:?}, and the sink is for {own:?}"
            )));
        }
        if namespace.is_empty() {
            return Ok(format!("{api}/events"));
        }
        Ok(format!("{api}/namespaces/{}/events", segment("namespace", namespace)?))
    }

    /// Creates an event of any API.
    pub(super) async fn create_at<E: Serialize + DeserializeOwned>(
        &self,
        path: String,
        event: &E,
    ) -> Result<E, SinkError> {
        let body = serde_json::to_vec(event)
            .map_err(|error| SinkError::RequestConstruction(error.to_string()))?;
        self.write(Method::POST, path, "application/json", body).await
    }

    /// Patches an event of any API.
    pub(super) async fn patch_at<E: DeserializeOwned>(
        &self,
        path: &str,
        meta: &ObjectMeta,
        patch: Vec<u8>,
    ) -> Result<E, SinkError> {
        let name = segment("name", meta.name.as_deref().unwrap_or_default())?;
        let path = format!("{path}/{name}");
        self.write(Method::PATCH, path, "application/strategic-merge-patch+json", patch).await
    }

    async fn write<E: DeserializeOwned>(
        &self,
        method: Method,
        path: String,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<E, SinkError> {
        let creates = method == Method::POST;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::ACCEPT, "application/json")
            .body(Body::from(body))
            .map_err(|error| SinkError::RequestConstruction(error.to_string()))?;
        if let Some(limit) = &self.limit {
            limit.take().await;
        }
        let answer = async {
            let answer = self.client.0.send(request).await.map_err(from_client)?;
            read(answer, creates).await
        };
        timeout(WRITE_TIMEOUT, answer)
            .await
            .unwrap_or_else(|_| Err(other(format!("no answer in {} s", WRITE_TIMEOUT.as_secs()))))
    }
}

const CORE: &str = "/api/v1";

impl EventSink for ApiServerSink {
    async fn create(&self, event: &Event) -> Result<Event, SinkError> {
        self.create_at(self.path(CORE, &event.metadata)?, event).await
    }

    async fn patch(&self, event: &Event, patch: Option<&Patch>) -> Result<Event, SinkError> {
        // client-go sends no body where there is no patch: a 404 if there is no such event.
        let body = patch.map(Patch::to_bytes).transpose();
        let body = body.map_err(|error| SinkError::RequestConstruction(error.to_string()))?;
        let body = body.unwrap_or_default();
        self.patch_at(&self.path(CORE, &event.metadata)?, &event.metadata, body).await
    }
}

/// A part of a path, as it is: namespaces and names that the API server takes need no escapes, and
/// others must not reach for another path.
fn segment<'a>(what: &str, text: &'a str) -> Result<&'a str, SinkError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
    if text.is_empty() || matches!(text, "." | "..") || !text.bytes().all(plain) {
        let reason = format!("{text:?} cannot be the {what} of an event");
        return Err(SinkError::RequestConstruction(reason));
    }
    Ok(text)
}

fn other(reason: String) -> SinkError {
    SinkError::Other(reason.into())
}

/// The client's own errors: none of them is the API server's answer.
fn from_client(error: kube::Error) -> SinkError {
    match error {
        kube::Error::Api(status) => SinkError::status(*status),
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => {
            SinkError::RequestConstruction(with_causes(&error))
        }
        error => other(with_causes(&error)),
    }
}

/// What the API server made of the event, or why it did not.
async fn read<E: DeserializeOwned>(answer: Response<Body>, creates: bool) -> Result<E, SinkError> {
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await;
    if head.status.is_success() {
        let body = body.map_err(|error| other(error.to_string()))?.to_bytes();
        return serde_json::from_slice(&body)
            .map_err(|error| SinkError::UnexpectedObject(error.to_string()));
    }
    // A body that breaks off leaves the code, which is the better half of the answer.
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let asked = head.headers.get(header::RETRY_AFTER);
    let asked = asked.and_then(|value| value.to_str().ok()?.parse().ok()).map(Duration::from_secs);
    let mut error = SinkError::status(status_of(head.status, &body, creates));
    if let (SinkError::Status { retry_after, .. }, Some(_)) = (&mut error, asked) {
        *retry_after = asked;
    }
    Err(error)
}

/// The `Status` of a body; made up from the code where a proxy answered instead, as client-go does.
fn status_of(code: StatusCode, body: &[u8], creates: bool) -> Status {
    let status = serde_json::from_slice::<Status>(body).ok().filter(|status| status.code != 0);
    status.unwrap_or_else(|| {
        let reason = match code.as_u16() {
            409 if creates => "AlreadyExists",
            409 => "Conflict",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            406 => "NotAcceptable",
            410 => "Gone",
            413 => "RequestEntityTooLarge",
            415 => "UnsupportedMediaType",
            422 => "Invalid",
            429 => "TooManyRequests",
            400 => "BadRequest",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            500.. => "InternalError",
            _ => "Unknown",
        };
        let said = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
        Status {
            code: code.as_u16(),
            reason: reason.to_owned(),
            message: format!("answered {said:?}"),
            ..Status::default()
        }
    })
}
