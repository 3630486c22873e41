//! An envelope with its Event decoded in the same pass: a second one over the Event's bytes would cost as
//! much as all the rest.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::event::{Correlation, DeadLetterInfo, EventFields, ObjectInfo, Text};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Parsed<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) cluster: BorrowedCluster<'a>,
    #[serde(borrow)]
    pub(super) change: Text<'a>,
    #[serde(borrow)]
    pub(super) time: Text<'a>,
    #[serde(borrow)]
    pub(super) observed_time: Text<'a>,
    pub(super) occurrences: u64,
    pub(super) delta: u64,
    pub(super) replayed: bool,
    #[serde(default)]
    pub(super) truncated: BTreeMap<String, u64>,
    #[serde(default)]
    pub(super) object: Option<ObjectInfo>,
    #[serde(default)]
    pub(super) correlation: Option<Correlation>,
    #[serde(default)]
    pub(super) dead_letter: Option<DeadLetterInfo>,
    #[serde(borrow)]
    pub(super) event: EventFields<'a>,
}

#[cfg(any(feature = "loki", feature = "splunk", feature = "syslog"))]
impl Parsed<'_> {
    /// The cluster's name, else its uid.
    pub(super) fn cluster(&self) -> &str {
        let BorrowedCluster { name, uid, .. } = &self.cluster;
        if name.is_empty() { uid } else { name }
    }

    /// The fields of the Event that were cut, as `field=bytes`, separated by commas.
    #[cfg(any(feature = "loki", feature = "splunk"))]
    pub(super) fn cut(&self) -> String {
        let cut = self.truncated.iter().map(|(field, bytes)| format!("{field}={bytes}"));
        cut.collect::<Vec<_>>().join(",")
    }
}

impl<'a> Parsed<'a> {
    pub(super) fn of(envelope: &'a [u8]) -> Result<Self, serde_json::Error> {
        // From text: one look at the whole is cheaper than one at each string.
        match std::str::from_utf8(envelope) {
            Ok(text) => serde_json::from_str(text),
            Err(_) => serde_json::from_slice(envelope),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct BorrowedCluster<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) uid: Text<'a>,
    pub(super) labels: BTreeMap<String, String>,
}
