use std::collections::BTreeMap;

use opentelemetry_proto::tonic::{
    collector::logs::v1::ExportLogsServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value::Value},
    logs::v1::{LogRecord, ResourceLogs},
};
use prost::Message as _;

use super::{super::tests::record_of, *};
use crate::event::{
    Correlation, CorrelationAction, EnvelopeParts, Record, SummarisedMessage, Text,
};

fn record(seq: u64, replayed: bool, event: &str) -> Record {
    record_of(usize::MAX, seq, replayed, event)
}

fn encode(records: Vec<Record>) -> ExportLogsServiceRequest {
    let bytes = LogsEncoder::default().encode(&Batch { records }).unwrap();
    ExportLogsServiceRequest::decode(&*bytes).unwrap()
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => format!("int {number}"),
        Some(Value::BoolValue(yes)) => format!("bool {yes}"),
        Some(Value::ArrayValue(array)) => {
            let values: Vec<_> = array.values.iter().map(|value| text(Some(value))).collect();
            format!("[{}]", values.join(", "))
        }
        other => panic!("{other:?}"),
    }
}

fn attributes(pairs: &[KeyValue]) -> BTreeMap<&str, String> {
    let map: BTreeMap<_, _> =
        pairs.iter().map(|pair| (&*pair.key, text(pair.value.as_ref()))).collect();
    assert_eq!(map.len(), pairs.len(), "a key stands twice");
    map
}

fn expect(pairs: &[(&'static str, &str)]) -> BTreeMap<&'static str, String> {
    pairs.iter().map(|(key, value)| (*key, (*value).to_owned())).collect()
}

fn only_record(request: &ExportLogsServiceRequest) -> &LogRecord {
    &request.resource_logs[0].scope_logs[0].log_records[0]
}

const POD: &str = r#"{"metadata":{"name":"web-0.17","namespace":"shop","uid":"e-1","resourceVersion":"12",
    "creationTimestamp":"2026-11-21T09:59:00Z"},
    "involvedObject":{"kind":"Pod","namespace":"shop","name":"web-0","uid":"p-1","apiVersion":"v1",
    "resourceVersion":"7","fieldPath":"spec.containers{app}"},
    "reason":"BackOff","message":"Back-off \"restarting\"","type":"Warning","count":3,
    "source":{"component":"kubelet","host":"node-1"},"lastTimestamp":"2026-11-21T10:00:00Z",
    "reportingComponent":"","reportingInstance":"node-1","action":""}"#;

#[test]
fn an_event_of_a_pod() {
    let request = encode(vec![record(1, true, POD)]);
    let [logs] = request.resource_logs.as_slice() else { panic!() };
    assert_eq!(
        attributes(&logs.resource.as_ref().unwrap().attributes),
        expect(&[
            ("k8s.cluster.name", "prod-eu-1"),
            ("k8s.cluster.uid", "c-1"),
            ("k8s.namespace.name", "shop"),
            ("k8s.node.name", "node-1"),
            ("k8s.object.kind", "Pod"),
            ("k8s.object.name", "web-0"),
            ("k8s.object.uid", "p-1"),
            ("k8s.object.fieldpath", "spec.containers{app}"),
            ("k8s.object.api_version", "v1"),
            ("k8s.object.resource_version", "7"),
            ("k8s.pod.name", "web-0"),
            ("k8s.pod.uid", "p-1"),
            ("k8s.container.name", "app"),
        ])
    );
    let scope = logs.scope_logs[0].scope.as_ref().unwrap();
    assert_eq!((&*scope.name, &*scope.version), ("tidings", env!("CARGO_PKG_VERSION")));
    let log = only_record(&request);
    assert_eq!(
        attributes(&log.attributes),
        expect(&[
            ("log.record.uid", "e-1-12"),
            ("k8s.namespace.name", "shop"),
            ("k8s.event.reason", "BackOff"),
            ("k8s.event.start_time", "2026-11-21T09:59:00Z"),
            ("k8s.event.name", "web-0.17"),
            ("k8s.event.uid", "e-1"),
            ("k8s.event.reporting_controller", "kubelet"),
            ("k8s.event.reporting_instance", "node-1"),
            ("k8s.event.count", "int 3"),
            ("k8s.event.count_delta", "int 2"),
            ("k8s.event.replayed", "bool true"),
        ])
    );
    assert_eq!(text(log.body.as_ref()), "Back-off \"restarting\"");
    assert_eq!((log.severity_number, &*log.severity_text), (13, "Warning"));
    assert_eq!(log.time_unix_nano, 1_795_255_200_000_000_000);
    assert_eq!(log.observed_time_unix_nano, 1_795_255_201_500_000_000);
    assert_eq!(log.event_name, "k8s.event");
}

#[test]
fn what_is_known_of_the_object_is_in_the_resource() {
    let plain = record(1, false, POD);
    let told = |object: &str| {
        let parts = EnvelopeParts::of(&plain.envelope).unwrap();
        let (delta, object) = (parts.delta, Some(object.as_bytes()));
        let envelope = parts.with(delta, object, None, &mut bytes::BytesMut::new());
        encode(vec![Record { seq: 1, envelope }])
    };
    let request = told(
        r#"{"labels":{"app":"web"},"annotations":{"a/b":"c"},"node":"node-9","owners":[
            {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d8f","uid":"r"},
            {"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"d"},
            {"apiVersion":"shop.example.com/v1","kind":"Deployment","name":"other","uid":"o"}]}"#,
    );
    let resource = attributes(&request.resource_logs[0].resource.as_ref().unwrap().attributes);
    for (key, value) in [
        ("k8s.pod.label.app", "web"),
        ("k8s.pod.annotation.a/b", "c"),
        ("k8s.node.name", "node-9"),
        ("k8s.replicaset.name", "web-5d8f"),
        ("k8s.deployment.name", "web"),
        ("k8s.deployment.uid", "d"),
    ] {
        let found: Vec<_> = resource.iter().filter(|(name, _)| **name == key).collect();
        assert_eq!(found.len(), 1, "{key}");
        assert_eq!(found[0].1, value, "{key}");
    }
    let claimed = told(r#"{"node":"node-9","nodeClaimed":true}"#);
    let record = &claimed.resource_logs[0].scope_logs[0].log_records[0];
    assert_eq!(attributes(&record.attributes)["k8s.object.node_claimed"], "bool true");
    let missing = told(r#"{"missing":"timeout"}"#);
    let missing = attributes(&only_record(&missing).attributes);
    assert!(missing.iter().any(|(key, why)| *key == "k8s.object.missing" && *why == "timeout"));
}

#[test]
fn what_the_correlator_says_is_in_the_attributes() {
    let plain = record(1, false, POD);
    let correlated = |aggregated, summarises| {
        let action = CorrelationAction::Summary;
        let told = |id: &str, message: &str| SummarisedMessage {
            id: id.to_owned(),
            message: message.to_owned(),
        };
        let messages =
            if aggregated { vec![told("e-1", "harmless"), told("e-2", "")] } else { Vec::new() };
        let distinct_messages = aggregated.then_some(2);
        let correlation =
            Correlation { action, aggregated, count: 9, summarises, distinct_messages, messages };
        let envelope = EnvelopeParts::of(&plain.envelope).unwrap().correlated(
            7,
            &correlation,
            &mut bytes::BytesMut::new(),
        );
        encode(vec![Record { seq: 1, envelope }])
    };
    let of = |request: &ExportLogsServiceRequest| -> Vec<(String, String)> {
        attributes(&only_record(request).attributes)
            .into_iter()
            .filter(|(key, _)| key.contains("correlation") || key.ends_with("delta"))
            .map(|(key, value)| (key.trim_start_matches("k8s.event.").to_owned(), value))
            .collect()
    };
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        of(&correlated(true, Some(4))),
        [
            pair("correlation.action", "summary"),
            pair("correlation.aggregated", "bool true"),
            pair("correlation.count", "int 9"),
            pair("correlation.distinct_messages", "int 2"),
            pair("correlation.message_ids", "[e-1, e-2]"),
            pair("correlation.messages", "[harmless, ]"),
            pair("correlation.summarises", "int 4"),
            pair("count_delta", "int 7"),
        ]
    );
    assert_eq!(
        of(&correlated(false, None)),
        [
            pair("correlation.action", "summary"),
            pair("correlation.count", "int 9"),
            pair("count_delta", "int 7"),
        ]
    );
}

fn ids_by_resource(request: &ExportLogsServiceRequest) -> Vec<Vec<String>> {
    let ids = |logs: &ResourceLogs| {
        let records = logs.scope_logs[0].log_records.iter();
        records.map(|log| attributes(&log.attributes)["log.record.uid"].clone()).collect()
    };
    request.resource_logs.iter().map(ids).collect()
}

#[test]
fn a_time_that_is_claimed_is_kept_within_bounds() {
    for (claimed, nanos) in [
        ("2026-11-21T09:30:00Z", 1_795_253_400_000_000_000),
        ("2036-11-21T12:00:00Z", 1_795_255_201_500_000_000),
        ("1970-01-01T00:00:00Z", 1_795_248_000_000_000_000),
    ] {
        let event = format!(
            r#"{{"metadata":{{"uid":"e","resourceVersion":"1","creationTimestamp":"2026-11-21T09:00:00Z"}},"lastTimestamp":"{claimed}"}}"#
        );
        let request = encode(vec![record(1, false, &event)]);
        let log = only_record(&request);
        assert_eq!(log.time_unix_nano, nanos, "{claimed}");
        assert_eq!(log.observed_time_unix_nano, 1_795_255_201_500_000_000);
    }
}

#[test]
fn records_of_one_resource_stand_together_in_order() {
    let of = |seq: u64, pod: &str| {
        let event = format!(
            r#"{{"metadata":{{"uid":"e","resourceVersion":"{seq}"}},"involvedObject":{{"uid":"{pod}"}}}}"#
        );
        record(seq, false, &event)
    };
    let request = encode(vec![of(1, "a"), of(2, "b"), of(3, "a"), of(4, "c"), of(5, "b")]);
    assert_eq!(ids_by_resource(&request), [vec!["e-1", "e-3"], vec!["e-2", "e-5"], vec!["e-4"]]);
    // What is empty is left out, and an encoder that is used again starts afresh.
    let log = only_record(&request);
    assert_eq!((log.body.as_ref(), log.severity_number, log.time_unix_nano), (None, 0, 0));
    let mut encoder = LogsEncoder::default();
    let batch = Batch { records: vec![of(1, "a"), of(2, "b")] };
    assert_eq!(encoder.encode(&batch).unwrap(), encoder.encode(&batch).unwrap());
}

#[test]
fn an_object_keeps_its_order_over_its_resources() {
    let of = |seq: u64, pod: &str, path: &str| {
        let event = format!(
            r#"{{"metadata":{{"uid":"e","resourceVersion":"{seq}"}},
                "involvedObject":{{"uid":"{pod}","fieldPath":"{path}"}}}}"#
        );
        record(seq, false, &event)
    };
    let request = encode(vec![
        of(1, "a", ""),
        of(2, "a", "spec.containers{app}"),
        of(3, "a", ""),
        of(4, "b", ""),
        of(5, "a", ""),
        of(6, "a", "spec.containers{app}"),
        of(7, "b", ""),
    ]);
    assert_eq!(
        ids_by_resource(&request),
        [vec!["e-1"], vec!["e-2"], vec!["e-3", "e-5"], vec!["e-4", "e-7"], vec!["e-6"]]
    );
}

#[test]
fn kinds_have_their_attributes_only_in_their_group() {
    let keys = |kind: &str, api_version: &str| {
        let object = ObjectReference {
            kind: Text(kind.into()),
            api_version: Text(api_version.into()),
            ..Default::default()
        };
        kind_keys(&object.kind, &object.api_version).map(|(name, _)| name)
    };
    assert_eq!(keys("Deployment", "apps/v1"), Some("k8s.deployment.name"));
    assert_eq!(keys("HorizontalPodAutoscaler", "autoscaling/v2"), Some("k8s.hpa.name"));
    assert_eq!(keys("Job", "batch/v1"), Some("k8s.job.name"));
    assert_eq!(keys("Job", "batch.volcano.sh/v1alpha1"), None);
    assert_eq!(keys("Service", "serving.knative.dev/v1"), None);
    assert_eq!(keys("Pod", ""), Some("k8s.pod.name"));
    assert_eq!(keys("Gadget", "v1"), None);
}

#[test]
fn a_node_is_named_by_itself() {
    let event = r#"{"metadata":{"uid":"e","resourceVersion":"1"},"source":{"host":"other"},
        "involvedObject":{"kind":"Node","name":"node-1","uid":"n-1"}}"#;
    let request = encode(vec![record(1, false, event)]);
    let resource = attributes(&request.resource_logs[0].resource.as_ref().unwrap().attributes);
    assert_eq!(resource["k8s.node.name"], "node-1");
    assert_eq!(resource["k8s.node.uid"], "n-1");
}

#[test]
fn details_of_the_mapping() {
    assert_eq!(container_name("spec.initContainers{init-db}"), "init-db");
    for none in ["", "spec.containers", "spec.containers[0]", "spec.volumes{data}", "x{y}"] {
        assert_eq!(container_name(none), "", "{none}");
    }
    assert_eq!(
        ["Normal", "warning", "Error", "Critical", "Odd", ""].map(severity),
        [9, 13, 17, 21, 0, 0]
    );
}

#[test]
fn what_is_no_envelope_is_named() {
    let records = vec![record(6, false, POD), Record { seq: 7, envelope: "{}".into() }];
    let error = LogsEncoder::default().encode(&Batch { records }).unwrap_err();
    assert!(error.to_string().starts_with("record 7 is not an envelope: "), "{error}");
}

#[test]
fn what_became_of_it_elsewhere_is_in_the_attributes() {
    let plain = record(1, false, POD);
    let letter = DeadLetterInfo {
        sink: "audit".into(),
        class: "invalid".into(),
        reason: "no".into(),
        attempts: 3,
        first_time: "2026-11-21T10:00:00.000Z".into(),
        time: "2026-11-21T10:00:01.000Z".into(),
    };
    let envelope = EnvelopeParts::of(&plain.envelope).unwrap().dead_lettered(&letter);
    let request = encode(vec![Record { seq: 1, envelope }]);
    let told: Vec<_> = attributes(&only_record(&request).attributes)
        .into_iter()
        .filter_map(|(key, value)| Some((key.strip_prefix("tidings.dead_letter.")?, value)))
        .collect();
    let names = ["attempts", "class", "first_time", "reason", "sink", "time"];
    assert_eq!(told.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    assert_eq!((&*told[0].1, &*told[4].1), ("int 3", "audit"));
}

#[test]
fn what_was_cut_of_it_is_in_the_attributes() {
    let long = POD.replace("restarting", &"x".repeat(9000));
    let request = encode(vec![record_of(8000, 1, false, &long)]);
    let record = only_record(&request);
    let lost = 9000 + "Back-off \"\"".len() - text(record.body.as_ref()).len();
    assert_eq!(attributes(&record.attributes)["tidings.truncated.message"], format!("int {lost}"));
}

#[test]
fn labels_annotations_and_the_related_object_are_attributes() {
    let event = r#"{"metadata":{"uid":"0b8e","resourceVersion":"12","labels":{"app":"web","app.kubernetes.io/name":"w"},
        "annotations":{"team":"shop","odd":7}},"related":{"kind":"Node","name":"node-1","apiVersion":"v1"}}"#;
    let mut record = record(1, false, event);
    let envelope = String::from_utf8(record.envelope.to_vec()).unwrap();
    let labelled = envelope.replace(r#""uid":"c-1""#, r#""uid":"c-1","labels":{"env":"prod"}"#);
    record.envelope = labelled.into();
    let mut encoder = LogsEncoder::new([("service.name", "tidings"), ("team", "platform")]);
    let bytes = encoder.encode(&Batch { records: vec![record] }).unwrap();
    let request = ExportLogsServiceRequest::decode(&*bytes).unwrap();
    let logs = &request.resource_logs[0];
    let resource = attributes(&logs.resource.as_ref().unwrap().attributes);
    let expected = expect(&[
        ("k8s.cluster.label.env", "prod"),
        ("k8s.cluster.name", "prod-eu-1"),
        ("k8s.cluster.uid", "c-1"),
        ("service.name", "tidings"),
        ("team", "platform"),
    ]);
    assert_eq!(resource, expected);
    let found = attributes(&logs.scope_logs[0].log_records[0].attributes);
    for (key, value) in [
        ("k8s.event.label.app", "web"),
        ("k8s.event.label.app.kubernetes.io/name", "w"),
        ("k8s.event.annotation.team", "shop"),
        ("k8s.event.related.kind", "Node"),
        ("k8s.event.related.name", "node-1"),
        ("k8s.event.related.api_version", "v1"),
    ] {
        assert_eq!(found[key], value);
    }
    assert!(!found.contains_key("k8s.event.annotation.odd"));
}
