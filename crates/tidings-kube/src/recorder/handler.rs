//! Those who are told of events: functions and logs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;

use super::{
    given_up,
    report::{Fate, Tally},
    stage::Stage,
};
use crate::{broadcaster::Watcher, foreign::caught};

pub use tracing::Level;

/// Calls `handler`, which the log knows by `name`, until the queue ends, or the time of a shutdown is up.
pub(super) async fn run_handler(
    mut events: Watcher<Arc<Event>>,
    name: &'static str,
    mut handler: impl FnMut(&Event),
    mut stage: Stage,
    tally: &Tally,
) {
    loop {
        let event = tokio::select! {
            biased;
            () = stage.time_is_up() => break,
            event = events.next() => event,
        };
        tally.set_dropped(events.dropped());
        let Some(event) = event else { return };
        let called = caught(|| handler(&event));
        tally.add(if called.is_ok() { Fate::Written } else { Fate::Panicked });
        if let Err(panic) = called {
            let event = given_up::name_of(&event);
            tracing::error!(
                handler = name,
                event,
                panic,
                "An event watcher panicked: it goes on with the next event"
            );
        }
    }
    while events.next().await.is_some() {
        tally.add(Fate::NotWritten);
    }
    tally.set_dropped(events.dropped());
}

/// One line in the log, with the fields of client-go's structured logging.
pub(super) fn log_structured(level: Level, event: &Event) {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let about = &event.involved_object;
    let object = match about.namespace.as_deref().unwrap_or_default() {
        "" => text(&about.name),
        namespace => format!("{namespace}/{}", text(&about.name)),
    };
    // The level of a line must be known when it is compiled.
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                $level,
                object,
                fieldPath = about.field_path.as_deref().unwrap_or_default(),
                kind = about.kind.as_deref().unwrap_or_default(),
                apiVersion = about.api_version.as_deref().unwrap_or_default(),
                r#type = event.type_.as_deref().unwrap_or_default(),
                reason = event.reason.as_deref().unwrap_or_default(),
                note = event.message.as_deref().unwrap_or_default(),
                "Event occurred"
            )
        };
    }
    match level {
        Level::ERROR => line!(Level::ERROR),
        Level::WARN => line!(Level::WARN),
        Level::INFO => line!(Level::INFO),
        Level::DEBUG => line!(Level::DEBUG),
        Level::TRACE => line!(Level::TRACE),
    }
}
