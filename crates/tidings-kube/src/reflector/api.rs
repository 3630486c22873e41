//! A resource of an API server as the source of a reflector, over the `kube` client.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt as _, TryStreamExt as _, future::BoxFuture};
use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderValue, RETRY_AFTER};
use http_body_util::BodyExt as _;
use kube::{
    Client, Resource as _, client,
    core::{ApiResource, DynamicObject, Status},
};
use tokio::time::timeout;

use super::{
    error::{Call, ListWatchError},
    lister_watcher::{
        ANSWER_TIMEOUT, Answer, Body, ListOptions, ListerWatcher, VersionMatch, WatchOptions,
    },
};

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

    /// The path and those members of the query that are not empty.
    fn target(&self, query: &[(&str, &str)], only: Option<&(String, String)>) -> String {
        let namespace = only.map_or(self.namespace.as_deref(), |(namespace, _)| Some(namespace));
        let path =
            DynamicObject::url_path(&self.resource, namespace.filter(|name| !name.is_empty()));
        let mut target = form_urlencoded::Serializer::new(path + "?");
        let fields =
            only.map_or_else(|| self.fields.clone(), |(_, name)| format!("metadata.name={name}"));
        let selectors = [("fieldSelector", &*fields), ("labelSelector", &*self.labels)];
        let members = query.iter().copied().chain(selectors);
        target.extend_pairs(members.filter(|(_, value)| !value.is_empty()));
        target.finish()
    }

    async fn send(
        &self,
        verb: &'static str,
        query: &[(&str, &str)],
        only: Option<&(String, String)>,
        list: &str,
        encoding: Option<HeaderValue>,
    ) -> Result<Body, ListWatchError> {
        let call = Call { verb, resource: Arc::clone(&self.plural) };
        let mut request = http::Request::get(self.target(query, only));
        if self.metadata_only {
            let accept =
                format!("application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1");
            request = request.header(ACCEPT, accept);
        }
        if let Some(encoding) = encoding {
            request = request.header(ACCEPT_ENCODING, encoding);
        }
        let request = request
            .body(client::Body::empty())
            .map_err(|error| ListWatchError::transport(call.clone(), &error))?;
        let answer = timeout(ANSWER_TIMEOUT, self.client.send(request))
            .await
            .map_err(|_| ListWatchError::Stalled { call: call.clone(), waited: ANSWER_TIMEOUT })?
            .map_err(|error| ListWatchError::transport(call.clone(), &error))?;
        let (head, body) = answer.into_parts();
        let broken = call.clone();
        let body =
            body.into_data_stream().map_err(move |e| ListWatchError::transport(broken.clone(), &e));
        let body = Body::new(body);
        if head.status.is_success() {
            Ok(body)
        } else {
            Err(refusal(Answer { call, body }, head).await)
        }
    }
}

impl ListerWatcher for ResourceApi {
    /// The resource, or `PartialObjectMetadata`.
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

    fn list<'a>(&'a self, options: &'a ListOptions) -> BoxFuture<'a, Result<Body, ListWatchError>> {
        async move {
            let limit = options.limit.map(|limit| limit.to_string()).unwrap_or_default();
            let query = [
                ("limit", &*limit),
                ("continue", &*options.continue_token),
                ("resourceVersion", &*options.resource_version),
                ("resourceVersionMatch", options.version_match.as_str()),
            ];
            self.send("list", &query, options.only.as_ref(), "List", None).await
        }
        .boxed()
    }

    fn watch<'a>(
        &'a self,
        options: &'a WatchOptions,
    ) -> BoxFuture<'a, Result<Body, ListWatchError>> {
        async move {
            let seconds = options.server_timeout.as_secs().to_string();
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
            let encoding = Some(HeaderValue::from_static("identity"));
            self.send("watch", &query, None, "", encoding).await
        }
        .boxed()
    }
}

/// The words of an API server against a call.
async fn refusal(mut answer: Answer, head: http::response::Parts) -> ListWatchError {
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
    ListWatchError::Status { call: answer.call, status, retry_after }
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
