//! What an object says of itself, read without decoding the rest of it.

use std::{borrow::Cow, collections::BTreeMap};

use kube::core::ApiResource;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The annotation of the bookmark behind the objects of a streaming list.
pub(super) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The members that a reflector looks at.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectHead<'a> {
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) api_version: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) metadata: HeadMetadata<'a>,
}

/// See [`ObjectHead`].
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HeadMetadata<'a> {
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) namespace: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) resource_version: Cow<'a, str>,
    /// Not decoded: of few objects anybody asks for them, and there can be many KiB.
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

impl<'a> ObjectHead<'a> {
    pub(super) fn read(object: &'a [u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(object)
    }

    /// Whether it is what is watched, as far as it says.
    pub(super) fn is_a(&self, expected: &ApiResource) -> bool {
        let agrees = |said: &str, expected: &str| said.is_empty() || said == expected;
        agrees(&self.kind, &expected.kind) && agrees(&self.api_version, &expected.api_version)
    }

    /// Whether a bookmark says that all objects of a streaming list have come.
    pub(super) fn ends_initial_events(&self) -> bool {
        let annotations = self.metadata.annotations.map(RawValue::get);
        let annotations: BTreeMap<String, String> =
            annotations.and_then(|all| serde_json::from_str(all).ok()).unwrap_or_default();
        annotations.get(INITIAL_EVENTS_END).is_some_and(|value| value == "true")
    }
}
