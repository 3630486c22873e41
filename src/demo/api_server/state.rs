//! What etcd holds: every version of every Event since the last compaction, and the log of
//! changes in the order of their revisions.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use jiff::Timestamp;

use super::{
    object::{EventObject, ObjectMeta, seconds},
    status::ApiStatus,
};

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeType {
    Added,
    Modified,
    Deleted,
}

/// One change, as a watch shows it.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) kind: ChangeType,
    pub(super) key: Arc<str>,
    /// The object after the change; for a deletion the last one, at the deletion's revision.
    pub(super) object: Bytes,
    /// The object before.
    pub(super) previous: Option<Bytes>,
}

#[derive(Clone, Debug)]
struct Version {
    revision: u64,
    /// None: deleted at this revision.
    object: Option<Bytes>,
    written: Instant,
}

/// What a write made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: u64,
    /// The object, as an item of a list.
    pub(super) item: Bytes,
}

impl Written {
    /// `<uid>-<resourceVersion>`, which is how the bridge names the change.
    pub fn id(&self) -> String {
        format!("{}-{}", self.uid, self.resource_version)
    }
}

/// Part of a list.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) items: Vec<Bytes>,
    /// The key of the last object looked at.
    pub(super) last_key: String,
    /// Whether the range holds more.
    pub(super) more: bool,
    /// How many objects follow the page.
    pub(super) remaining: u64,
}

/// The state; a clone is a snapshot.
#[derive(Clone, Debug)]
pub(super) struct State {
    revision: u64,
    compacted: u64,
    /// Key `namespace/name`, in byte order as in etcd; versions oldest first.
    objects: BTreeMap<Arc<str>, Vec<Version>>,
    log: VecDeque<Change>,
    /// How many changes were dropped from the front of the log.
    log_start: u64,
    /// How many objects follow a continue key at a revision: so that counting a list of n pages
    /// costs one walk instead of n.
    remaining: HashMap<(u64, String), u64>,
    random: fastrand::Rng,
    managed_fields: bool,
}

impl State {
    pub(super) fn new(revision: u64, seed: u64, managed_fields: bool) -> Self {
        Self {
            revision,
            compacted: 0,
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            log_start: 0,
            remaining: HashMap::new(),
            random: fastrand::Rng::with_seed(seed),
            managed_fields,
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Revisions that other resources used up.
    pub(super) fn skip(&mut self, revisions: u64) {
        self.revision += revisions;
    }

    /// How many Events exist now.
    pub(super) fn live(&self) -> usize {
        self.objects.values().filter_map(|versions| versions.last()?.object.as_ref()).count()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Bytes> {
        self.objects.get(key)?.last()?.object.as_ref()
    }

    fn uuid(&mut self) -> String {
        let bits = self.random.u128(..) & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// Fills in what the server assigns and renders the object at `revision`.
    pub(super) fn complete(&mut self, event: &mut EventObject, revision: u64) -> Bytes {
        let now = Timestamp::now();
        let metadata = &mut event.metadata;
        if metadata.name.is_empty() && !metadata.generate_name.is_empty() {
            const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
            let suffix: String =
                (0..5).map(|_| char::from(ALPHABET[self.random.usize(..ALPHABET.len())])).collect();
            metadata.name = format!("{}{suffix}", metadata.generate_name);
        }
        if metadata.uid.is_empty() {
            metadata.uid = self.uuid();
        }
        metadata.creation_timestamp.get_or_insert_with(|| seconds(now));
        metadata.resource_version = revision.to_string();
        if self.managed_fields && metadata.managed_fields.is_empty() {
            event.note_manager(now);
        }
        event.to_item()
    }

    pub(super) fn create(&mut self, mut event: EventObject) -> Result<Written, ApiStatus> {
        let item = self.complete(&mut event, self.revision + 1);
        let key = format!("{}/{}", event.metadata.namespace, event.metadata.name);
        if self.get(&key).is_some() {
            return Err(ApiStatus::already_exists("events", &event.metadata.name));
        }
        let resource_version = self.put_ready(key.into(), item.clone());
        let (name, uid) = (event.metadata.name, event.metadata.uid);
        Ok(Written { name, uid, resource_version, item })
    }

    /// Writes an object that is rendered already, at the next revision.
    pub(super) fn put_ready(&mut self, key: Arc<str>, object: Bytes) -> u64 {
        self.revision += 1;
        let revision = self.revision;
        let previous = self.get(&key).cloned();
        let kind = if previous.is_some() { ChangeType::Modified } else { ChangeType::Added };
        let version = Version { revision, object: Some(object.clone()), written: Instant::now() };
        self.objects.entry(Arc::clone(&key)).or_default().push(version);
        self.log.push_back(Change { revision, kind, key, object, previous });
        revision
    }

    /// Replaces an object by what `change` makes of it. Nothing changed: nothing is written.
    pub(super) fn update(
        &mut self,
        namespace: &str,
        name: &str,
        change: impl FnOnce(EventObject) -> Result<EventObject, ApiStatus>,
    ) -> Result<Written, ApiStatus> {
        let key = format!("{namespace}/{name}");
        let before = self.get(&key).ok_or_else(|| ApiStatus::not_found("events", name))?.clone();
        let old = decode(&before)?;
        let mut new = change(old.clone())?;
        new.metadata = kept_metadata(&old.metadata, new.metadata);
        let (resource_version, item) = if new == old {
            (old.metadata.resource_version.parse().unwrap_or_default(), before)
        } else {
            let item = self.complete(&mut new, self.revision + 1);
            (self.put_ready(key.into(), item.clone()), item)
        };
        let uid = new.metadata.uid;
        Ok(Written { name: name.to_owned(), uid, resource_version, item })
    }

    pub(super) fn delete(&mut self, namespace: &str, name: &str) -> Result<Written, ApiStatus> {
        let key = format!("{namespace}/{name}");
        if self.get(&key).is_none() {
            return Err(ApiStatus::not_found("events", name));
        }
        self.revision += 1;
        self.bury(&key.into())
    }

    /// Deletes what was last written `ttl` ago or before. All of it at one revision, as when etcd
    /// revokes a lease.
    pub(super) fn expire(&mut self, ttl: Duration) -> usize {
        let over = |version: &Version| version.object.is_some() && version.written.elapsed() >= ttl;
        let keys: Vec<Arc<str>> = self
            .objects
            .iter()
            .filter(|(_, versions)| versions.last().is_some_and(over))
            .map(|(key, _)| Arc::clone(key))
            .collect();
        if !keys.is_empty() {
            self.revision += 1;
        }
        keys.iter().filter(|key| self.bury(key).is_ok()).count()
    }

    /// Marks an existing object as deleted at the current revision.
    fn bury(&mut self, key: &Arc<str>) -> Result<Written, ApiStatus> {
        let revision = self.revision;
        let previous = self.get(key).cloned();
        let mut last = decode(previous.as_deref().unwrap_or_default())?;
        last.metadata.resource_version = revision.to_string();
        let object = last.to_item();
        if let Some(versions) = self.objects.get_mut(key) {
            versions.push(Version { revision, object: None, written: Instant::now() });
        }
        self.log.push_back(Change {
            revision,
            kind: ChangeType::Deleted,
            key: Arc::clone(key),
            object: object.clone(),
            previous,
        });
        let (name, uid) = (last.metadata.name, last.metadata.uid);
        Ok(Written { name, uid, resource_version: revision, item: object })
    }

    /// Forgets every version that a later one at or before `revision` replaced.
    pub(super) fn compact(&mut self, revision: u64) {
        let revision = revision.min(self.revision);
        if revision <= self.compacted {
            return;
        }
        self.compacted = revision;
        self.remaining.clear();
        self.objects.retain(|_, versions| {
            let newest = versions.partition_point(|version| version.revision <= revision);
            versions.drain(..newest.saturating_sub(1));
            let buried = versions
                .first()
                .is_some_and(|first| first.revision <= revision && first.object.is_none());
            if buried {
                versions.remove(0);
            }
            !versions.is_empty()
        });
        while self.log.front().is_some_and(|change| change.revision < revision) {
            self.log.pop_front();
            self.log_start += 1;
        }
    }

    /// Where in the log the changes after `revision` begin; none if they were compacted.
    pub(super) fn log_position(&self, revision: u64) -> Option<u64> {
        if revision + 1 < self.compacted {
            return None;
        }
        let at = self.log.partition_point(|change| change.revision <= revision);
        Some(self.log_start + at as u64)
    }

    /// Up to `limit` changes from a place in the log; none if they were compacted meanwhile.
    pub(super) fn changes(&self, position: u64, limit: usize) -> Option<Vec<Change>> {
        let skip = usize::try_from(position.checked_sub(self.log_start)?).ok()?;
        Some(self.log.iter().skip(skip).take(limit).cloned().collect())
    }

    /// The objects whose keys start with `prefix` and are not below `start`, as they were at
    /// `revision`: up to `limit` (0: all) that `wanted` takes.
    pub(super) fn list(
        &mut self,
        prefix: &str,
        start: &str,
        revision: u64,
        limit: usize,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Page {
        let from = if start > prefix { start } else { prefix };
        let mut page = Page::default();
        let mut looked_at = 0u64;
        let bounds = (Bound::Included(from), Bound::Unbounded);
        let mut rest = self
            .objects
            .range::<str, _>(bounds)
            .take_while(|(key, _)| key.starts_with(prefix))
            .filter_map(|(key, versions)| {
                let at = versions.partition_point(|version| version.revision <= revision);
                Some((key, versions[..at].last()?.object.as_ref()?))
            })
            .peekable();
        while let Some((key, object)) = rest.peek() {
            if limit > 0 && page.items.len() >= limit {
                page.more = true;
                break;
            }
            if wanted(object) {
                page.items.push(Bytes::clone(object));
            }
            looked_at += 1;
            page.last_key = key.to_string();
            rest.next();
        }
        if page.more {
            let known = self.remaining.get(&counted_from(revision, prefix, start));
            page.remaining = match known {
                Some(known) => known.saturating_sub(looked_at),
                None => rest.count() as u64,
            };
            if self.remaining.len() > 4096 {
                self.remaining.clear();
            }
            let next = format!("{}\0", page.last_key);
            self.remaining.insert(counted_from(revision, prefix, &next), page.remaining);
        }
        page
    }
}

/// An update changes labels and annotations; the rest of the metadata is the server's.
fn kept_metadata(old: &ObjectMeta, new: ObjectMeta) -> ObjectMeta {
    ObjectMeta { labels: new.labels, annotations: new.annotations, ..old.clone() }
}

fn decode(item: &[u8]) -> Result<EventObject, ApiStatus> {
    serde_json::from_slice(item).map_err(|error| ApiStatus::new(500, "", error.to_string()))
}

fn counted_from(revision: u64, prefix: &str, start: &str) -> (u64, String) {
    (revision, format!("{prefix}\n{start}"))
}
