//! The fates of live events, by the answers of their receiver.

use tracing::Level;

use super::{
    Deliver,
    fates::{Fate, Fates},
};
use crate::{
    bridge::{
        Reason, SinkCondition,
        own_events::all_own,
        shared::now_ms,
        step::{Answer, Answered, DeadLetterClass, Piece},
    },
    event::Record,
    journal::{DeadLetter, LetterState},
};

const REJECTED: &str = "the receiver rejected events without saying which";
const REFUSED: &str = "the receiver refuses an event: dead-lettered";
const RECOVERED: &str = "the sink takes events again";
const GIVEN_UP: &str = "given up after retry.maxAttempts: dead-lettered";

impl Deliver {
    /// Takes in the last word about records that are of a piece no more.
    pub(super) fn account(&mut self, piece: &Piece, answered: Answered, fates: &mut Fates) {
        let Answered { records, places, answer } = answered;
        match answer {
            Answer::Taken { warning } => {
                if let Some(warning) = warning {
                    self.progress.lines.warn_of(&warning, records.len() as u64);
                }
                self.taken(&records, &places, fates);
            }
            Answer::Refused { class, reason } => {
                self.log_refused(piece, &records, class, &reason);
                for place in &places {
                    fates.set(*place, Fate::DeadLettered);
                }
                let unidentified = class == DeadLetterClass::PartialSuccess;
                let letters = if unidentified { 1 } else { records.len() };
                for (record, place) in records.iter().zip(places).take(letters) {
                    let mut letter = self.dead_letter(piece, record, class, reason.clone());
                    if unidentified {
                        // Which events these are is not known.
                        letter.unidentified = records.len() as u64;
                        letter.forward = None;
                    }
                    fates.dead_letter(place, letter);
                }
            }
        }
    }

    fn taken(&mut self, records: &[Record], places: &[usize], fates: &mut Fates) {
        for (record, place) in records.iter().zip(places) {
            let again = self.had.add(record.seq);
            fates.set(*place, if again { Fate::Redelivered } else { Fate::Delivered });
        }
        let mut recovered = false;
        let own = self.own_writes.as_ref();
        self.progress.update(|sink| {
            recovered = sink.last_error.take().is_some();
            sink.condition = SinkCondition::Healthy;
            // Only a sink that was in trouble has its records looked at.
            if sink.trouble.is_some() && !all_own(records, own) {
                sink.trouble = None;
            }
        });
        let events = records.len() as u64;
        if recovered && self.progress.lines.admit(Level::INFO, RECOVERED, "", events) {
            tracing::info!(sink = self.name, "{RECOVERED}");
        }
    }

    fn log_refused(
        &self,
        piece: &Piece,
        records: &[Record],
        class: DeadLetterClass,
        reason: &Reason,
    ) {
        let (sink, reason, events) = (&self.name, &**reason, records.len() as u64);
        let admits = |level, text| self.progress.lines.admit(level, text, class.as_str(), events);
        match class {
            DeadLetterClass::Refused(_) if admits(Level::WARN, REFUSED) => {
                let id = records.first().map(Record::id);
                tracing::warn!(sink, id, reason, "{REFUSED}");
            }
            DeadLetterClass::PartialSuccess if admits(Level::ERROR, REJECTED) => {
                tracing::error!(sink, events, reason, "{REJECTED}");
            }
            DeadLetterClass::MaxAttempts if admits(Level::ERROR, GIVEN_UP) => {
                tracing::error!(sink, events, attempts = piece.attempts, reason, "{GIVEN_UP}");
            }
            _ => {}
        }
    }

    fn dead_letter(
        &self,
        piece: &Piece,
        record: &Record,
        class: DeadLetterClass,
        reason: Reason,
    ) -> DeadLetter {
        DeadLetter {
            number: 0,
            state: LetterState::Kept,
            forward: self.forward.clone(),
            sink: self.name.clone(),
            seq: record.seq,
            id: record.id().to_owned(),
            class: class.as_str().to_owned(),
            reason: reason.into(),
            attempts: piece.attempts,
            first_ms: piece.first_ms,
            time_ms: now_ms(),
            unidentified: 0,
            envelope: record.envelope.clone(),
        }
    }
}
