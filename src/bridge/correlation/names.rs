//! Under which keys a version is counted.

use tidings_kube::correlator::{Key, KeyPrefix, Keys};

use crate::event::{EventFields, Text};

/// The keys of one version, each of client-go's but with separators between its parts, and behind the
/// cluster and the Event's own namespace. What the Event says of its object is a claim; that namespace
/// is the API server's word, so nobody counts among the Events of another.
///
/// A recorder of events.k8s.io writes no `source`: its controller and instance stand in for it, as
/// they do in the API server's own field selector; otherwise all such recorders would be one.
/// Events and groups are counted in one cache, hence the part that tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) struct Names {
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
    /// Of an event, behind the JSON of its cluster.
    pub(in crate::bridge) fn of(cluster: KeyPrefix, event: &EventFields<'_>, keys: &Keys) -> Self {
        Self::behind(cluster.and(&[&event.metadata.namespace]), event, keys)
    }

    /// As builds before version 3 of a correlator's state made them.
    pub(super) fn of_earlier(event: &EventFields<'_>, keys: &Keys) -> Self {
        Self::behind(keys.prefix(&[]), event, keys)
    }

    fn behind(first: KeyPrefix, event: &EventFields<'_>, keys: &Keys) -> Self {
        let component = first_of(&event.source.component, &event.reporting_component);
        let host = first_of(&event.source.host, &event.reporting_instance);
        let object = &event.involved_object;
        let reporter = first.and(&[
            component,
            host,
            &object.kind,
            &object.namespace,
            &object.name,
            &object.uid,
            &object.api_version,
            &event.type_,
        ]);
        let (controller, instance) = (&event.reporting_component, &event.reporting_instance);
        Self {
            event: reporter.key(&["event", &event.reason, &object.field_path, &event.message]),
            group: reporter.key(&["group", &event.reason, controller, instance]),
            local: keys.separated(&[&event.message]),
            spam: reporter.key(&[]),
        }
    }
}

fn first_of<'a>(first: &'a Text<'_>, second: &'a Text<'_>) -> &'a str {
    if first.is_empty() { second } else { first }
}
