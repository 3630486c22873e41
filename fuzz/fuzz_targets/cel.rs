//! A `match`: it compiles or is refused with a message, and what compiles answers for each event, for
//! one with thousands of labels too, within the time that an input has.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use tidings::{bridge::Filter, event::Record};

const ENVELOPES: [&str; 3] = [
    r#"{"id":"u-7","cluster":{"name":"c","uid":"k"},"change":"created","time":"2026-01-02T03:04:05Z","observedTime":"2026-01-02T03:04:06Z","occurrences":3,"delta":1,"replayed":false,"event":{"metadata":{"name":"web-0.1","namespace":"shop","uid":"u","resourceVersion":"7","labels":{"app":"web"}},"involvedObject":{"kind":"Pod","name":"web-0","namespace":"shop"},"reason":"BackOff","message":"Back-off restarting","type":"Warning","count":3,"source":{"component":"kubelet","host":"n1"}}}"#,
    r#"{"id":"u-8","cluster":{},"change":"updated","time":"","observedTime":"","occurrences":0,"delta":0,"replayed":true,"object":{"labels":{"a":"b"},"owners":[]},"event":{}}"#,
    "no envelope",
];

/// An event with as many labels as fit into one.
fn flood() -> &'static str {
    static FLOOD: OnceLock<String> = OnceLock::new();
    FLOOD.get_or_init(|| {
        let labels: Vec<_> = (0..15_000).map(|n| format!("\"l{n}\":\"v\"")).collect();
        format!(r#"{{"event":{{"metadata":{{"labels":{{{}}}}}}}}}"#, labels.join(","))
    })
}

fuzz_target!(|text: &str| {
    match Filter::compile(text) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(filter) => {
            assert_eq!(filter.source(), text);
            for envelope in ENVELOPES.into_iter().chain([flood()]) {
                let record = Record { seq: 1, envelope: envelope.into() };
                if let Err(error) = filter.wants(&record) {
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
});
