//! Waits between attempts.

use std::time::Duration;

use super::ticket::Millis;
use crate::bridge::RetryOptions;

/// The back-off of all that is set aside at which a sink's receiver was silent: it may crash, or hang, at each of
/// them, so one is tried at a time.
#[derive(Debug, Default)]
pub(super) struct SharedBackoff {
    until: Millis,
    in_a_row: u32,
    /// The line that tries one.
    line: Option<usize>,
}

impl SharedBackoff {
    /// When the next one is tried; not known while one is.
    pub(super) fn until(&self) -> Option<Millis> {
        self.line.is_none().then_some(self.until)
    }

    /// Takes in that a line tries one.
    pub(super) fn begin(&mut self, line: usize) {
        self.line = Some(line);
    }

    /// Takes in that an attempt of a line has ended.
    pub(super) fn end(&mut self, line: usize) {
        self.line.take_if(|tries| *tries == line);
    }

    /// Counts a failure in a row.
    pub(super) fn failed(&mut self) -> u32 {
        self.in_a_row += 1;
        self.in_a_row
    }

    /// Has the next one wait.
    pub(super) fn wait(&mut self, until: Millis) {
        self.until = until;
    }

    /// Takes in that one was taken: the receiver may be well again, and the others are tried soon.
    pub(super) fn taken(&mut self) {
        (self.until, self.in_a_row) = (0, 0);
    }
}

/// The longest that a receiver can make us wait.
const MOST_ASKED: Duration = Duration::from_mins(10);

/// Exponential with full jitter: uniform between nothing and a bound that doubles with each failure in
/// a row, but no shorter than the receiver asks for.
pub(super) fn wait(
    retry: &RetryOptions,
    in_a_row: u32,
    asked: Option<Duration>,
    random: &mut fastrand::Rng,
) -> Millis {
    let doubled = 2u32.saturating_pow(in_a_row.saturating_sub(1).min(31));
    let bound = retry.initial.saturating_mul(doubled).min(retry.max);
    at_least(bound.mul_f64(random.f64()), asked)
}

/// Near the longest bound from the start: for what only a person can mend.
pub(super) fn long_wait(
    retry: &RetryOptions,
    asked: Option<Duration>,
    random: &mut fastrand::Rng,
) -> Millis {
    at_least(retry.max.mul_f64(0.5 + random.f64() / 2.0), asked)
}

fn at_least(wait: Duration, asked: Option<Duration>) -> Millis {
    // The clock counts whole milliseconds: one more, or less than was asked for would pass.
    let asked = asked.map(|asked| asked.min(MOST_ASKED) + Duration::from_millis(1));
    let wait = asked.map_or(wait, |asked| wait.max(asked));
    wait.as_millis().try_into().unwrap_or(Millis::MAX).max(1)
}
