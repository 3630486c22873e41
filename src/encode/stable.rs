//! The envelope without what differs when a version is read or sent again: `observedTime`, `replayed` and
//! `correlation`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stable<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    cluster: &'a RawValue,
    #[serde(borrow)]
    change: &'a RawValue,
    #[serde(borrow)]
    time: &'a RawValue,
    #[serde(borrow)]
    occurrences: &'a RawValue,
    #[serde(borrow)]
    delta: &'a RawValue,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    truncated: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    object: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    dead_letter: Option<&'a RawValue>,
    #[serde(borrow)]
    event: &'a RawValue,
}

impl<'a> Stable<'a> {
    pub(super) fn of(envelope: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(envelope)
    }
}
