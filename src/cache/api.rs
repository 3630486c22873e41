//! The two calls that a reflector makes, over the `kube` client: list and watch of core/v1 Events.

use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::{
    Client,
    client::Body,
    core::{
        Request, Status,
        params::{ListParams, VersionMatch, WatchParams},
    },
};
use tokio::time::timeout;

use super::{lines::LineError, list_items::ListError};

/// How long the API server may take until it starts to answer, and between two reads of a list.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// An error's body is read so far.
const MAX_STATUS_BYTES: usize = 64 << 10;

/// Why a list or a watch failed.
#[derive(Debug, thiserror::Error)]
pub enum ListWatchError {
    /// The API server answered with an error.
    #[error("the API server refuses to {verb} events: {} ({} {})", .status.message, .status.code, .status.reason)]
    Status {
        /// `list` or `watch`.
        verb: &'static str,
        /// What it says.
        status: Box<Status>,
        /// The header `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// It could not be asked, or its answer broke off.
    #[error("cannot {verb} events: {reason}")]
    Transport {
        /// `list` or `watch`.
        verb: &'static str,
        /// What happened, with its causes.
        reason: String,
    },
    /// It did not answer in time.
    #[error("cannot {verb} events: the API server sent nothing for {} s", .waited.as_secs())]
    Stalled {
        /// `list` or `watch`.
        verb: &'static str,
        /// How long was waited.
        waited: Duration,
    },
    /// The answer to a list is none.
    #[error(transparent)]
    List(#[from] ListError),
    /// A line of a watch is none.
    #[error(transparent)]
    Line(#[from] LineError),
}

impl ListWatchError {
    fn transport(verb: &'static str, error: &dyn std::error::Error) -> Self {
        Self::Transport { verb, reason: with_causes(error) }
    }

    /// The resourceVersion or the continue token is older than the API server's history.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Status { status, .. }
            if status.code == 410 || matches!(&*status.reason, "Expired" | "Gone"))
    }

    /// The resourceVersion is newer than anything the API server knows.
    ///
    /// client-go's rule: the cause `ResourceVersionTooLarge`, or the reason Timeout with a message
    /// of those words (API servers before 1.18 send no cause).
    pub fn is_too_large_resource_version(&self) -> bool {
        const WORDS: &str = "Too large resource version";
        matches!(self, Self::Status { status, .. } if {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let stated = causes.clone().any(|c| c.reason == "ResourceVersionTooLarge");
            let in_words = status.message.contains(WORDS) || causes.clone().any(|c| c.message == WORDS);
            stated || (status.reason == "Timeout" && in_words)
        })
    }

    /// How long the API server asked to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// What a person can do about it, where it is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Status { status, .. } if status.code == 401 => Some(
                "the credentials are not accepted: check the token or certificate of the kubeconfig or service account",
            ),
            Self::Status { status, .. } if status.code == 403 => Some(
                "grant the verbs list and watch on the resource events to this account (deploy/rbac.yaml does)",
            ),
            _ => None,
        }
    }
}

/// An error of the client with its causes: what went wrong is often the last of them.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Events of all namespaces or of one, seen through a field selector.
#[derive(Clone)]
pub struct EventsApi {
    client: Client,
    path: String,
    field_selector: Option<String>,
}

/// The body of a successful answer.
pub(super) struct Answer {
    verb: &'static str,
    body: Body,
}

impl Answer {
    /// The next piece of the body; `None` at its end. Dropping the future loses nothing.
    pub(super) async fn chunk(&mut self) -> Result<Option<bytes::Bytes>, ListWatchError> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(ListWatchError::transport(self.verb, &error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The same, with a bound on the wait.
    pub(super) async fn chunk_within(
        &mut self,
        limit: Duration,
    ) -> Result<Option<bytes::Bytes>, ListWatchError> {
        let verb = self.verb;
        timeout(limit, self.chunk())
            .await
            .unwrap_or(Err(ListWatchError::Stalled { verb, waited: limit }))
    }

    /// The same for a list.
    pub(super) async fn list_chunk(&mut self) -> Result<Option<bytes::Bytes>, ListWatchError> {
        self.chunk_within(ANSWER_TIMEOUT).await
    }
}

/// Which page of a list.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// At most so many items; `None` for the whole list.
    pub(super) limit: Option<u32>,
    /// Where the page before ended.
    pub(super) continue_token: Option<String>,
    /// The server must know at least this resourceVersion.
    pub(super) not_older_than: Option<u64>,
}

impl EventsApi {
    /// Events of `namespace`, or of all namespaces.
    pub fn new(client: Client, namespace: Option<&str>, field_selector: &str) -> Self {
        let path = match namespace {
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/events"),
            None => "/api/v1/events".to_owned(),
        };
        let field_selector = (!field_selector.is_empty()).then(|| field_selector.to_owned());
        Self { client, path, field_selector }
    }

    pub(super) async fn list(&self, page: &Page) -> Result<Answer, ListWatchError> {
        let params = ListParams {
            field_selector: self.field_selector.clone(),
            limit: page.limit,
            continue_token: page.continue_token.clone(),
            version_match: page.not_older_than.map(|_| VersionMatch::NotOlderThan),
            resource_version: page.not_older_than.map(|rv| rv.to_string()),
            ..ListParams::default()
        };
        let request = Request::new(self.path.clone()).list(&params);
        self.send("list", request.map_err(|e| ListWatchError::transport("list", &e))?).await
    }

    pub(super) async fn watch(
        &self,
        resource_version: u64,
        server_timeout: Duration,
    ) -> Result<Answer, ListWatchError> {
        let params = WatchParams {
            field_selector: self.field_selector.clone(),
            timeout: u32::try_from(server_timeout.as_secs()).ok(),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = Request::new(self.path.clone()).watch(&params, &resource_version.to_string());
        let mut request = request.map_err(|e| ListWatchError::transport("watch", &e))?;
        // From 1.37 on the API server compresses a watch one member an event, which gzip decoders
        // take for the end of the body.
        request
            .headers_mut()
            .insert(http::header::ACCEPT_ENCODING, http::HeaderValue::from_static("identity"));
        self.send("watch", request).await
    }

    async fn send(
        &self,
        verb: &'static str,
        request: http::Request<Vec<u8>>,
    ) -> Result<Answer, ListWatchError> {
        let answer = timeout(ANSWER_TIMEOUT, self.client.send(request.map(Body::from)))
            .await
            .map_err(|_| ListWatchError::Stalled { verb, waited: ANSWER_TIMEOUT })?
            .map_err(|error| ListWatchError::transport(verb, &error))?;
        let (head, body) = answer.into_parts();
        let mut answer = Answer { verb, body };
        if head.status.is_success() {
            return Ok(answer);
        }
        let mut text = Vec::new();
        while text.len() < MAX_STATUS_BYTES {
            // A body that breaks off leaves the code, which is the better half of the answer.
            let Ok(Some(chunk)) = answer.list_chunk().await else { break };
            text.extend_from_slice(&chunk);
        }
        let retry_after = head
            .headers
            .get(http::header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        let status = status_from(head.status, &text);
        Err(ListWatchError::Status { verb, status: Box::new(status), retry_after })
    }
}

/// The `Status` of an error's body; made up from the code where a proxy answered instead.
fn status_from(code: http::StatusCode, body: &[u8]) -> Status {
    serde_json::from_slice::<Status>(body).ok().filter(|status| status.code != 0).unwrap_or_else(
        || Status {
            code: code.as_u16(),
            reason: code.canonical_reason().unwrap_or_default().to_owned(),
            message: format!(
                "answered {:?}",
                String::from_utf8_lossy(&body[..body.len().min(120)])
            ),
            ..Status::default()
        },
    )
}
