//! Stores that take the objects of a reflector.

use std::{collections::HashSet, sync::Arc};

use super::{DeletedFinalStateUnknown, ListWatchError, Object, TransformError, meta_namespace_key};

/// An object of a list as its store keeps it, or that the store's transformer does not take it.
pub type Listed<K> = Result<Arc<K>, TransformError>;

/// The key of an object of a list.
pub(super) fn listed_key<K: Object>(listed: &Listed<K>) -> String {
    match listed {
        Ok(object) => meta_namespace_key(&**object),
        Err(refused) => refused.key.clone(),
    }
}

/// A store that a reflector feeds with objects: client-go's `ReflectorStore`. A [`Queue`](super::Queue) is one, and an
/// [`UndeltaStore`](super::UndeltaStore).
///
/// [`Reflector::for_objects`](super::Reflector::for_objects) reads the source's JSON for it. Below that is
/// [`ReflectorStore`](super::ReflectorStore), which takes the JSON itself, in pages, and is also told the
/// resourceVersion of each list and each bookmark: client-go's `ResourceVersionUpdater`.
pub trait ObjectStore<K: Object>: Send + Sync {
    /// The object was added.
    fn add(&self, object: K) -> Result<(), TransformError>;

    /// The object changed.
    fn update(&self, object: K) -> Result<(), TransformError>;

    /// The object was deleted; this is how it was at last.
    fn delete(&self, object: K) -> Result<(), TransformError>;

    /// The object was deleted unseen.
    fn delete_tombstone(&self, tombstone: DeletedFinalStateUnknown<K>);

    /// The object is in a list. Asked as soon as it is read, so that what a transformer leaves out is
    /// gone before the list is whole; nothing is replaced before that.
    fn listed(&self, object: K) -> Listed<K> {
        Ok(Arc::new(object))
    }

    /// These are all objects that there are. What is known beside them is deleted.
    ///
    /// # Errors
    ///
    /// When the transformer does not take an object: what stands before it in the order of a queue
    /// is queued, the rest is not.
    fn replace(&self, items: Vec<K>) -> Result<(), TransformError> {
        let items = items.into_iter().map(|item| self.listed(item)).collect();
        self.replace_keeping(items, &HashSet::new())
    }

    /// As [`replace`](Self::replace), of objects that [`listed`](Self::listed) has made. There are objects
    /// of the keys `kept` as well, of which nothing more is known: what is known of them stays as it is.
    ///
    /// # Errors
    ///
    /// As `replace`.
    fn replace_keeping(
        &self,
        items: Vec<Listed<K>>,
        kept: &HashSet<String>,
    ) -> Result<(), TransformError>;

    /// Another resync period has passed.
    fn resync(&self);

    /// Whether it takes nothing any more: then the reflector ends.
    fn is_closed(&self) -> bool {
        false
    }

    /// An object was left out, as it cannot be read or the transformer does not take it.
    fn left_out(&self, error: &ListWatchError) {
        tracing::warn!(%error, "an object is left out");
    }
}

impl<K: Object, S: ObjectStore<K>> ObjectStore<K> for Arc<S> {
    fn add(&self, object: K) -> Result<(), TransformError> {
        (**self).add(object)
    }

    fn update(&self, object: K) -> Result<(), TransformError> {
        (**self).update(object)
    }

    fn delete(&self, object: K) -> Result<(), TransformError> {
        (**self).delete(object)
    }

    fn delete_tombstone(&self, tombstone: DeletedFinalStateUnknown<K>) {
        (**self).delete_tombstone(tombstone);
    }

    fn listed(&self, object: K) -> Listed<K> {
        (**self).listed(object)
    }

    fn replace_keeping(
        &self,
        items: Vec<Listed<K>>,
        kept: &HashSet<String>,
    ) -> Result<(), TransformError> {
        (**self).replace_keeping(items, kept)
    }

    fn resync(&self) {
        (**self).resync();
    }

    fn is_closed(&self) -> bool {
        (**self).is_closed()
    }

    fn left_out(&self, error: &ListWatchError) {
        (**self).left_out(error);
    }
}
