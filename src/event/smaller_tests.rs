use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::event::{Change, EnvelopeHead, Incoming};

/// The envelope of an Event with these texts, as the journal has it within `most` bytes.
fn journalled(message: &str, annotation: &str, action: &str, most: usize) -> Vec<u8> {
    let event = json!({
        "metadata": {
            "name": "web.18ea", "namespace": "shop", "uid": "0b8e", "resourceVersion": "12",
            "annotations": {"a": annotation},
        },
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web"},
        "reason": "BackOff", "message": message, "type": "Warning", "count": 3, "action": action,
    });
    let event = event.to_string();
    let head = EnvelopeHead {
        cluster_json: r#"{"name":"prod"}"#,
        change: Change::Updated,
        observed_time: "2026-11-21T10:00:01.5Z",
        delta: 2,
        replayed: false,
    };
    let mut out = Vec::new();
    head.write(&Incoming::decode(event.as_bytes()).unwrap(), most, &mut out);
    out
}

fn read(envelope: &[u8]) -> Value {
    serde_json::from_slice(envelope).unwrap()
}

/// The same with what a sink's watcher puts beside the Event.
fn with_more(envelope: &[u8], label: &str) -> Vec<u8> {
    let object =
        json!({"labels": {"app": label, "b": ",\"truncated\":{\"message\":1}"}}).to_string();
    let parts = EnvelopeParts::of(envelope).unwrap();
    let mut space = bytes::BytesMut::new();
    parts.with(7, Some(object.as_bytes()), None, &mut space).to_vec()
}

#[test]
fn an_envelope_that_fits_or_is_none_stays() {
    let envelope = journalled("short", "", "", usize::MAX);
    assert_eq!(smaller(&envelope, envelope.len()), None);
    assert_eq!(smaller(&envelope, 0), None, "no bound is smaller than the least");
    assert_eq!(smaller(&[b'x'; 9000], 8000), None);
}

#[test]
fn bytes_that_are_cut_twice_are_counted_together() {
    let message = "é".repeat(100_000);
    let envelope = with_more(&journalled(&message, "x", "", 64 << 10), "web");
    let cut = smaller(&envelope, 16 << 10).unwrap();
    assert!(cut.len() <= 16 << 10 && cut.len() > 14 << 10, "{}", cut.len());
    let (mut found, mut before) = (read(&cut), read(&envelope));
    let left = found["event"]["message"].as_str().unwrap().len();
    assert_eq!(found["truncated"], json!({"message": message.len() - left}));
    assert_eq!((&found["delta"], &found["object"]["labels"]["app"]), (&7.into(), &"web".into()));
    for envelope in [&mut found, &mut before] {
        envelope["event"]["message"] = "".into();
        envelope["truncated"] = json!({});
    }
    assert_eq!(found, before, "all else is as it was");
    // And once more, to what identifies it.
    let action = "x".repeat(20_000);
    let reduced = smaller(&journalled(&message, "x", &action, 64 << 10), 8 << 10).unwrap();
    let found = read(&reduced)["truncated"].clone();
    assert!(
        found["message"].as_u64().unwrap() > 100_000 && found["event"].as_u64().unwrap() > 20_000
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_envelope_fits_any_bound_and_reads_back(
        texts in proptest::collection::vec(("[a-zé\"\n<]{1,8}", 0usize..4000), 4),
        journal in 2 * LEAST_EVENT..100_000,
        most in 2 * LEAST_EVENT..40_000,
    ) {
        let texts: Vec<_> = texts.iter().map(|(text, times)| text.repeat(*times)).collect();
        let envelope = journalled(&texts[0], &texts[1], &texts[2], journal);
        let label = texts[3].get(..500).unwrap_or("web");
        let envelope = with_more(&envelope, label);
        let Some(cut) = smaller(&envelope, most) else {
            prop_assert!(envelope.len() <= most);
            return Ok(());
        };
        prop_assert!(cut.len() <= most, "{} of {most}", cut.len());
        let (found, before) = (read(&cut), read(&envelope));
        for member in ["id", "cluster", "change", "time", "observedTime", "occurrences", "delta", "object"] {
            prop_assert_eq!(&found[member], &before[member]);
        }
        let parts = EnvelopeParts::of(&cut).unwrap();
        prop_assert_eq!(read(parts.event), found["event"].clone());
        prop_assert_eq!(parts.fields().unwrap().occurrences(), 3);
        prop_assert!(smaller(&cut, most).is_none());
        for (field, lost) in before["truncated"].as_object().into_iter().flatten() {
            prop_assert!(found["truncated"][field].as_u64() >= lost.as_u64());
        }
    }
}
