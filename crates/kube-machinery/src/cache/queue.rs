//! Queues of changes, which stand between a reflector and an informer.

#[cfg(test)]
mod tests;
mod waiting;

use std::{error::Error, future::Future, sync::Arc};

use kube::Resource;

pub(super) use self::waiting::{Entries, Inside, OnError, Waiting};
use super::{
    DeletedFinalStateUnknown, Delta, DeltaObject, DeltaType, Object, ObjectStore,
    meta_namespace_key,
};

/// Changes each object before anything else sees it, for instance to leave out what nobody reads.
/// For a change of a watch it runs while the queue is locked, so it must not take long. client-go's
/// `TransformFunc`.
pub type TransformFunc<K> = Arc<dyn Fn(K) -> Result<K, Box<dyn Error + Send + Sync>> + Send + Sync>;

/// A transformer that leaves out `metadata.managedFields`, which most programs never read and which are
/// more than half of a typical object in memory.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use kube_machinery::cache::{InformerBuilder, without_managed_fields};
/// # fn set_up(builder: InformerBuilder<Pod>) -> InformerBuilder<Pod> {
/// builder.transform(without_managed_fields)
/// # }
/// ```
///
/// # Errors
///
/// None; a transformer may have some.
pub fn without_managed_fields<K: Resource>(
    mut object: K,
) -> Result<K, Box<dyn Error + Send + Sync>> {
    object.meta_mut().managed_fields = None;
    Ok(object)
}

/// The transformer did not take an object, which was not queued.
#[derive(Debug, thiserror::Error)]
#[error("cannot transform {key:?}")]
#[non_exhaustive]
pub struct TransformError {
    /// The key of the object.
    pub key: String,
    /// The error of the transformer.
    pub source: Box<dyn Error + Send + Sync>,
}

/// Why nothing was popped, or what the processing of it said.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PopError<E> {
    /// The queue is closed and empty. client-go's `ErrFIFOClosed`.
    #[error("the queue is closed")]
    Closed,
    /// The error of processing what was popped.
    #[error(transparent)]
    Process(E),
}

/// The objects that the consumer of a queue knows already. A queue compares a list with
/// them to find what is gone, and takes them from here for a resync. client-go's
/// `KeyListerGetter`; a [`Store`](super::Store) is one.
pub trait KnownObjects<K>: Send + Sync {
    /// The keys of all objects.
    fn list_keys(&self) -> Vec<String>;

    /// One of them.
    fn get_by_key(&self, key: &str) -> Option<Arc<K>>;
}

/// A queue of changes between one producer, a reflector, and one consumer. client-go's `Queue`.
///
/// Every call takes effect at once, as one. A change that is queued goes through the transformer
/// first, except tombstones and what a resync repeats, which have been through it. A
/// [resync](ObjectStore::resync) queues every known object with nothing queued once more, as
/// [`DeltaType::Sync`].
pub trait Queue<K: Object>: ObjectStore<K> {
    /// Whether everything of the first list was popped, or something else came before it.
    fn has_synced(&self) -> bool;

    /// Ends it: what is queued can still be popped, and then [`pop`](Self::pop) answers
    /// [`PopError::Closed`]. It does not keep anybody from adding more.
    fn close(&self);

    /// Waits until there is something, takes it out and has it processed.
    ///
    /// `process` gets the deltas of one object, oldest first, and whether they are of the first
    /// list. It runs while the queue is locked, so that what is known and what is queued change
    /// as one; it must neither wait nor call the queue. What it cannot process is gone.
    ///
    /// Dropping the future before it is ready takes nothing out.
    fn pop<R, E>(
        &self,
        process: impl FnOnce(&[Delta<K>], bool) -> Result<R, E> + Send,
    ) -> impl Future<Output = Result<R, PopError<E>>> + Send;

    /// As [`pop`](Self::pop), but what could not be processed goes back to the end of the queue, in
    /// the same instant. client-go had it until 1.32 as `ErrRequeue`.
    fn pop_or_requeue<R, E>(
        &self,
        process: impl FnOnce(&[Delta<K>], bool) -> Result<R, E> + Send,
    ) -> impl Future<Output = Result<R, PopError<E>>> + Send;
}

/// An object after the transformer.
pub(super) fn transformed<K: Object>(
    transformer: Option<&TransformFunc<K>>,
    object: K,
) -> Result<K, TransformError> {
    let Some(transform) = transformer else { return Ok(object) };
    let key = meta_namespace_key(&object);
    transform(object).map_err(|source| TransformError { key, source })
}

/// The deltas for what is known and neither listed nor queued, in the order of the keys.
pub(super) fn tombstones_of_missing<K>(
    known: &dyn KnownObjects<K>,
    is_there: impl Fn(&str) -> bool,
) -> Vec<DeletedFinalStateUnknown<K>> {
    let mut keys = known.list_keys();
    keys.retain(|key| !is_there(key));
    keys.sort_unstable();
    keys.into_iter()
        .map(|key| {
            let object = known.get_by_key(&key);
            DeletedFinalStateUnknown { key, object }
        })
        .collect()
}

/// The deltas for what is known and not queued, in the order of the keys.
pub(super) fn sync_of_idle<K>(
    known: &dyn KnownObjects<K>,
    is_queued: impl Fn(&str) -> bool,
) -> Vec<(String, Delta<K>)> {
    let mut keys = known.list_keys();
    keys.retain(|key| !is_queued(key));
    keys.sort_unstable();
    keys.into_iter()
        .filter_map(|key| {
            // What went away between the two calls has nothing to repeat.
            let object = DeltaObject::Object(known.get_by_key(&key)?);
            Some((key, Delta { kind: DeltaType::Sync, object }))
        })
        .collect()
}
