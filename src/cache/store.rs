//! What a reflector feeds.

use std::future::Future;

use bytes::Bytes;
use serde::Deserialize;

/// Why a list replaces what was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceReason {
    /// There is no resume point: the source's first start.
    First,
    /// The watch could not be resumed. `last_sign_of_life_ms` is when the API server was last
    /// heard of by this process, in milliseconds since the epoch; `None` when it never was.
    Gap {
        /// See above.
        last_sign_of_life_ms: Option<u64>,
    },
    /// The API server knows less than the resume point: its etcd was restored from a snapshot, or
    /// it is another one. resourceVersions from before say nothing any more.
    NewEpoch,
}

/// What happened to the object of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the watch protocol")]
pub enum WatchEventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
}

/// One line of a watch stream.
#[derive(Clone, Debug)]
pub struct WatchEvent {
    /// What happened.
    pub kind: WatchEventType,
    /// The object's JSON, not decoded yet.
    pub object: Bytes,
}

/// The store has ended, because the program stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store has ended")]
pub struct StoreClosed;

/// What a reflector feeds. Every call may wait, which is how a slow store slows its reflector down.
///
/// A list comes as `begin_replace`, any number of `replace_page`, and `end_replace` when the whole
/// list is in, or `abort` when it will never be.
pub trait Store: Send {
    /// A list begins.
    fn begin_replace(
        &mut self,
        reason: ReplaceReason,
    ) -> impl Future<Output = Result<(), StoreClosed>> + Send;

    /// Some objects of the list, in the order of the API server.
    fn replace_page(
        &mut self,
        items: Vec<Bytes>,
    ) -> impl Future<Output = Result<(), StoreClosed>> + Send;

    /// The list is whole; it was taken at this resourceVersion. Answers whether the store could
    /// keep it; if not, the list has to be fetched again.
    fn end_replace(
        &mut self,
        resource_version: u64,
    ) -> impl Future<Output = Result<bool, StoreClosed>> + Send;

    /// The list broke off; what came of it is to be forgotten.
    fn abort(&mut self) -> impl Future<Output = Result<(), StoreClosed>> + Send;

    /// Changes of a watch, in order.
    fn apply(
        &mut self,
        events: Vec<WatchEvent>,
    ) -> impl Future<Output = Result<(), StoreClosed>> + Send;

    /// The source is to be followed from this resourceVersion, without what was before.
    fn start_at(
        &mut self,
        resource_version: u64,
    ) -> impl Future<Output = Result<(), StoreClosed>> + Send;
}

/// The resourceVersion of an object, as a number, without decoding the rest of it.
pub fn resource_version_of(object: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        resource_version: &'a str,
    }
    serde_json::from_slice::<Object<'_>>(object).ok()?.metadata.resource_version.parse().ok()
}
