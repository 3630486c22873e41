//! Objects of this process as the source of a reflector.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, ready},
    stream,
};
use kube::core::{ApiResource, Status};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{
    WatchEvent, WatchEventType,
    error::{Call, ListWatchError},
    head::INITIAL_EVENTS_END,
    lister_watcher::{Body, ListOptions, ListerWatcher, WatchOptions},
};

/// Changes are kept for watches that are taken up again, up to so many bytes of objects, or twice what all objects
/// have: one [`replace`](LocalSource::replace) of all fits. A watch from before them is refused as expired.
const CHANGE_BYTES: usize = 16 << 20;

/// Objects that a program has itself, from files or made by a test, as the source of a reflector or an
/// informer. Clones are the same source.
///
/// The source answers as an API server does: each change has a resourceVersion of its own, a watch from an old one is
/// refused with 410, and a streaming list is answered. Versions begin anew with each source, so a reflector with
/// [`Follow::Changes`](super::Follow::Changes) must not resume after a restart.
///
/// client-go has one for tests, `tools/cache/testing.FakeControllerSource`; this one cannot be told to fail,
/// as the API server of `tidings-testkit` can. [`replace`](Self::replace) is for a source that says all that it wants, as
/// the kubelet's Pods from files (its `config.NewSourceFile`).
#[derive(Clone)]
pub struct LocalSource {
    resource: ApiResource,
    held: watch::Sender<Held>,
}

#[derive(Default)]
struct Held {
    version: u64,
    /// By namespace and name.
    objects: BTreeMap<Key, Stored>,
    bytes: usize,
    changes: VecDeque<(u64, WatchEvent)>,
    change_bytes: usize,
    /// The version of the last change that is not kept any more.
    forgotten: u64,
}

/// An object as it is listed.
struct Stored {
    version: u64,
    json: Bytes,
}

type Key = (String, String);

/// Why something is not taken for an object.
#[derive(Debug, thiserror::Error)]
pub enum InvalidObject {
    /// The object cannot be written as JSON.
    #[error("expected an object that can be written as JSON")]
    NotJson(#[from] serde_json::Error),
    /// The object has no name.
    #[error(
        "expected an object with metadata.name, found {object}\nhint: name it; generateName is for an API server"
    )]
    Nameless {
        /// How it begins.
        object: String,
    },
    /// The object is of another type than those of the source.
    #[error(
        "expected {member} {expected:?}, found {found}\nhint: objects of another type need a source of their own"
    )]
    AnotherType {
        /// `kind` or `apiVersion`.
        member: String,
        /// That of the source's objects.
        expected: String,
        /// That of the object, in JSON.
        found: String,
    },
    /// No API server takes the name.
    #[error(
        "expected {member} to be text without a slash, found {found}\nhint: rename it: an API server takes no other"
    )]
    Name {
        /// `metadata.name` or `metadata.namespace`.
        member: String,
        /// The value, in JSON.
        found: String,
    },
    /// Two objects have the same name.
    #[error(
        "expected each name once, found {name:?} twice in namespace {namespace:?}\nhint: rename one of them"
    )]
    Twice {
        /// The name.
        name: String,
        /// Their namespace.
        namespace: String,
    },
}

impl LocalSource {
    /// A source without objects yet.
    pub fn new(resource: &ApiResource) -> Self {
        let held = Held { version: 1, ..Held::default() };
        Self { resource: resource.clone(), held: watch::Sender::new(held) }
    }

    /// Adds an object, or changes the one of its namespace and name. An object that is equal to the one that is
    /// there is no change, whatever its resourceVersion.
    ///
    /// # Errors
    ///
    /// [`InvalidObject`]; nothing changes then.
    pub fn set(&self, object: &impl Serialize) -> Result<(), InvalidObject> {
        let (key, object) = self.read(object)?;
        self.held.send_if_modified(|held| held.set(key, object));
        Ok(())
    }

    /// Deletes an object; answers whether there was one. The namespace of an object without one is "".
    pub fn delete(&self, namespace: &str, name: &str) -> bool {
        self.held.send_if_modified(|held| held.delete(&(namespace.to_owned(), name.to_owned())))
    }

    /// Makes these all the objects that there are: those that differ are changed, and those that are not among
    /// them are deleted.
    ///
    /// # Errors
    ///
    /// [`InvalidObject`]; nothing changes then.
    pub fn replace<T: Serialize>(
        &self,
        objects: impl IntoIterator<Item = T>,
    ) -> Result<(), InvalidObject> {
        let mut wanted = BTreeMap::new();
        for object in objects {
            let (key, object) = self.read(&object)?;
            let (namespace, name) = key.clone();
            if wanted.insert(key, object).is_some() {
                return Err(InvalidObject::Twice { name, namespace });
            }
        }
        self.held.send_modify(|held| {
            let gone: Vec<_> =
                held.objects.keys().filter(|key| !wanted.contains_key(key)).cloned().collect();
            for (key, object) in wanted {
                held.set(key, object);
            }
            for key in gone {
                held.delete(&key);
            }
        });
        Ok(())
    }

    fn read(&self, object: &impl Serialize) -> Result<(Key, Value), InvalidObject> {
        let mut object = serde_json::to_value(object)?;
        let namespace = name_at(&object, "metadata.namespace", "/metadata/namespace")?;
        let name = name_at(&object, "metadata.name", "/metadata/name")?;
        let Some(name) = name.filter(|_| object["metadata"].is_object()) else {
            let object = object.to_string().chars().take(120).collect();
            return Err(InvalidObject::Nameless { object });
        };
        for (member, expected) in
            [("kind", &self.resource.kind), ("apiVersion", &self.resource.api_version)]
        {
            let found = &mut object[member];
            if found.is_null() {
                *found = json!(expected);
            } else if found != expected {
                let (member, found) = (member.to_owned(), found.to_string());
                return Err(InvalidObject::AnotherType {
                    member,
                    expected: expected.clone(),
                    found,
                });
            }
        }
        // As Go reads it: a member that is null is not there.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|_, value| !value.is_null());
        }
        Ok(((namespace.unwrap_or_default(), name), object))
    }

    fn answer_list(&self, options: &ListOptions) -> Body {
        let held = self.held.borrow();
        let wanted = |key: &Key| options.only.as_ref().is_none_or(|only| only == key);
        let objects = held.objects.iter().filter(|(key, _)| wanted(key));
        let objects: Vec<_> = objects.map(|(_, object)| object.json.clone()).collect();
        Body::list(&self.resource, &held.version.to_string(), &objects)
    }

    fn answer_watch(&self, options: &WatchOptions) -> Result<Body, ListWatchError> {
        let held = self.held.borrow();
        let asked = &*options.resource_version;
        // Without a version, all objects come first.
        let from_now = asked.is_empty() || asked == "0" || options.send_initial_events;
        let after = if from_now { held.version } else { asked.parse().unwrap_or(u64::MAX) };
        if after < held.forgotten || after > held.version {
            return Err(self.expired(asked));
        }
        let mut first = Vec::new();
        if from_now {
            let added = |object: &Stored| WatchEvent {
                kind: WatchEventType::Added,
                object: object.json.clone(),
            };
            first.extend(held.objects.values().map(added));
        }
        if options.send_initial_events {
            first.push(WatchEvent {
                kind: WatchEventType::Bookmark,
                object: Bytes::from(
                    json!({
                        "kind": self.resource.kind,
                        "apiVersion": self.resource.api_version,
                        "metadata": {
                            "resourceVersion": held.version.to_string(),
                            "annotations": {INITIAL_EVENTS_END: "true"},
                        },
                    })
                    .to_string(),
                ),
            });
        }
        drop(held);
        let longest = Some(options.server_timeout).filter(|longest| !longest.is_zero());
        let until = longest.and_then(|longest| Instant::now().checked_add(longest));
        let watching = Watching { held: self.held.subscribe(), after, until };
        let later = stream::unfold(watching, Watching::next).flat_map(stream::iter);
        Ok(Body::events(stream::iter(first).chain(later).map(Ok)))
    }

    fn expired(&self, asked: &str) -> ListWatchError {
        let status = Status {
            code: 410,
            reason: "Expired".to_owned(),
            message: format!("the resourceVersion {asked:?} is not known, or not any more"),
            ..Status::default()
        };
        let call = Call { verb: "watch", resource: (&*self.resource.plural).into() };
        ListWatchError::Status { call, status: Box::new(status), retry_after: None }
    }
}

impl ListerWatcher for LocalSource {
    fn expected(&self) -> ApiResource {
        self.resource.clone()
    }

    fn list<'a>(&'a self, options: &'a ListOptions) -> BoxFuture<'a, Result<Body, ListWatchError>> {
        ready(Ok(self.answer_list(options))).boxed()
    }

    fn watch<'a>(
        &'a self,
        options: &'a WatchOptions,
    ) -> BoxFuture<'a, Result<Body, ListWatchError>> {
        ready(self.answer_watch(options)).boxed()
    }
}

impl Held {
    /// Answers whether it is a change.
    fn set(&mut self, key: Key, mut object: Value) -> bool {
        let before = self.objects.get(&key);
        if let Some(before) = before
            && versioned(&mut object, before.version) == before.json
        {
            return false;
        }
        let kind = before.map_or(WatchEventType::Added, |_| WatchEventType::Modified);
        let object = self.note(kind, &mut object);
        self.bytes += object.json.len();
        let before = self.objects.insert(key, object);
        self.bytes -= before.map_or(0, |before| before.json.len());
        true
    }

    fn delete(&mut self, key: &Key) -> bool {
        let Some(last) = self.objects.remove(key) else { return false };
        self.bytes -= last.json.len();
        // Written by this source, so it is JSON.
        let mut object = serde_json::from_slice(&last.json).unwrap_or_default();
        self.note(WatchEventType::Deleted, &mut object);
        true
    }

    /// Gives a change its version.
    fn note(&mut self, kind: WatchEventType, object: &mut Value) -> Stored {
        self.version += 1;
        let (version, json) = (self.version, versioned(object, self.version));
        self.change_bytes += json.len();
        self.changes.push_back((version, WatchEvent { kind, object: json.clone() }));
        while self.change_bytes > CHANGE_BYTES.max(2 * (self.bytes + json.len()))
            && let Some((version, event)) = self.changes.pop_front()
        {
            self.change_bytes -= event.object.len();
            self.forgotten = version;
        }
        Stored { version, json }
    }
}

/// The name at a place of an object; nothing where there is none.
fn name_at(object: &Value, member: &str, at: &str) -> Result<Option<String>, InvalidObject> {
    match object.pointer(at) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) if !name.contains('/') => {
            Ok(Some(name.clone()).filter(|name| !name.is_empty()))
        }
        Some(found) => {
            Err(InvalidObject::Name { member: member.to_owned(), found: found.to_string() })
        }
    }
}

/// The object at a version.
fn versioned(object: &mut Value, version: u64) -> Bytes {
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    object.to_string().into()
}

/// A watch that is open.
struct Watching {
    held: watch::Receiver<Held>,
    after: u64,
    until: Option<Instant>,
}

impl Watching {
    /// The next changes; `None` when its time is over, or when some of them are not kept any more: the
    /// watch that follows is told.
    async fn next(mut self) -> Option<(Vec<WatchEvent>, Self)> {
        let after = self.after;
        let changed = self.held.wait_for(|held| held.version > after);
        let held = match self.until {
            Some(until) => timeout_at(until, changed).await.ok()?,
            None => changed.await,
        };
        let held = held.ok().filter(|held| held.forgotten <= after)?;
        let news = held.changes.iter().skip_while(|(version, _)| *version <= after);
        let events = news.map(|(_, event)| event.clone()).collect();
        let after = held.version;
        drop(held);
        Some((events, Self { after, ..self }))
    }
}
