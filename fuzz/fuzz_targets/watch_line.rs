//! The body of a watch: whatever comes, wherever it is cut, the same events come out of it, and an
//! Event among them has an envelope that can be read again, and one that is cut where it is too long.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings::event::{Change, Envelope, EnvelopeHead, EnvelopeParts, Incoming, LEAST_ENVELOPE, Record};
use tidings_kube::reflector::{WatchEvent, fuzzing::watch, resource_version_of};

fuzz_target!(|data: &[u8]| {
    // The first byte says where the body is cut.
    let Some((cut, body)) = data.split_first() else { return };
    let (first, second) = body.split_at(usize::from(*cut).min(body.len()));
    let (events, error) = watch(&[body]);
    let (in_two, error_in_two) = watch(&[first, second]);
    let parts = |event: &WatchEvent| (event.kind, event.object.clone());
    assert!(events.iter().map(parts).eq(in_two.iter().map(parts)));
    assert_eq!(error.is_some(), error_in_two.is_some());
    for event in events {
        let version = resource_version_of(&event.object);
        let Ok(incoming) = Incoming::decode(&event.object) else { continue };
        if let Some(version) = version {
            assert_eq!(version, incoming.resource_version);
        }
        let head = EnvelopeHead {
            cluster_json: r#"{"name":"fuzz"}"#,
            change: Change::Created,
            observed_time: "2026-01-01T00:00:00Z",
            delta: 3,
            replayed: false,
        };
        let mut envelope = Vec::new();
        assert!(!head.write(&incoming, usize::MAX, &mut envelope));
        assert!(!envelope.contains(&b'\n') || event.object.contains(&b'\n'));
        let parts = EnvelopeParts::of(&envelope).expect("an envelope has its parts");
        assert_eq!(parts.delta, 3);
        let read = Envelope::parse(&envelope).expect("an envelope is JSON");
        assert_eq!((read.id.as_ref(), read.delta), (incoming.id().as_str(), 3));
        let record = Record { seq: 1, envelope: envelope.clone().into() };
        assert_eq!(record.id(), incoming.id());
        let mut bounded = Vec::new();
        let cut = head.write(&incoming, LEAST_ENVELOPE, &mut bounded);
        assert!(bounded.len() <= LEAST_ENVELOPE);
        let kept = Envelope::parse(&bounded).expect("an envelope that was cut is JSON");
        assert_eq!((cut, &kept.id), (!kept.truncated.is_empty(), &read.id));
        assert_eq!(kept.occurrences, read.occurrences);
        let fields = EnvelopeParts::of(&bounded).and_then(|parts| parts.fields());
        let fields = fields.expect("what is left of an Event is one");
        assert_eq!(fields.metadata.uid, incoming.fields.metadata.uid);
        assert_eq!(fields.occurrences(), read.occurrences);
    }
});
