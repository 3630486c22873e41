//! Which events are occurrences of one series.

use k8s_openapi::api::{core::v1::ObjectReference, events::v1::Event};

/// Events with equal keys belong to one series (client-go's `eventKey`, since 1.27).
///
/// The references count as a whole, so that a new resourceVersion of the regarded object starts a
/// new series. The note does not count: a series shows the note of its first event.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SeriesKey {
    type_: String,
    action: String,
    reason: String,
    reporting_controller: String,
    reporting_instance: String,
    regarding: Reference,
    related: Reference,
}

/// An `ObjectReference`; what is absent is the same as what is empty.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct Reference {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
    field_path: String,
}

impl SeriesKey {
    pub(super) fn of(event: &Event) -> Self {
        Self {
            type_: text(event.type_.as_ref()),
            action: text(event.action.as_ref()),
            reason: text(event.reason.as_ref()),
            reporting_controller: text(event.reporting_controller.as_ref()),
            reporting_instance: text(event.reporting_instance.as_ref()),
            regarding: event.regarding.as_ref().map(Reference::of).unwrap_or_default(),
            related: event.related.as_ref().map(Reference::of).unwrap_or_default(),
        }
    }
}

impl Reference {
    fn of(reference: &ObjectReference) -> Self {
        Self {
            api_version: text(reference.api_version.as_ref()),
            kind: text(reference.kind.as_ref()),
            namespace: text(reference.namespace.as_ref()),
            name: text(reference.name.as_ref()),
            uid: text(reference.uid.as_ref()),
            resource_version: text(reference.resource_version.as_ref()),
            field_path: text(reference.field_path.as_ref()),
        }
    }
}

fn text(member: Option<&String>) -> String {
    member.cloned().unwrap_or_default()
}
