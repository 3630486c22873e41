//! Where a reflector lists and watches.

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use kube::core::ApiResource;

use super::{Answer, Call, ListWatchError};

/// A source of objects that a reflector can follow: client-go's `ListerWatcher`.
///
/// [`ResourceApi`](super::ResourceApi), a resource of an API server, is one. Others are the manifests of a
/// directory, as the kubelet's static Pods are, and what a test makes up.
///
/// The two calls belong together: a watch goes on where a list, or the watch before it, has ended, by its
/// resourceVersion. A source that keeps no history answers a watch from any version but the newest with
/// [`ListWatchError::expired`], and is listed again. resourceVersions are opaque to an informer.
///
/// Beside a watch that brings nothing for [`silence`](super::ReflectorOptions::silence) another is asked for,
/// from the same resourceVersion.
pub trait ListerWatcher: Send + Sync + 'static {
    /// The resource that is listed and watched: its plural stands in logs and errors.
    fn resource(&self) -> &ApiResource;

    /// The type that the objects state, where that is not the resource: `PartialObjectMetadata`.
    fn expected(&self) -> ApiResource {
        self.resource().clone()
    }

    /// All objects that there are, as [`Answer::list`]. A source whose lists are short may ignore the
    /// options.
    fn list(
        &self,
        options: &ListOptions,
    ) -> impl Future<Output = Result<Answer, ListWatchError>> + Send;

    /// All changes from a resourceVersion on, as [`Answer::watch`].
    fn watch(
        &self,
        options: &WatchOptions,
    ) -> impl Future<Output = Result<Answer, ListWatchError>> + Send;
}

/// How the resourceVersion of a list is meant (`resourceVersionMatch`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionMatch {
    /// As it always was: it depends on the other members.
    #[default]
    Unset,
    /// The newest, if it is no older than this.
    NotOlderThan,
    /// As it was at that version.
    Exact,
}

impl VersionMatch {
    /// The value of the query; empty for none.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::NotOlderThan => "NotOlderThan",
            Self::Exact => "Exact",
        }
    }
}

/// Which part of a list is asked for.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ListOptions {
    /// At most so many items; `None` for the whole list.
    pub limit: Option<u32>,
    /// Where the page before ended; empty on the first page.
    pub continue_token: String,
    /// How old the list may be: "" for the newest, "0" for any, otherwise no older than this.
    pub resource_version: String,
    /// How [`resource_version`](Self::resource_version) is meant.
    pub version_match: VersionMatch,
    /// Only the object of this namespace and name; asked with
    /// [`Follow::Changes`](super::Follow::Changes) only.
    pub only: Option<(String, String)>,
}

/// From where, and for how long, to watch.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WatchOptions {
    /// The resourceVersion up to which all changes are known.
    pub resource_version: String,
    /// The watch is to end after so long; whole seconds.
    pub timeout: Duration,
    /// Asks for all objects first, as added, and for a bookmark behind them: a
    /// [streaming list](super::ReflectorOptions::streaming_lists). A source that has none answers with an
    /// error, and is listed.
    pub send_initial_events: bool,
}

/// A [`ListerWatcher`] of any type.
#[derive(Clone)]
pub(super) struct Source {
    calls: Arc<dyn Calls>,
    plural: Arc<str>,
}

trait Calls: Send + Sync {
    fn resource(&self) -> &ApiResource;
    fn expected(&self) -> ApiResource;
    fn list<'a>(&'a self, options: &'a ListOptions) -> Called<'a>;
    fn watch<'a>(&'a self, options: &'a WatchOptions) -> Called<'a>;
}

type Called<'a> = BoxFuture<'a, Result<Answer, ListWatchError>>;

impl<L: ListerWatcher> Calls for L {
    fn resource(&self) -> &ApiResource {
        ListerWatcher::resource(self)
    }

    fn expected(&self) -> ApiResource {
        ListerWatcher::expected(self)
    }

    fn list<'a>(&'a self, options: &'a ListOptions) -> Called<'a> {
        Box::pin(ListerWatcher::list(self, options))
    }

    fn watch<'a>(&'a self, options: &'a WatchOptions) -> Called<'a> {
        Box::pin(ListerWatcher::watch(self, options))
    }
}

impl Source {
    pub(super) fn new(source: impl ListerWatcher) -> Self {
        let plural = (&*source.resource().plural).into();
        Self { calls: Arc::new(source), plural }
    }

    pub(super) fn resource(&self) -> &ApiResource {
        self.calls.resource()
    }

    pub(super) fn expected(&self) -> ApiResource {
        self.calls.expected()
    }

    /// The kind that lists of it state.
    pub(super) fn list_kind(&self) -> String {
        self.expected().kind + "List"
    }

    pub(super) fn call(&self, verb: &'static str) -> Call {
        Call { verb, resource: Arc::clone(&self.plural) }
    }

    pub(super) async fn list(&self, options: &ListOptions) -> Result<Answer, ListWatchError> {
        self.calls.list(options).await
    }

    pub(super) async fn watch(&self, options: &WatchOptions) -> Result<Answer, ListWatchError> {
        self.calls.watch(options).await
    }
}
