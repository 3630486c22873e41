//! What is remembered of an Event that was seen.

use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time};

/// client-go's `eventLog`: what the next occurrence takes over from the ones before.
#[derive(Debug)]
pub(super) struct Observation {
    count: i32,
    first_timestamp: Option<Time>,
    name: Option<String>,
    resource_version: Option<String>,
    /// It went past the spam filter once, or the server had it: there is something to patch.
    pub(super) passed: bool,
}

impl Observation {
    pub(super) fn of(event: &Event, passed: bool) -> Self {
        Self {
            count: event.count.unwrap_or(0),
            first_timestamp: event.first_timestamp.clone(),
            name: event.metadata.name.clone(),
            resource_version: event.metadata.resource_version.clone(),
            passed,
        }
    }

    /// One that was seen without a count counts as never seen.
    pub(super) fn is_repeatable(&self) -> bool {
        self.count != 0
    }

    /// Makes an Event the next occurrence of this.
    pub(super) fn continue_in(&self, event: &mut Event, saturating: bool) {
        let next = if saturating { i32::saturating_add } else { i32::wrapping_add };
        event.count = Some(next(self.count, 1));
        event.first_timestamp.clone_from(&self.first_timestamp);
        event.metadata.name.clone_from(&self.name);
        event.metadata.resource_version.clone_from(&self.resource_version);
    }
}
