//! Keeping up with what the API server holds: list, watch, and what to do when either fails.
//!
//! [`Reflector`] is the state machine; it feeds a [`Store`], which takes lists in pages and
//! changes one stream read at a time. Nothing here keeps an object in memory.

mod api;
mod backoff;
mod delta;
mod delta_fifo;
mod in_order;
mod indexer;
mod lines;
mod list_items;
mod lister;
mod metadata;
mod object;
mod object_set;
mod queue;
mod reflector;
mod store;
mod thread_safe_store;
pub mod workqueue;

pub use api::{EventsApi, ListWatchError, with_causes};
pub use backoff::BackoffManager;
pub use delta::{DeletedFinalStateUnknown, Delta, DeltaObject, DeltaType};
pub use delta_fifo::{DeltaFifo, DeltaFifoOptions};
pub use in_order::InOrderFifo;
pub use indexer::{IndexError, IndexFunc, Indexers, NAMESPACE_INDEX, namespace_index_func};
pub use lines::LineError;
pub use list_items::ListError;
pub use lister::{Lister, NamespaceLister};
pub use metadata::{Metadata, OwnerReference};
pub use object::{Object, meta_namespace_key, split_meta_namespace_key};
pub use queue::{KnownObjects, PopError, Queue, TransformError, TransformFunc};
pub use reflector::{Reflector, ReflectorOptions, SharedHealth, SourceHealth, StartFrom};
pub use store::{
    ReplaceReason, Store, StoreClosed, WatchEvent, WatchEventType, resource_version_of,
};
pub use thread_safe_store::Store as ObjectStore;
