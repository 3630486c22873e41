//! A store that hands out everything it holds, at each change.

use std::sync::Arc;

use bytes::Bytes;
use kube::core::ApiResource;

use super::Store;
use crate::{
    object::{meta_namespace_key, object_key},
    reflector::{
        Applied, Decode, DecodeError, ReflectorStore, ReplaceReason, Replaced, ResourceApi,
        StoreClosed, WatchEvent, WatchEventType, read_head, state_type,
    },
};

/// A [`ReflectorStore`] that calls a function with all objects after each change (client-go `UndeltaStore`).
///
/// An informer tells what has changed; this tells what is. It is for a program that takes its whole desired state
/// from one source among several and finds out by itself what to do, as the kubelet does with the Pods of its
/// node: a state that replaces the one before cannot be misunderstood, whatever was missed in between, and there is
/// nothing to keep in order between sources. The price is a list of all objects for each change, so it is for few
/// objects. The example `pod_source` shows it.
///
/// An object that cannot be read is left out, logged, and stays as it was.
pub struct UndeltaStore<K, P> {
    store: Store<K>,
    expected: ApiResource,
    listed: Vec<Arc<K>>,
    push: P,
}

impl<K: Decode, P: FnMut(Vec<Arc<K>>) + Send> UndeltaStore<K, P> {
    /// A store of what `api` lists and watches. `push` is called with all objects, in no order, by the reflector's
    /// task, which waits for it.
    pub fn new(api: &ResourceApi, push: P) -> Self {
        let (store, expected) = (Store::default(), api.expected());
        Self { store, expected, listed: Vec::new(), push }
    }

    /// The objects.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    fn push(&mut self) {
        (self.push)(self.store.list());
    }

    /// Takes one event; answers the resourceVersion of its object.
    fn take(&mut self, event: &WatchEvent) -> Result<String, DecodeError> {
        match event.kind {
            WatchEventType::Bookmark | WatchEventType::Unknown => {
                let head = read_head(&event.object, &self.expected)?;
                return Ok(head.metadata.resource_version.into_owned());
            }
            WatchEventType::Added | WatchEventType::Modified | WatchEventType::Deleted => {}
        }
        let object = K::decode(&event.object, &self.expected)?;
        let resource_version = object.resource_version().to_owned();
        if event.kind == WatchEventType::Deleted {
            self.store.delete(&meta_namespace_key(&object));
        } else {
            self.store.add(Arc::new(object));
        }
        self.push();
        Ok(resource_version)
    }
}

fn left_out(error: &DecodeError) {
    tracing::warn!(%error, "an object cannot be read: it is left out");
}

impl<K: Decode, P: FnMut(Vec<Arc<K>>) + Send> ReflectorStore for UndeltaStore<K, P> {
    async fn begin_replace(&mut self, _: ReplaceReason) -> Result<(), StoreClosed> {
        self.listed.clear();
        Ok(())
    }

    async fn replace_page(&mut self, items: Vec<Bytes>) -> Result<(), StoreClosed> {
        for item in items {
            match K::decode(&item, &self.expected) {
                Ok(mut object) => {
                    state_type(&mut object, &self.expected);
                    self.listed.push(Arc::new(object));
                }
                Err(error) => {
                    left_out(&error);
                    let head = read_head(&item, &self.expected).ok();
                    let before = head.and_then(|head| {
                        let (namespace, name) = (&*head.metadata.namespace, &*head.metadata.name);
                        self.store.get_by_key(&object_key(namespace, name))
                    });
                    self.listed.extend(before);
                }
            }
        }
        Ok(())
    }

    async fn end_replace(&mut self, _: &str) -> Result<Replaced, StoreClosed> {
        self.store.replace(std::mem::take(&mut self.listed));
        self.push();
        Ok(Replaced::Kept)
    }

    async fn abort(&mut self) -> Result<(), StoreClosed> {
        self.listed.clear();
        Ok(())
    }

    async fn apply(&mut self, events: Vec<WatchEvent>) -> Result<Applied, StoreClosed> {
        let mut applied = Applied::default();
        for event in &events {
            match self.take(event) {
                Ok(resource_version) => {
                    applied.taken += 1;
                    applied.resource_version = Some(resource_version);
                }
                Err(error) => left_out(&error),
            }
        }
        Ok(applied)
    }

    async fn resync(&mut self) -> Result<(), StoreClosed> {
        // client-go's repeats nothing either: everything is told at each change.
        Ok(())
    }

    async fn start_at(&mut self, _: &str) -> Result<(), StoreClosed> {
        Ok(())
    }
}
