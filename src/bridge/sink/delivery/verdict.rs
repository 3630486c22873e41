//! The verdict on a record that fails by itself while others are taken.

use super::{DeadLetterClass, Delivery, Millis, Unit, shelf::Trial};
use crate::bridge::{Failure, FailureClass, Fault};

/// So many turns make a record guilty.
const TURNS: u32 = 3;
/// So long after a verdict the namespace is on probation: one turn is enough.
const PROBATION: Millis = 10 * 60 * 1000;
/// So many dead letters of it, and one turn makes another.
const LETTERS: u32 = 3;
/// So long it is remembered that a namespace was convicted.
pub(super) const REMEMBERED: Millis = 24 * 60 * 60 * 1000;

/// So many of these are remembered.
const MOST_REMEMBERED: usize = 4096;

/// The past of a namespace, or object, of which a record was guilty.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    /// The end of its probation.
    pub(super) until: Millis,
    pub(super) convicted: Millis,
    /// Its dead letters since the probation began.
    letters: u32,
}

/// The verdict on one record. See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not decided.
    Open,
    /// The record is tried now and then, and nobody waits for it but its object.
    SetAside,
    /// A dead letter.
    GivenUp(DeadLetterClass),
}

impl Delivery {
    pub(super) fn judge(
        &mut self,
        unit: Unit,
        trial: &Trial,
        failure: &Failure,
        now: Millis,
    ) -> Verdict {
        let past = self.past.get(&unit).copied().unwrap_or_default();
        let probation = now < past.until;
        let for_good = failure.fault == Fault::RecordForGood
            && self.places.tells(unit.destination, failure.status, now);
        let letters = if probation { past.letters } else { 0 };
        let verdict = match (trial.turns, trial.alike) {
            (_, TURNS..) if for_good => Verdict::GivenUp(class(failure)),
            // By itself twice: it may have failed with others first, and with all others now.
            (_, 1..) if for_good && letters >= LETTERS && trial.failures < 2 => Verdict::Open,
            (_, 1..) if for_good && letters >= LETTERS => Verdict::GivenUp(class(failure)),
            (TURNS.., _) => Verdict::SetAside,
            (1.., _) if probation => Verdict::SetAside,
            _ => Verdict::Open,
        };
        if verdict != Verdict::Open {
            let letters = letters + u32::from(verdict != Verdict::SetAside);
            self.past.retain(|_, past| now < past.convicted + REMEMBERED);
            if self.past.len() >= MOST_REMEMBERED {
                let oldest = self.past.iter().min_by_key(|(_, past)| past.convicted);
                let oldest = oldest.map(|(unit, _)| *unit);
                oldest.map(|unit| self.past.remove(&unit));
            }
            self.past.insert(unit, Past { until: now + PROBATION, convicted: now, letters });
        }
        verdict
    }
}

fn class(failure: &Failure) -> DeadLetterClass {
    match failure.class {
        FailureClass::Refused(class) => DeadLetterClass::Refused(class),
        _ => DeadLetterClass::Blocked,
    }
}
