//! Looking after what waits beside the lanes: who is told of it, and who has to go where the journal has no
//! room for it.

use std::cmp::Reverse;

use tracing::Level;

use super::{Content, Deliver, DeliverParts};
use crate::{
    bridge::{
        HeldUp,
        delivery::{Held, Millis, Number},
    },
    event::EnvelopeParts,
};

/// So often it is looked, while anything waits.
const EVERY: Millis = 500;
/// Records are given up while what the sink has not had takes more than so many eighths of its room in the
/// journal: less than what intake, once it has stopped, waits for.
const MOST_EIGHTHS: u64 = 6;
/// So many of those that wait are named.
const NAMED: usize = 10;

const HELD_UP: &str = "events are held up";

/// What was said of what is held up.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// When it was last looked.
    at: Millis,
    /// The heads that the log has.
    heads: Vec<Number>,
    /// The status names some.
    names: bool,
    /// There is little room in the journal: it is looked at whenever anything has happened.
    is_full: bool,
}

impl Deliver {
    /// When there is something to do although nothing comes until then.
    pub(super) fn wake_at(&self) -> Option<Millis> {
        let wake_at = self.delivery.wake_at();
        if self.delivery.held(self.now()).next().is_none() {
            return wake_at;
        }
        let look_at = self.said.at + EVERY;
        Some(wake_at.map_or(look_at, |at| at.min(look_at)))
    }

    /// Looks at what is held up, now and then.
    pub(super) fn look(&mut self) {
        let now = self.now();
        let nothing = self.delivery.held(now).next().is_none();
        let early = now < self.said.at + EVERY;
        if nothing && !self.said.names || !nothing && early && !self.said.is_full {
            return;
        }
        self.make_room(now);
        if early && !nothing {
            return;
        }
        self.said.at = now;
        self.tell_held(now);
    }

    /// Gives up a record that is held by reference where retention would take it, or intake would stop for it.
    fn make_room(&mut self, now: Millis) {
        let DeliverParts { log, progress, retention_size, .. } = &self.parts;
        let most = log.room(*retention_size) / 8 * MOST_EIGHTHS;
        self.said.is_full = log.bytes_from(progress.unsettled_from()) > most;
        if self.said.is_full && self.reads.is_empty() && self.delivery.relieve(now) {
            self.take_fates(&[], &[]);
            self.settle(false);
        }
    }

    /// Brings the status up to what is held up, and the log if there is more of it.
    fn tell_held(&mut self, now: Millis) {
        let mut all: Vec<_> = self.delivery.held(now).collect();
        let events = all.iter().map(|held| held.records as u64).sum();
        all.sort_unstable_by_key(|held| (Reverse(held.records), held.head));
        let heads: Vec<_> = all.iter().map(|held| held.head).collect();
        let named: Vec<_> = all.iter().take(NAMED).map(|held| self.name(held)).collect();
        for held in &all {
            if !self.said.heads.contains(&held.head) {
                self.log_held(&self.name(held));
            }
        }
        self.said.heads = heads;
        self.said.names = events > 0;
        self.parts.progress.update(|sink| {
            sink.held_up = events;
            sink.heads = named;
        });
    }

    fn log_held(&self, held: &HeldUp) {
        let HeldUp { by, namespace, object, id, events, reason } = held;
        let by = by.as_str();
        if self.parts.progress.lines.admit(Level::WARN, HELD_UP, by, *events) {
            let sink = &self.parts.name;
            tracing::warn!(sink, by, namespace, object, id, events, reason, "{HELD_UP}");
        }
    }

    /// Says whose they are, by the first of them.
    pub(super) fn name(&self, held: &Held<'_>) -> HeldUp {
        let reason = held.failure.map(|failure| String::from(failure.reason.clone()));
        let events = held.records as u64;
        let (namespace, object, id) = <(String, String, String)>::default();
        let mut named = HeldUp { by: held.by, namespace, object, id, events, reason };
        let Some(Content::Record(record)) = self.hand.content(held.head) else { return named };
        record.id().clone_into(&mut named.id);
        if let Some(fields) = EnvelopeParts::of(&record.envelope).and_then(|parts| parts.fields()) {
            let object = &fields.involved_object;
            named.namespace = fields.metadata.namespace.to_string();
            named.object = format!("{}/{}", &*object.kind, &*object.name);
        }
        named
    }
}
