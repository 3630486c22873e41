//! The consequences of an answer: fates, dead letters, the sink's condition, and lines in the log.

use tracing::Level;

use super::{Attempted, Deliver, fates::Fate as LiveFate};
use crate::{
    bridge::{
        Failure, Latencies, Outcome, RefusedClass, SinkCondition,
        delivery::{FIRST_ERRAND, Fate, Fated, Letter, LetterClass, Trouble},
        own_events::all_own,
        shared::now_ms,
    },
    event::Record,
    journal::{DeadLetter, LetterState},
};

const MISCONFIGURED: &str =
    "the sink is misconfigured: nothing is lost, but somebody has to mend it";
const NOT_TAKEN: &str = "the sink does not take events";
const REJECTED: &str = "the receiver rejected events without saying which";
const REFUSED: &str = "the receiver refuses an event: dead-lettered";
const UNSENDABLE: &str = "there is no request for an event: dead-lettered";
const RECOVERED: &str = "the sink takes events again";
const GIVEN_UP: &str = "given up after retry.maxAttempts: dead-lettered";

impl Deliver {
    /// Takes in the outcome of an attempt.
    pub(super) fn answered(&mut self, attempted: Attempted) {
        let Attempted { lane, is_errand, batch, mut outcome } = attempted;
        let (failed, duplicates) = (outcome.is_to_be_retried(), outcome.duplicates());
        self.parts.progress.update(|sink| {
            sink.attempts += 1;
            sink.failed_attempts += u64::from(failed);
            sink.duplicates += duplicates;
        });
        if let Outcome::Partial { rejected: 0, reason } = &outcome {
            self.parts.progress.lines.warn_of(reason, batch.records.len() as u64);
        }
        if is_errand {
            self.errands.tell_failure(self.delivery.tickets(lane), &outcome);
        } else {
            outcome = self.refusals.judge(outcome, batch.records.len());
        }
        self.delivery.answered(lane, outcome, self.now());
        let fates: Vec<Fated> = self.delivery.take_fates().collect();
        let (mut taken, mut latencies, now) = (false, Latencies::default(), now_ms());
        for Fated { tickets, fate } in fates {
            if tickets.start >= FIRST_ERRAND {
                self.errands.fated(tickets, &fate);
                continue;
            }
            match fate {
                Fate::Delivered | Fate::Duplicate => {
                    taken = true;
                    for number in tickets {
                        let Some(record) = self.hand.record(number) else { continue };
                        let again = self.parts.had.add(record.seq);
                        let fate = if again { LiveFate::Redelivered } else { LiveFate::Delivered };
                        if let Some(journalled_ms) = self.hand.fate(number, fate) {
                            latencies.count(now.saturating_sub(journalled_ms));
                        }
                    }
                }
                Fate::DeadLetter(letter) => self.dead_letter(tickets, &letter),
            }
        }
        if !is_errand {
            let progress = &self.parts.progress;
            progress.update(|sink| sink.latencies += latencies);
            self.parts.had.write(now_ms(), || progress.saved_standing());
            self.note_condition(&batch.records, failed, taken);
        }
        self.settle(false);
    }

    /// Gives live records that are given up their fate.
    fn dead_letter(&mut self, tickets: std::ops::Range<u64>, letter: &Letter) {
        let events = tickets.end - tickets.start;
        let id = self.hand.record(tickets.start).map(|record| record.id().to_owned());
        self.log_letter(letter, id.as_deref(), events);
        let rows: Vec<_> = self.hand.rows(tickets).collect();
        for row in rows {
            let unidentified = letter.class == LetterClass::PartialSuccess;
            let letters = if unidentified { row.start..row.start + 1 } else { row.clone() };
            for number in letters {
                let Some(record) = self.hand.record(number) else { continue };
                let mut kept = self.letter_of(record, letter);
                if unidentified {
                    // Which events these are is not known.
                    kept.unidentified = row.end - row.start;
                    kept.forward = None;
                }
                self.hand.dead_letter(number, kept);
            }
            for number in row {
                self.hand.fate(number, LiveFate::DeadLettered);
            }
        }
    }

    fn letter_of(&self, record: &Record, letter: &Letter) -> DeadLetter {
        DeadLetter {
            number: 0,
            state: LetterState::Kept,
            forward: self.parts.forward.clone(),
            sink: self.parts.name.clone(),
            seq: record.seq,
            id: record.id().to_owned(),
            class: letter.class.as_str().to_owned(),
            reason: letter.reason.clone().into(),
            attempts: letter.attempts,
            first_ms: self.began_ms + letter.first,
            time_ms: now_ms(),
            unidentified: 0,
            envelope: record.envelope.clone(),
        }
    }

    fn log_letter(&self, letter: &Letter, id: Option<&str>, events: u64) {
        let Letter { class, reason, attempts, .. } = letter;
        let (sink, reason) = (&self.parts.name, &**reason);
        let lines = &self.parts.progress.lines;
        let admits = |level, text| lines.admit(level, text, class.as_str(), events);
        match class {
            LetterClass::Refused(refused) => {
                let is_asked = *refused != RefusedClass::Unsendable;
                let text = if is_asked { REFUSED } else { UNSENDABLE };
                if admits(Level::WARN, text) {
                    tracing::warn!(sink, id, reason, "{text}");
                }
            }
            LetterClass::PartialSuccess if admits(Level::ERROR, REJECTED) => {
                tracing::error!(sink, events, reason, "{REJECTED}");
            }
            LetterClass::MaxAttempts if admits(Level::ERROR, GIVEN_UP) => {
                tracing::error!(sink, events, attempts, reason, "{GIVEN_UP}");
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
                    self.note_recovery(records);
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

    fn note_recovery(&self, records: &[Record]) {
        let own = self.parts.own_writes.as_ref();
        let mut recovered = false;
        self.parts.progress.update(|sink| {
            recovered = sink.last_error.take().is_some();
            sink.condition = SinkCondition::Healthy;
            // Only a sink that was in trouble has its records looked at.
            if sink.trouble.is_some() && !all_own(records, own) {
                sink.trouble = None;
            }
        });
        let events = records.len() as u64;
        if recovered && self.parts.progress.lines.admit(Level::INFO, RECOVERED, "", events) {
            tracing::info!(sink = self.parts.name, "{RECOVERED}");
        }
    }

    fn log_failure(&self, condition: SinkCondition, failure: &Failure, events: u64, news: bool) {
        let Failure { class, reason, .. } = failure;
        let (sink, reason) = (&self.parts.name, &**reason);
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
