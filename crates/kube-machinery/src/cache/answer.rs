//! The answer of a source to a list or a watch.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream, stream::BoxStream};
use http_body_util::BodyExt as _;
use kube::{client::Body, core::ApiResource};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::{Call, ListWatchError, WatchEvent, WatchEventType};

/// How long a source may take until it starts to answer, and between two reads of a list.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// The answer of a [`ListerWatcher`](super::ListerWatcher): JSON as an API server writes it, piece by piece.
///
/// That of a list is one list; that of a watch has an event on each line and ends when the watch does.
pub struct Answer {
    call: Call,
    body: Pieces,
}

enum Pieces {
    Http(Body),
    Made(BoxStream<'static, Result<Bytes, ListWatchError>>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    kind: String,
    api_version: &'a str,
    metadata: Meta<'a>,
    items: Vec<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    resource_version: &'a str,
}

impl Answer {
    pub(super) fn http(call: Call, body: Body) -> Self {
        Self { call, body: Pieces::Http(body) }
    }

    /// A list, whole: the JSON of its objects, and the resourceVersion from which a watch goes on.
    ///
    /// `resource` is what the objects are, which is [`ListerWatcher::expected`](super::ListerWatcher::expected).
    ///
    /// # Errors
    ///
    /// When an item is no JSON.
    pub fn list<I: AsRef<[u8]>>(
        resource: &ApiResource,
        items: impl IntoIterator<Item = I>,
        resource_version: &str,
    ) -> Result<Self, ListWatchError> {
        let call = Call::new("list", resource);
        let items: Vec<I> = items.into_iter().collect();
        let items = items.iter().map(|item| serde_json::from_slice(item.as_ref()));
        let json = items
            .collect::<Result<_, _>>()
            .and_then(|items| {
                let kind = format!("{}List", resource.kind);
                let metadata = Meta { resource_version };
                let api_version = &*resource.api_version;
                serde_json::to_vec(&List { kind, api_version, metadata, items })
            })
            .map_err(|error| ListWatchError::transport(call.clone(), &error))?;
        let body = Pieces::Made(stream::iter([Ok(json.into())]).boxed());
        Ok(Self { call, body })
    }

    /// A watch. It ends with the stream, or with the first error.
    ///
    /// After a [`ListWatchError::Status`], as an [expired](ListWatchError::expired) one is, everything is
    /// listed again; after any other error the watch is asked for anew, from where it has come to.
    pub fn watch(
        resource: &ApiResource,
        events: impl Stream<Item = Result<WatchEvent, ListWatchError>> + Send + 'static,
    ) -> Self {
        let body = Pieces::Made(events.map(|event| event.map(|event| line(&event))).boxed());
        Self { call: Call::new("watch", resource), body }
    }

    /// The next piece of the body; `None` at its end. Dropping the future loses nothing.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, ListWatchError> {
        let body = match &mut self.body {
            Pieces::Made(pieces) => return pieces.next().await.transpose(),
            Pieces::Http(body) => body,
        };
        loop {
            match body.frame().await {
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
    pub(super) async fn list_chunk(&mut self) -> Result<Option<Bytes>, ListWatchError> {
        let call = self.call.clone();
        timeout(ANSWER_TIMEOUT, self.chunk())
            .await
            .unwrap_or(Err(ListWatchError::Stalled { call, waited: ANSWER_TIMEOUT }))
    }
}

/// An event as it stands in a watch.
fn line(event: &WatchEvent) -> Bytes {
    let kind = match event.kind {
        WatchEventType::Added => "ADDED",
        WatchEventType::Modified => "MODIFIED",
        WatchEventType::Deleted => "DELETED",
        WatchEventType::Bookmark => "BOOKMARK",
        WatchEventType::Unknown => "UNKNOWN",
    };
    let mut line = format!(r#"{{"type":"{kind}","object":"#).into_bytes();
    // A line break within JSON is white space.
    line.extend(event.object.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }));
    line.extend_from_slice(b"}\n");
    line.into()
}
