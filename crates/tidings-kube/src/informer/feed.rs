//! From the reflector's JSON to the queue's objects.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use kube::core::ApiResource;

use super::{DeletedFinalStateUnknown, Queue, TransformError, tracker::Tracker};
use crate::{
    object::object_key,
    reflector::{
        Applied, Decode, DecodeError, HeadMetadata, ListWatchError, ReflectorStore, ReplaceReason,
        Replaced, StoreClosed, WatchEvent, WatchEventType, decode, decode_listed, read_head,
    },
};

type ShouldResync = Box<dyn Fn() -> bool + Send + Sync>;

/// The store of an informer's reflector: what is fed goes to the queue.
pub(super) struct Feed<K: Decode, Q> {
    tracker: Arc<Tracker>,
    queue: Arc<Q>,
    expected: ApiResource,
    /// Whether somebody is to be told of everything again, when the reflector asks.
    should_resync: ShouldResync,
    /// The objects of a list that is not whole yet.
    listed: Vec<K>,
    /// The keys of those that cannot be read.
    unread: HashSet<String>,
    /// Why the last list was not taken.
    refused: Option<String>,
}

impl<K: Decode, Q: Queue<K>> Feed<K, Q> {
    pub(super) fn new(
        tracker: Arc<Tracker>,
        queue: Arc<Q>,
        expected: ApiResource,
        should_resync: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            tracker,
            queue,
            expected,
            should_resync: Box::new(should_resync),
            listed: Vec::new(),
            unread: HashSet::new(),
            refused: None,
        }
    }

    fn open(&self) -> Result<(), StoreClosed> {
        if self.queue.is_closed() { Err(StoreClosed) } else { Ok(()) }
    }

    /// Queues what one event says; answers the resourceVersion of its object.
    fn take(&self, event: &WatchEvent) -> Result<String, DecodeError> {
        let into = match event.kind {
            WatchEventType::Added => Q::add,
            WatchEventType::Modified => Q::update,
            WatchEventType::Deleted => return self.take_deleted(&event.object),
            WatchEventType::Bookmark | WatchEventType::Unknown => {
                let head = read_head(&event.object, &self.expected)?;
                return Ok(head.metadata.resource_version.into_owned());
            }
        };
        let object: K = decode(&event.object, &self.expected)?;
        let resource_version = object.resource_version().to_owned();
        report(into(&self.queue, object));
        Ok(resource_version)
    }

    /// That an object is gone can be said of one that cannot be read, if it has a name, and of one
    /// that the transformer does not take.
    fn take_deleted(&self, json: &[u8]) -> Result<String, DecodeError> {
        let (key, resource_version) = match decode::<K>(json, &self.expected) {
            Ok(object) => {
                let resource_version = object.resource_version().to_owned();
                let Err(refused) = self.queue.delete(object) else { return Ok(resource_version) };
                let key = refused.key.clone();
                report(Err(refused));
                (key, resource_version)
            }
            Err(error) => {
                let HeadMetadata { namespace, name, resource_version, .. } =
                    read_head(json, &self.expected)?.metadata;
                let key = key_of(&namespace, &name).ok_or(error)?;
                (key, resource_version.into_owned())
            }
        };
        // What it was at last is known when it comes out of the queue.
        self.queue.delete_tombstone(DeletedFinalStateUnknown { key, object: None });
        Ok(resource_version)
    }

    /// An object of a list cannot be read. If it has a name, it is there all the same.
    fn note_unread(&mut self, json: &[u8], error: DecodeError) {
        if let Ok(head) = read_head(json, &self.expected) {
            self.unread.extend(key_of(&head.metadata.namespace, &head.metadata.name));
        }
        self.tracker.note_unreadable(&ListWatchError::Object(error));
    }
}

/// The key of an object of which only this much can be read.
fn key_of(namespace: &str, name: &str) -> Option<String> {
    (!name.is_empty()).then(|| object_key(namespace, name))
}

/// client-go's reflector goes on after an object that its store did not take.
fn report(taken: Result<(), TransformError>) {
    if let Err(error) = taken {
        error.log();
    }
}

impl<K: Decode, Q: Queue<K> + 'static> ReflectorStore for Feed<K, Q> {
    async fn begin_replace(&mut self, _: ReplaceReason) -> Result<(), StoreClosed> {
        self.listed.clear();
        self.unread.clear();
        self.refused = None;
        self.open()
    }

    fn cannot_keep(&self) -> Option<String> {
        self.refused.clone()
    }

    async fn replace_page(&mut self, items: Vec<Bytes>) -> Result<(), StoreClosed> {
        for item in items {
            match decode_listed(&item, &self.expected) {
                Ok(object) => self.listed.push(object),
                Err(error) => self.note_unread(&item, error),
            }
        }
        self.open()
    }

    async fn end_replace(&mut self, _: &str) -> Result<Replaced, StoreClosed> {
        self.open()?;
        let listed = std::mem::take(&mut self.listed);
        if let Err(error) = self.queue.replace_keeping(listed, &self.unread) {
            self.refused = Some(format!("{error}: {}", error.source));
            return Ok(Replaced::NotKept);
        }
        self.tracker.note_synced(&*self.queue);
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
                Err(error) => self.tracker.note_unreadable(&ListWatchError::Object(error)),
            }
        }
        self.tracker.note_synced(&*self.queue);
        self.open()?;
        Ok(applied)
    }

    async fn resync(&mut self) -> Result<(), StoreClosed> {
        if (self.should_resync)() {
            self.queue.resync();
        }
        self.open()
    }

    async fn start_at(&mut self, _: &str) -> Result<(), StoreClosed> {
        // Only where changes are followed, and this follows the state.
        self.open()
    }
}
