//! What a receiver's answers make of the records that it answers.

use tracing::Level;

use super::{
    Deliver,
    fates::{Fate, Fates},
    piece::Piece,
};
use crate::{
    bridge::{
        EventFate, Reason, RefusedClass, Secrets, SinkCondition, own_events::all_own,
        shared::now_ms,
    },
    event::{Batch, Record},
    journal::{DeadLetter, LetterState},
};

const REJECTED: &str = "the receiver rejected events without saying which";
const REFUSED: &str = "the receiver refuses an event: dead-lettered";
const GIVEN_UP: &str = "given up after retry.maxAttempts: dead-lettered";
/// After so many refusals of single events in a row it is the sink that is wrong, not the events.
const REFUSALS_IN_A_ROW: u32 = 20;

impl Deliver {
    pub(super) fn delivered(&mut self, records: &[Record], places: &[usize], fates: &mut Fates) {
        self.took(records, places, fates);
        self.had.write(|| self.progress.saved_up_to());
    }

    fn took(&mut self, records: &[Record], places: &[usize], fates: &mut Fates) {
        self.refusals_in_a_row = 0;
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
        if recovered {
            tracing::info!(sink = self.name, "the sink takes events again");
        }
    }

    /// Sorts the events of a batch that was answered one by one; those to be sent again stay in
    /// the piece. Answers the reason to retry if there were too many refusals in a row.
    pub(super) fn per_event(
        &mut self,
        piece: &mut Piece,
        answers: Vec<EventFate>,
        fates: &mut Fates,
    ) -> Option<Reason> {
        let mut too_many = None;
        let Piece { attempts, failures, first_ms, .. } = *piece;
        let records = std::mem::take(&mut piece.batch.records);
        let places = std::mem::take(&mut piece.places);
        // A sink that answers for too few has not said that it took the others.
        let answers = answers.into_iter().chain(std::iter::repeat(EventFate::Retry));
        for ((record, place), answer) in records.into_iter().zip(places).zip(answers) {
            match answer {
                EventFate::Delivered => self.took(&[record], &[place], fates),
                EventFate::Retry => piece.push(record, place),
                EventFate::Refused { class, reason } => {
                    let batch = Batch { records: vec![record] };
                    let places = vec![place];
                    let mut single = Piece { batch, places, attempts, failures, first_ms };
                    if let Err(reason) = self.refused(&single, class, reason, fates) {
                        piece.batch.records.append(&mut single.batch.records);
                        piece.places.push(place);
                        too_many = Some(reason);
                    }
                }
            }
        }
        self.had.write(|| self.progress.saved_up_to());
        too_many
    }

    pub(super) fn partial(
        &mut self,
        piece: &Piece,
        rejected: u64,
        reason: Reason,
        fates: &mut Fates,
    ) {
        let Piece { batch: Batch { records }, places, .. } = piece;
        let rejected = rejected.min(records.len() as u64);
        let first_taken = usize::try_from(rejected).unwrap_or(0);
        self.delivered(&records[first_taken..], &places[first_taken..], fates);
        if rejected > 0 {
            for place in &places[..first_taken] {
                fates.set(*place, Fate::DeadLettered);
            }
            if self.progress.lines.admit(Level::ERROR, REJECTED, "partial-success", rejected) {
                tracing::error!(
                    sink = self.name,
                    events = rejected,
                    reason = &*reason,
                    "{REJECTED}"
                );
            }
            let mut letter = self.dead_letter(piece, &records[0], "partial-success", reason);
            letter.unidentified = rejected;
            // Which events these are is not known.
            letter.forward = None;
            fates.dead_letter(places[0], letter);
        } else {
            self.progress.lines.warn_of(&reason, records.len() as u64);
        }
    }

    /// A single event was refused: it goes to the dead letters, unless it is one too many in a
    /// row; then the reason to retry comes back.
    pub(super) fn refused(
        &mut self,
        piece: &Piece,
        class: RefusedClass,
        reason: Reason,
        fates: &mut Fates,
    ) -> Result<(), Reason> {
        if self.refusals_in_a_row >= REFUSALS_IN_A_ROW {
            return Err(Secrets::none().reason(format_args!(
                "refuses everything, {REFUSALS_IN_A_ROW} events in a row: {reason}"
            )));
        }
        self.refusals_in_a_row += 1;
        let record = &piece.batch.records[0];
        if self.progress.lines.admit(Level::WARN, REFUSED, class.as_str(), 1) {
            tracing::warn!(sink = self.name, id = record.id(), reason = &*reason, "{REFUSED}");
        }
        fates.set(piece.places[0], Fate::DeadLettered);
        let letter = self.dead_letter(piece, record, class.as_str(), reason);
        fates.dead_letter(piece.places[0], letter);
        Ok(())
    }

    pub(super) fn give_up(&mut self, piece: &Piece, reason: &Reason, fates: &mut Fates) {
        let events = piece.batch.records.len();
        if self.progress.lines.admit(Level::ERROR, GIVEN_UP, "max-attempts", events as u64) {
            tracing::error!(
                sink = self.name,
                events,
                attempts = piece.attempts,
                reason = &**reason,
                "{GIVEN_UP}"
            );
        }
        for (record, place) in piece.batch.records.iter().zip(&piece.places) {
            fates.set(*place, Fate::DeadLettered);
            let letter = self.dead_letter(piece, record, "max-attempts", reason.clone());
            fates.dead_letter(*place, letter);
        }
    }

    fn dead_letter(
        &self,
        piece: &Piece,
        record: &Record,
        class: &str,
        reason: Reason,
    ) -> DeadLetter {
        DeadLetter {
            number: 0,
            state: LetterState::Kept,
            forward: self.forward.clone(),
            sink: self.name.clone(),
            seq: record.seq,
            id: record.id().to_owned(),
            class: class.to_owned(),
            reason: reason.into(),
            attempts: piece.attempts,
            first_ms: piece.first_ms,
            time_ms: now_ms(),
            unidentified: 0,
            envelope: record.envelope.clone(),
        }
    }
}
