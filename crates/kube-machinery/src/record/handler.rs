//! Those who are told of events: functions and logs.

use std::any::type_name;

use k8s_openapi::api::core::v1::Event;

use super::{queue::Takes, report::Fate};

pub use tracing::Level;

/// A function that is called with each event.
pub(super) struct Handler<F>(pub(super) F);

impl<F: FnMut(&Event) + Send> Takes for Handler<F> {
    fn name() -> &'static str {
        type_name::<F>()
    }

    async fn take(&mut self, event: &Event) -> Fate {
        (self.0)(event);
        Fate::Written
    }
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
