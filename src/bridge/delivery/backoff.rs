//! Waits between attempts.

use std::time::Duration;

use super::Millis;
use crate::bridge::{Failure, FailureClass, Fault, RetryOptions};

/// The longest that a receiver can make us wait.
const MOST_ASKED: Duration = Duration::from_mins(10);

/// The wait after a failure, so many of which came in a row.
pub(in crate::bridge) fn wait_after(
    retry: &RetryOptions,
    failure: &Failure,
    failures: u32,
    random: &mut fastrand::Rng,
) -> Millis {
    if failure.class == FailureClass::Misconfigured && failure.fault == Fault::Sink {
        long_wait(retry, failure.after, random)
    } else {
        wait(retry, failures, failure.after, random)
    }
}

/// Exponential with full jitter: uniform between nothing and a bound that doubles with each failure in
/// a row, but no shorter than the receiver asks for.
fn wait(
    retry: &RetryOptions,
    in_a_row: u32,
    asked: Option<Duration>,
    random: &mut fastrand::Rng,
) -> Millis {
    let doubled = 2u32.saturating_pow(in_a_row.saturating_sub(1).min(31));
    let bound = retry.initial.saturating_mul(doubled).min(retry.max);
    at_least(bound.mul_f64(random.f64()), asked)
}

/// Near the longest bound from the start: for what only a person can mend, and no record's text brings about.
fn long_wait(retry: &RetryOptions, asked: Option<Duration>, random: &mut fastrand::Rng) -> Millis {
    at_least(retry.max.mul_f64(0.5 + random.f64() / 2.0), asked)
}

fn at_least(wait: Duration, asked: Option<Duration>) -> Millis {
    let wait = asked.map_or(wait, |asked| wait.max(asked.min(MOST_ASKED)));
    wait.as_millis().try_into().unwrap_or(Millis::MAX).max(1)
}
