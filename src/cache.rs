//! Keeping up with what the API server holds: list, watch, and what to do when either fails.
//!
//! [`Reflector`] is the state machine; it feeds a [`Store`], which takes lists in pages and
//! changes one stream read at a time. Nothing here keeps an object in memory.

mod api;
mod backoff;
mod lines;
mod list_items;
mod metadata;
mod reflector;
mod store;
pub mod workqueue;

pub use api::{EventsApi, ListWatchError, with_causes};
pub use backoff::BackoffManager;
pub use lines::LineError;
pub use list_items::ListError;
pub use metadata::{Metadata, OwnerReference};
pub use reflector::{Reflector, ReflectorOptions, SharedHealth, SourceHealth, StartFrom};
pub use store::{
    ReplaceReason, Store, StoreClosed, WatchEvent, WatchEventType, resource_version_of,
};
