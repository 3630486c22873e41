//! A store that tells all that it holds, each time that any of it changes.

use std::{collections::HashSet, fmt, sync::Arc};

use super::{
    DeletedFinalStateUnknown, Listed, Object, ObjectStore, Store, StoreWriter, TransformError,
};

/// Tells the complete state on every change: client-go's `UndeltaStore`.
///
/// Made for a consumer that compares states itself and cares for none of what an informer does, which is
/// changes one by one, handlers, indexes. The kubelet is one: its Pods come from the API server, from a
/// directory and from a URL, and each of these sources says "these are all my Pods now". What is to be done
/// follows from the difference to the Pods that it runs, wherever the change came from, so it does not matter
/// which change it was nor whether one was missed. A node has few Pods, so to tell all costs little.
/// A controller has many objects, and other handlers beside it: it takes an informer, which tells what has
/// changed. The example `static_pods` shows the kubelet's.
///
/// Every change, and every list, leads to one call, which runs on the reflector's task: it is to hand the
/// objects on, not to work on them. A resync leads to none.
///
/// ```no_run
/// # use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use kube_machinery::cache::{Reflector, ReflectorOptions, ResourceApi, UndeltaStore};
///
/// # async fn run(pods: ResourceApi) {
/// let (push, mut states) = tokio::sync::mpsc::unbounded_channel();
/// let store = UndeltaStore::<Pod>::new(move |all: Vec<Arc<Pod>>| drop(push.send(all)));
/// tokio::spawn(Reflector::for_objects(pods, store, ReflectorOptions::default()).run());
/// while let Some(all) = states.recv().await {
///     println!("{} Pods", all.len());
/// }
/// # }
/// ```
pub struct UndeltaStore<K> {
    store: StoreWriter<K>,
    push: Push<K>,
}

type Push<K> = Box<dyn Fn(Vec<Arc<K>>) + Send + Sync>;

impl<K: Object> UndeltaStore<K> {
    /// An empty store, which calls `push` with all objects, in arbitrary order, on every change.
    pub fn new(push: impl Fn(Vec<Arc<K>>) + Send + Sync + 'static) -> Self {
        Self { store: StoreWriter::default(), push: Box::new(push) }
    }

    /// The objects that it holds, to be read.
    pub fn store(&self) -> Store<K> {
        self.store.store()
    }

    fn push(&self) {
        (self.push)(self.store.list());
    }
}

impl<K: Object> ObjectStore<K> for UndeltaStore<K> {
    fn add(&self, object: K) -> Result<(), TransformError> {
        self.update(object)
    }

    fn update(&self, object: K) -> Result<(), TransformError> {
        self.store.add(Arc::new(object));
        self.push();
        Ok(())
    }

    fn delete(&self, object: K) -> Result<(), TransformError> {
        self.delete_tombstone(DeletedFinalStateUnknown {
            key: super::meta_namespace_key(&object),
            object: None,
        });
        Ok(())
    }

    fn delete_tombstone(&self, tombstone: DeletedFinalStateUnknown<K>) {
        self.store.delete(&tombstone.key);
        self.push();
    }

    fn replace_keeping(
        &self,
        items: Vec<Listed<K>>,
        kept: &HashSet<String>,
    ) -> Result<(), TransformError> {
        let kept = kept.iter().filter_map(|key| self.store.get_by_key(key)).map(Ok);
        let all = kept.chain(items).collect::<Result<_, _>>()?;
        self.store.replace(all);
        self.push();
        Ok(())
    }

    fn resync(&self) {}
}

impl<K: Object> fmt::Debug for UndeltaStore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UndeltaStore").field("objects", &self.store.len()).finish_non_exhaustive()
    }
}
