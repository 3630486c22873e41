//! What a reflector feeds.

use std::future::Future;

use bytes::Bytes;
use serde::Deserialize;

/// Why a list replaces what was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceReason {
    /// Nothing has been read before: the first list.
    First,
    /// The watch could not be resumed. `last_sign_of_life_ms` is when the API server was last
    /// heard of by this process, in milliseconds since the epoch; `None` when it never was.
    Gap {
        /// See above.
        last_sign_of_life_ms: Option<u64>,
    },
    /// The API server knows less than the resume point: its etcd was restored from a snapshot, or
    /// it is another one. resourceVersions from before say nothing any more. Only where changes
    /// are followed ([`Follow::Changes`](super::Follow)).
    NewEpoch,
}

/// What happened to the object of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the watch protocol")]
pub enum WatchEventType {
    Added,
    Modified,
    Deleted,
    /// Nothing: the object says how far the watch has come, and has little else than a
    /// resourceVersion.
    Bookmark,
    /// Some type that this client does not know. Like client-go, take the resourceVersion, and
    /// leave the object.
    Unknown,
}

/// One line of a watch stream.
#[derive(Clone, Debug)]
pub struct WatchEvent {
    /// What happened.
    pub kind: WatchEventType,
    /// The object's JSON, not decoded yet.
    pub object: Bytes,
}

/// What became of the events of one [`ReflectorStore::apply`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// How many could be read.
    pub taken: u64,
    /// The resourceVersion of the last of them ("" if it has none): where the watch is to be taken
    /// up when it breaks off. `None` if none could be read.
    pub resource_version: Option<String>,
}

/// What became of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The store has it.
    Kept,
    /// It could not keep it: the list has to be fetched again.
    NotKept,
    /// It had room for a part of it, and has that: the list has to be fetched again for the rest.
    Partly,
    /// The list contradicts what was read before, so it is of another history, and everything has to
    /// be fetched as of a [new epoch](ReplaceReason::NewEpoch). Only where changes are followed.
    OtherHistory,
}

/// The store has ended, because the program stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store has ended")]
pub struct StoreClosed;

/// What a reflector feeds (client-go's `cache.ReflectorStore`). Every call may wait, which is how a
/// slow store slows its reflector down.
///
/// A list comes as `begin_replace`, any number of `replace_page`, and `end_replace` when the whole
/// list is in, or `abort` when it will never be.
pub trait ReflectorStore: Send {
    /// A list begins.
    fn begin_replace(
        &mut self,
        reason: ReplaceReason,
    ) -> impl Future<Output = Result<(), StoreClosed>> + Send;

    /// Some objects of the list, in the order of the API server. Each is JSON as the server wrote
    /// it, where the items of a list say neither their kind nor their apiVersion.
    fn replace_page(
        &mut self,
        items: Vec<Bytes>,
    ) -> impl Future<Output = Result<(), StoreClosed>> + Send;

    /// Why the list that is on its way cannot be kept, or the last one was [not](Replaced::NotKept), and
    /// what to do about it. While a list is on its way, the rest of it is not fetched then. The watch
    /// error handler is told.
    fn cannot_keep(&self) -> Option<String> {
        None
    }

    /// The list is whole; it was taken at this resourceVersion.
    fn end_replace(
        &mut self,
        resource_version: &str,
    ) -> impl Future<Output = Result<Replaced, StoreClosed>> + Send;

    /// The list broke off; what came of it is to be forgotten.
    fn abort(&mut self) -> impl Future<Output = Result<(), StoreClosed>> + Send;

    /// Changes of a watch, in order. What the store cannot read (another kind, not JSON) it reports
    /// and skips, and does not count.
    fn apply(
        &mut self,
        events: Vec<WatchEvent>,
    ) -> impl Future<Output = Result<Applied, StoreClosed>> + Send;

    /// What was given so far is all that had happened by this time, in milliseconds since the epoch.
    /// Called after [`apply`](Self::apply), once a second at most, while something is heard; not
    /// after lists. Only where changes are followed.
    fn caught_up(&mut self, at_ms: u64) -> impl Future<Output = Result<(), StoreClosed>> + Send {
        let _ = at_ms;
        async { Ok(()) }
    }

    /// Another resync period has passed while the source is followed. Whether anybody is due is the
    /// store's to know.
    fn resync(&mut self) -> impl Future<Output = Result<(), StoreClosed>> + Send;

    /// The source is to be followed from this resourceVersion, without what was before. Only where
    /// changes are followed from now on ([`StartFrom::Now`](super::StartFrom)).
    fn start_at(
        &mut self,
        resource_version: &str,
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
