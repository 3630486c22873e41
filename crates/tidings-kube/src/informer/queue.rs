//! What stands between a reflector and an informer: a queue of changes.

#[cfg(test)]
mod tests;
mod waiting;

use std::{
    collections::HashSet,
    error::Error,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

pub(super) use self::waiting::{Entries, Inside, OnError, Waiting};
use super::{DeletedFinalStateUnknown, Delta, DeltaObject, DeltaType};
use crate::{
    foreign::caught,
    object::{Object, meta_namespace_key},
};

/// Changes each object before anything else sees it, for instance to leave out what nobody reads.
/// It runs while the queue is locked, so it must not take long. client-go's `TransformFunc`.
pub type TransformFunc<K> = Arc<dyn Fn(K) -> Result<K, Box<dyn Error + Send + Sync>> + Send + Sync>;

/// The transformer did not take an object, which was not queued.
#[derive(Debug, thiserror::Error)]
#[error("cannot transform {key:?}")]
pub struct TransformError {
    /// The key of the object.
    pub key: String,
    /// What the transformer said.
    pub source: Box<dyn Error + Send + Sync>,
}

impl TransformError {
    /// Says that the object is left out, and goes on.
    pub(super) fn log(&self) {
        tracing::error!(object = self.key, cause = %self.source, "cannot transform an object: it is left out");
    }
}

/// The transformer panicked. An informer catches that.
#[derive(Debug, thiserror::Error)]
#[error("the transformer panicked: {0}")]
pub(super) struct TransformerPanicked(pub(super) String);

/// Why nothing was popped, or what the processing of it said.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PopError<E> {
    /// The queue is closed and empty. client-go's `ErrFIFOClosed`.
    #[error("the queue is closed")]
    Closed,
    /// It was popped, and this is the error of its processing.
    #[error(transparent)]
    Process(E),
}

/// What the consumer of a queue knows already: the objects behind it. A queue compares a list with
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
/// first, except tombstones and what a resync repeats, which have been through it.
pub trait Queue<K: Object>: Send + Sync {
    /// The object was added.
    fn add(&self, object: K) -> Result<(), TransformError>;

    /// The object changed.
    fn update(&self, object: K) -> Result<(), TransformError>;

    /// The object was deleted; this is how it was at last.
    fn delete(&self, object: K) -> Result<(), TransformError>;

    /// The object was deleted unseen.
    fn delete_tombstone(&self, tombstone: DeletedFinalStateUnknown<K>);

    /// These are all objects that there are. What is queued or known beside them is queued as
    /// deleted.
    ///
    /// # Errors
    ///
    /// When the transformer does not take an object: what stands before it in the queue's order is
    /// queued, the rest is not.
    fn replace(&self, items: Vec<K>) -> Result<(), TransformError> {
        self.replace_keeping(items, &HashSet::new())
    }

    /// As [`replace`](Self::replace), but there are objects of the keys `kept` as well, of which
    /// nothing more is known: what is queued or known of them stays as it is.
    ///
    /// # Errors
    ///
    /// As `replace`.
    fn replace_keeping(&self, items: Vec<K>, kept: &HashSet<String>) -> Result<(), TransformError>;

    /// Queues every known object with nothing queued once more, as [`DeltaType::Sync`].
    ///
    /// [`DeltaType::Sync`]: super::DeltaType::Sync
    fn resync(&self);

    /// Whether everything of the first list was popped, or something else came before it.
    fn has_synced(&self) -> bool;

    /// Ends it: what is queued can still be popped, and then [`pop`](Self::pop) answers
    /// [`PopError::Closed`]. It does not keep anybody from adding more.
    fn close(&self);

    /// Whether [`close`](Self::close) was called.
    fn is_closed(&self) -> bool;

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

/// A transformer whose panics are counted, and refusals of one kind.
pub(super) fn guarded<K: Object>(
    transform: TransformFunc<K>,
    panics: Arc<AtomicU64>,
) -> TransformFunc<K> {
    Arc::new(move |object| {
        caught(|| transform(object)).unwrap_or_else(|panic| {
            panics.fetch_add(1, Ordering::Relaxed);
            Err(TransformerPanicked(panic).into())
        })
    })
}

/// An object of a list that the transformer panics on is left out, and its last known state stays. One that it
/// refuses fails the list.
pub(super) fn unless_panicked(pushed: Result<(), TransformError>) -> Result<(), TransformError> {
    match pushed {
        Err(error) if error.source.is::<TransformerPanicked>() => {
            error.log();
            Ok(())
        }
        pushed => pushed,
    }
}

/// What the transformer makes of an object.
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
