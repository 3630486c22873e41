//! The objects of one resource: every version since the last compaction, and the log of changes in
//! the order of their revisions.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{resource::Resource, shape::restamped, status::ApiStatus};

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

#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) resource: Arc<Resource>,
    /// Key `namespace/name` or `name`, in byte order as in etcd; versions oldest first.
    objects: BTreeMap<Arc<str>, Vec<Version>>,
    log: VecDeque<Change>,
    /// How many changes were dropped from the front of the log.
    log_start: u64,
    /// How many objects follow a continue key at a revision: so that counting a list of n pages
    /// costs one walk instead of n.
    remaining: HashMap<(u64, String), u64>,
}

impl Table {
    pub(super) fn new(resource: &Resource) -> Self {
        Self {
            resource: Arc::new(resource.clone()),
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            log_start: 0,
            remaining: HashMap::new(),
        }
    }

    /// How many objects exist now.
    pub(super) fn live(&self) -> usize {
        self.objects.values().filter_map(|versions| versions.last()?.object.as_ref()).count()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Bytes> {
        self.objects.get(key)?.last()?.object.as_ref()
    }

    /// The same, or the refusal that says it is not there.
    pub(super) fn found(&self, key: &str) -> Result<&Bytes, ApiStatus> {
        let name = key.rsplit('/').next().unwrap_or_default();
        self.get(key).ok_or_else(|| ApiStatus::not_found(&self.resource, name))
    }

    pub(super) fn put(&mut self, revision: u64, key: Arc<str>, object: Bytes) {
        let previous = self.get(&key).cloned();
        let kind = if previous.is_some() { ChangeType::Modified } else { ChangeType::Added };
        let version = Version { revision, object: Some(object.clone()), written: Instant::now() };
        self.objects.entry(Arc::clone(&key)).or_default().push(version);
        self.log.push_back(Change { revision, kind, key, object, previous });
    }

    /// Marks an existing object as deleted. Answers the last it was, at that revision.
    pub(super) fn bury(&mut self, revision: u64, key: Arc<str>) -> Option<Bytes> {
        let previous = self.get(&key).cloned()?;
        let object = restamped(&previous, revision);
        let version = Version { revision, object: None, written: Instant::now() };
        self.objects.get_mut(&key)?.push(version);
        let kind = ChangeType::Deleted;
        let change =
            Change { revision, kind, key, object: object.clone(), previous: Some(previous) };
        self.log.push_back(change);
        Some(object)
    }

    /// The keys of what was last written `ttl` ago or before.
    pub(super) fn older_than(&self, ttl: Duration) -> Vec<Arc<str>> {
        let over = |version: &Version| version.object.is_some() && version.written.elapsed() >= ttl;
        self.objects
            .iter()
            .filter(|(_, versions)| versions.last().is_some_and(over))
            .map(|(key, _)| Arc::clone(key))
            .collect()
    }

    /// Forgets every version that a later one at or before `revision` replaced.
    pub(super) fn compact(&mut self, revision: u64) {
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

    /// Where in the log the changes after `revision` begin.
    pub(super) fn log_position(&self, revision: u64) -> u64 {
        let at = self.log.partition_point(|change| change.revision <= revision);
        self.log_start + at as u64
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
            page.last_key.clear();
            page.last_key.push_str(key);
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

fn counted_from(revision: u64, prefix: &str, start: &str) -> (u64, String) {
    (revision, format!("{prefix}\n{start}"))
}
