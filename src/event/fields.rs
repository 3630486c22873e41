//! The names that expressions and templates may use: the variables of an event, and the fields of a core/v1 Event.

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// A string; absent reads as "".
    Text,
    /// A whole number; absent reads as 0.
    Int,
    /// A boolean; absent reads as false.
    Bool,
    /// Texts by any key; absent reads as empty, an absent key as "".
    Texts,
    /// A list of texts; absent reads as empty.
    TextList,
    /// An object of these fields; absent reads as one with all fields absent.
    Object(&'static [Field]),
    /// A list of such objects; absent reads as empty.
    ObjectList(&'static [Field]),
    /// Any JSON value; absent reads as null.
    Any,
}

/// A named member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
}

pub(crate) const fn field(name: &'static str, shape: Shape) -> Field {
    Field { name, shape }
}

use Shape::{Bool, Int, Object, ObjectList, Text, TextList, Texts};

/// The variables of an event, which are also the members of the envelope that hold them.
pub(crate) const EVENTS: &[Field] = &[
    field("event", Object(EVENT)),
    field("id", Text),
    field("change", Text),
    field("time", Text),
    field("occurrences", Int),
    field("delta", Int),
    field("cluster", Object(&[field("name", Text), field("uid", Text), field("labels", Texts)])),
    field("object", Object(OBJECT)),
];

const OBJECT: &[Field] = &[
    field("labels", Texts),
    field("annotations", Texts),
    field(
        "owners",
        ObjectList(&[
            field("apiVersion", Text),
            field("kind", Text),
            field("name", Text),
            field("uid", Text),
        ]),
    ),
    field("node", Text),
    field("nodeClaimed", Bool),
    field("missing", Text),
];

const EVENT: &[Field] = &[
    field("apiVersion", Text),
    field("kind", Text),
    field("metadata", Object(METADATA)),
    field("involvedObject", Object(OBJECT_REFERENCE)),
    field("reason", Text),
    field("message", Text),
    field("source", Object(&[field("component", Text), field("host", Text)])),
    field("firstTimestamp", Text),
    field("lastTimestamp", Text),
    field("count", Int),
    field("type", Text),
    field("eventTime", Text),
    field("series", Object(&[field("count", Int), field("lastObservedTime", Text)])),
    field("action", Text),
    field("related", Object(OBJECT_REFERENCE)),
    field("reportingComponent", Text),
    field("reportingInstance", Text),
];

const METADATA: &[Field] = &[
    field("name", Text),
    field("generateName", Text),
    field("namespace", Text),
    field("uid", Text),
    field("resourceVersion", Text),
    field("generation", Int),
    field("creationTimestamp", Text),
    field("deletionTimestamp", Text),
    field("deletionGracePeriodSeconds", Int),
    field("labels", Texts),
    field("annotations", Texts),
    field("ownerReferences", ObjectList(OWNER_REFERENCE)),
    field("finalizers", TextList),
];

const OWNER_REFERENCE: &[Field] = &[
    field("apiVersion", Text),
    field("kind", Text),
    field("name", Text),
    field("uid", Text),
    field("controller", Bool),
    field("blockOwnerDeletion", Bool),
];

const OBJECT_REFERENCE: &[Field] = &[
    field("kind", Text),
    field("namespace", Text),
    field("name", Text),
    field("uid", Text),
    field("apiVersion", Text),
    field("resourceVersion", Text),
    field("fieldPath", Text),
];
