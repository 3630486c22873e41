//! Keeping up with what the API server holds: list, watch, and what to do when either fails.
//!
//! [`Reflector`] is the state machine; it lists and watches a [`ResourceApi`] and feeds a
//! [`ReflectorStore`], which takes lists in pages and changes one stream read at a time. The
//! reflector itself keeps no object in memory.

mod api;
mod backoff;
mod error;
mod head;
mod lines;
mod list_items;
mod reflector;
mod reflector_store;

pub use api::ResourceApi;
pub use backoff::{Backoff, BackoffManager};
pub use error::{Call, ListWatchError, with_causes};
pub use lines::LineError;
pub use list_items::ListError;
pub use reflector::{
    Follow, Reconnect, Reflector, ReflectorOptions, SharedHealth, SourceHealth, StartFrom,
    WatchErrorHandler,
};
pub use reflector_store::{
    Applied, ReflectorStore, ReplaceReason, StoreClosed, WatchEvent, WatchEventType,
    resource_version_of,
};
