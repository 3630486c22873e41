//! An answer taken in: totals, the sink's condition, and lines in the log.

use tracing::Level;

use super::{Attempted, Sender, SenderParts, room::Room};
use crate::{
    bridge::{
        Failure, FailureClass, Outcome, Reason, RefusedClass, Secrets, SinkCondition, SinkProgress,
        delivery::{Caller, Consequences, GivenUp, LetterClass, Trouble},
        gather::Work,
        own_events::all_own,
        shared::now_ms,
    },
    event::{EnvelopeParts, Record},
    journal::Delivered,
};

const MISCONFIGURED: &str =
    "the sink is misconfigured: nothing is lost, but somebody has to mend it";
const NOT_TAKEN: &str = "the sink does not take events";
const FAILS: &str = "the receiver fails for events: they are sent again";
const REJECTED: &str = "the receiver rejected events without saying which";
const REFUSED: &str = "the receiver refuses an event: dead-lettered";
const UNSENDABLE: &str = "there is no request for an event: dead-lettered";
const RECOVERED: &str = "the sink takes events again";
const PARKED: &str =
    "the receiver fails for an event and takes others: parked, and sent again later";
const UNSENT: &str =
    "the receiver fails for a namespace and takes others: parked without being sent, for later";
const GIVEN_UP: &str = "given up after retry.maxAttempts: dead-lettered";

/// The journal's answers about records.
struct Outside<'a> {
    had: &'a mut Delivered,
    room: &'a mut Room,
    progress: &'a SinkProgress,
}

impl Caller for Outside<'_> {
    fn taken(&mut self, record: &Record) {
        self.had.add(record.seq);
    }

    fn has_room(&mut self, record: &Record, is_sent: bool) -> bool {
        let unsaved = self.progress.unsaved_letters();
        let takes = self.room.takes(&record.envelope, unsaved, is_sent);
        self.progress.update(|sink| sink.parking_full = !takes);
        takes
    }
}

/// The object that the Event of a record is about, as kind, namespace and name.
pub(super) fn object_of(record: &Record) -> Reason {
    let fields = EnvelopeParts::of(&record.envelope).and_then(|parts| parts.fields());
    let object = fields.map(|fields| fields.involved_object.to_string());
    Secrets::none().reason(object.as_deref().unwrap_or("an unknown object"))
}

impl Sender {
    /// Takes in the outcome of an attempt.
    pub(super) fn answered(&mut self, attempted: Attempted) {
        let Attempted { attempt, batch, outcome } = attempted;
        let (failed, duplicates) = (outcome.is_to_be_retried(), outcome.duplicates());
        if let Outcome::Partial { rejected: 0, reason } = &outcome {
            self.parts.progress.lines.warn_of(reason, batch.records.len() as u64);
        }
        let moment = self.moment();
        let Self { parts: SenderParts { had, progress, .. }, room, delivery, .. } = self;
        let Consequences { taken, latencies, letters } =
            delivery.answered(attempt, outcome, moment, &mut Outside { had, room, progress });
        self.tell_letters(&letters);
        let progress = &self.parts.progress;
        progress.update(|sink| {
            sink.attempts += 1;
            sink.failed_attempts += u64::from(failed);
            sink.duplicates += duplicates;
            sink.latencies += latencies;
        });
        self.parts.had.write(now_ms(), || progress.saved_standing());
        self.parts.traffic.send_modify(|traffic| traffic.answered += 1);
        self.note_condition(&batch.records, failed, taken > 0);
        self.settle();
    }

    /// Hands delivery a batch, some of which may be parked at once.
    pub(super) fn push(&mut self, work: Work) {
        let moment = self.moment();
        let Self { parts: SenderParts { had, progress, .. }, room, delivery, .. } = self;
        let Consequences { letters, .. } =
            delivery.push(work, moment, &mut Outside { had, room, progress });
        self.tell_letters(&letters);
    }

    fn tell_letters(&self, letters: &[GivenUp]) {
        for letter in letters {
            self.log_letter(letter);
            if letter.class == LetterClass::Blocked {
                self.note_parked(letter);
            }
        }
    }

    /// An Event of the bridge's own that is parked causes no other.
    fn note_parked(&self, GivenUp { record, reason, events, .. }: &GivenUp) {
        if all_own(std::slice::from_ref(record), self.parts.own_writes.as_ref()) {
            return;
        }
        let words = Secrets::none().reason(format_args!("{}: {reason}", object_of(record)));
        self.parts.progress.update(|sink| {
            sink.parked += events;
            sink.last_parked = Some(words);
        });
    }

    fn log_letter(&self, letter: &GivenUp) {
        let GivenUp { class, reason, attempts, record, events } = letter;
        let (level, text) = match class {
            LetterClass::Refused(RefusedClass::Unsendable) => (Level::WARN, UNSENDABLE),
            LetterClass::Refused(_) => (Level::WARN, REFUSED),
            LetterClass::PartialSuccess => (Level::ERROR, REJECTED),
            LetterClass::MaxAttempts => (Level::ERROR, GIVEN_UP),
            LetterClass::Blocked if *attempts > 0 => (Level::WARN, PARKED),
            LetterClass::Blocked => (Level::WARN, UNSENT),
        };
        if !self.parts.progress.lines.admit(level, text, class.as_str(), *events) {
            return;
        }
        // Which were rejected by a partial success is not known.
        let is_named = *events == 1 && *class != LetterClass::PartialSuccess;
        let named = is_named.then_some(record);
        let (id, object) = (named.map(Record::id), named.map(object_of));
        let (sink, object, reason) = (&self.parts.options.sink, object.as_deref(), &**reason);
        if level == Level::ERROR {
            tracing::error!(sink, id, object, events, attempts, reason, "{text}");
        } else {
            tracing::warn!(sink, id, object, events, attempts, reason, "{text}");
        }
    }

    /// Brings what is known of the sink up to an answer to live records, some of which `failed` or were
    /// `taken`.
    fn note_condition(&self, records: &[Record], failed: bool, taken: bool) {
        let (condition, failure, nothing_is_taken) = match self.delivery.trouble() {
            Trouble::None if !taken => return,
            Trouble::None => (SinkCondition::Healthy, None, false),
            Trouble::Retrying(failure) => (SinkCondition::Retrying, Some(failure), false),
            Trouble::Unavailable(failure) => (SinkCondition::Retrying, Some(failure), true),
            Trouble::Misconfigured(failure) => (SinkCondition::Misconfigured, Some(failure), true),
        };
        let own = self.parts.own_writes.as_ref();
        let (mut news, mut recovered) = (false, false);
        self.parts.progress.update(|sink| {
            let error = failure.map(|failure| failure.reason.clone());
            let took_nothing = sink.takes_nothing;
            sink.takes_nothing = nothing_is_taken || took_nothing && !taken;
            let before = std::mem::replace(&mut sink.last_error, error);
            recovered = taken && (took_nothing || failure.is_none() && before.is_some());
            news = before != sink.last_error
                || (sink.condition, took_nothing) != (condition, sink.takes_nothing);
            sink.condition = condition;
            if taken {
                sink.trouble = None;
            } else if nothing_is_taken
                && failed
                && sink.trouble != Some(condition)
                && !all_own(records, own)
            {
                sink.trouble = Some(condition);
            }
            // Nothing waits to be parked.
            sink.parking_full &= failure.is_some();
        });
        let (sink, events) = (&self.parts.options.sink, records.len() as u64);
        if recovered && self.parts.progress.lines.admit(Level::INFO, RECOVERED, "", events) {
            tracing::info!(sink, "{RECOVERED}");
        }
        let Some(Failure { class, reason, .. }) = failure else { return };
        // Refusals are told one by one.
        let is_told = news && !matches!(class, FailureClass::Refused(_));
        let (reason, class) = (&**reason, class.as_str());
        let wait_ms = self.delivery.wake_at().map_or(0, |at| at.saturating_sub(self.now()));
        let retry_in = format!("{}.{}s", wait_ms / 1000, wait_ms % 1000 / 100);
        let (level, text) = match condition {
            SinkCondition::Misconfigured => (Level::ERROR, MISCONFIGURED),
            _ if nothing_is_taken => (Level::WARN, NOT_TAKEN),
            _ => (Level::WARN, FAILS),
        };
        if !is_told {
            tracing::debug!(sink, reason, retry_in, "still failing");
            return;
        }
        if !self.parts.progress.lines.admit(level, text, class, events) {
            return;
        }
        // The event that it fails for, if that is known.
        let one = records.first().filter(|_| events == 1 && failed && !nothing_is_taken);
        let (id, object) = (one.map(Record::id), one.map(object_of));
        let object = object.as_deref();
        if level == Level::ERROR {
            tracing::error!(sink, id, object, reason, retry_in, "{text}");
        } else {
            tracing::warn!(sink, id, object, reason, retry_in, "{text}");
        }
    }
}
