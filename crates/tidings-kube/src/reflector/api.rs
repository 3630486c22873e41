//! The two calls that a reflector makes, over the `kube` client: list and watch of a resource.

use std::{sync::Arc, time::Duration};

use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderValue, RETRY_AFTER};
use http_body_util::BodyExt as _;
use kube::{
    Client, Resource as _,
    client::Body,
    core::{ApiResource, DynamicObject, Status},
};
use tokio::time::timeout;

use super::error::{Call, ListWatchError};

/// How long the API server may take until it starts to answer, and between two reads of a list.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// An error's body is read so far.
const MAX_STATUS_BYTES: usize = 64 << 10;

/// One resource of an API server, as [`Reflector`](super::Reflector) lists and watches it: of all
/// namespaces unless one is given, seen through selectors.
#[derive(Clone)]
pub struct ResourceApi {
    client: Client,
    resource: ApiResource,
    plural: Arc<str>,
    namespace: Option<String>,
    fields: String,
    labels: String,
    metadata_only: bool,
}

impl ResourceApi {
    /// All objects of a resource. The client's own retry should be off: it hides failures from the
    /// reflector's back-off.
    pub fn new(client: Client, resource: &ApiResource) -> Self {
        Self {
            client,
            plural: (&*resource.plural).into(),
            resource: resource.clone(),
            namespace: None,
            fields: String::new(),
            labels: String::new(),
            metadata_only: false,
        }
    }

    /// Only those of this namespace; "" is all.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
        self
    }

    /// Only those that this field selector selects; "" is all.
    #[must_use]
    pub fn fields(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.fields);
        self
    }

    /// Only those that this label selector selects; "" is all.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.labels);
        self
    }

    /// Asks for the objects' metadata alone: they come as meta.k8s.io/v1 `PartialObjectMetadata`.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// What is listed and watched.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// What the objects say they are: the resource, or `PartialObjectMetadata`.
    pub fn expected(&self) -> ApiResource {
        if !self.metadata_only {
            return self.resource.clone();
        }
        ApiResource {
            group: "meta.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "meta.k8s.io/v1".to_owned(),
            kind: "PartialObjectMetadata".to_owned(),
            plural: self.resource.plural.clone(),
        }
    }

    /// What lists of it say they are.
    pub(super) fn list_kind(&self) -> String {
        self.expected().kind + "List"
    }

    pub(super) fn call(&self, verb: &'static str) -> Call {
        Call { verb, resource: Arc::clone(&self.plural) }
    }

    pub(super) async fn list(&self, page: &Page) -> Result<Answer, ListWatchError> {
        let limit = page.limit.map(|limit| limit.to_string()).unwrap_or_default();
        let query = [
            ("limit", &*limit),
            ("continue", &*page.continue_token),
            ("resourceVersion", &*page.resource_version),
            ("resourceVersionMatch", page.version_match.as_str()),
        ];
        self.send("list", &query, "List", None).await
    }

    pub(super) async fn watch(&self, watch: &Watch) -> Result<Answer, ListWatchError> {
        let seconds = watch.server_timeout.as_secs().to_string();
        let (initial, not_older_than) = if watch.send_initial_events {
            ("true", VersionMatch::NotOlderThan.as_str())
        } else {
            ("", "")
        };
        let query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &*seconds),
            ("resourceVersion", &*watch.resource_version),
            ("sendInitialEvents", initial),
            ("resourceVersionMatch", not_older_than),
        ];
        // From 1.37 on the API server compresses a watch one member an event, which gzip decoders
        // take for the end of the body.
        self.send("watch", &query, "", Some(HeaderValue::from_static("identity"))).await
    }

    /// The path and those members of the query that are not empty.
    fn target(&self, query: &[(&str, &str)]) -> String {
        let path = DynamicObject::url_path(&self.resource, self.namespace.as_deref());
        let mut target = form_urlencoded::Serializer::new(path + "?");
        let selectors = [("fieldSelector", &*self.fields), ("labelSelector", &*self.labels)];
        let members = query.iter().copied().chain(selectors);
        target.extend_pairs(members.filter(|(_, value)| !value.is_empty()));
        target.finish()
    }

    async fn send(
        &self,
        verb: &'static str,
        query: &[(&str, &str)],
        list: &str,
        encoding: Option<HeaderValue>,
    ) -> Result<Answer, ListWatchError> {
        let call = self.call(verb);
        let mut request = http::Request::get(self.target(query));
        if self.metadata_only {
            let accept =
                format!("application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1");
            request = request.header(ACCEPT, accept);
        }
        if let Some(encoding) = encoding {
            request = request.header(ACCEPT_ENCODING, encoding);
        }
        let request = request
            .body(Body::empty())
            .map_err(|error| ListWatchError::transport(call.clone(), &error))?;
        let answer = timeout(ANSWER_TIMEOUT, self.client.send(request))
            .await
            .map_err(|_| ListWatchError::Stalled { call: call.clone(), waited: ANSWER_TIMEOUT })?
            .map_err(|error| ListWatchError::transport(call.clone(), &error))?;
        let (head, body) = answer.into_parts();
        let answer = Answer { call, body };
        if head.status.is_success() { Ok(answer) } else { Err(answer.refusal(head).await) }
    }
}

/// How the resourceVersion of a list is meant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum VersionMatch {
    /// As it always was: it depends on the other members.
    #[default]
    Unset,
    /// What is newest will do, unless it is older.
    NotOlderThan,
    /// As it was at that version.
    Exact,
}

impl VersionMatch {
    fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::NotOlderThan => "NotOlderThan",
            Self::Exact => "Exact",
        }
    }
}

/// Which page of a list.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// At most so many items; `None` for the whole list.
    pub(super) limit: Option<u32>,
    /// Where the page before ended; empty on the first page.
    pub(super) continue_token: String,
    /// See the API's own documents; empty for a list of what is newest.
    pub(super) resource_version: String,
    /// What is said of a resourceVersion other than "".
    pub(super) version_match: VersionMatch,
}

/// From where, and for how long, to watch.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) resource_version: String,
    /// The server is to end the watch after so long; whole seconds.
    pub(super) server_timeout: Duration,
    /// Asks for all objects first, and for a bookmark behind them (a streaming list).
    pub(super) send_initial_events: bool,
}

/// The body of a successful answer.
pub(super) struct Answer {
    call: Call,
    body: Body,
}

impl Answer {
    /// The next piece of the body; `None` at its end. Dropping the future loses nothing.
    pub(super) async fn chunk(&mut self) -> Result<Option<bytes::Bytes>, ListWatchError> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => {
                    return Err(ListWatchError::transport(self.call.clone(), &error));
                }
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The same for a list, with a bound on the wait.
    pub(super) async fn list_chunk(&mut self) -> Result<Option<bytes::Bytes>, ListWatchError> {
        let call = self.call.clone();
        timeout(ANSWER_TIMEOUT, self.chunk())
            .await
            .unwrap_or(Err(ListWatchError::Stalled { call, waited: ANSWER_TIMEOUT }))
    }

    /// What the API server says against it.
    async fn refusal(mut self, head: http::response::Parts) -> ListWatchError {
        let mut text = Vec::new();
        while text.len() < MAX_STATUS_BYTES {
            // A body that breaks off leaves the code, which is the better half of the answer.
            let Ok(Some(chunk)) = self.list_chunk().await else { break };
            text.extend_from_slice(&chunk);
        }
        let retry_after = head
            .headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        let status = Box::new(status_from(head.status, &text));
        ListWatchError::Status { call: self.call, status, retry_after }
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
