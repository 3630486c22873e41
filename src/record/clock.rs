//! What the recorders know of time and chance, so that a test can say it.

use std::{fmt, sync::Arc};

use jiff::Timestamp;

/// Where the time of events comes from. The waits between tries are Tokio's, whose time a test
/// can pause.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// A clock that a test sets.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for Clock {
    /// The wall clock.
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Where jitter comes from: numbers in `[0, 1)`.
#[derive(Clone)]
pub struct Random(Arc<dyn Fn() -> f64 + Send + Sync>);

impl Random {
    /// Numbers that a test chooses.
    pub fn new(next: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(next))
    }

    /// The next number.
    pub fn next(&self) -> f64 {
        (self.0)()
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new(fastrand::f64)
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}
