//! Statements about Events that the journal does not hold whole: a line of the log a second for each
//! reason, and the counts by namespace.

use std::sync::Arc;

use tracing::Level;

use super::shares::Room;
use crate::{
    bridge::{log_lines::LogLines, shared::IngestCounters},
    event::Incoming,
};

/// Counts of Events that are not journalled whole. See the [module](self).
pub(super) struct CutReports {
    lines: LogLines,
    counters: Arc<IngestCounters>,
}

impl CutReports {
    pub(super) fn new(counters: &Arc<IngestCounters>) -> Self {
        Self { lines: LogLines::of_ingest(), counters: Arc::clone(counters) }
    }

    /// An Event was cut to `most` bytes, because of what there is room for.
    pub(super) fn cut(&self, source: &str, most: usize, room: Room, event: &Incoming<'_>) {
        let (metadata, (before, after)) = (&event.fields.metadata, event.json());
        self.counters.note_cut(&metadata.namespace);
        let large = room == Room::Whole;
        let what = if large { "an Event was cut" } else { "an Event was cut for others" };
        if !self.lines.admit(Level::WARN, what, "", 1) {
            return;
        }
        let object = format!("{}/{}", &*metadata.namespace, &*metadata.name);
        let (id, bytes) = (event.id(), before.len() + after.len());
        if large {
            tracing::warn!(
                source,
                id,
                %object,
                bytes,
                most,
                "an Event is too large for the journal and was cut: `truncated` says by how much. The \
                 rest is not kept; journal.maxEvent sets the limit"
            );
        } else {
            tracing::warn!(
                source,
                id,
                %object,
                bytes,
                most,
                namespace = &*metadata.namespace,
                "a namespace has more than a quarter of what the journal keeps for a sink that is behind, \
                 and its Events are cut: `truncated` says by how much. Fix the sink, or find out who \
                 writes so much there"
            );
        }
    }

    pub(super) fn shed(&self, source: &str, event: &Incoming<'_>) {
        let namespace = &*event.fields.metadata.namespace;
        self.counters.note_shed(namespace);
        if self.lines.admit(Level::ERROR, "an Event was shed", "", 1) {
            tracing::error!(
                source,
                id = event.id(),
                namespace,
                "a namespace has more than half of what the journal keeps for a sink that is behind, and its \
                 Events are shed: they are lost for every sink. Fix the sink, or find out who writes so \
                 much there"
            );
        }
    }
}
