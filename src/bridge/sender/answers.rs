//! An answer taken in: totals, the sink's condition, and lines in the log.

use tracing::Level;

use super::{Attempted, Sender, SenderParts, room::Room};
use crate::{
    bridge::{
        Failure, Outcome, Reason, RefusedClass, Secrets, SinkCondition, SinkProgress,
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
    fn had(&mut self, record: &Record) -> bool {
        self.had.add(record.seq)
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
        // Which were rejected is not known.
        let named = (*class != LetterClass::PartialSuccess).then_some(record);
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
        let own = self.parts.own_writes.as_ref();
        let (condition, failure) = match self.delivery.trouble() {
            Trouble::Misconfigured(failure) => (SinkCondition::Misconfigured, failure),
            Trouble::Retrying(failure) => (SinkCondition::Retrying, failure),
            Trouble::None => {
                if taken {
                    self.note_recovery(records.len() as u64);
                }
                return;
            }
        };
        let mut news = false;
        self.parts.progress.update(|sink| {
            let before = sink.last_error.replace(failure.reason.clone());
            news = sink.condition != condition || before.as_ref() != Some(&failure.reason);
            sink.condition = condition;
            if failed && sink.trouble != Some(condition) && !all_own(records, own) {
                sink.trouble = Some(condition);
            }
        });
        self.log_failure(condition, failure, records.len() as u64, news);
    }

    fn note_recovery(&self, events: u64) {
        let mut recovered = false;
        self.parts.progress.update(|sink| {
            recovered = sink.last_error.take().is_some();
            sink.condition = SinkCondition::Healthy;
            sink.trouble = None;
            // Nothing waits to be parked.
            sink.parking_full = false;
        });
        if recovered && self.parts.progress.lines.admit(Level::INFO, RECOVERED, "", events) {
            tracing::info!(sink = self.parts.options.sink, "{RECOVERED}");
        }
    }

    fn log_failure(&self, condition: SinkCondition, failure: &Failure, events: u64, news: bool) {
        let Failure { class, reason, .. } = failure;
        let (sink, reason) = (&self.parts.options.sink, &**reason);
        let wait_ms = self.delivery.wake_at().map_or(0, |at| at.saturating_sub(self.now()));
        let retry_in = format!("{}.{}s", wait_ms / 1000, wait_ms % 1000 / 100);
        let lines = &self.parts.progress.lines;
        let admit = |level, what| lines.admit(level, what, class.as_str(), events);
        if !news {
            tracing::debug!(sink, reason, retry_in, "still failing");
        } else if condition == SinkCondition::Misconfigured {
            if admit(Level::ERROR, MISCONFIGURED) {
                tracing::error!(sink, reason, retry_in, "{MISCONFIGURED}");
            }
        } else if admit(Level::WARN, NOT_TAKEN) {
            tracing::warn!(sink, reason, retry_in, "{NOT_TAKEN}");
        }
    }
}
