//! A handler that is told of some objects only.

use std::sync::Arc;

use super::{DeltaObject, ResourceEventHandler};
use crate::object::Object;

/// Tells a handler of the objects that a filter takes (client-go `FilteringResourceEventHandler`).
///
/// An object that the filter takes after a change and did not take before is told as an add, and the other way
/// round as a delete. A deletion goes by the last state; one whose last state is not known is told.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use tidings_kube::informer::{FilteringResourceEventHandler, HandlerFuncs};
///
/// let on_a_node = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
/// let handler = FilteringResourceEventHandler::new(
///     on_a_node,
///     HandlerFuncs::<Pod>::new().on_add(|_, _| println!("a Pod has a node")),
/// );
/// # let _ = handler;
/// ```
pub struct FilteringResourceEventHandler<F, H> {
    filter: F,
    handler: H,
}

impl<F, H> FilteringResourceEventHandler<F, H> {
    /// Tells `handler` of what `filter` takes.
    pub fn new(filter: F, handler: H) -> Self {
        Self { filter, handler }
    }
}

impl<K, F, H> ResourceEventHandler<K> for FilteringResourceEventHandler<F, H>
where
    K: Object,
    F: FnMut(&K) -> bool + Send + 'static,
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
            (false, true) => self.handler.on_add(new, false).await,
            (true, false) => self.handler.on_delete(DeltaObject::Object(old)).await,
            (false, false) => {}
        }
    }

    async fn on_delete(&mut self, object: DeltaObject<K>) {
        if object.object().is_none_or(|object| (self.filter)(object)) {
            self.handler.on_delete(object).await;
        }
    }
}
