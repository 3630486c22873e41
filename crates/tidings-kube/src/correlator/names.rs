//! Under which keys an Event is known.

use k8s_openapi::api::core::v1::Event;

use super::{CorrelatorOptions, Key, Keys};

/// Makes an Event's keys, as the options say.
pub(super) struct Names {
    keys: Keys,
    separated: bool,
}

/// Two kinds of keys lie in one cache and have as many parts: with separators each is marked.
const EVENT: &str = "event";
const GROUP: &str = "group";

impl Names {
    pub(super) fn new(separated: bool) -> Self {
        Self { keys: Keys::random(), separated }
    }

    /// The first part is the mark, which client-go's own keys do not have.
    fn marked(&self, parts: &[&str]) -> Key {
        if self.separated { self.keys.separated(parts) } else { self.keys.joined(&parts[1..]) }
    }

    /// What is counted; client-go's `getEventKey`.
    pub(super) fn event(&self, event: &Event) -> Key {
        let Parts { component, host, kind, namespace, name, uid, api_version, type_ } =
            Parts::of(event);
        let field_path = text(event.involved_object.field_path.as_ref());
        let (reason, message) = (text(event.reason.as_ref()), text(event.message.as_ref()));
        self.marked(&[
            EVENT,
            component,
            host,
            kind,
            namespace,
            name,
            field_path,
            uid,
            api_version,
            type_,
            reason,
            message,
        ])
    }

    /// What is combined, and what tells its members apart; client-go's
    /// `EventAggregatorByReasonFunc` unless the options have another.
    pub(super) fn group(&self, event: &Event, options: &CorrelatorOptions) -> (Key, Key) {
        if let Some(key_func) = &options.key_func {
            let (group, local) = key_func(event);
            return (self.marked(&[GROUP, &group]), self.keys.joined(&[&local]));
        }
        let Parts { component, host, kind, namespace, name, uid, api_version, type_ } =
            Parts::of(event);
        let reason = text(event.reason.as_ref());
        let controller = text(event.reporting_component.as_ref());
        let instance = text(event.reporting_instance.as_ref());
        let group = self.marked(&[
            GROUP,
            component,
            host,
            kind,
            namespace,
            name,
            uid,
            api_version,
            type_,
            reason,
            controller,
            instance,
        ]);
        (group, self.keys.joined(&[text(event.message.as_ref())]))
    }

    /// What has a bucket of its own; client-go's `getSpamKey` unless the options have another.
    pub(super) fn spam(&self, event: &Event, options: &CorrelatorOptions) -> Key {
        if let Some(spam_key_func) = &options.spam_key_func {
            return self.keys.joined(&[&spam_key_func(event)]);
        }
        let Parts { component, host, kind, namespace, name, uid, api_version, type_ } =
            Parts::of(event);
        let parts = [component, host, kind, namespace, name, uid, api_version, type_];
        if self.separated { self.keys.separated(&parts) } else { self.keys.joined(&parts) }
    }
}

/// What is in every key.
struct Parts<'a> {
    component: &'a str,
    host: &'a str,
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    api_version: &'a str,
    type_: &'a str,
}

impl<'a> Parts<'a> {
    fn of(event: &'a Event) -> Self {
        let source = event.source.as_ref();
        let object = &event.involved_object;
        Self {
            component: text(source.and_then(|source| source.component.as_ref())),
            host: text(source.and_then(|source| source.host.as_ref())),
            kind: text(object.kind.as_ref()),
            namespace: text(object.namespace.as_ref()),
            name: text(object.name.as_ref()),
            uid: text(object.uid.as_ref()),
            api_version: text(object.api_version.as_ref()),
            type_: text(event.type_.as_ref()),
        }
    }
}

/// Go has no absent text.
fn text(text: Option<&String>) -> &str {
    text.map_or("", String::as_str)
}
