//! A store that writes down what a reflector tells it. Objects are config maps.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use serde_json::Value;
use tidings_kube::reflector::{
    Applied, ReflectorStore, ReplaceReason, Replaced, StoreClosed, WatchEvent, WatchEventType,
};

/// A store that writes down what it is told.
#[derive(Clone, Default)]
pub(crate) struct Told {
    lines: Arc<Mutex<Vec<String>>>,
    /// What it holds now: resourceVersions by name.
    held: Arc<Mutex<BTreeMap<String, String>>>,
    listed: Vec<(String, String)>,
    /// There is room for a part of a list only.
    partly: bool,
}

impl Told {
    /// One that has room for a part of any list only.
    pub(crate) fn partly() -> Self {
        Self { partly: true, ..Self::default() }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub(crate) fn held(&self) -> BTreeMap<String, String> {
        self.held.lock().unwrap().clone()
    }

    fn note(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }
}

fn name_and_version(object: &Value) -> (String, String) {
    let text = |member: &str| object["metadata"][member].as_str().unwrap_or_default().to_owned();
    (text("name"), text("resourceVersion"))
}

impl ReflectorStore for Told {
    async fn begin_replace(&mut self, _reason: ReplaceReason) -> Result<(), StoreClosed> {
        self.listed.clear();
        Ok(())
    }

    async fn replace_page(&mut self, items: Vec<Bytes>) -> Result<(), StoreClosed> {
        let object = |item: &Bytes| name_and_version(&serde_json::from_slice(item).unwrap());
        self.listed.extend(items.iter().map(object));
        Ok(())
    }

    async fn end_replace(&mut self, resource_version: &str) -> Result<Replaced, StoreClosed> {
        let listed: Vec<String> = self.listed.iter().map(|(n, v)| format!("{n}@{v}")).collect();
        self.note(format!("replace [{}] at {resource_version}", listed.join(" ")));
        *self.held.lock().unwrap() = self.listed.drain(..).collect();
        Ok(if self.partly { Replaced::Partly } else { Replaced::Kept })
    }

    async fn abort(&mut self) -> Result<(), StoreClosed> {
        self.listed.clear();
        Ok(())
    }

    async fn apply(&mut self, events: Vec<WatchEvent>) -> Result<Applied, StoreClosed> {
        let mut applied = Applied::default();
        for event in events {
            let object: Value = serde_json::from_slice(&event.object).unwrap();
            if object["kind"] != "ConfigMap" {
                continue;
            }
            let (name, version) = name_and_version(&object);
            let mut held = self.held.lock().unwrap();
            match event.kind {
                WatchEventType::Added | WatchEventType::Modified => {
                    held.insert(name.clone(), version.clone());
                }
                WatchEventType::Deleted => {
                    held.remove(&name);
                }
                WatchEventType::Bookmark | WatchEventType::Unknown => {}
            }
            match event.kind {
                WatchEventType::Added => self.note(format!("add {name}@{version}")),
                WatchEventType::Modified => self.note(format!("update {name}@{version}")),
                WatchEventType::Deleted => self.note(format!("delete {name}@{version}")),
                WatchEventType::Bookmark | WatchEventType::Unknown => {}
            }
            applied.taken += 1;
            applied.resource_version = Some(version);
        }
        Ok(applied)
    }

    async fn resync(&mut self) -> Result<(), StoreClosed> {
        self.note("resync".to_owned());
        Ok(())
    }

    async fn start_at(&mut self, _resource_version: &str) -> Result<(), StoreClosed> {
        Err(StoreClosed)
    }
}
