//! Waits between attempts.

use std::time::Duration;

use super::{super::RetryOptions, ticket::Millis};

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
    let wait = asked.map_or(wait, |asked| wait.max(asked.min(MOST_ASKED)));
    wait.as_millis().try_into().unwrap_or(Millis::MAX).max(1)
}
