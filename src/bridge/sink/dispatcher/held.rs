//! Looking after what waits beside the lanes: who is told of it, and who has to go where the journal has no
//! room for it.

use std::{cmp::Reverse, collections::hash_map::Entry};

use rustc_hash::FxHashMap;
use tracing::Level;

use super::{Content, Dispatcher, Purpose};
use crate::{
    bridge::{
        HeldUp,
        sink::delivery::{Held, Millis, Number},
    },
    event::{Origin, Record},
    plain::one_line,
};

/// So often it is looked, while anything waits.
const EVERY: Millis = 500;
/// Records are given up while what the sink has not had takes more than so many eighths of its room in the
/// journal: less than what intake, once it has stopped, waits for.
const MOST_EIGHTHS: u64 = 6;
/// The log has who holds others up for so long. A queue that is sent has another head each time, and none
/// that anybody has to look after.
const LOGGED_AFTER: Millis = 2_000;
/// So many of those that wait are named, and of the namespaces of what is set aside.
const NAMED: usize = 10;

const HELD_UP: &str = "events are held up";

/// The last report of what is held up.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// When it was last looked.
    at: Millis,
    /// The events that others waited behind then.
    heads: FxHashMap<Number, Head>,
    /// Heads that are not in memory, each once it has been read.
    read: FxHashMap<Number, Option<Subject>>,
    /// The status names some.
    names: bool,
    /// There is little room in the journal: it is looked at whenever anything has happened.
    is_full: bool,
}

/// An event that others wait behind.
#[derive(Clone, Copy, Debug)]
struct Head {
    since: Millis,
    /// The log has it.
    is_logged: bool,
}

/// The names of an event that others wait behind, in a line. Empty where the journal no longer has it.
#[derive(Clone, Debug, Default)]
struct Subject {
    namespace: String,
    object: String,
    id: String,
}

impl Subject {
    fn of(record: &Record) -> Self {
        let mut subject = Self { id: record.id().to_owned(), ..Self::default() };
        if let Some(origin) = Origin::of(&record.envelope) {
            let object = &origin.involved_object;
            subject.namespace = origin.metadata.namespace.to_string();
            let object = format!("{}/{}", &*object.kind, &*object.name);
            subject.object = one_line(&object, object.len());
        }
        subject
    }
}

impl Dispatcher {
    /// When there is something to do although nothing comes until then.
    pub(super) fn wake_at(&self) -> Option<Millis> {
        let wake_at = self.delivery.wake_at();
        if !self.delivery.holds(self.now()) && !self.said.names {
            return wake_at;
        }
        let look_at = self.said.at + EVERY;
        Some(wake_at.map_or(look_at, |at| at.min(look_at)))
    }

    /// Looks at what is held up, now and then.
    pub(super) fn look(&mut self) {
        let now = self.now();
        let nothing = !self.delivery.holds(now);
        let early = now < self.said.at + EVERY;
        if nothing && !self.said.names || early && (nothing || !self.said.is_full) {
            return;
        }
        self.make_room(now);
        if early {
            return;
        }
        self.said.at = now;
        self.tell_held(now);
    }

    /// Gives up a record that is held by reference where retention would take it, or intake would stop for it.
    fn make_room(&mut self, now: Millis) {
        let (log, progress) = (&self.source.log, &self.parts.progress);
        let most = log.room() / 8 * MOST_EIGHTHS;
        self.said.is_full = log.bytes_from(progress.unsettled_from()) > most;
        if !self.said.is_full || !self.reads.is_empty() {
            return;
        }
        if self.delivery.relieve(progress.passed_count(), now) {
            self.take_fates(&[], &[]);
            self.settle(false);
        }
    }

    /// Brings the status up to what is held up, and the log if there is more of it.
    fn tell_held(&mut self, now: Millis) {
        let mut all: Vec<_> = self.delivery.held(now).collect();
        let events = all.iter().map(|held| held.records as u64).sum();
        all.sort_unstable_by_key(|held| (Reverse(held.records), held.head));
        let mut heads = FxHashMap::default();
        let (mut named, mut unread) = (Vec::new(), Vec::new());
        for (place, held) in all.iter().enumerate() {
            let known = self.said.heads.get(&held.head).copied();
            let head = known.unwrap_or(Head { since: now, is_logged: false });
            let head = heads.entry(held.head).or_insert(head);
            let is_due = !head.is_logged && now >= head.since + LOGGED_AFTER;
            if place >= NAMED && !is_due {
                continue;
            }
            let Some(name) = self.name(held) else {
                unread.push(held.head);
                continue;
            };
            if is_due {
                head.is_logged = true;
                self.log_held(&name);
            }
            if place < NAMED {
                named.push(name);
            }
        }
        let first: Vec<_> = all.iter().take(NAMED).map(|held| held.head).collect();
        self.said.read.retain(|number, _| {
            first.contains(number) || heads.get(number).is_some_and(|head| !head.is_logged)
        });
        self.said.heads = heads;
        for head in unread.into_iter().take(NAMED) {
            self.read_head(head);
        }
        let set_aside_of = self.hand.set_aside_of(NAMED);
        // What is set aside may be sent in the lanes, too, once one of its object was taken.
        self.said.names = events > 0 || !set_aside_of.is_empty();
        self.parts.progress.update(|sink| {
            sink.held_up = events;
            sink.heads = named;
            sink.set_aside_of = set_aside_of;
        });
    }

    fn log_held(&self, held: &HeldUp) {
        let HeldUp { by, namespace, object, id, events, reason } = held;
        let by = by.as_str();
        if self.parts.progress.lines.admit(Level::WARN, HELD_UP, by, *events) {
            let sink = &self.parts.options.name;
            tracing::warn!(sink, by, namespace, object, id, events, reason, "{HELD_UP}");
        }
    }

    /// Says whose they are, by the first of them; nothing while that is to be [read](Self::read_head).
    pub(super) fn name(&self, held: &Held<'_>) -> Option<HeldUp> {
        let subject = match self.hand.content(held.head) {
            Some(Content::Record(record)) => Subject::of(&record),
            Some(_) => self.said.read.get(&held.head)?.clone()?,
            None => Subject::default(),
        };
        let Subject { namespace, object, id } = subject;
        let reason = held.failure.map(|failure| String::from(failure.reason.clone()));
        Some(HeldUp { by: held.by, namespace, object, id, events: held.records as u64, reason })
    }

    /// Has a head read that is not in memory, once.
    pub(super) fn read_head(&mut self, head: Number) {
        if let Entry::Vacant(unread) = self.said.read.entry(head) {
            unread.insert(None);
            self.read(head, Purpose::Name);
        }
    }

    /// Takes a head that has been read, if it still is one.
    pub(super) fn has_read_head(&mut self, head: Number, record: Option<&Record>) {
        if let Some(read) = self.said.read.get_mut(&head) {
            *read = Some(record.map(Subject::of).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_a_line_whatever_its_writer_has_put_into_it() {
        let event = r#"{"metadata":{"namespace":"shop","uid":"u","resourceVersion":"1"},"involvedObject":{"kind":"Po\u009bd","name":"a\u202eb\n\u001b[2Jc"}}"#;
        let envelope = format!(r#"{{"id":"u-1","delta":1,"event":{event}}}"#);
        let record = Record { seq: 1, envelope: envelope.into() };
        assert_eq!(Subject::of(&record).object, "Po d/ab [2Jc");
    }
}
