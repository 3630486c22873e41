//! The log, for tests.

use std::sync::{Arc, LazyLock, Mutex};

use tracing::{Dispatch, subscriber::NoSubscriber};
use tracing_subscriber::layer::SubscriberExt as _;

use super::shared::lock;

/// With no more than one, tracing asks that of whatever thread comes by first whether a line is wanted,
/// and remembers the answer for all.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

/// The levels of what is logged.
#[derive(Clone, Default)]
pub(crate) struct Levels(Arc<Mutex<Vec<tracing::Level>>>);

impl Levels {
    /// Those of this thread, for as long as the guard is kept.
    pub(crate) fn heard() -> (Self, tracing::subscriber::DefaultGuard) {
        LazyLock::force(&ANOTHER);
        let levels = Self::default();
        let subscriber = tracing_subscriber::registry().with(levels.clone());
        (levels, tracing::subscriber::set_default(subscriber))
    }

    /// The levels of the lines since this was asked last.
    pub(crate) fn take(&self) -> Vec<tracing::Level> {
        std::mem::take(&mut *lock(&self.0))
    }
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Levels {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        lock(&self.0).push(*event.metadata().level());
    }
}
