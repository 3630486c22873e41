//! The two calls that a reflector makes, over the `kube` client: list and watch of a resource.

use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderValue, RETRY_AFTER};
use kube::{
    Client, Resource as _,
    client::Body,
    core::{ApiResource, DynamicObject, Status},
};
use tokio::time::timeout;

use super::{
    Answer, Call, ListOptions, ListWatchError, ListerWatcher, VersionMatch, WatchOptions,
    answer::ANSWER_TIMEOUT,
};

/// An error's body is read so far.
const MAX_STATUS_BYTES: usize = 64 << 10;

/// One resource of an API server, as [`Reflector`](super::Reflector) lists and watches it: of all
/// namespaces unless one is given, seen through selectors.
#[derive(Clone)]
pub struct ResourceApi {
    client: Client,
    resource: ApiResource,
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
        let call = Call::new(verb, &self.resource);
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
        let answer = Answer::http(call.clone(), body);
        if head.status.is_success() { Ok(answer) } else { Err(refusal(call, head, answer).await) }
    }
}

impl ListerWatcher for ResourceApi {
    fn resource(&self) -> &ApiResource {
        &self.resource
    }

    fn expected(&self) -> ApiResource {
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

    async fn list(&self, options: &ListOptions) -> Result<Answer, ListWatchError> {
        let only = options.only.as_ref().map(|(namespace, name)| {
            self.clone().namespace(namespace).fields(&format!("metadata.name={name}"))
        });
        let limit = options.limit.map(|limit| limit.to_string()).unwrap_or_default();
        let query = [
            ("limit", &*limit),
            ("continue", &*options.continue_token),
            ("resourceVersion", &*options.resource_version),
            ("resourceVersionMatch", options.version_match.as_str()),
        ];
        only.as_ref().unwrap_or(self).send("list", &query, "List", None).await
    }

    async fn watch(&self, options: &WatchOptions) -> Result<Answer, ListWatchError> {
        let seconds = options.timeout.as_secs().to_string();
        let (initial, not_older_than) = if options.send_initial_events {
            ("true", VersionMatch::NotOlderThan.as_str())
        } else {
            ("", "")
        };
        let query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &*seconds),
            ("resourceVersion", &*options.resource_version),
            ("sendInitialEvents", initial),
            ("resourceVersionMatch", not_older_than),
        ];
        // From 1.37 on the API server compresses a watch one member an event, which gzip decoders
        // take for the end of the body.
        self.send("watch", &query, "", Some(HeaderValue::from_static("identity"))).await
    }
}

/// The API server's reason against a call.
async fn refusal(call: Call, head: http::response::Parts, mut answer: Answer) -> ListWatchError {
    let mut text = Vec::new();
    while text.len() < MAX_STATUS_BYTES {
        // A body that breaks off leaves the code, which is the better half of the answer.
        let Ok(Some(chunk)) = answer.list_chunk().await else { break };
        text.extend_from_slice(&chunk);
    }
    let retry_after = head
        .headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let status = Box::new(status_from(head.status, &text));
    ListWatchError::Status { call, status, retry_after }
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
