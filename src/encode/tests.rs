use serde_json::{Value, json};

use super::*;
use crate::event::{Change, EnvelopeHead, EnvelopeParts, Incoming, ObjectInfo};

const ALL: [Format; 4] = [Format::Envelope, Format::Event, Format::Ecs, Format::CloudEvents];

/// The record of an Event, in an envelope of at most so many bytes.
pub(super) fn record_of(most: usize, seq: u64, replayed: bool, event: &str) -> Record {
    let event = Incoming::decode(event.as_bytes()).unwrap();
    let head = EnvelopeHead {
        cluster_json: r#"{"name":"prod-eu-1","uid":"c-1"}"#,
        change: Change::Updated,
        observed_time: "2026-11-21T10:00:01.5Z",
        delta: 2,
        replayed,
    };
    let mut envelope = Vec::new();
    head.write(&event, most, &mut envelope);
    Record { seq, envelope: envelope.into() }
}

fn record_within(most: usize, event: &Value) -> Record {
    record_of(most, 7, false, &event.to_string())
}

fn event() -> Value {
    json!({
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {
            "name": "web-1.18ea", "namespace": "shop", "uid": "0b8e", "resourceVersion": "12",
            "creationTimestamp": "2026-11-21T09:30:00Z",
            "labels": {"app": "web", "app.kubernetes.io/name": "web"},
            "annotations": {"team": "shop"},
        },
        "involvedObject": {
            "kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "p-1", "apiVersion": "v1",
            "resourceVersion": "11", "fieldPath": "spec.containers{app}",
        },
        "reason": "BackOff",
        "message": "Back-off restarting failed container",
        "source": {"component": "kubelet", "host": "node-1"},
        "firstTimestamp": "2026-11-21T09:30:00Z",
        "lastTimestamp": "2026-11-21T10:00:00Z",
        "count": 7,
        "type": "Warning",
        "eventTime": null,
        "reportingComponent": "kubelet",
        "reportingInstance": "node-1",
    })
}

fn encoded(format: Format, record: &Record) -> Value {
    let bytes = format.encode(record).unwrap();
    assert!(!bytes.contains(&b'\n'), "{format:?} is one line");
    serde_json::from_slice(&bytes).unwrap()
}

/// The id, the message and what says that an Event was cut, where each format has them.
fn found(format: Format, value: &Value) -> [Value; 3] {
    let places = match format {
        Format::Envelope => ["/id", "/event/message", "/truncated"],
        Format::Event => [
            "/metadata/annotations/tidings.dev~1id",
            "/message",
            "/metadata/annotations/tidings.dev~1truncated",
        ],
        Format::Ecs => ["/event/id", "/message", "/tidings/truncated"],
        Format::CloudEvents => ["/id", "/data/message", "/truncated"],
    };
    places.map(|place| value.pointer(place).cloned().unwrap_or_default())
}

#[test]
fn every_format_shows_an_event() {
    let record = record_within(usize::MAX, &event());
    for format in ALL {
        let text = serde_json::to_string_pretty(&encoded(format, &record)).unwrap();
        insta::assert_snapshot!(format!("{format:?}"), text);
    }
}

#[test]
fn every_format_has_the_id_and_exactly_the_text() {
    let long = "x\u{202e}\u{1f4a9}\"\\".repeat(7000);
    for text in [
        "",
        "plain",
        "quotes \" ' ` and \\ and \\u0000",
        "NUL \0, bell \u{7}, escape \u{1b}[31m, line\nfeed\r\n, C1 \u{9b}",
        "right-to-left \u{202e}txt.exe\u{2066}, zero width \u{200b}, BOM \u{feff}",
        "{{ event.message }} {% for x in y %} ${HOME} %{x} <script>alert(1)</script>",
        "\u{fffd} \u{10ffff} \u{fdd0} \u{ffff}",
        &long,
    ] {
        let mut event = event();
        for place in ["/message", "/reason", "/involvedObject/name", "/reportingInstance"] {
            *event.pointer_mut(place).unwrap() = text.into();
        }
        event["metadata"]["annotations"] = json!({ "a": text });
        let record = record_within(usize::MAX, &event);
        for format in ALL {
            let [id, message, truncated] = found(format, &encoded(format, &record));
            // A document has no empty fields.
            let expected =
                if text.is_empty() && format == Format::Ecs { json!(null) } else { text.into() };
            assert_eq!(
                (id, message, truncated),
                ("0b8e-12".into(), expected, json!(null)),
                "{format:?}"
            );
        }
    }
}

#[test]
fn every_format_says_that_an_event_was_cut() {
    let mut event = event();
    event["message"] = "é\u{0}".repeat(40_000).into();
    let record = record_within(8 << 10, &event);
    for format in ALL {
        let [id, message, truncated] = found(format, &encoded(format, &record));
        assert_eq!(id, "0b8e-12");
        let whole = event["message"].as_str().unwrap();
        let message = message.as_str().unwrap();
        assert!(!message.is_empty() && whole.starts_with(message), "{format:?}");
        let lost = whole.len() - message.len();
        let expected = match format {
            Format::Envelope | Format::Ecs => json!({ "message": lost }),
            Format::Event => json!({ "message": lost }).to_string().into(),
            Format::CloudEvents => format!("message={lost}").into(),
        };
        assert_eq!(truncated, expected, "{format:?}");
    }
}

#[test]
fn annotations_of_tidings_stand_in_place_of_the_events_own() {
    let forged =
        json!({"tidings.dev/id": "forged", "tidings.dev/truncated": "1", "team": "shop", "n": 1});
    for (annotations, others) in [
        (Some(forged), json!({"team": "shop", "n": 1})),
        (Some(json!({})), json!({})),
        (Some(json!(null)), json!({})),
        (Some(json!("no mapping")), json!({})),
        (None, json!({})),
    ] {
        for rest in [true, false] {
            let mut event = event();
            let metadata = event["metadata"].as_object_mut().unwrap();
            metadata.remove("annotations");
            if !rest {
                metadata.retain(|key, _| ["uid", "resourceVersion"].contains(&&**key));
            }
            if let Some(annotations) = &annotations {
                metadata.insert("annotations".to_owned(), annotations.clone());
            }
            let mut expected = event.clone();
            let mut all = others.clone();
            all["tidings.dev/id"] = "0b8e-12".into();
            all["tidings.dev/cluster"] = "prod-eu-1".into();
            all["tidings.dev/delta"] = "2".into();
            expected["metadata"]["annotations"] = all;
            let record = record_within(usize::MAX, &event);
            assert_eq!(encoded(Format::Event, &record), expected);
        }
    }
}

#[test]
fn facts_about_the_object_are_in_a_document() {
    let info = ObjectInfo {
        labels: [("app".to_owned(), "web".to_owned())].into(),
        node: Some("node-2".to_owned()),
        ..ObjectInfo::default()
    };
    let record = record_within(usize::MAX, &event());
    let object = serde_json::to_vec(&info).unwrap();
    let mut space = bytes::BytesMut::new();
    let parts = EnvelopeParts::of(&record.envelope).unwrap();
    let envelope = parts.with(2, Some(&object), None, &mut space);
    let document = encoded(Format::Ecs, &Record { envelope, ..record });
    assert_eq!(document["kubernetes"]["labels"], json!({"app": "web"}));
    assert_eq!(document["kubernetes"]["node"], json!({"name": "node-2"}));
    assert_eq!(document["kubernetes"]["pod"], json!({"name": "web-1", "uid": "p-1"}));
    assert_eq!(document["kubernetes"]["container"], json!({"name": "app"}));
}

#[test]
fn no_member_of_a_document_stands_twice() {
    for (kind, version) in
        [("Node", "v1"), ("Node", "v2"), ("Node", ""), ("Namespace", "v1"), ("Pod", "v1")]
    {
        let mut event = event();
        event["involvedObject"]["kind"] = kind.into();
        event["involvedObject"]["apiVersion"] = version.into();
        let bytes = Format::Ecs.encode(&record_within(usize::MAX, &event)).unwrap();
        let text = std::str::from_utf8(&bytes).unwrap();
        for key in ["\"node\":{", "\"namespace\":\"shop\",\"pod"] {
            assert!(text.matches(key).count() <= 1, "{kind} {version}: {text}");
        }
    }
}

#[test]
fn a_subject_has_no_characters_that_an_attribute_may_not_have() {
    let mut event = event();
    event["involvedObject"] = json!({"kind": "No\u{0}de", "name": "a\u{9b}\u{fffe}\u{fdd0}/b\n"});
    let record = record_within(usize::MAX, &event);
    let value = encoded(Format::CloudEvents, &record);
    assert_eq!((&value["subject"], &value["source"]), (&json!("Node/a/b"), &json!("//k8s/c-1")));
}

#[test]
fn bytes_that_are_no_envelope_are_refused() {
    for format in [Format::Event, Format::Ecs, Format::CloudEvents] {
        for bytes in ["", "{}", "[1]", r#"{"id":"a","event":{}}"#] {
            let record = Record { seq: 7, envelope: bytes.into() };
            let error = format.encode(&record).unwrap_err().to_string();
            assert!(error.starts_with("record 7 is not an envelope: "), "{error}");
        }
    }
}
