//! The consequences of an answer: fates, dead letters, the sink's condition, and lines in the log.

use std::ops::Range;

use tracing::Level;

use super::{Attempted, Dispatcher, FIRST_LIVE, Purpose, hand::Fate as LiveFate};
use crate::{
    bridge::{
        Failure, Outcome, SinkCondition,
        own_events::all_own,
        shared::now_ms,
        sink::{
            batcher::LOST,
            delivery::{DeadLetterClass, FIRST_RESEND, Fate, Fated, GivenUp, Number, Trouble},
        },
    },
    event::Record,
    journal::DeadLetter,
};

const MISCONFIGURED: &str = "the sink is misconfigured and needs attention: nothing is lost";
const NOT_TAKEN: &str = "the sink does not take events";
const REJECTED: &str = "the receiver rejected events without saying which";
const REFUSED: &str = "the receiver refuses an event: dead-lettered";
const RECOVERED: &str = "the sink takes events again";
const GIVEN_UP: &str = "given up after retry.maxAttempts: dead-lettered";
const PUT_AWAY: &str = "an event was put away by hand: dead-lettered";
const BLOCKED: &str = "an event fails again and again while others are taken: dead-lettered";

impl Dispatcher {
    /// Takes in the outcome of an attempt.
    pub(super) fn answered(&mut self, attempted: Attempted) {
        let Attempted { line, numbers, sent, gone, outcome } = attempted;
        self.resends.end(&numbers);
        let Some(outcome) = outcome else { return self.not_sent(line, &sent, &gone) };
        let (failed, duplicates) = (outcome.is_to_be_retried(), outcome.duplicates());
        self.parts.progress.update(|sink| {
            sink.attempts += 1;
            sink.failed_attempts += u64::from(failed);
            sink.duplicates += duplicates;
        });
        if let Outcome::Partial { rejected: 0, reason } = &outcome {
            self.parts.progress.lines.warn_of(reason, sent.len() as u64);
        }
        let is_resend = numbers.first().is_some_and(|number| *number >= FIRST_RESEND);
        if is_resend {
            self.resends.tell_failure(&numbers, &outcome);
        }
        self.delivery.announce(line, &outcome);
        self.learn_keys();
        let now = self.now();
        self.delivery.answered(line, outcome, now);
        let taken = self.take_fates(&sent, &[]);
        self.take_notices(&sent);
        if !is_resend {
            let progress = &self.parts.progress;
            self.parts.had.write(now_ms(), || progress.saved_standing());
            self.note_condition(&sent, failed, taken);
        }
        self.settle(false);
    }

    /// Takes in that nothing was sent: records could not be read, or are `gone`.
    fn not_sent(&mut self, line: usize, read: &[Record], gone: &[Number]) {
        let now = self.now();
        self.delivery.not_sent(line, now);
        for number in gone {
            self.delivery.put_away(*number, now);
        }
        self.take_fates(read, gone);
        self.take_notices(read);
        self.settle(false);
    }

    /// Takes in the fates of records, some of them perhaps from among those just `sent`; those of others were
    /// found to be `gone`. Answers whether any live one was taken.
    pub(super) fn take_fates(&mut self, sent: &[Record], gone: &[Number]) -> bool {
        let fates: Vec<Fated> = self.delivery.take_fates().collect();
        let mut taken = false;
        for Fated { tickets, fate } in fates {
            if tickets.start >= FIRST_RESEND {
                self.resends.fated(tickets, &fate);
                continue;
            }
            match fate {
                Fate::Delivered | Fate::Duplicate => {
                    taken = true;
                    for number in tickets {
                        let Some(sequence) = self.hand.sequence(number) else { continue };
                        let again = self.parts.had.add(sequence);
                        let fate = if again { LiveFate::Redelivered } else { LiveFate::Delivered };
                        self.hand.fate(number, fate);
                    }
                }
                Fate::DeadLetter(letter) => self.dead_letter(tickets, &letter, sent, gone),
            }
        }
        taken
    }

    /// Gives live records that are given up their fate.
    fn dead_letter(
        &mut self,
        tickets: Range<Number>,
        letter: &GivenUp,
        sent: &[Record],
        gone: &[Number],
    ) {
        if !gone.is_empty() {
            for number in tickets {
                if gone.contains(&number) {
                    self.lose(number..number + 1);
                } else {
                    self.dead_letter(number..number + 1, letter, sent, &[]);
                }
            }
            return;
        }
        let events = tickets.end - tickets.start;
        let first = self.record(tickets.start, sent);
        self.log_letter(letter, first.as_ref().map(Record::id), events);
        if letter.class == DeadLetterClass::PartialSuccess
            && let Some(first) = first
        {
            // Which events these are is not known.
            let letter = self.letter_of(tickets.start, &first, letter);
            let letter = DeadLetter { unidentified: events, forward: None, ..letter };
            self.hand.fate(tickets.start, LiveFate::DeadLettered(Some(Box::new(letter))));
            for number in tickets.start + 1..tickets.end {
                self.hand.fate(number, LiveFate::DeadLettered(None));
            }
            return;
        }
        for number in tickets {
            match self.record(number, sent) {
                Some(record) => {
                    let letter = self.letter_of(number, &record, letter);
                    self.hand.fate(number, LiveFate::DeadLettered(Some(Box::new(letter))));
                }
                None => self.read(number, Purpose::DeadLetter(letter.clone())),
            }
        }
    }

    pub(super) fn lose(&mut self, tickets: Range<Number>) {
        let (sink, lost) = (&self.parts.options.name, tickets.end - tickets.start);
        if self.parts.progress.lines.admit(Level::ERROR, LOST, "", lost) {
            tracing::error!(sink, lost, "{LOST}");
        }
        for number in tickets {
            self.hand.fate(number, LiveFate::Lost);
        }
    }

    /// The dead letter of a record.
    pub(super) fn letter_of(
        &self,
        number: Number,
        record: &Record,
        letter: &GivenUp,
    ) -> DeadLetter {
        let first_ms = self.first_ms(letter.attempts, letter.first);
        let earlier = self.hand.before(number).filter(|_| number < FIRST_LIVE);
        let (attempts, first_ms) = match earlier {
            Some((attempts, before_ms)) => (attempts + letter.attempts, before_ms.min(first_ms)),
            None => (letter.attempts, first_ms),
        };
        let GivenUp { class, reason, .. } = letter;
        let (sink, class, reason) = (&*self.parts.options.name, class.as_str(), reason.clone());
        let times_ms = [first_ms, now_ms()];
        let forward = self.parts.options.forward_dead_letters.clone();
        DeadLetter { forward, ..DeadLetter::new(sink, record, class, reason, attempts, times_ms) }
    }

    fn log_letter(&self, letter: &GivenUp, id: Option<&str>, events: u64) {
        let GivenUp { class, reason, attempts, by_hand, .. } = letter;
        let (sink, reason) = (&self.parts.options.name, &**reason);
        let lines = &self.parts.progress.lines;
        let admits = |level, text| lines.admit(level, text, class.as_str(), events);
        match class {
            DeadLetterClass::Refused(_) if admits(Level::WARN, REFUSED) => {
                tracing::warn!(sink, id, reason, "{REFUSED}");
            }
            DeadLetterClass::PartialSuccess if admits(Level::ERROR, REJECTED) => {
                tracing::error!(sink, events, reason, "{REJECTED}");
            }
            DeadLetterClass::MaxAttempts if admits(Level::ERROR, GIVEN_UP) => {
                tracing::error!(sink, events, attempts, reason, "{GIVEN_UP}");
            }
            DeadLetterClass::Blocked if *by_hand => {
                tracing::warn!(sink, id, attempts, reason, "{PUT_AWAY}");
            }
            DeadLetterClass::Blocked if admits(Level::ERROR, BLOCKED) => {
                tracing::error!(sink, id, attempts, reason, "{BLOCKED}");
            }
            _ => {}
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

    /// Nothing fails any more: whatever was taken last, nothing is left of a trouble.
    fn note_recovery(&self, events: u64) {
        let mut recovered = false;
        self.parts.progress.update(|sink| {
            recovered = sink.last_error.take().is_some();
            sink.condition = SinkCondition::Healthy;
            sink.trouble = None;
        });
        if recovered && self.parts.progress.lines.admit(Level::INFO, RECOVERED, "", events) {
            tracing::info!(sink = self.parts.options.name, "{RECOVERED}");
        }
    }

    fn log_failure(&self, condition: SinkCondition, failure: &Failure, events: u64, news: bool) {
        let Failure { class, reason, .. } = failure;
        let (sink, reason) = (&self.parts.options.name, &**reason);
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
