//! From the reflector's JSON to a store's objects.

use std::collections::HashSet;

use bytes::Bytes;
use kube::core::ApiResource;

use super::{
    Applied, Decode, DecodeError, DeletedFinalStateUnknown, Follow, ListWatchError, Listed,
    ListerWatcher, ObjectStore, Reflector, ReflectorOptions, ReflectorStore, ReplaceReason,
    Replaced, StoreClosed, TransformError, WatchEvent, WatchEventType, head::Metadata,
    informer::read_head, lister_watcher::Source, object_key, with_causes,
};

/// Reads the JSON of a source for a store of objects; from
/// [`Reflector::for_objects`](Reflector::for_objects).
pub struct ObjectFeed<K, S> {
    store: S,
    expected: ApiResource,
    /// The objects of a list that is not whole yet.
    listed: Vec<Listed<K>>,
    /// The keys of those that cannot be read.
    unread: HashSet<String>,
    /// Why the last list was not taken.
    refused: Option<String>,
}

impl<K: Decode, S: ObjectStore<K>> Reflector<ObjectFeed<K, S>> {
    /// A reflector that feeds a store with objects. The store may be in an [`Arc`](std::sync::Arc), for others to read.
    ///
    /// The reflector follows the state, as an informer does, whatever the options say.
    pub fn for_objects(source: impl ListerWatcher, store: S, options: ReflectorOptions) -> Self {
        Self::of_objects(Source::new(source), store, options)
    }

    pub(super) fn of_objects(source: Source, store: S, options: ReflectorOptions) -> Self {
        let feed = ObjectFeed {
            store,
            expected: source.expected(),
            listed: Vec::new(),
            unread: HashSet::new(),
            refused: None,
        };
        Self::of(source, feed, ReflectorOptions { follow: Follow::State, ..options })
    }
}

impl<K: Decode, S: ObjectStore<K>> ObjectFeed<K, S> {
    fn open(&self) -> Result<(), StoreClosed> {
        if self.store.is_closed() { Err(StoreClosed) } else { Ok(()) }
    }

    fn decode(&self, json: &[u8]) -> Result<K, DecodeError> {
        K::decode(json, &self.expected)
    }

    /// Gives the store what one event says; answers the resourceVersion of its object.
    fn take(&self, event: &WatchEvent) -> Result<String, DecodeError> {
        let into = match event.kind {
            WatchEventType::Added => S::add,
            WatchEventType::Modified => S::update,
            WatchEventType::Deleted => return self.take_deleted(&event.object),
            WatchEventType::Bookmark | WatchEventType::Unknown => {
                let head = read_head(&event.object, &self.expected)?;
                return Ok(head.metadata.resource_version.into_owned());
            }
        };
        let object = self.decode(&event.object)?;
        let resource_version = object.resource_version().to_owned();
        self.report(into(&self.store, object));
        Ok(resource_version)
    }

    /// That an object is gone can be said of one that cannot be read, if it has a name, and of one
    /// that the transformer does not take.
    fn take_deleted(&self, json: &[u8]) -> Result<String, DecodeError> {
        let (key, resource_version) = match self.decode(json) {
            Ok(object) => {
                let resource_version = object.resource_version().to_owned();
                let Err(refused) = self.store.delete(object) else { return Ok(resource_version) };
                let key = refused.key.clone();
                self.report(Err(refused));
                (key, resource_version)
            }
            Err(error) => {
                let Metadata { namespace, name, resource_version, .. } =
                    read_head(json, &self.expected)?.metadata;
                let key = key_of(&namespace, &name).ok_or(error)?;
                (key, resource_version.into_owned())
            }
        };
        // What it was at last is the store's to know.
        self.store.delete_tombstone(DeletedFinalStateUnknown { key, object: None });
        Ok(resource_version)
    }

    /// The resourceVersion of an object that cannot be read.
    fn version_of(&self, json: &[u8]) -> Option<String> {
        let version = read_head(json, &self.expected).ok()?.metadata.resource_version;
        (!version.is_empty()).then(|| version.into_owned())
    }

    /// An object of a list cannot be read. If it has a name, it is there all the same.
    fn note_unread(&mut self, json: &[u8], error: DecodeError) {
        if let Ok(head) = read_head(json, &self.expected) {
            self.unread.extend(key_of(&head.metadata.namespace, &head.metadata.name));
        }
        self.store.left_out(&ListWatchError::Object(error));
    }

    /// client-go's reflector goes on after an object that its store did not take.
    fn report(&self, taken: Result<(), TransformError>) {
        if let Err(error) = taken {
            self.store.left_out(&ListWatchError::Transform(error));
        }
    }
}

/// The key of an object of which only this much can be read.
fn key_of(namespace: &str, name: &str) -> Option<String> {
    (!name.is_empty()).then(|| object_key(namespace, name))
}

impl<K: Decode, S: ObjectStore<K>> ReflectorStore for ObjectFeed<K, S> {
    async fn begin_replace(&mut self, _: ReplaceReason) -> Result<(), StoreClosed> {
        self.listed = Vec::new();
        self.unread.clear();
        self.refused = None;
        self.open()
    }

    fn cannot_keep(&self) -> Option<String> {
        self.refused.clone()
    }

    async fn replace_page(&mut self, items: Vec<Bytes>) -> Result<(), StoreClosed> {
        for item in items {
            match self.decode(&item) {
                Ok(object) => self.listed.push(self.store.listed(object)),
                Err(error) => self.note_unread(&item, error),
            }
        }
        self.open()
    }

    async fn end_replace(&mut self, _: &str) -> Result<Replaced, StoreClosed> {
        self.open()?;
        let listed = std::mem::take(&mut self.listed);
        if let Err(error) = self.store.replace_keeping(listed, &self.unread) {
            self.refused = Some(with_causes(&error));
            return Ok(Replaced::NotKept);
        }
        Ok(Replaced::Kept)
    }

    async fn abort(&mut self) -> Result<(), StoreClosed> {
        self.listed = Vec::new();
        self.unread.clear();
        self.open()
    }

    async fn apply(&mut self, events: Vec<WatchEvent>) -> Result<Applied, StoreClosed> {
        let mut applied = Applied::default();
        for event in &events {
            match self.take(event) {
                Ok(resource_version) => {
                    applied.taken += 1;
                    applied.resource_version = Some(resource_version);
                }
                Err(error) => {
                    // It is not asked for again: it would not be read the next time either.
                    applied.resource_version =
                        self.version_of(&event.object).or(applied.resource_version.take());
                    self.store.left_out(&ListWatchError::Object(error));
                }
            }
        }
        self.open()?;
        Ok(applied)
    }

    async fn resync(&mut self) -> Result<(), StoreClosed> {
        self.store.resync();
        self.open()
    }

    async fn start_at(&mut self, _: &str) -> Result<(), StoreClosed> {
        // Only where changes are followed, and this follows the state.
        self.open()
    }
}
