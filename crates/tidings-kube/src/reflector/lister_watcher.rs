//! The source of a reflector: the trait, and an answer of it as the reflector reads it.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{
    Stream, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use kube::core::ApiResource;
use serde_json::json;
use tokio::time::timeout;

use super::{
    WatchEvent,
    error::{Call, ListWatchError},
};
use crate::foreign::caught_future;

/// How long an API server may take until it starts to answer, and any source between two reads of a list.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// How long any source may take until it answers: longer than a [`ResourceApi`](super::ResourceApi) takes, which bounds
/// its parts itself.
const CALL_TIMEOUT: Duration = Duration::from_mins(5);

/// The source of a [`Reflector`](super::Reflector): the objects of one type, to be listed and watched
/// (client-go `cache.ListerWatcher`).
///
/// [`ResourceApi`](super::ResourceApi) is an API server as such a source, and
/// [`LocalSource`](super::LocalSource) objects of this process. A source of another kind answers as an API server
/// does: a list is one JSON document ([`Body::list`]), a watch is a line of JSON for each event
/// ([`Body::events`]).
///
/// Each object has a `metadata.resourceVersion`, another one after each change: a watch is taken up again at that of
/// the last event, and an update with the version of before counts as a resync.
pub trait ListerWatcher: Send + Sync + 'static {
    /// The type of the objects. Lists and objects say it, and logs name its plural.
    fn expected(&self) -> ApiResource;

    /// Lists the objects.
    ///
    /// # Errors
    ///
    /// [`ListWatchError::Status`] is a refusal with the words of an API server, such as 410 for a continue token that
    /// has expired. The reflector asks again later in any case, and also when nothing has come for five minutes.
    fn list<'a>(&'a self, options: &'a ListOptions) -> BoxFuture<'a, Result<Body, ListWatchError>>;

    /// Watches the objects: each change behind `options.resource_version`, until the source ends the
    /// watch.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list). A resourceVersion that is no longer known is refused with 410: the reflector then
    /// lists.
    fn watch<'a>(
        &'a self,
        options: &'a WatchOptions,
    ) -> BoxFuture<'a, Result<Body, ListWatchError>>;
}

impl<T: ListerWatcher + ?Sized> ListerWatcher for Arc<T> {
    fn expected(&self) -> ApiResource {
        (**self).expected()
    }

    fn list<'a>(&'a self, options: &'a ListOptions) -> BoxFuture<'a, Result<Body, ListWatchError>> {
        (**self).list(options)
    }

    fn watch<'a>(
        &'a self,
        options: &'a WatchOptions,
    ) -> BoxFuture<'a, Result<Body, ListWatchError>> {
        (**self).watch(options)
    }
}

/// How the resourceVersion of a list is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionMatch {
    /// As it always was: it depends on the other members.
    #[default]
    Unset,
    /// The newest version, which must not be older.
    NotOlderThan,
    /// As it was at that version.
    Exact,
}

impl VersionMatch {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::NotOlderThan => "NotOlderThan",
            Self::Exact => "Exact",
        }
    }
}

/// Which objects are listed, and of when. A source may answer with more objects than were asked for, and with a newer
/// version.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// At most so many objects in one answer; `None` for all.
    pub limit: Option<u32>,
    /// Where the answer before ended; empty for the first one.
    pub continue_token: String,
    /// The version, see `version_match`; empty for the newest.
    pub resource_version: String,
    /// How `resource_version` is meant.
    pub version_match: VersionMatch,
    /// Only the object of this namespace ("" for none) and name.
    pub only: Option<(String, String)>,
}

/// Since when is watched, and for how long.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// The version that a list or an event had; the watch brings what came after it.
    pub resource_version: String,
    /// The source is to end the watch after so long, in whole seconds; zero is no limit.
    pub server_timeout: Duration,
    /// Asks for all objects first, and for a bookmark behind them (a streaming list). A source that cannot do
    /// so refuses with 422.
    pub send_initial_events: bool,
}

/// The body of an answer, in pieces of any size.
pub struct Body(BoxStream<'static, Result<Bytes, ListWatchError>>);

impl Body {
    /// A body that comes bit by bit, such as that of a watch.
    pub fn new(pieces: impl Stream<Item = Result<Bytes, ListWatchError>> + Send + 'static) -> Self {
        Self(pieces.boxed())
    }

    /// A whole list at a version. The objects are in JSON; each has a name of its own in its namespace.
    pub fn list(of: &ApiResource, resource_version: &str, objects: &[Bytes]) -> Self {
        let head = json!({
            "kind": list_kind(of),
            "apiVersion": of.api_version,
            "metadata": {"resourceVersion": resource_version},
        });
        let mut list = head.to_string().into_bytes();
        list.pop();
        list.extend_from_slice(b",\"items\":[");
        for (at, object) in objects.iter().enumerate() {
            if at > 0 {
                list.push(b',');
            }
            list.extend_from_slice(object);
        }
        list.extend_from_slice(b"]}");
        Self::new(stream::iter([Ok(list.into())]))
    }

    /// The events of a watch, whose objects are in JSON, until the stream ends. A [`ListWatchError::Status`] in it ends
    /// the watch as an ERROR of an API server does; any other error is a connection that breaks.
    pub fn events(
        events: impl Stream<Item = Result<WatchEvent, ListWatchError>> + Send + 'static,
    ) -> Self {
        Self::new(events.map(|event| event.map(|event| event.to_line())))
    }

    /// The next piece; `None` at the end. Dropping the future loses nothing.
    async fn next(&mut self) -> Result<Option<Bytes>, ListWatchError> {
        self.0.next().await.transpose()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

fn panicked(call: Call, panic: &str) -> ListWatchError {
    let reason = format!("the source panicked: {panic}");
    ListWatchError::Transport { call, reason, connection_refused: false }
}

fn list_kind(of: &ApiResource) -> String {
    format!("{}List", of.kind)
}

/// A source with what is said of it in errors.
#[derive(Clone)]
pub(super) struct Source {
    inner: Arc<dyn ListerWatcher>,
    expected: ApiResource,
    plural: Arc<str>,
}

impl Source {
    pub(super) fn new(source: impl ListerWatcher) -> Self {
        let expected = source.expected();
        let plural = (&*expected.plural).into();
        Self { inner: Arc::new(source), expected, plural }
    }

    pub(super) fn expected(&self) -> &ApiResource {
        &self.expected
    }

    /// The kind that its lists state.
    pub(super) fn list_kind(&self) -> String {
        list_kind(&self.expected)
    }

    pub(super) fn call(&self, verb: &'static str) -> Call {
        Call { verb, resource: Arc::clone(&self.plural) }
    }

    pub(super) async fn list(&self, options: &ListOptions) -> Result<Answer, ListWatchError> {
        self.answer("list", || self.inner.list(options)).await
    }

    pub(super) async fn watch(&self, options: &WatchOptions) -> Result<Answer, ListWatchError> {
        self.answer("watch", || self.inner.watch(options)).await
    }

    async fn answer<'a>(
        &self,
        verb: &'static str,
        ask: impl FnOnce() -> BoxFuture<'a, Result<Body, ListWatchError>>,
    ) -> Result<Answer, ListWatchError> {
        let call = self.call(verb);
        let body = caught_future(async { ask().await });
        match timeout(CALL_TIMEOUT, body).await {
            Ok(Ok(body)) => Ok(Answer { call, body: body? }),
            Ok(Err(panic)) => Err(panicked(call, &panic)),
            Err(_) => Err(ListWatchError::Stalled { call, waited: CALL_TIMEOUT }),
        }
    }
}

/// The body of an answer, with what it answers.
pub(super) struct Answer {
    pub(super) call: Call,
    pub(super) body: Body,
}

impl Answer {
    /// The next piece of the body; `None` at its end. Dropping the future loses nothing.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, ListWatchError> {
        let next = caught_future(self.body.next()).await;
        next.unwrap_or_else(|panic| Err(panicked(self.call.clone(), &panic)))
    }

    /// The same for a list, with a bound on the wait.
    pub(super) async fn list_chunk(&mut self) -> Result<Option<Bytes>, ListWatchError> {
        let call = self.call.clone();
        timeout(ANSWER_TIMEOUT, self.chunk())
            .await
            .unwrap_or(Err(ListWatchError::Stalled { call, waited: ANSWER_TIMEOUT }))
    }
}
