//! The fields of a core/v1 Event that the bridge reads, borrowed from JSON.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};
use serde_json::value::RawValue;

/// A string of the API: borrowed where the JSON holds no escapes, and empty where the member is
/// absent or `null` (the API server writes `"eventTime":null`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text<'a>(pub Cow<'a, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or null")
            }
            fn visit_borrowed_str<E: de::Error>(self, v: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(v)))
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(v.to_owned())))
            }
            fn visit_string<E: de::Error>(self, v: String) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(v)))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
            fn visit_none<E: de::Error>(self) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
            fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Text<'de>, D::Error> {
                d.deserialize_str(TextVisitor)
            }
        }
        deserializer.deserialize_option(TextVisitor)
    }
}

/// `null` and absent alike read as the default.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(d: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}

/// The members of `metadata` that the bridge reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata<'a> {
    /// `metadata.name`.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// `metadata.namespace`.
    #[serde(borrow)]
    pub namespace: Text<'a>,
    /// `metadata.uid`.
    #[serde(borrow)]
    pub uid: Text<'a>,
    /// `metadata.resourceVersion`, a decimal number as text.
    #[serde(borrow)]
    pub resource_version: Text<'a>,
    /// `metadata.creationTimestamp`, RFC 3339, whole seconds.
    #[serde(borrow)]
    pub creation_timestamp: Text<'a>,
    /// `metadata.labels`, not decoded.
    #[serde(borrow)]
    pub labels: Option<&'a RawValue>,
    /// `metadata.annotations`, not decoded.
    #[serde(borrow)]
    pub annotations: Option<&'a RawValue>,
    /// `metadata.managedFields`, not decoded; only to find where it stands.
    #[serde(borrow)]
    pub(super) managed_fields: Option<&'a RawValue>,
}

/// `involvedObject`: what the Event is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the members are those of core/v1 ObjectReference")]
pub struct ObjectReference<'a> {
    #[serde(borrow)]
    pub kind: Text<'a>,
    #[serde(borrow)]
    pub namespace: Text<'a>,
    #[serde(borrow)]
    pub name: Text<'a>,
    #[serde(borrow)]
    pub uid: Text<'a>,
    #[serde(borrow)]
    pub api_version: Text<'a>,
    #[serde(borrow)]
    pub resource_version: Text<'a>,
    #[serde(borrow)]
    pub field_path: Text<'a>,
}

/// Kind, namespace and name: `Pod shop/web-0`.
impl fmt::Display for ObjectReference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, .. } = self;
        let slash = if namespace.is_empty() { "" } else { "/" };
        write!(f, "{} {}{slash}{}", &**kind, &**namespace, &**name)
    }
}

/// `source`: the component and host that reported the Event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EventSource<'a> {
    /// `source.component`.
    #[serde(borrow)]
    pub component: Text<'a>,
    /// `source.host`.
    #[serde(borrow)]
    pub host: Text<'a>,
}

/// `series`: how the events.k8s.io recorder counts repeats.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Series<'a> {
    /// `series.count`.
    pub count: Option<i64>,
    /// `series.lastObservedTime`, RFC 3339 with microseconds.
    #[serde(borrow)]
    pub last_observed_time: Text<'a>,
}

/// A core/v1 Event as far as the bridge reads it; every other member stays in the raw JSON.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the members are those of core/v1 Event")]
pub struct EventFields<'a> {
    #[serde(borrow)]
    pub kind: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    pub metadata: Metadata<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    pub involved_object: ObjectReference<'a>,
    #[serde(borrow)]
    pub reason: Text<'a>,
    #[serde(borrow)]
    pub message: Text<'a>,
    #[serde(borrow, rename = "type")]
    pub type_: Text<'a>,
    pub count: Option<i64>,
    #[serde(borrow, deserialize_with = "nullable")]
    pub series: Series<'a>,
    #[serde(borrow)]
    pub first_timestamp: Text<'a>,
    #[serde(borrow)]
    pub last_timestamp: Text<'a>,
    #[serde(borrow)]
    pub event_time: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    pub source: EventSource<'a>,
    #[serde(borrow)]
    pub reporting_component: Text<'a>,
    #[serde(borrow)]
    pub reporting_instance: Text<'a>,
    #[serde(borrow)]
    pub action: Text<'a>,
    /// Not decoded.
    #[serde(borrow)]
    pub related: Option<&'a RawValue>,
}

impl EventFields<'_> {
    /// How often the Event occurred: `series.count`, else `count`, else 1.
    ///
    /// A count below 1 is a writer's mistake and reads as absent.
    pub fn occurrences(&self) -> u64 {
        let stated =
            |count: Option<i64>| count.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
        stated(self.series.count).or_else(|| stated(self.count)).unwrap_or(1)
    }

    /// When it last occurred: the first that is there of `series.lastObservedTime`,
    /// `lastTimestamp`, `eventTime`, `firstTimestamp` and `metadata.creationTimestamp`.
    pub fn time(&self) -> &str {
        [
            &self.series.last_observed_time,
            &self.last_timestamp,
            &self.event_time,
            &self.first_timestamp,
            &self.metadata.creation_timestamp,
        ]
        .into_iter()
        .find(|text| !text.is_empty())
        .map_or("", |text| text)
    }
}
