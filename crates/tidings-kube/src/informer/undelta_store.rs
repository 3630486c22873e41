//! A store that hands out everything it holds, at each change.

use std::{any::type_name, sync::Arc};

use bytes::Bytes;
use kube::core::ApiResource;

use super::Store;
use crate::{
    foreign::caught,
    object::object_key,
    reflector::{
        Applied, Decode, DecodeError, HeadMetadata, ListerWatcher, ReflectorStore, ReplaceReason,
        Replaced, StoreClosed, WatchEvent, WatchEventType, decode, decode_listed, read_head,
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
/// An object that cannot be read is left out, logged, and stays as it was, unless it is deleted. A panic of the
/// function is logged, and it is called again at the next change.
pub struct UndeltaStore<K, P> {
    store: Store<K>,
    expected: ApiResource,
    listed: Vec<Arc<K>>,
    push: P,
}

impl<K: Decode, P: FnMut(Vec<Arc<K>>) + Send> UndeltaStore<K, P> {
    /// A store of what a source lists and watches. `push` is called with all objects, in no order, by the reflector's
    /// task, which waits for it.
    pub fn new(source: &impl ListerWatcher, push: P) -> Self {
        let (store, expected) = (Store::default(), source.expected());
        Self { store, expected, listed: Vec::new(), push }
    }

    /// The objects.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    fn push(&mut self) {
        let objects = self.store.list();
        if let Err(panic) = caught(|| (self.push)(objects)) {
            let push = type_name::<P>();
            tracing::error!(
                push,
                panic,
                "the function of an UndeltaStore panicked: it is called again at the next change"
            );
        }
    }

    /// Takes one event; answers the resourceVersion of its object.
    fn take(&mut self, event: &WatchEvent) -> Result<String, DecodeError> {
        let HeadMetadata { namespace, name, resource_version, .. } =
            read_head(&event.object, &self.expected)?.metadata;
        match event.kind {
            WatchEventType::Bookmark | WatchEventType::Unknown => {}
            WatchEventType::Added | WatchEventType::Modified => {
                self.store.add(Arc::new(decode(&event.object, &self.expected)?));
                self.push();
            }
            // That an object is gone can be said of one that cannot be read.
            WatchEventType::Deleted => {
                self.store.delete(&object_key(&namespace, &name));
                self.push();
            }
        }
        Ok(resource_version.into_owned())
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
            match decode_listed(&item, &self.expected) {
                Ok(object) => self.listed.push(Arc::new(object)),
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
