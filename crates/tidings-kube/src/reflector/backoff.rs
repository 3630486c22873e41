//! The pause between two rounds of a reflector.

use std::time::Duration;

use tokio::time::Instant;

/// The waits of a [`BackoffManager`], before jitter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The first wait.
    pub initial: Duration,
    /// The longest; zero for no bound.
    pub max: Duration,
    /// Each wait is so many times the one before; 0 leaves it as it is.
    pub factor: f64,
    /// Each wait is lengthened by a random part of itself, up to this many times itself.
    pub jitter: f64,
    /// After so long without a call the waits start over.
    pub reset: Duration,
}

impl Backoff {
    /// That of client-go's reflector: 800 ms, doubled each time up to 30 s, each uniform in
    /// `[d, 2d)`, starting over when more than two minutes lie between two calls.
    pub const REFLECTOR: Self = Self {
        initial: Duration::from_millis(800),
        max: Duration::from_secs(30),
        factor: 2.0,
        jitter: 1.0,
        reset: Duration::from_mins(2),
    };
}

/// client-go's exponential backoff manager (apimachinery's `wait.NewExponentialBackoffManager`).
#[derive(Debug)]
pub struct BackoffManager {
    backoff: Backoff,
    next: Duration,
    /// Once a wait was cut to `max`, all are.
    capped: bool,
    last_call: Instant,
}

impl BackoffManager {
    /// A manager that has not been called yet.
    pub fn new(backoff: Backoff) -> Self {
        Self { next: backoff.initial, capped: false, backoff, last_call: Instant::now() }
    }

    /// How long to wait now; each call makes the following wait longer.
    pub fn next_wait(&mut self) -> Duration {
        let Backoff { initial, max, factor, jitter, reset } = self.backoff;
        let now = Instant::now();
        if now - self.last_call > reset {
            (self.next, self.capped) = (initial, false);
        }
        self.last_call = now;
        let base = self.next;
        if !self.capped && factor > 0.0 {
            self.next = scaled(base, factor);
            if !max.is_zero() && self.next > max {
                (self.next, self.capped) = (max, true);
            }
        }
        base.saturating_add(scaled(base, jitter.max(0.0) * fastrand::f64()))
    }
}

/// A product that does not fit is as long as a wait can be.
fn scaled(wait: Duration, by: f64) -> Duration {
    Duration::try_from_secs_f64(wait.as_secs_f64() * by).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_the_cap_and_start_over_after_quiet() {
        let mut backoff = BackoffManager::new(Backoff::REFLECTOR);
        for base in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            let wait = backoff.next_wait().as_millis();
            assert!((base..base * 2).contains(&wait), "{wait} for {base}");
        }
        tokio::time::advance(Backoff::REFLECTOR.reset).await;
        assert!(backoff.next_wait() >= Backoff::REFLECTOR.max, "exactly two minutes are not quiet");
        tokio::time::advance(Backoff::REFLECTOR.reset + Duration::from_millis(1)).await;
        assert!(backoff.next_wait() < Duration::from_millis(1600));
    }
}
