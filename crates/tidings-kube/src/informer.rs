//! Informers: a cache of what the API server holds, and handlers that are told of each change.
//!
//! ```text
//!             JSON        decoded, transformed       deltas in order           a queue each
//! Reflector ───────▶ Feed ───────────────────▶ Queue ───────────────▶ process ─┬────────▶ handler
//! list, watch                                                           │      ├────────▶ handler
//!                                                                       ▼      └────────▶ handler
//!                                                                     Store ◀── listers
//! ```
//!
//! It is client-go's `tools/cache` SharedInformer. One [`SharedInformer`] serves a whole program:
//! however many handlers it has, there is one watch and one copy of each object. A
//! [`SharedInformerFactory`] makes sure of that for several types.
//!
//! What a controller does with it: its handlers put keys on a work queue, its workers take keys
//! from there and look the objects up in the store. The events say only *that* something is to be
//! looked at; what is true is in the store. So nothing is lost when several changes become one.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::core::ApiResource;
//! use tidings_kube::{
//!     informer::{HandlerFuncs, SharedInformer},
//!     object::meta_namespace_key,
//!     reflector::ResourceApi,
//! };
//!
//! # async fn follow(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let api = ResourceApi::new(client, &ApiResource::erase::<ConfigMap>(&())).namespace("shop");
//! let informer = SharedInformer::<ConfigMap>::builder(api).build();
//! let seen = informer.add_handler(
//!     HandlerFuncs::new()
//!         .on_update(|_, map| println!("{} changed", meta_namespace_key(&**map)))
//!         .on_delete(|map| println!("{} is gone", map.key())),
//! )?;
//! tokio::spawn({
//!     let informer = informer.clone();
//!     async move { informer.run().await }
//! });
//! assert!(seen.wait_for_sync().await);
//! println!("{} config maps", informer.store().list().len());
//! informer.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What a handler is told
//!
//! For each object an add, then updates, then a delete, in the order of the API server; another
//! name at another time, as long as each object's own order holds. A list that follows a gap in
//! the watch is told as what differs: updates, adds of what is new, and deletes of what is gone,
//! these as tombstones, because the last state was not seen. An object that was deleted and made
//! again within a gap is one update, with another uid.
//!
//! A handler may be added at any time; late, it is told first what is in the store, as adds of an
//! initial list, while everything else waits for a moment. [`HandlerRegistration::has_synced`]
//! says when it has returned from the last of those.
//!
//! *Resync.* A handler with a period is told of every object in the store again each time, as an
//! update of the object to itself. Lists that bring nothing new go only to handlers that
//! are having a resync (and, until the first check for one, to all).
//!
//! # When a handler is slow, or fails
//!
//! Each handler has a task and a queue of its own, so it makes neither the informer nor another
//! handler wait, and it misses nothing. Its queue grows as long as it is behind, about 50
//! bytes a notification, and keeps the objects alive that it has not seen yet, up to all versions
//! that ever come. [`HandlerRegistration::pending`] is its length; the memory is given back once it
//! is worked off.
//!
//! A handler that panics: client-go ends the process. Here it loses the notification that it
//! panicked on, which is logged and counted ([`HandlerRegistration::panics`]), and is told
//! the next one. A cache that others use as well should not end for one handler's mistake on one
//! object; and whoever wants that can end the process in the panic hook. Such a notification
//! counts as delivered, so that waiting for the handler's sync ends.
//!
//! # What cannot be read
//!
//! An object of another type than was asked for, or JSON that is not its type's, is left out:
//! the error goes to the watch error handler and is [counted](SharedInformer::unreadable). In a
//! watch and in a list the object stays as it was, as long as its name can be read. client-go takes
//! the whole list for failed then, and lists for ever for the sake of one broken custom resource.
//!
//! A deletion is told, as a tombstone, also when the last state cannot be read or the transformer
//! refuses it. client-go keeps an object whose last state its transformer refuses.
//!
//! # The end
//!
//! [`SharedInformer::stop`] ends the reflector and the queue first, then the handlers, each after
//! the call that it is in; what is in the queues is not told any more. [`shutdown`] waits for it.
//! Dropping the future of [`run`] ends everything at once. Nothing goes on in the background after
//! either.
//!
//! [`shutdown`]: SharedInformer::shutdown
//! [`run`]: SharedInformer::run

mod builder;
mod controller;
mod delta;
mod delta_fifo;
mod factory;
mod feed;
mod filtering;
#[cfg(test)]
mod fixture;
mod handler;
mod in_order;
mod indexer;
mod listener;
mod lister;
mod object_set;
mod processor;
mod queue;
mod shared;
mod store;
mod sync;
mod tracker;
mod undelta_store;

pub use builder::{Builder as InformerBuilder, QueueKind};
pub use controller::{Controller, Informer};
pub use delta::{DeletedFinalStateUnknown, Delta, DeltaObject, DeltaType};
pub use delta_fifo::{DeltaFifo, DeltaFifoOptions};
pub use factory::{CacheSync, InformerEnded, SharedInformerFactory};
pub use filtering::FilteringResourceEventHandler;
pub use handler::{HandlerFuncs, ResourceEventHandler};
pub use in_order::InOrderFifo;
pub use indexer::{IndexError, IndexFunc, Indexers, NAMESPACE_INDEX, namespace_index_func};
pub use lister::{Lister, NamespaceLister};
pub use queue::{KnownObjects, PopError, Queue, TransformError, TransformFunc};
pub use shared::{AlreadyStarted, InformerStopped, SharedInformer};
pub use store::Store;
pub use sync::{HandlerRegistration, Synced, wait_for_cache_sync};
pub use undelta_store::UndeltaStore;
