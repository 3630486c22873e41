//! What a program gives to an informer to be told of changes.

use std::{future::Future, sync::Arc};

use super::DeltaObject;
use crate::object::Object;

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
/// use tidings_kube::{informer::HandlerFuncs, object::meta_namespace_key};
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

    /// What to do with an object that is new, and whether it came with the first list.
    #[must_use]
    pub fn on_add(mut self, add: impl FnMut(&Arc<K>, bool) + Send + 'static) -> Self {
        self.add = Some(Box::new(add));
        self
    }

    /// What to do with an object as it was and as it is.
    #[must_use]
    pub fn on_update(mut self, update: impl FnMut(&Arc<K>, &Arc<K>) + Send + 'static) -> Self {
        self.update = Some(Box::new(update));
        self
    }

    /// What to do with an object that is gone.
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
