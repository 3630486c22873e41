//! Keeping up with what the API server holds: list, watch, and what to do when either fails; and
//! what stands on that.
//!
//! - [`Reflector`] is the state machine; it lists and watches a [`ListerWatcher`], which is a
//!   [`ResourceApi`] as a rule, and feeds a
//!   [`ReflectorStore`], which takes lists in pages and changes one stream read at a time. The
//!   reflector itself keeps no object in memory.
//!   One that feeds objects in place of JSON ([`Reflector::for_objects`]) feeds an [`ObjectStore`]: a queue,
//!   or an [`UndeltaStore`].
//! - What does keep them is a [`Store`]: objects by key and by index, which [`Lister`]s read. Between
//!   a reflector and a store stands a [`Queue`] of what happened, [`InOrderFifo`] or [`DeltaFifo`]:
//!   it finds in a list what is gone, and gives whoever pops it one change after the other to apply.
//! - [`SharedInformer`] is the three together: a cache of one resource, with handlers that are told
//!   of each change. [Its guide](informer) is where to begin. [`Metadata`] is what it keeps where
//!   metadata is enough.
//! - [`workqueue`] is what a controller does its work by, and [`Controller`] holds it together with the
//!   informers.

mod answer;
mod api;
mod backoff;
mod controller;
mod delta;
mod delta_fifo;
mod error;
mod exact;
#[cfg(test)]
mod fixture;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod head;
mod in_order;
mod indexer;
pub mod informer;
mod lines;
mod list_items;
mod lister;
mod lister_watcher;
mod low_level;
mod metadata;
mod object;
mod object_feed;
mod object_set;
mod object_store;
mod queue;
mod reflector;
mod reflector_store;
mod store;
mod undelta_store;
pub mod workqueue;

pub use crate::words::with_causes;
#[doc(hidden)]
pub use crate::{panics, words::short};
pub use answer::Answer;
pub use api::ResourceApi;
pub use backoff::{Backoff, BackoffManager};
pub use controller::{Controller, ControllerReport, Ended};
pub use delta::{DeletedFinalStateUnknown, Delta, DeltaObject, DeltaType};
pub use delta_fifo::{DeltaFifo, DeltaFifoOptions};
pub use error::{Call, ListWatchError};
pub use in_order::InOrderFifo;
pub use indexer::{IndexError, IndexFunc, Indexers, NAMESPACE_INDEX, namespace_index_func};
pub use informer::{
    AlreadySetUp, AlreadyStarted, CacheSync, Decode, DecodeError, FilteringResourceEventHandler,
    HandlerFuncs, HandlerRegistration, InformerBuilder, InformerFailed, InformerStopped,
    Notification, Notifications, QueueKind, ResourceEventHandler, SharedInformer,
    SharedInformerFactory, Synced, wait_for_cache_sync,
};
pub use lines::LineError;
pub use list_items::ListError;
pub use lister::{Lister, NamespaceLister};
pub use lister_watcher::{ListOptions, ListerWatcher, VersionMatch, WatchOptions};
pub use low_level::LowLevelController;
pub use metadata::{Metadata, OwnerReference};
pub use object::{Object, meta_namespace_key, object_key, split_meta_namespace_key};
pub use object_feed::ObjectFeed;
pub use object_store::{Listed, ObjectStore};
pub use queue::{
    KnownObjects, PopError, Queue, TransformError, TransformFunc, without_managed_fields,
};
pub use reflector::{
    Follow, Reconnect, Reflector, ReflectorMetrics, ReflectorOptions, SharedHealth, SourceHealth,
    StartFrom, WatchErrorHandler, Witness, Witnesses,
};
pub use reflector_store::{
    Applied, ReflectorStore, ReplaceReason, Replaced, StoreClosed, WatchEvent, WatchEventType,
    resource_version_of,
};
pub use store::{Store, StoreWriter};
pub use undelta_store::UndeltaStore;
