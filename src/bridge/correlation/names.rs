//! Under which keys a version is counted.

use crate::{
    correlate::{Key, Keys},
    event::{EventFields, Text},
};

/// The keys of one version, each of client-go's but with separators between its parts.
///
/// A recorder of events.k8s.io writes no `source`: its controller and instance stand in for it, as
/// they do in the API server's own field selector; otherwise all such recorders would be one.
/// Events and groups are counted in one cache, hence their first part.
pub(super) struct Names {
    /// The very event: what is counted.
    pub(super) event: Key,
    /// Events of one reason about one object: what is aggregated.
    pub(super) group: Key,
    /// The event's part of the group: its message.
    pub(super) local: Key,
    /// A reporter, an object and a type: what has a share of events.
    pub(super) spam: Key,
}

impl Names {
    pub(super) fn of(event: &EventFields<'_>, keys: &Keys) -> Self {
        let component = first_of(&event.source.component, &event.reporting_component);
        let host = first_of(&event.source.host, &event.reporting_instance);
        let object = &event.involved_object;
        let (kind, namespace, name) = (&*object.kind, &*object.namespace, &*object.name);
        let (uid, version) = (&*object.uid, &*object.api_version);
        let (type_, reason) = (&*event.type_, &*event.reason);
        Self {
            event: keys.separated(&[
                "event",
                component,
                host,
                kind,
                namespace,
                name,
                &object.field_path,
                uid,
                version,
                type_,
                reason,
                &event.message,
            ]),
            group: keys.separated(&[
                "group",
                component,
                host,
                kind,
                namespace,
                name,
                uid,
                version,
                type_,
                reason,
                &event.reporting_component,
                &event.reporting_instance,
            ]),
            local: keys.separated(&[&event.message]),
            spam: keys.separated(&[component, host, kind, namespace, name, uid, version, type_]),
        }
    }
}

fn first_of<'a>(first: &'a Text<'_>, second: &'a Text<'_>) -> &'a str {
    if first.is_empty() { second } else { first }
}
