//! Objects of any resource, as a test writes them, and what clients asked of them.
//!
//! A resource goes by its [name](super::Resource::name): `pods`, `replicasets.apps`. One that the
//! server does not know is answered as a path is that does not exist.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use serde_json::Value;

use super::object_key;
use super::{ApiServer, ApiStatus, Verb, Written, resource::ResourceId, shape::Shape};

impl ApiServer {
    fn known(&self, resource: &str) -> Result<ResourceId, ApiStatus> {
        let unknown = || {
            let message = format!("the server doesn't have a resource type {resource:?}");
            ApiStatus::new(404, "NotFound", message)
        };
        self.shared.catalogue.named(resource).ok_or_else(unknown)
    }

    /// Creates an object as a client's POST does, but that a uid and creation time it has are
    /// kept. Its namespace is that of its metadata.
    ///
    /// # Errors
    /// One of that name exists.
    pub fn create_object(&self, resource: &str, object: Value) -> Result<Written, ApiStatus> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        self.shared.create(self.known(resource)?, &namespace, object)
    }

    /// Puts an object in the place of the one of its name, as a client's PUT does.
    ///
    /// # Errors
    /// There is none, or it has another `resourceVersion` than the one that the new one states.
    pub fn replace_object(&self, resource: &str, object: Value) -> Result<Written, ApiStatus> {
        let text =
            |member: &str| object["metadata"][member].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        self.shared.replace(self.known(resource)?, &namespace, &name, object)
    }

    /// Applies a merge patch. The namespace of what has none is empty.
    ///
    /// # Errors
    /// There is no such object.
    pub fn patch_object(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Written, ApiStatus> {
        self.shared.merge(self.known(resource)?, namespace, name, patch)
    }

    /// Deletes an object: at once, without a grace period and whatever its finalizers say.
    ///
    /// # Errors
    /// There is no such object.
    pub fn delete_object(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Written, ApiStatus> {
        self.shared.delete(self.known(resource)?, namespace, name)
    }

    /// An object as a client's GET shows it.
    ///
    /// # Errors
    /// There is no such object.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, ApiStatus> {
        let resource = self.known(resource)?;
        let item = self.shared.state().table(resource).found(&object_key(namespace, name))?.clone();
        let mut json = Vec::new();
        Shape::Whole(&self.shared.catalogue[resource]).push(&mut json, &item);
        serde_json::from_slice(&json).map_err(|error| ApiStatus::new(500, "", error.to_string()))
    }

    /// The objects of a resource as the items of a list; none of one that is not known.
    pub fn objects(&self, resource: &str) -> Vec<Value> {
        let Ok(id) = self.known(resource) else { return Vec::new() };
        let mut state = self.shared.state();
        let revision = state.revision();
        let page = state.table_mut(id).list("", "", revision, 0, |_| true);
        page.items.iter().filter_map(|item| serde_json::from_slice(item).ok()).collect()
    }

    /// How many objects of a resource exist; none of one that is not known.
    pub fn live(&self, resource: &str) -> usize {
        self.known(resource).map_or(0, |id| self.shared.state().table(id).live())
    }

    /// How many requests of a verb came for a resource.
    pub fn request_count(&self, verb: Verb, resource: &str) -> u64 {
        self.known(resource).map_or(0, |id| self.shared.feeds[id].requests(verb))
    }

    /// How many requests came, by verb and resource; without those that did not come.
    pub fn request_counts(&self) -> BTreeMap<(Verb, String), u64> {
        let counts = self.shared.catalogue.iter().flat_map(|(id, resource)| {
            Verb::ALL.map(|verb| {
                let count = self.shared.feeds[id].requests(verb);
                ((verb, resource.name().to_owned()), count)
            })
        });
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.shared.feeds.iter().map(|feed| feed.watches.load(Ordering::Relaxed)).sum()
    }

    /// How many events were sent on watches.
    pub fn events_sent(&self) -> u64 {
        self.shared.feeds.iter().map(|feed| feed.events_sent.load(Ordering::Relaxed)).sum()
    }

    /// How many watches of a resource are open.
    pub fn open_watches_of(&self, resource: &str) -> usize {
        self.known(resource).map_or(0, |id| self.shared.feeds[id].watches.load(Ordering::Relaxed))
    }

    /// Closes the connection of each watch of a resource in the middle of its stream.
    pub fn cut_watches(&self, resource: &str) {
        if let Ok(id) = self.known(resource) {
            self.shared.feeds[id].cut.send_replace(());
        }
    }

    /// Sends a bookmark on each watch of a resource that takes them, once it has all changes.
    pub fn send_bookmarks(&self, resource: &str) {
        if let Ok(id) = self.known(resource) {
            self.shared.feeds[id].bookmark.send_replace(());
        }
    }
}
