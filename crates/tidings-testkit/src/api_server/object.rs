//! A core/v1 Event as the API server keeps and writes it: the members in the order of the Go
//! struct, `null` where Go writes a zero time, `<`, `>` and `&` escaped as Go escapes them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::stored::{Stored, drop_nulls};

/// `metadata`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the members are those of meta/v1 ObjectMeta")]
pub struct ObjectMeta {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub labels: serde_json::Map<String, Value>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub annotations: serde_json::Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_fields: Vec<Value>,
}

/// `involvedObject` and `related`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the members are those of core/v1 ObjectReference")]
pub struct ObjectRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

/// `source`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the members are those of core/v1 EventSource")]
pub struct Source {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub component: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
}

/// `series`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the members are those of core/v1 EventSeries")]
pub struct EventSeries {
    #[serde(skip_serializing_if = "is_zero")]
    pub count: i32,
    pub last_observed_time: Option<String>,
}

/// A core/v1 Event. Times are RFC 3339 text, so that a test can write any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the members are those of core/v1 Event")]
pub struct EventObject {
    pub metadata: ObjectMeta,
    pub involved_object: ObjectRef,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub source: Source,
    pub first_timestamp: Option<String>,
    pub last_timestamp: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub count: i32,
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    pub event_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<EventSeries>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub related: Option<ObjectRef>,
    pub reporting_component: String,
    pub reporting_instance: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(count: &i32) -> bool {
    *count == 0
}

impl EventObject {
    /// An Event about a Pod as the kubelet's recorder makes it: counted, first seen now.
    pub fn about_pod(namespace: &str, pod: &str, reason: &str, message: &str) -> Self {
        let now = Timestamp::now();
        Self {
            metadata: ObjectMeta {
                name: recorder_name(pod, now),
                namespace: namespace.to_owned(),
                ..ObjectMeta::default()
            },
            involved_object: ObjectRef {
                kind: "Pod".to_owned(),
                namespace: namespace.to_owned(),
                name: pod.to_owned(),
                uid: format!("pod-{namespace}-{pod}"),
                api_version: "v1".to_owned(),
                ..ObjectRef::default()
            },
            reason: reason.to_owned(),
            message: message.to_owned(),
            source: Source { component: "kubelet".to_owned(), host: "node-1".to_owned() },
            first_timestamp: Some(seconds(now)),
            last_timestamp: Some(seconds(now)),
            count: 1,
            type_: "Normal".to_owned(),
            reporting_component: "kubelet".to_owned(),
            reporting_instance: "node-1".to_owned(),
            ..Self::default()
        }
    }

    /// The same as a Warning.
    #[must_use]
    pub fn warning(mut self) -> Self {
        "Warning".clone_into(&mut self.type_);
        self
    }

    /// Reads an Event; `null` counts as absent, as it does for the API server.
    pub fn from_json(mut value: Value) -> Result<Self, serde_json::Error> {
        drop_nulls(&mut value);
        serde_json::from_value(value)
    }
}

impl Stored for EventObject {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    /// What server-side apply's bookkeeping notes of a create: about a third of a real Event.
    fn note_manager(&mut self, now: Timestamp) {
        let component = match self.source.component.as_str() {
            "" => self.reporting_component.as_str(),
            component => component,
        };
        // The field manager is the program, of which the component may be a part.
        let manager = match component {
            "default-scheduler" => "kube-scheduler",
            part if part.ends_with("-controller") => "kube-controller-manager",
            program => program,
        };
        let series_style = self.event_time.is_some();
        let fields = if series_style {
            json!({
                "f:action": {}, "f:eventTime": {}, "f:note": {}, "f:reason": {}, "f:regarding": {},
                "f:reportingController": {}, "f:reportingInstance": {}, "f:type": {}
            })
        } else {
            json!({
                "f:count": {}, "f:firstTimestamp": {}, "f:involvedObject": {},
                "f:lastTimestamp": {}, "f:message": {}, "f:reason": {},
                "f:reportingComponent": {}, "f:reportingInstance": {},
                "f:source": {"f:component": {}, "f:host": {}}, "f:type": {}
            })
        };
        let api_version = if series_style { "events.k8s.io/v1" } else { "v1" };
        self.metadata.managed_fields = vec![json!({
            "manager": manager, "operation": "Update", "apiVersion": api_version,
            "time": seconds(now), "fieldsType": "FieldsV1", "fieldsV1": fields
        })];
    }
}

/// The name that client-go's recorder gives: `<object>.<nanoseconds in hex>`.
pub fn recorder_name(object: &str, at: Timestamp) -> String {
    format!("{object}.{:x}", at.as_nanosecond())
}

/// A `metav1.Time`: whole seconds.
pub fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A `metav1.MicroTime`: always six digits.
pub fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_as_the_api_server_writes_it() {
        let mut event = EventObject::about_pod("shop", "web-1", "Killing", "a <b> & c");
        "web-1.1".clone_into(&mut event.metadata.name);
        event.first_timestamp = Some("2026-01-01T00:00:00Z".into());
        event.last_timestamp = None;
        assert_eq!(
            event.to_item(),
            concat!(
                r#"{"metadata":{"name":"web-1.1","namespace":"shop"},"#,
                r#""involvedObject":{"kind":"Pod","namespace":"shop","name":"web-1","#,
                r#""uid":"pod-shop-web-1","apiVersion":"v1"},"reason":"Killing","#,
                r#""message":"a \u003cb\u003e \u0026 c","source":{"component":"kubelet","#,
                r#""host":"node-1"},"firstTimestamp":"2026-01-01T00:00:00Z","#,
                r#""lastTimestamp":null,"count":1,"type":"Normal","eventTime":null,"#,
                r#""reportingComponent":"kubelet","reportingInstance":"node-1"}"#
            )
        );
        let back = EventObject::from_json(serde_json::from_slice(&event.to_item()).unwrap());
        assert_eq!(back.unwrap(), event);
    }

    #[test]
    fn times_have_the_precision_of_their_types() {
        let at = Timestamp::from_microsecond(1_790_000_000_000_120).unwrap();
        assert_eq!(seconds(at), "2026-09-21T14:13:20Z");
        assert_eq!(micros(at), "2026-09-21T14:13:20.000120Z");
    }
}
