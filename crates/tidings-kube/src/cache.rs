//! Keeping up with what the API server holds: list, watch, and what to do when either fails; and
//! what stands on that.
//!
//! - [`Reflector`] is the state machine; it lists and watches a [`ResourceApi`] and feeds a
//!   [`ReflectorStore`], which takes lists in pages and changes one stream read at a time. The
//!   reflector itself keeps no object in memory.
//! - What does keep them is a [`Store`]: objects by key and by index, which [`Lister`]s read. Between
//!   a reflector and a store stands a [`Queue`] of what happened, [`InOrderFifo`] or [`DeltaFifo`]:
//!   it finds in a list what is gone, and gives whoever pops it one change after the other to apply.
//! - [`SharedInformer`] is the three together: a cache of one resource, with handlers that are told
//!   of each change. [Its guide](informer) is where to begin. [`Metadata`] is what it keeps where
//!   metadata is enough.
//! - [`workqueue`] is what a controller does its work by.

mod api;
mod backoff;
mod delta;
mod delta_fifo;
mod error;
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
mod metadata;
mod object;
mod object_set;
pub mod panics;
mod queue;
mod reflector;
mod reflector_store;
mod store;
pub mod workqueue;

pub use api::ResourceApi;
pub use backoff::{Backoff, BackoffManager};
pub use delta::{DeletedFinalStateUnknown, Delta, DeltaObject, DeltaType};
pub use delta_fifo::{DeltaFifo, DeltaFifoOptions};

pub use error::{Call, ListWatchError, short, with_causes};
pub use in_order::InOrderFifo;
pub use indexer::{IndexError, IndexFunc, Indexers, NAMESPACE_INDEX, namespace_index_func};
pub use informer::{
    AlreadyStarted, CacheSync, Decode, DecodeError, HandlerFuncs, HandlerRegistration,
    InformerBuilder, InformerStopped, QueueKind, ResourceEventHandler, SharedInformer,
    SharedInformerFactory, Synced, wait_for_cache_sync,
};
pub use lines::LineError;
pub use list_items::ListError;
pub use lister::{Lister, NamespaceLister};
pub use metadata::{Metadata, OwnerReference};
pub use object::{Object, meta_namespace_key, object_key, split_meta_namespace_key};
pub use queue::{KnownObjects, PopError, Queue, TransformError, TransformFunc};
pub use reflector::{
    Follow, Reconnect, Reflector, ReflectorOptions, SharedHealth, SourceHealth, StartFrom,
    WatchErrorHandler, Witness, Witnesses,
};
pub use reflector_store::{
    Applied, ReflectorStore, ReplaceReason, Replaced, StoreClosed, WatchEvent, WatchEventType,
    resource_version_of,
};
pub use store::Store;
