//! What happened to an object, as the queues hold it.

use std::sync::Arc;

use crate::object::{Object, meta_namespace_key};

/// What happened. client-go's `DeltaType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeltaType {
    /// A watch said that it was added.
    Added,
    /// A watch said that it changed.
    Updated,
    /// A watch said that it was deleted, or a list lacks it.
    Deleted,
    /// It is in a list that replaces what was known. Whether it changed is not known.
    Replaced,
    /// It is known, and is handed out again because a resync was due.
    Sync,
}

/// A tombstone: the object is gone, and how it looked at last was not seen, because the deletion
/// fell between two watches. client-go's type of the same name.
#[derive(Debug)]
pub struct DeletedFinalStateUnknown<K> {
    /// The key of the object.
    pub key: String,
    /// The object as it was last known, maybe stale; `None` if it was not.
    pub object: Option<Arc<K>>,
}

/// The object of a delta.
#[derive(Debug)]
pub enum DeltaObject<K> {
    /// As it is after the change; with [`DeltaType::Deleted`], as it was before.
    Object(Arc<K>),
    /// It was deleted unseen.
    Tombstone(DeletedFinalStateUnknown<K>),
}

/// One change of one object.
#[derive(Debug)]
pub struct Delta<K> {
    /// What happened.
    pub kind: DeltaType,
    /// To which object.
    pub object: DeltaObject<K>,
}

impl<K: Object> DeltaObject<K> {
    /// The key of the object, also of one whose last state is not known. client-go's
    /// `DeletionHandlingMetaNamespaceKeyFunc`.
    pub fn key(&self) -> String {
        match self {
            Self::Object(object) => meta_namespace_key(&**object),
            Self::Tombstone(tombstone) => tombstone.key.clone(),
        }
    }
}

impl<K> DeltaObject<K> {
    /// The object, or what is known of it at last.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Object(object) => Some(object),
            Self::Tombstone(tombstone) => tombstone.object.as_ref(),
        }
    }

    /// Whether the last state is not known.
    pub fn is_tombstone(&self) -> bool {
        matches!(self, Self::Tombstone(_))
    }
}

// Written out, because a derived one would ask for `K: Clone`.
impl<K> Clone for DeletedFinalStateUnknown<K> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), object: self.object.clone() }
    }
}

impl<K> Clone for DeltaObject<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Object(object) => Self::Object(Arc::clone(object)),
            Self::Tombstone(tombstone) => Self::Tombstone(tombstone.clone()),
        }
    }
}

impl<K> Clone for Delta<K> {
    fn clone(&self) -> Self {
        Self { kind: self.kind, object: self.object.clone() }
    }
}

impl<K> Delta<K> {
    /// The deletion that nobody saw.
    pub(super) fn tombstone(tombstone: DeletedFinalStateUnknown<K>) -> Self {
        Self { kind: DeltaType::Deleted, object: DeltaObject::Tombstone(tombstone) }
    }
}
