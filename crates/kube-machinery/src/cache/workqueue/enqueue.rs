//! From an informer's handlers to a work queue.

use std::{any::TypeId, hash::Hash, sync::Arc};

use k8s_openapi::ClusterResourceScope;
use kube::Resource;

use super::RateLimitingQueue;
use crate::cache::{DeltaObject, Object, ResourceEventHandler, meta_namespace_key, object_key};

/// A handler that adds the key of each object that comes, changes or goes.
pub fn enqueue<K: Object>(
    queue: &RateLimitingQueue<String>,
) -> impl ResourceEventHandler<K> + use<K> {
    Keys { queue: queue.clone() }
}

/// A handler that adds what `map` makes of each object that comes, changes or goes: of one that changes,
/// of its state before and after, so that neither of two places that it moves between is forgotten.
pub fn enqueue_mapped<K, T, F>(
    queue: &RateLimitingQueue<T>,
    map: F,
) -> impl ResourceEventHandler<K> + use<K, T, F>
where
    K: Object,
    T: Clone + Eq + Hash + Send + Sync + 'static,
    F: Fn(&K) -> Vec<T> + Send + Sync + 'static,
{
    Mapped { queue: queue.clone(), map }
}

/// A handler that adds the key of the controller of each object that comes, changes or goes, if that is
/// an `O`: of the Deployment of each ReplicaSet.
pub fn enqueue_owner<O, K>(
    queue: &RateLimitingQueue<String>,
) -> impl ResourceEventHandler<K> + use<O, K>
where
    O: Resource<DynamicType = (), Scope: 'static>,
    K: Resource + Send + Sync + 'static,
{
    enqueue_mapped(queue, |object: &K| {
        let owners = object.meta().owner_references.iter().flatten();
        let of_kind = owners.filter(|owner| {
            let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
            owner.controller == Some(true) && owner.kind == O::kind(&()) && group == O::group(&())
        });
        // An owner is in the namespace of what it owns, or in none.
        let whole_cluster = TypeId::of::<O::Scope>() == TypeId::of::<ClusterResourceScope>();
        let namespace = object.meta().namespace.as_deref().filter(|_| !whole_cluster);
        of_kind.map(|owner| object_key(namespace.unwrap_or_default(), &owner.name)).collect()
    })
}

struct Keys {
    queue: RateLimitingQueue<String>,
}

impl<K: Object> ResourceEventHandler<K> for Keys {
    async fn on_add(&mut self, object: Arc<K>, _: bool) {
        self.queue.add(meta_namespace_key(&*object));
    }

    async fn on_update(&mut self, _: Arc<K>, new: Arc<K>) {
        self.queue.add(meta_namespace_key(&*new));
    }

    async fn on_delete(&mut self, object: DeltaObject<K>) {
        self.queue.add(object.key());
    }
}

struct Mapped<T: Clone + Eq + Hash, F> {
    queue: RateLimitingQueue<T>,
    map: F,
}

impl<T: Clone + Eq + Hash, F> Mapped<T, F> {
    fn add<K>(&self, object: &K)
    where
        F: Fn(&K) -> Vec<T>,
    {
        for item in (self.map)(object) {
            self.queue.add(item);
        }
    }
}

impl<K, T, F> ResourceEventHandler<K> for Mapped<T, F>
where
    K: Object,
    T: Clone + Eq + Hash + Send + Sync + 'static,
    F: Fn(&K) -> Vec<T> + Send + Sync + 'static,
{
    async fn on_add(&mut self, object: Arc<K>, _: bool) {
        self.add(&*object);
    }

    async fn on_update(&mut self, old: Arc<K>, new: Arc<K>) {
        self.add(&*old);
        self.add(&*new);
    }

    async fn on_delete(&mut self, object: DeltaObject<K>) {
        if let Some(object) = object.object() {
            self.add(&**object);
        }
    }
}
