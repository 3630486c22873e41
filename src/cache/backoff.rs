//! The pause between two rounds of a reflector.

use std::time::Duration;

use tokio::time::Instant;

/// client-go's exponential backoff manager as its reflector uses it: 800 ms, doubled each time up
/// to 30 s, jitter 1.0 (each wait is uniform in `[d, 2d)`), starting over when more than two
/// minutes lie between two calls.
#[derive(Debug)]
pub struct BackoffManager {
    next: Duration,
    last_call: Option<Instant>,
}

impl BackoffManager {
    /// The first wait, before jitter.
    pub const INITIAL: Duration = Duration::from_millis(800);
    /// The longest wait, before jitter.
    pub const MAX: Duration = Duration::from_secs(30);
    /// After so long a quiet time the waits start over.
    pub const RESET: Duration = Duration::from_mins(2);

    /// A manager that has not been called yet.
    pub fn new() -> Self {
        Self { next: Self::INITIAL, last_call: None }
    }

    /// How long to wait now; each call makes the following wait longer.
    pub fn next_wait(&mut self) -> Duration {
        let now = Instant::now();
        if self.last_call.is_some_and(|last| now - last > Self::RESET) {
            self.next = Self::INITIAL;
        }
        self.last_call = Some(now);
        let base = self.next;
        self.next = (base * 2).min(Self::MAX);
        base + base.mul_f64(fastrand::f64())
    }
}

impl Default for BackoffManager {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_the_cap_and_start_over_after_quiet() {
        let mut backoff = BackoffManager::new();
        for base in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            let wait = backoff.next_wait().as_millis();
            assert!((base..base * 2).contains(&wait), "{wait} for {base}");
        }
        tokio::time::advance(BackoffManager::RESET).await;
        assert!(backoff.next_wait() >= BackoffManager::MAX, "exactly two minutes are not quiet");
        tokio::time::advance(BackoffManager::RESET + Duration::from_millis(1)).await;
        assert!(backoff.next_wait() < Duration::from_millis(1600));
    }
}
