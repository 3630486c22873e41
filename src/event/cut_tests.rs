use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::event::{Change, Envelope, EnvelopeHead, EnvelopeParts, Incoming};

/// Writes the envelope of an Event, and whether it was cut.
fn write(json: &str, most: usize) -> (String, bool) {
    let event = Incoming::decode(json.as_bytes()).unwrap();
    let head = EnvelopeHead {
        cluster_json: r#"{"name":"prod","uid":"c1d4b1b6-2f3e-4b6e-9d7b-5f0f2b3f8a10"}"#,
        change: Change::Updated,
        observed_time: "2026-11-21T10:00:01.5Z",
        delta: 2,
        replayed: false,
    };
    let mut out = b"before".to_vec();
    let cut = head.write(&event, most, &mut out);
    (String::from_utf8(out.split_off(6)).unwrap(), cut)
}

fn event() -> Value {
    json!({
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {
            "name": "web.18ea",
            "namespace": "shop",
            "uid": "0b8e",
            "resourceVersion": "12",
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "annotations": {"a": "1", "team": "cart"},
            "labels": {"app": "web"},
        },
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web", "fieldPath": "spec.containers{web}"},
        "related": {"kind": "Node", "name": "n1"},
        "reason": "BackOff",
        "message": "short",
        "source": {"component": "kubelet", "host": "n1"},
        "type": "Warning",
        "count": 3,
        "series": {"count": 5, "lastObservedTime": "2026-11-21T10:00:00.000000Z"},
        "eventTime": null,
        "lastTimestamp": "2026-11-21T09:00:00Z",
        "action": "Kill",
    })
}

/// The same with some members replaced, each by its pointer.
fn with(members: &[(&str, Value)]) -> Value {
    let mut event = event();
    for (pointer, value) in members {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        event.pointer_mut(parent).unwrap()[name] = value.clone();
    }
    event
}

fn truncated(envelope: &Value) -> Vec<&str> {
    let members = envelope.get("truncated").and_then(Value::as_object);
    members.into_iter().flat_map(|members| members.keys()).map(String::as_str).collect()
}

/// Writes it within 8 KiB.
fn cut(members: &[(&str, Value)]) -> Value {
    let (text, cut) = write(&with(members).to_string(), 8 << 10);
    assert!(cut && text.len() <= 8 << 10, "{}", text.len());
    serde_json::from_str(&text).unwrap()
}

#[test]
fn an_event_within_the_bound_stays_byte_for_byte() {
    let json = event().to_string();
    let (whole, cut) = write(&json, usize::MAX);
    assert!(!cut && whole.ends_with(&format!(",\"event\":{json}}}")));
    let long = with(&[("/message", "x".repeat(5000).into())]).to_string();
    let (long_whole, _) = write(&long, usize::MAX);
    assert_eq!(write(&long, long_whole.len()), (long_whole.clone(), false));
    let (cut_one, cut) = write(&long, long_whole.len() - 1);
    assert!(cut && cut_one.len() < long_whole.len());
    // A bound that leaves no room for an Event is none.
    assert_eq!(write(&json, 0), (whole, false));
    // Only because of its line feeds.
    let spaced = long.replace("\"count\"", &format!("{}\"count\"", "\n".repeat(5000)));
    assert_eq!(write(&spaced, long_whole.len()), (long_whole, false));
}

#[test]
fn the_message_is_cut_first_and_nothing_else_while_that_is_enough() {
    let message = "é€😀\"\n\u{1}".repeat(400);
    let found = cut(&[("/message", message.clone().into())]);
    assert_eq!(truncated(&found), ["message"]);
    let left = found["event"]["message"].as_str().unwrap();
    assert!(message.starts_with(left) && left.len() > 2000);
    assert_eq!(found["truncated"]["message"], message.len() - left.len());
    let mut rest = found["event"].clone();
    rest["message"] = "short".into();
    assert_eq!(rest, event());
}

#[test]
fn annotations_labels_and_the_field_path_follow_in_this_order() {
    let long = || Value::from("x".repeat(20_000));
    let annotations = json!({"a": "1", "b": long(), "team": "cart"});
    let found = cut(&[("/message", long()), ("/metadata/annotations", annotations)]);
    assert_eq!(truncated(&found), ["message", "annotations"]);
    let annotations = &found["event"]["metadata"]["annotations"];
    assert_eq!(annotations["a"], "1");
    assert!(annotations["b"].as_str().unwrap().len() > 2000);
    assert_eq!(annotations.get("team"), None, "what stands behind the cut goes");
    let lost = 20_000 - annotations["b"].as_str().unwrap().len() + "teamcart".len();
    assert_eq!(found["truncated"]["annotations"], lost);
    let message = found["event"]["message"].as_str().unwrap().len();
    assert!((900..1024).contains(&message), "{message}");

    let found = cut(&[("/metadata/annotations", json!({})), ("/metadata/labels/z", long())]);
    assert_eq!(truncated(&found), ["labels"]);
    assert_eq!(found["event"]["metadata"]["labels"]["app"], "web");
    let found = cut(&[("/involvedObject/fieldPath", long())]);
    assert_eq!(truncated(&found), ["annotations", "labels", "fieldPath"]);
    assert_eq!(found["event"]["involvedObject"]["name"], "web");
    assert_eq!(found["event"]["action"], "Kill");
}

#[test]
fn an_event_that_is_still_too_large_is_reduced_to_its_identity() {
    for member in ["/action", "/reportingInstance", "/source/host", "/unknown"] {
        let found = cut(&[(member, "x".repeat(1_400_000).into())]);
        assert_eq!(truncated(&found), ["event"], "{member}");
        assert!(found["truncated"]["event"].as_u64().unwrap() > 1_400_000);
        let mut kept = event();
        for gone in ["message", "source", "action", "eventTime"] {
            kept.as_object_mut().unwrap().remove(gone);
        }
        for gone in ["annotations", "labels"] {
            kept["metadata"].as_object_mut().unwrap().remove(gone);
        }
        assert_eq!(found["event"], kept, "{member}");
        assert_eq!(found["time"], "2026-11-21T10:00:00.000000Z");
    }
    let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
    let json = event().to_string().replace("\"Kill\"", &format!("\"Kill\",\"unknown\":{deep}"));
    let (text, _) = write(&json, 8 << 10);
    assert_eq!(truncated(&serde_json::from_str(&text).unwrap()), ["event"]);
}

#[test]
fn of_what_identifies_it_the_longest_is_cut() {
    let found = cut(&[
        ("/reason", "\u{1}".repeat(1_400_000).into()),
        ("/related/name", "ü".repeat(700_000).into()),
        ("/series/lastObservedTime", "9".repeat(9000).into()),
    ]);
    let length = |pointer: &str| found.pointer(pointer).unwrap().as_str().unwrap().len();
    assert!(length("/event/reason") > 200 && length("/event/related/name") > 1000);
    assert_eq!(found["event"]["involvedObject"], event()["involvedObject"]);
    assert_eq!(found["event"]["metadata"]["name"], "web.18ea");
    assert!(length("/time") <= 9000 && found["occurrences"] == 5);
}

#[test]
fn namespaces_and_the_name_stay_whole_in_the_least_room() {
    let namespace = "n".repeat(63);
    let name = "e".repeat(253);
    let long = || Value::from("\u{1}é".repeat(1000));
    let event = with(&[
        ("/metadata/namespace", namespace.clone().into()),
        ("/metadata/name", name.clone().into()),
        ("/involvedObject/namespace", namespace.clone().into()),
        ("/related/namespace", namespace.clone().into()),
        ("/involvedObject/name", long()),
        ("/involvedObject/uid", long()),
        ("/related/name", long()),
        ("/reason", long()),
        ("/type", long()),
        ("/metadata/creationTimestamp", long()),
    ]);
    let (text, cut) = write(&event.to_string(), LEAST_ENVELOPE);
    assert!(cut && text.len() <= LEAST_ENVELOPE, "{}", text.len());
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["event"]["metadata"]["name"], *name);
    for of in ["metadata", "involvedObject", "related"] {
        assert_eq!(found["event"][of]["namespace"], *namespace, "{of}");
    }
}

#[test]
fn annotations_that_are_many_are_cut_and_counted_to_the_byte() {
    let many: Vec<_> = (0..200_000).map(|n| format!(",\"k{n}\":\"\\u00e9\"")).collect();
    let many = many.concat();
    let text = event().to_string().replace("\"a\":\"1\"", &format!("\"a\":\"1\"{many}"));
    let (found, _) = write(&text, 256 << 10);
    let found: Value = serde_json::from_str(&found).unwrap();
    let length = |event: &Value| -> usize {
        let entries = event["metadata"]["annotations"].as_object().unwrap().iter();
        entries.map(|(key, value)| key.len() + value.as_str().unwrap().len()).sum()
    };
    let whole: Value = serde_json::from_str(&text).unwrap();
    let lost = length(&whole) - length(&found["event"]);
    assert_eq!(found["truncated"], json!({ "annotations": lost }));
    assert!(length(&found["event"]) > 90_000);
}

#[test]
fn versions_that_differ_in_numbers_are_cut_alike() {
    let long = || Value::from("é\n".repeat(100_000));
    for member in ["/message", "/reason"] {
        let version = |count: i64, version: &str| {
            let count = ("/series/count", count.into());
            let version = ("/metadata/resourceVersion", version.into());
            let (text, cut) =
                write(&with(&[(member, long()), count, version]).to_string(), 1 << 18);
            assert!(cut);
            let found: Value = serde_json::from_str(&text).unwrap();
            found["event"][&member[1..]].as_str().unwrap().len()
        };
        assert_eq!(version(9, "99"), version(1_000_000, "1000000"), "{member}");
    }
}

#[test]
fn no_escape_is_cut_in_two() {
    let content = r#"a\n\u0001\ud83d\ude00é\u00e9\"\\"#;
    let text: String = serde_json::from_str(&format!("\"{content}\"")).unwrap();
    assert_eq!(text_length(content), text.len());
    for most in 0..=content.len() {
        let front = front(content, most);
        assert!(front.len() <= most);
        let read: String = serde_json::from_str(&format!("\"{front}\"")).unwrap();
        assert!(text.starts_with(&read));
        assert_eq!(text_length(front), read.len());
    }
}

#[test]
fn no_more_is_added_than_is_set_apart_for_it() {
    let numbers = ["message", "annotations", "labels", "fieldPath", "event"];
    let notes: usize = numbers.iter().map(|name| name.len() + "\"\":,".len() + 20).sum();
    assert!(",\"truncated\":{}".len() + notes <= NOTE);
    let object = json!({
        "kind": "x", "namespace": "x", "name": "x", "uid": "x", "apiVersion": "x",
        "resourceVersion": "x", "fieldPath": "x",
    });
    let full = with(&[
        ("/involvedObject", object.clone()),
        ("/related", object),
        ("/count", i64::MIN.into()),
        ("/series/count", i64::MIN.into()),
        ("/firstTimestamp", "x".into()),
        ("/eventTime", "x".into()),
        ("/metadata/resourceVersion", u64::MAX.to_string().into()),
    ]);
    let json = full.to_string();
    let event = Incoming::decode(json.as_bytes()).unwrap();
    let left = reduced(&event.fields, &json, 1 << 20, 1 << 18).1.json;
    let texts = texts(&serde_json::from_str(&left).unwrap());
    // These are not cut, and nobody can make them longer.
    let constant = u64::MAX.to_string().len() + "Event".len() + "v1".len();
    assert!(left.contains("fieldPath") && left.len() + constant - texts <= REDUCED, "{left}");
    assert_eq!(
        reduced(&event.fields, &json, 0, 1 << 18).0,
        "",
        "its texts go before it is too long"
    );
}

/// The length of all texts in it.
fn texts(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Object(members) => members.values().map(texts).sum(),
        _ => 0,
    }
}

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("a"),
        Just("é"),
        Just("€"),
        Just("😀"),
        Just("\u{1}"),
        Just("\n"),
        Just("\""),
        Just("\\"),
        Just(",\"event\":"),
        Just("\"delta\":9"),
        Just("<"),
    ];
    let length = prop_oneof![4 => 0usize..40, 1 => 0usize..3000];
    (proptest::collection::vec(piece, 0..6), length)
        .prop_map(|(pieces, times)| pieces.concat().repeat(times))
}

fn any_event() -> impl Strategy<Value = Value> {
    let map = || proptest::collection::btree_map("[a-z/\"]{0,9}", text(), 0..5);
    (
        proptest::collection::vec(text(), 12),
        map(),
        map(),
        "[a-z]{1,63}",
        any::<u64>(),
        any::<bool>(),
    )
        .prop_map(|(texts, annotations, labels, namespace, version, related)| {
            let mut event = with(&[
                ("/message", texts[0].clone().into()),
                ("/metadata/annotations", json!(annotations)),
                ("/metadata/labels", json!(labels)),
                ("/involvedObject/fieldPath", texts[1].clone().into()),
                ("/involvedObject/name", texts[2].clone().into()),
                ("/involvedObject/uid", texts[3].clone().into()),
                ("/reason", texts[4].clone().into()),
                ("/type", texts[5].clone().into()),
                ("/action", texts[6].clone().into()),
                ("/source/host", texts[7].clone().into()),
                ("/reportingInstance", texts[8].clone().into()),
                ("/related/name", texts[9].clone().into()),
                ("/lastTimestamp", texts[10].clone().into()),
                ("/metadata/name", texts[11].clone().into()),
                ("/metadata/namespace", namespace.into()),
                ("/metadata/resourceVersion", version.to_string().into()),
            ]);
            if !related {
                event.as_object_mut().unwrap().remove("related");
            }
            event
        })
}

/// As Go writes it: `<`, `>` and `&` escaped, and here what is beyond ASCII, too.
fn escaped(json: &str) -> String {
    let mut out = String::new();
    for character in json.chars() {
        if character.is_ascii() && character != '<' {
            out.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(out, "\\u{unit:04x}").unwrap();
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_event_fits_any_bound_and_is_still_itself(
        event in any_event(),
        most in prop_oneof![Just(LEAST_ENVELOPE), LEAST_ENVELOPE..40_000],
        escape in any::<bool>(),
    ) {
        let json = if escape { escaped(&event.to_string()) } else { event.to_string() };
        let (whole, _) = write(&json, usize::MAX);
        let (text, cut) = write(&json, most);
        prop_assert_eq!(cut, whole.len() > most);
        prop_assert!(text.len() <= most, "{} of {}", text.len(), most);
        let (found, all): (Value, Value) =
            (serde_json::from_str(&text).unwrap(), serde_json::from_str(&whole).unwrap());
        for member in ["id", "cluster", "change", "observedTime", "occurrences", "delta", "replayed"] {
            prop_assert_eq!(&found[member], &all[member]);
        }
        for member in ["namespace", "uid", "resourceVersion", "creationTimestamp"] {
            prop_assert_eq!(&found["event"]["metadata"][member], &event["metadata"][member]);
        }
        // Whoever reads it finds it so.
        let parts = EnvelopeParts::of(text.as_bytes()).unwrap();
        let known = Envelope::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(parts.event, known.event_json.get().as_bytes());
        prop_assert_eq!(known.event().unwrap().occurrences(), known.occurrences);
        let fields = truncated(&found);
        if fields == ["event"] {
            prop_assert_eq!(found["truncated"]["event"].as_u64().unwrap() as usize + parts.event.len(), json.len());
        } else {
            // A field that is cut later is whole as long as one before it has something left.
            let place = |field: &&str| ["message", "annotations", "labels", "fieldPath"].iter().position(|f| f == field);
            let last = fields.iter().map(|field| place(field).unwrap()).max();
            let mut left = found["event"].clone();
            prop_assert!(cut == last.is_some());
            for (index, pointer) in ["/message", "/metadata/annotations", "/metadata/labels", "/involvedObject/fieldPath"].iter().enumerate() {
                let (was, is) = (event.pointer(pointer).unwrap(), left.pointer_mut(pointer).unwrap());
                if last.is_none_or(|last| index > last) {
                    prop_assert_eq!(&*is, was);
                } else if Some(index) < last && index > 0 {
                    prop_assert!(is.as_object().is_some_and(serde_json::Map::is_empty));
                } else if Some(index) < last {
                    prop_assert!(is.as_str().unwrap().len() <= most / 8);
                }
                *is = was.clone();
            }
            prop_assert_eq!(left, event);
        }
    }
}
