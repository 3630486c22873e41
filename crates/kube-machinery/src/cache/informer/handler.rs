//! Handlers: a program gives them to an informer to be told of changes.

use std::{future::Future, sync::Arc};

use crate::cache::{DeltaObject, Object};

/// Is told of each change of a cache, one at a time, in order (client-go `ResourceEventHandler`).
///
/// The objects are shared with the cache and with other handlers. A handler may take its time: it
/// has a task and a queue of its own, so it holds nobody up; see [the guide](super) for what grows
/// meanwhile. What it leaves out it is not told of.
pub trait ResourceEventHandler<K: Object>: Send + 'static {
    /// An object is new to the cache. `is_in_initial_list` is true for what the informer's first
    /// list brought, and for what a handler that comes later finds in the cache.
    fn on_add(
        &mut self,
        object: Arc<K>,
        is_in_initial_list: bool,
    ) -> impl Future<Output = ()> + Send {
        let _ = (object, is_in_initial_list);
        async {}
    }

    /// An object is another than before. Several changes may have become one, and a resync, like a
    /// list that found nothing new for a handler with a resync period, comes with both the same.
    /// Across a gap in the watch the two may be different objects of one name: compare their uids.
    fn on_update(&mut self, old: Arc<K>, new: Arc<K>) -> impl Future<Output = ()> + Send {
        let _ = (old, new);
        async {}
    }

    /// An object is gone: its last state, or a tombstone if the deletion itself was missed and only
    /// a later list showed it.
    fn on_delete(&mut self, object: DeltaObject<K>) -> impl Future<Output = ()> + Send {
        let _ = object;
        async {}
    }
}

/// A handler made of closures (client-go `ResourceEventHandlerFuncs`), for what is done at once:
/// putting a key on a work queue, most of all.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kube_machinery::cache::{HandlerFuncs, meta_namespace_key};
///
/// let handler = HandlerFuncs::<Pod>::new()
///     .on_add(|pod, _| println!("{} is there", meta_namespace_key(&**pod)))
///     .on_delete(|pod| println!("{} is gone", pod.key()));
/// # let _ = handler;
/// ```
#[expect(clippy::type_complexity, reason = "a name for each would say less")]
pub struct HandlerFuncs<K: Object> {
    add: Option<Box<dyn FnMut(&Arc<K>, bool) + Send>>,
    update: Option<Box<dyn FnMut(&Arc<K>, &Arc<K>) + Send>>,
    delete: Option<Box<dyn FnMut(&DeltaObject<K>) + Send>>,
}

impl<K: Object> Default for HandlerFuncs<K> {
    fn default() -> Self {
        Self { add: None, update: None, delete: None }
    }
}

impl<K: Object> HandlerFuncs<K> {
    /// Does nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has a function called for each object that is new, with whether it came with the first list.
    #[must_use]
    pub fn on_add(mut self, add: impl FnMut(&Arc<K>, bool) + Send + 'static) -> Self {
        self.add = Some(Box::new(add));
        self
    }

    /// Has a function called for each change, with the object as it was and as it is.
    #[must_use]
    pub fn on_update(mut self, update: impl FnMut(&Arc<K>, &Arc<K>) + Send + 'static) -> Self {
        self.update = Some(Box::new(update));
        self
    }

    /// Has a function called for each object that is gone.
    #[must_use]
    pub fn on_delete(mut self, delete: impl FnMut(&DeltaObject<K>) + Send + 'static) -> Self {
        self.delete = Some(Box::new(delete));
        self
    }
}

impl<K: Object> ResourceEventHandler<K> for HandlerFuncs<K> {
    async fn on_add(&mut self, object: Arc<K>, is_in_initial_list: bool) {
        if let Some(add) = &mut self.add {
            add(&object, is_in_initial_list);
        }
    }

    async fn on_update(&mut self, old: Arc<K>, new: Arc<K>) {
        if let Some(update) = &mut self.update {
            update(&old, &new);
        }
    }

    async fn on_delete(&mut self, object: DeltaObject<K>) {
        if let Some(delete) = &mut self.delete {
            delete(&object);
        }
    }
}

/// Tells a handler of the objects that a filter takes, and of an object that it no longer takes as of
/// one that is gone: client-go's `FilteringResourceEventHandler`.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kube_machinery::cache::{FilteringResourceEventHandler, HandlerFuncs, meta_namespace_key};
///
/// let on_node_1 = |pod: &Pod| {
///     pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some("node-1"))
/// };
/// let handler = FilteringResourceEventHandler {
///     filter: on_node_1,
///     handler: HandlerFuncs::new()
///         .on_add(|pod: &std::sync::Arc<Pod>, _| println!("{} is here", meta_namespace_key(&**pod)))
///         .on_delete(|pod| println!("{} is gone", pod.key())),
/// };
/// # let _ = handler;
/// ```
#[derive(Clone, Debug)]
pub struct FilteringResourceEventHandler<F, H> {
    /// Whether an object is for the handler. It must answer the same for the same object.
    pub filter: F,
    /// Those that are told.
    pub handler: H,
}

impl<K, F, H> ResourceEventHandler<K> for FilteringResourceEventHandler<F, H>
where
    K: Object,
    F: Fn(&K) -> bool + Send + Sync + 'static,
    H: ResourceEventHandler<K>,
{
    async fn on_add(&mut self, object: Arc<K>, is_in_initial_list: bool) {
        if (self.filter)(&object) {
            self.handler.on_add(object, is_in_initial_list).await;
        }
    }

    async fn on_update(&mut self, old: Arc<K>, new: Arc<K>) {
        match ((self.filter)(&old), (self.filter)(&new)) {
            (true, true) => self.handler.on_update(old, new).await,
            (true, false) => self.handler.on_delete(DeltaObject::Object(old)).await,
            (false, true) => self.handler.on_add(new, false).await,
            (false, false) => {}
        }
    }

    /// A deletion that brings no object is told: nobody knows whether it is of one that was taken.
    async fn on_delete(&mut self, object: DeltaObject<K>) {
        if object.object().is_none_or(|object| (self.filter)(object)) {
            self.handler.on_delete(object).await;
        }
    }
}
