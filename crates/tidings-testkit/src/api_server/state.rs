//! What etcd holds: a table for each resource, and one revision for all.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use jiff::Timestamp;

use super::object_key;
use super::{
    object::{ObjectMeta, seconds},
    resource::{Catalogue, EVENTS, PerResource, ResourceId},
    shape::names_of,
    status::ApiStatus,
    stored::Stored,
    table::Table,
};

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

/// The state; a clone is a snapshot.
#[derive(Clone, Debug)]
pub(super) struct State {
    revision: u64,
    compacted: u64,
    tables: PerResource<Table>,
    random: fastrand::Rng,
    managed_fields: bool,
}

impl State {
    pub(super) fn new(
        revision: u64,
        seed: u64,
        managed_fields: bool,
        catalogue: &Catalogue,
    ) -> Self {
        Self {
            revision,
            compacted: 0,
            tables: PerResource::new(catalogue, Table::new),
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

    pub(super) fn table(&self, resource: ResourceId) -> &Table {
        &self.tables[resource]
    }

    pub(super) fn table_mut(&mut self, resource: ResourceId) -> &mut Table {
        &mut self.tables[resource]
    }

    /// Revisions that are used up without a trace.
    pub(super) fn skip(&mut self, revisions: u64) {
        self.revision += revisions;
    }

    /// Goes back to a snapshot; uids are not given out a second time, as they are random.
    pub(super) fn restore(&mut self, snapshot: &Self) {
        let random = self.random.clone();
        *self = Self { random, ..snapshot.clone() };
    }

    pub(super) fn uuid(&mut self) -> String {
        let bits = self.random.u128(..) & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// Fills in what the server assigns and renders the object at `revision`.
    pub(super) fn complete(&mut self, object: &mut impl Stored, revision: u64) -> Bytes {
        let now = Timestamp::now();
        let metadata = object.metadata_mut();
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
            object.note_manager(now);
        }
        object.to_item()
    }

    pub(super) fn create(
        &mut self,
        resource: ResourceId,
        mut object: impl Stored,
    ) -> Result<Written, ApiStatus> {
        object.count_generation(None);
        let item = self.complete(&mut object, self.revision + 1);
        let ObjectMeta { namespace, name, uid, .. } = object.metadata();
        let key = object_key(namespace, name);
        let table = self.table(resource);
        if table.get(&key).is_some() {
            return Err(ApiStatus::already_exists(&table.resource, name));
        }
        let resource_version = self.put_ready(resource, key.into(), item.clone());
        Ok(Written { name: name.clone(), uid: uid.clone(), resource_version, item })
    }

    /// Writes an object that is rendered already, at the next revision.
    pub(super) fn put_ready(&mut self, resource: ResourceId, key: Arc<str>, object: Bytes) -> u64 {
        self.revision += 1;
        self.tables[resource].put(self.revision, key, object);
        self.revision
    }

    /// Replaces an object by what `change` makes of it. Nothing changed: nothing is written.
    pub(super) fn update<O: Stored>(
        &mut self,
        resource: ResourceId,
        key: String,
        change: impl FnOnce(O) -> Result<O, ApiStatus>,
    ) -> Result<Written, ApiStatus> {
        let before = self.table(resource).found(&key)?.clone();
        let old = O::of_item(&before)?;
        let mut new = change(old.clone())?;
        keep_metadata(old.metadata(), new.metadata_mut());
        new.count_generation(Some(&old));
        let (resource_version, item) = if new == old {
            (old.metadata().resource_version.parse().unwrap_or_default(), before)
        } else {
            let item = self.complete(&mut new, self.revision + 1);
            (self.put_ready(resource, key.into(), item.clone()), item)
        };
        let ObjectMeta { name, uid, .. } = new.metadata();
        Ok(Written { name: name.clone(), uid: uid.clone(), resource_version, item })
    }

    pub(super) fn delete(
        &mut self,
        resource: ResourceId,
        key: String,
    ) -> Result<Written, ApiStatus> {
        self.table(resource).found(&key)?;
        self.revision += 1;
        let resource_version = self.revision;
        let item = self.tables[resource].bury(resource_version, key.into()).unwrap_or_default();
        let names = names_of(&item);
        Ok(Written { name: names.name, uid: names.uid, resource_version, item })
    }

    /// Deletes the Events that were last written `ttl` ago or before. All of them at one revision,
    /// as when etcd revokes a lease.
    pub(super) fn expire(&mut self, ttl: Duration) -> usize {
        let keys = self.tables[EVENTS].older_than(ttl);
        if !keys.is_empty() {
            self.revision += 1;
        }
        let (revision, table) = (self.revision, &mut self.tables[EVENTS]);
        keys.into_iter().filter_map(|key| table.bury(revision, key)).count()
    }

    /// Forgets every version that a later one at or before `revision` replaced.
    pub(super) fn compact(&mut self, revision: u64) {
        let revision = revision.min(self.revision);
        if revision > self.compacted {
            self.compacted = revision;
            self.tables.iter_mut().for_each(|table| table.compact(revision));
        }
    }

    /// Where in the log of a resource the changes after `revision` begin; none if they were
    /// compacted.
    pub(super) fn log_position(&self, resource: ResourceId, revision: u64) -> Option<u64> {
        (revision + 1 >= self.compacted).then(|| self.table(resource).log_position(revision))
    }
}

/// An update changes labels, annotations, owners and finalizers; the rest of the metadata is the
/// server's.
fn keep_metadata(old: &ObjectMeta, new: &mut ObjectMeta) {
    let given = std::mem::take(new);
    *new = ObjectMeta {
        labels: given.labels,
        annotations: given.annotations,
        owner_references: given.owner_references,
        finalizers: given.finalizers,
        ..old.clone()
    };
}
