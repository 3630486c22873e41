//! What an item of a list is: new, known, or of another history than what was read before.

use jiff::Timestamp;
use tidings_kube::reflector::ReplaceReason;

use super::super::{GaveUp, Ingest};
use crate::event::Incoming;

/// What an item of a list is.
pub(super) enum Item {
    News,
    /// Already journalled at this version, or excluded by `source.start`.
    NoNews,
    /// It is older than the resume point, and not what is known of it.
    Contradiction,
}

impl Ingest {
    /// The kind of an item, by its version.
    pub(super) fn judge(
        &mut self,
        source: usize,
        reason: ReplaceReason,
        cutoff: Option<Timestamp>,
        incoming: &Incoming<'_>,
    ) -> Result<Item, GaveUp> {
        let version = incoming.resource_version;
        let spec = &self.sources[source].spec;
        let (id, whole_from) = (spec.id, spec.whole_from);
        let covered = version <= spec.resume.resource_version;
        // A part of the list before has brought all up to there. Were it of this history, it would have
        // brought this one, too.
        let in_part = self.sources[source].pass.is_some_and(|pass| version <= pass.up_to);
        let first = reason == ReplaceReason::First;
        let news = match reason {
            ReplaceReason::NewEpoch if !in_part => true,
            ReplaceReason::Gap { .. } if covered => {
                // Of one history nothing else can be there but what was read.
                let must_be_known = whole_from.is_some_and(|from| version > from);
                let as_known = !must_be_known
                    || self
                        .writer
                        .known(incoming.uid)?
                        .is_some_and(|entry| entry.resource_version == version);
                return Ok(if as_known { Item::NoNews } else { Item::Contradiction });
            }
            _ => match self.writer.known(incoming.uid)? {
                Some(entry) if in_part && entry.resource_version != version => {
                    return Ok(Item::Contradiction);
                }
                // An Event does not go back, and a list is newer than all that was read of its source.
                Some(entry) if entry.source() == id && entry.resource_version > version => {
                    return Ok(Item::Contradiction);
                }
                None if in_part && !(first && cutoff.is_some()) => return Ok(Item::Contradiction),
                None if first => {
                    let fields = &incoming.fields;
                    let times = [fields.time(), &*fields.metadata.creation_timestamp];
                    let late = |cutoff, time: &str| {
                        time.parse().is_ok_and(|time: Timestamp| time >= cutoff)
                    };
                    cutoff.is_none_or(|cutoff| times.iter().any(|time| late(cutoff, time)))
                }
                // A list that was cut short by a crash has journalled some already.
                before => !covered && before.is_none_or(|entry| entry.resource_version < version),
            },
        };
        Ok(if news { Item::News } else { Item::NoNews })
    }

    pub(super) fn contradicted(&self, source: usize, incoming: &Incoming<'_>) {
        let metadata = &incoming.fields.metadata;
        let spec = &self.sources[source].spec;
        tracing::warn!(
            source = &*spec.key,
            resume_point = spec.resume.resource_version,
            object = %format!("{}/{}", &*metadata.namespace, &*metadata.name),
            resource_version = incoming.resource_version,
            "a list has an Event from before what was read that was never shown: the API server's etcd was \
             restored and has grown past it, or it is another one"
        );
    }

    /// Whether a list is older than the one before it, of which a part was exported.
    pub(super) fn went_back(&self, source: usize, resource_version: u64) -> bool {
        let source = &self.sources[source];
        let Some(pass) = source.pass.filter(|pass| resource_version < pass.version) else {
            return false;
        };
        tracing::warn!(
            source = &*source.spec.key,
            list = resource_version,
            list_before = pass.version,
            "a list is older than the one of which a part was read: the API server's etcd was restored, or it \
             is another one"
        );
        true
    }
}
