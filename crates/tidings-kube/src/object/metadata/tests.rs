use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// What a Deployment's Pod carries in a cluster with the usual tools; `managedFields` as the API
/// server writes them when a controller and the kubelet have touched it.
fn typical_pod(managed_fields: bool) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "checkout-7d9c5b8f6d-x2k4q",
            "generateName": "checkout-7d9c5b8f6d-",
            "namespace": "shop-production",
            "uid": "0b3f1a52-6d0e-4a57-9d8e-5f1c2a7b9e10",
            "resourceVersion": "184467",
            "creationTimestamp": "2026-03-01T12:00:00Z",
            "labels": {
                "app.kubernetes.io/name": "checkout",
                "app.kubernetes.io/instance": "checkout-production",
                "app.kubernetes.io/version": "2.14.3",
                "app.kubernetes.io/part-of": "shop",
                "app.kubernetes.io/managed-by": "Helm",
                "pod-template-hash": "7d9c5b8f6d",
            },
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "9090",
                "checksum/config":
                    "4f0c9d1b7f1f0b1a9b7e6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f",
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "checkout-7d9c5b8f6d",
                "uid": "6a2c7e91-3f5b-4c1d-8e0a-9b7d5f3e1c24",
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "app", "image": "shop/checkout"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.7"},
    });
    if managed_fields {
        let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:pod-template-hash": {}}}});
        let entry = |manager| {
            json!({"manager": manager, "operation": "Update", "apiVersion": "v1",
                "time": "2026-03-01T12:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields})
        };
        pod["metadata"]["managedFields"] =
            json!([entry("kube-controller-manager"), entry("kubelet")]);
    }
    pod
}

fn decode(object: &Value) -> Metadata {
    serde_json::from_slice(&serde_json::to_vec(object).unwrap()).unwrap()
}

#[test]
fn it_reads_what_others_ask_for() {
    let pod = decode(&typical_pod(true));
    assert_eq!((pod.api_version(), pod.kind()), ("v1", "Pod"));
    assert_eq!(
        (pod.namespace(), pod.name()),
        (Some("shop-production"), "checkout-7d9c5b8f6d-x2k4q")
    );
    assert_eq!(pod.uid(), Some("0b3f1a52-6d0e-4a57-9d8e-5f1c2a7b9e10"));
    assert_eq!(pod.resource_version(), "184467");
    assert_eq!(pod.deletion_timestamp(), None);
    assert_eq!((pod.labels().count(), pod.label("pod-template-hash")), (6, Some("7d9c5b8f6d")));
    assert_eq!(
        (pod.annotations().count(), pod.annotation("prometheus.io/port")),
        (3, Some("9090"))
    );
    assert_eq!((pod.label("none"), pod.annotation("none")), (None, None));
    let owner = OwnerReference {
        api_version: "apps/v1",
        kind: "ReplicaSet",
        name: "checkout-7d9c5b8f6d",
        uid: "6a2c7e91-3f5b-4c1d-8e0a-9b7d5f3e1c24",
        controller: true,
    };
    assert_eq!(pod.owners().collect::<Vec<_>>(), [owner]);
    assert_eq!(pod.controller(), Some(owner));
}

#[test]
fn a_typical_pod_takes_as_much_as_the_docs_say() {
    let bytes = |pod: &Metadata| size_of::<Metadata>() + pod.packed.len();
    let (with, without) = (decode(&typical_pod(true)), decode(&typical_pod(false)));
    assert_eq!(with, without);
    assert_eq!(bytes(&with), 528);
    // The rest: the handle, and a length or a count for each part.
    let texts = |pod: &Metadata| {
        let pairs = pod.labels().chain(pod.annotations());
        let owners = pod.owners().map(|owner| {
            owner.api_version.len() + owner.kind.len() + owner.name.len() + owner.uid.len()
        });
        (0..LABELS).map(|nth| pod.text(nth).len()).sum::<usize>()
            + pairs.map(|(key, value)| key.len() + value.len()).sum::<usize>()
            + owners.sum::<usize>()
    };
    assert_eq!(texts(&with), 478);
}

#[test]
fn what_is_left_out_or_null_is_empty() {
    for object in [
        json!({}),
        json!({"apiVersion": null, "kind": null, "metadata": null}),
        json!({"metadata": {"name": null, "labels": null, "annotations": {}, "ownerReferences": null}}),
    ] {
        let empty = decode(&object);
        assert_eq!((empty.api_version(), empty.kind(), empty.name()), ("", "", ""));
        assert_eq!((empty.namespace(), empty.uid(), empty.resource_version()), (None, None, ""));
        assert_eq!(empty.labels().count() + empty.annotations().count(), 0);
        assert_eq!((empty.owners().count(), empty.controller()), (0, None));
    }
    let odd = decode(&json!({"metadata": {"labels": {"a": null}, "ownerReferences": [{}]}}));
    assert_eq!((odd.label("a"), odd.owners().count(), odd.controller()), (Some(""), 1, None));
}

#[test]
fn a_partial_object_does_not_say_what_it_is_a_part_of() {
    let partial = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": "web-0"}});
    let read = decode(&partial);
    assert_eq!((read.api_version(), read.kind(), read.name()), ("", "", "web-0"));
    assert_eq!(serde_json::to_value(&read).unwrap(), partial);
}

#[test]
fn of_two_values_under_one_key_the_last_counts_and_escapes_are_read() {
    let object =
        br#"{"metadata": {"name": "\u0077eb", "labels": {"b": "1", "a": "\"", "b": "2"}}}"#;
    let read: Metadata = serde_json::from_slice(object).unwrap();
    assert_eq!(read.name(), "web");
    assert_eq!(read.labels().collect::<Vec<_>>(), [("a", "\""), ("b", "2")]);
}

#[test]
fn what_is_no_object_is_an_error() {
    for text in ["", "1", "[]", "{", r#"{"metadata": 1}"#, r#"{"metadata": {"labels": ["a"]}}"#] {
        assert!(serde_json::from_str::<Metadata>(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_not_wanted_is_forgotten_and_nothing_else() {
    let (whole, mut pod) = (decode(&typical_pod(false)), decode(&typical_pod(false)));
    pod.retain_annotations(|key| key.starts_with("prometheus.io/"));
    pod.retain_labels(|key| key == "pod-template-hash");
    assert_eq!(
        pod.annotations().map(|(key, _)| key).collect::<Vec<_>>(),
        ["prometheus.io/port", "prometheus.io/scrape"]
    );
    assert_eq!(pod.labels().collect::<Vec<_>>(), [("pod-template-hash", "7d9c5b8f6d")]);
    assert_eq!((pod.name(), pod.controller()), (whole.name(), whole.controller()));
    pod.retain_annotations(|_| false);
    assert_eq!((pod.annotations().count(), pod.owners().count()), (0, 1));
}

fn map() -> impl Strategy<Value = serde_json::Map<String, Value>> {
    let pairs = prop::collection::btree_map(".{0,80}", ".{0,80}".prop_map(Value::String), 0..5);
    pairs.prop_map(|map| map.into_iter().collect())
}

proptest! {
    /// Written as JSON and read again it is the same, and what was read is what was there.
    #[test]
    fn nothing_gets_lost(
        texts in prop::collection::vec(".{0,70}", 6), kind in ".{1,10}",
        labels in map(), annotations in map(),
        owners in prop::collection::vec((".{0,5}", ".{0,5}", ".{0,70}", ".{0,5}", any::<bool>()), 0..3),
    ) {
        let owners: Vec<Value> = owners.into_iter().map(|(api_version, kind, name, uid, controller)| {
            json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
                "controller": controller})
        }).collect();
        let object = json!({"apiVersion": texts[0], "kind": kind, "metadata": {
            "name": texts[1], "namespace": texts[2], "uid": texts[3], "resourceVersion": texts[4],
            "deletionTimestamp": texts[5], "labels": labels, "annotations": annotations,
            "ownerReferences": owners}});
        let read = decode(&object);
        let written = serde_json::to_value(&read).unwrap();
        prop_assert_eq!(&decode(&written), &read);
        let without_empty = |mut object: Value| {
            let metadata = object["metadata"].as_object_mut().unwrap();
            metadata.retain(|_, value| match value {
                Value::String(text) => !text.is_empty(),
                Value::Object(map) => !map.is_empty(),
                Value::Array(items) => !items.is_empty(),
                _ => true,
            });
            object
        };
        prop_assert_eq!(without_empty(object), written);
    }
}
