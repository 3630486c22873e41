//! Which writes are tried again, and after how long.

use std::time::Duration;

use super::sink_error::SinkError;

/// However long an API server asks to be left alone, it is not for longer than this: the events
/// behind the one in hand wait, too.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(2);

/// Which failed writes are tried again, and after how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPolicy {
    /// client-go's: whatever the API server answers is final, an overload (429, 5xx) too; where
    /// there is no answer, or one that makes no sense, it is tried again. The first wait is uniform
    /// in `[0, sleep)`, so that those who lost the same server do not come back together; each
    /// later one is `sleep`. (Of [events.k8s.io/v1](super::events_v1), each is `sleep` and up to a
    /// quarter more.)
    ClientGo {
        /// client-go's `defaultSleepDuration` is 10 s.
        sleep: Duration,
    },
    /// An overload is tried again as well, which is what should be wanted of a new program. The
    /// wait is what the API server asked for, and some of `initial` on top, else uniform in
    /// `[0, d)`, where `d` is `initial` at first and doubles up to `max`.
    Patient {
        /// The longest first wait.
        initial: Duration,
        /// The longest wait that the API server did not ask for.
        max: Duration,
    },
}

impl RetryPolicy {
    /// [`Patient`](Self::Patient) from 1 s to 30 s.
    pub const PATIENT: Self =
        Self::Patient { initial: Duration::from_secs(1), max: Duration::from_secs(30) };

    /// Whether the same write may succeed later. Decided by the class of the outermost error alone,
    /// as in client-go.
    pub(super) fn is_worth_another_try(&self, error: &SinkError) -> bool {
        match error {
            SinkError::RequestConstruction(_) => false,
            SinkError::Status { .. } => matches!(self, Self::Patient { .. }) && error.is_overload(),
            SinkError::UnexpectedObject(_) | SinkError::Other(_) => true,
        }
    }

    /// How long to wait after the `tries`-th failure, which is this one. `random` is in `[0, 1)`.
    pub(super) fn wait(&self, tries: u32, error: &SinkError, random: f64) -> Duration {
        // A random number of a test may be anything.
        let part_of = |whole: Duration| {
            Duration::try_from_secs_f64(whole.as_secs_f64() * random).unwrap_or(whole)
        };
        match (*self, error.retry_after()) {
            (Self::ClientGo { sleep }, _) if tries == 1 => part_of(sleep),
            (Self::ClientGo { sleep }, _) => sleep,
            (Self::Patient { initial, .. }, Some(asked)) => {
                asked.min(MAX_RETRY_AFTER).saturating_add(part_of(initial))
            }
            (Self::Patient { initial, max }, None) => {
                let doublings = 2_u32.saturating_pow(tries.saturating_sub(1));
                part_of(initial.saturating_mul(doublings).min(max))
            }
        }
    }
}

/// As client-go.
impl Default for RetryPolicy {
    fn default() -> Self {
        Self::ClientGo { sleep: Duration::from_secs(10) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn status(code: u16) -> SinkError {
        SinkError::status(Status { code, ..Status::default() })
    }

    fn transport() -> SinkError {
        SinkError::Other("EOF".into())
    }

    #[test]
    fn client_go_takes_every_answer_as_final() {
        let policy = RetryPolicy::default();
        for code in [400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 503, 504] {
            assert!(!policy.is_worth_another_try(&status(code)), "{code}");
        }
        assert!(!policy.is_worth_another_try(&SinkError::RequestConstruction("no".into())));
        assert!(policy.is_worth_another_try(&SinkError::UnexpectedObject("a Pod".into())));
        // A status within another error, too.
        assert!(policy.is_worth_another_try(&SinkError::Other(Box::new(status(409)))));
        assert!(policy.is_worth_another_try(&transport()));
    }

    #[test]
    fn client_go_waits_a_part_of_the_sleep_and_then_all_of_it() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.wait(1, &transport(), 0.25), Duration::from_millis(2500));
        assert_eq!(policy.wait(2, &transport(), 0.25), Duration::from_secs(10));
        assert_eq!(policy.wait(11, &transport(), 0.25), Duration::from_secs(10));
    }

    #[test]
    fn the_patient_one_retries_overload_only() {
        let policy = RetryPolicy::PATIENT;
        for (code, again) in [(429, true), (500, true), (503, true), (404, false), (409, false)] {
            assert_eq!(policy.is_worth_another_try(&status(code)), again, "{code}");
        }
        assert!(policy.is_worth_another_try(&transport()));
    }

    #[test]
    fn the_patient_one_doubles_up_to_its_cap_and_waits_as_it_is_asked() {
        let policy = RetryPolicy::PATIENT;
        let waits = [1, 2, 3, 6, 40, u32::MAX].map(|n| policy.wait(n, &status(503), 0.5));
        assert_eq!(waits.map(|w| w.as_millis()), [500, 1000, 2000, 15_000, 15_000, 15_000]);
        let asks = |seconds| SinkError::Status {
            status: Box::default(),
            retry_after: Some(Duration::from_secs(seconds)),
        };
        assert_eq!(policy.wait(3, &asks(7), 0.5), Duration::from_millis(7500));
        assert_eq!(policy.wait(1, &asks(86_400), 0.0), MAX_RETRY_AFTER);
    }

    #[test]
    fn a_random_number_out_of_range_does_no_harm() {
        for random in [-1.0, f64::NAN, f64::INFINITY] {
            let wait = RetryPolicy::default().wait(1, &transport(), random);
            assert_eq!(wait, Duration::from_secs(10));
        }
    }
}
