//! Enrichment as a step of a watcher: a record in, what its sink is told of its object out.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use tidings_kube::correlator::Key;
use tokio::time::sleep;

use super::{Enrich, Known, Objects, Reference, Versions, reference::Ref, sighting::Decision};
use crate::{
    bridge::now_ms,
    event::{EnvelopeParts, Missing, Record},
};

/// What one sink is told. Clones are cheap.
#[derive(Clone)]
pub(in crate::bridge) struct Enricher {
    pub(super) objects: Arc<Objects>,
    /// Its number among the sinks that ask.
    pub(super) sink: usize,
    pub(super) enrich: Arc<Enrich>,
}

/// What a sink is told of the object of a record.
#[derive(Clone, Debug)]
pub(in crate::bridge) struct Told {
    /// [`ObjectInfo`](crate::event::ObjectInfo) as JSON.
    pub(in crate::bridge) json: Bytes,
    /// Why that is nothing.
    pub(in crate::bridge) missing: Option<Missing>,
}

impl Told {
    /// A record with this in its envelope, and without a correlation. The envelope is taken off
    /// `space`, as [`EnvelopeParts::with`] does it.
    pub(in crate::bridge) fn put_into(&self, record: &Record, space: &mut BytesMut) -> Record {
        let mut record = record.clone();
        if let Some(parts) = EnvelopeParts::of(&record.envelope) {
            record.envelope = parts.with(parts.delta, Some(&self.json), None, space);
        }
        record
    }
}

impl Enricher {
    /// What the sink is told of the object of a record that was journalled at `time_ms`. Waits until
    /// it is known, and no longer than the budget from then on.
    pub(in crate::bridge) async fn tell(&self, record: &Record, time_ms: u64) -> Told {
        let Some(key) = self.key_of(record) else { return self.told(&no_object()) };
        let view = &self.objects.view;
        loop {
            let mut changed = pin!(view.changed());
            changed.as_mut().enable();
            let now = now_ms();
            match view.decide(key, record.seq, time_ms, now) {
                Decision::Known(known) => return self.told(&known),
                Decision::Miss => return self.told(&Known::missing(Missing::Timeout)),
                Decision::Read => self.objects.load(key).await,
                Decision::Wait(until_ms) => {
                    let left = Duration::from_millis(until_ms.saturating_sub(now).max(1));
                    tokio::select! {
                        () = changed => {}
                        () = sleep(left) => {}
                    }
                }
            }
        }
    }

    /// A record as it was enriched in an earlier run that decided about it. Blocks on the disk.
    pub(in crate::bridge) fn stored(&self, record: &Record) -> Record {
        self.tell_stored(record).put_into(record, &mut BytesMut::new())
    }

    fn tell_stored(&self, record: &Record) -> Told {
        let Some(reference) = object_of(record) else { return self.told(&no_object()) };
        let key = reference.as_ref().key(&self.objects.view.keys);
        let stored = self.objects.stored(key).unwrap_or_default();
        match Versions::load(stored.versions).at(record.seq) {
            Some(version) => self.told(&version.known),
            None => self.told(&Known::missing(Missing::Timeout)),
        }
    }

    fn key_of(&self, record: &Record) -> Option<Key> {
        let view = &self.objects.view;
        let recent = view.recent(record.seq);
        recent.or_else(|| Some(object_of(record)?.as_ref().key(&view.keys)))
    }

    fn told(&self, known: &Known) -> Told {
        let json = known.told(self.sink, &self.enrich);
        Told { json, missing: known.info.missing }
    }
}

/// There is nothing that could be found.
fn no_object() -> Known {
    Known::missing(Missing::NotFound)
}

fn object_of(record: &Record) -> Option<Reference> {
    let event = EnvelopeParts::of(&record.envelope)?.fields()?;
    Some(Ref::of(&event)?.to_owned())
}
