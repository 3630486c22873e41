//! Events that are refused by themselves, one after the other: too many in a row are a failure of the
//! sink, which gives up nothing.

use crate::bridge::{EventFate, Failure, FailureClass, Outcome, Reason, RefusedClass, Secrets};

/// After so many refusals of single events in a row it is the sink that is wrong, not the events.
const REFUSALS_IN_A_ROW: u32 = 20;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Refusals {
    in_a_row: u32,
}

impl Refusals {
    /// The outcome of an attempt at so many live events, where too many refusals are the sink's.
    pub(super) fn judge(&mut self, mut outcome: Outcome, events: usize) -> Outcome {
        match &mut outcome {
            Outcome::Delivered => self.in_a_row = 0,
            Outcome::Partial { rejected, .. } if *rejected < events as u64 => self.in_a_row = 0,
            Outcome::Partial { reason, .. } if events == 1 => {
                if let Some(failure) = self.count(reason) {
                    return Outcome::Failed(failure);
                }
            }
            Outcome::Failed(failure) if events == 1 => self.judge_one(failure),
            Outcome::PerEvent(fates) => fates.iter_mut().for_each(|fate| match fate {
                EventFate::Delivered | EventFate::Duplicate => self.in_a_row = 0,
                EventFate::Failed(failure) => self.judge_one(failure),
            }),
            // It is halved until one stands alone, or tried again.
            Outcome::Partial { .. } | Outcome::Failed(_) => {}
        }
        outcome
    }

    fn judge_one(&mut self, failure: &mut Failure) {
        let is_asked = failure.class != FailureClass::Refused(RefusedClass::Unsendable);
        if matches!(failure.class, FailureClass::Refused(_))
            && is_asked
            && let Some(of_the_sink) = self.count(&failure.reason)
        {
            *failure = of_the_sink;
        }
    }

    /// Counts one more. If there were too many before, the failure that it is instead.
    fn count(&mut self, reason: &Reason) -> Option<Failure> {
        if self.in_a_row < REFUSALS_IN_A_ROW {
            self.in_a_row += 1;
            return None;
        }
        let words =
            format_args!("refuses everything, {REFUSALS_IN_A_ROW} events in a row: {reason}");
        Some(Failure::new(FailureClass::Misconfigured, Secrets::none().reason(words)))
    }
}
