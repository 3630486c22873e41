#![allow(clippy::unwrap_used)]

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde_json::{Value, json};

use crate::correlator::{Correlated, CorrelatorOptions, EventCorrelator};

const NOW: Timestamp = Timestamp::constant(1_763_368_200, 5);

fn event(message: &str) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some("web-0.1".into()),
            namespace: Some("shop".into()),
            ..ObjectMeta::default()
        },
        count: Some(1),
        first_timestamp: Some(Time(NOW)),
        last_timestamp: Some(Time(NOW)),
        involved_object: ObjectReference {
            kind: Some("Pod".into()),
            namespace: Some("shop".into()),
            name: Some("web-0".into()),
            ..ObjectReference::default()
        },
        message: Some(message.into()),
        reason: Some("BackOff".into()),
        type_: Some("Warning".into()),
        source: Some(EventSource { component: Some("kubelet".into()), host: None }),
        ..Event::default()
    }
}

fn with(options: CorrelatorOptions) -> EventCorrelator {
    EventCorrelator::new(options)
}

fn count(correlated: &Correlated) -> i32 {
    correlated.event.count.unwrap_or(0)
}

/// The patch of an Event's repeat.
fn patch(event: &Event) -> String {
    let mut correlator = EventCorrelator::default();
    let _ = correlator.correlate(event, NOW);
    let repeat = correlator.correlate(event, NOW);
    String::from_utf8(repeat.patch.unwrap().to_bytes().unwrap()).unwrap()
}

#[test]
fn what_a_patch_says() {
    assert_eq!(
        patch(&event("<a> & \"b\"\u{2028}\u{2029}\n\u{1}é")),
        "{\"count\":2,\"lastTimestamp\":\"2025-11-17T08:30:00Z\",\"message\":\"\\u003ca\\u003e \\u0026 \
         \\\"b\\\"\\u2028\\u2029\\n\\u0001é\"}"
    );
    let at = |last: Option<Timestamp>| Event {
        last_timestamp: last.map(Time),
        message: None,
        ..event("")
    };
    let zero = "0001-01-01T00:00:00Z".parse().unwrap();
    let epoch = Timestamp::UNIX_EPOCH;
    let (fraction, before) = (Timestamp::constant(0, 999_999_999), Timestamp::constant(0, -1));
    assert_eq!(patch(&at(None)), r#"{"count":2,"lastTimestamp":null}"#);
    assert_eq!(patch(&at(Some(zero))), r#"{"count":2,"lastTimestamp":null}"#);
    assert_eq!(patch(&at(Some(epoch))), r#"{"count":2}"#);
    assert_eq!(patch(&at(Some(fraction))), r#"{"count":2}"#);
    assert_eq!(patch(&at(Some(before))), r#"{"count":2,"lastTimestamp":"1969-12-31T23:59:59Z"}"#);
    assert_eq!(patch(&Event { count: Some(-1), ..at(Some(epoch)) }), "{}");
}

#[test]
fn finalizers_that_are_not_sorted_are_taken_for_a_change() {
    let with = |finalizers: &[&str]| {
        let mut event = event("m");
        event.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
        serde_json::from_str::<Value>(&patch(&event)).unwrap()["metadata"].clone()
    };
    assert_eq!(with(&["a", "b"]), Value::Null);
    assert_eq!(with(&["b", "a"]), json!({"$setElementOrder/finalizers": ["b", "a"]}));
}

#[test]
fn functions_of_ones_own_are_asked() {
    let mut correlator = with(CorrelatorOptions {
        max_events: 2,
        burst_size: 2,
        key_func: Some(Box::new(|event| {
            (event.type_.clone().unwrap(), event.reason.clone().unwrap())
        })),
        message_func: Some(Box::new(|_| "many".into())),
        spam_key_func: Some(Box::new(|event| event.message.clone().unwrap())),
        ..CorrelatorOptions::default()
    });
    let of = |reason: &str| Event { reason: Some(reason.into()), ..event("m") };
    assert_eq!(correlator.correlate(&of("a"), NOW).event.message.unwrap(), "m");
    let combined: Vec<Correlated> =
        ["b", "c", "d"].iter().map(|reason| correlator.correlate(&of(reason), NOW)).collect();
    assert_eq!(combined[0].event.message.as_deref(), Some("many"));
    assert_eq!(combined.iter().map(count).collect::<Vec<_>>(), [1, 2, 3]);
    // The bucket is that of the combined Event.
    assert_eq!(combined.iter().map(|c| c.skip).collect::<Vec<_>>(), [false, false, true]);
    assert!(!correlator.correlate(&of("a"), NOW).skip);
}

#[test]
fn a_combined_event_has_little_of_the_one_at_hand() {
    let mut correlator = with(CorrelatorOptions { max_events: 1, ..Default::default() });
    let mut given = event("m");
    given.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    given.action = Some("Run".into());
    given.reporting_component = Some("kubelet".into());
    let later = NOW + SignedDuration::from_secs(7);
    let combined = correlator.correlate(&given, later).event;
    let mut expected = event("(combined from similar events): m");
    expected.metadata.name = Some(format!("web-0.{:x}", later.as_nanosecond()));
    (expected.first_timestamp, expected.last_timestamp) = (Some(Time(later)), Some(Time(later)));
    assert_eq!(combined, expected);
}

#[test]
fn separated_keys_do_not_meet() {
    let of = |namespace: &str, name: &str| {
        let mut event = event("m");
        event.involved_object.namespace = Some(namespace.into());
        event.involved_object.name = Some(name.into());
        event
    };
    for (separated_keys, expected) in [(false, 2), (true, 1)] {
        let mut correlator = with(CorrelatorOptions { separated_keys, ..Default::default() });
        let _ = correlator.correlate(&of("shop", "1web"), NOW);
        assert_eq!(count(&correlator.correlate(&of("shop1", "web"), NOW)), expected);
    }
}

#[test]
fn a_group_and_an_event_meet_only_without_separators() {
    // The group's key ends with its reporter, the other Event's with its message.
    let reported = Event { reporting_component: Some("m".into()), ..event("other") };
    for (separated_keys, expected) in [(false, 2), (true, 1)] {
        let mut correlator =
            with(CorrelatorOptions { separated_keys, max_events: 2, ..Default::default() });
        let single = correlator.correlate(&event("m"), NOW);
        assert_eq!(single.event.message.as_deref(), Some("m"));
        let _ = correlator.correlate(&reported, NOW);
        let third = Event { message: Some("third".into()), ..reported.clone() };
        let combined = correlator.correlate(&third, NOW);
        assert!(combined.event.message.as_deref().unwrap().starts_with("(combined"));
        assert_eq!(count(&combined), expected);
    }
}

#[test]
fn counts_wrap_or_stay() {
    let many = Event { count: Some(i32::MAX), ..event("m") };
    for (saturating_counts, expected) in [(false, i32::MIN), (true, i32::MAX)] {
        let mut correlator = with(CorrelatorOptions { saturating_counts, ..Default::default() });
        let _ = correlator.correlate(&many, NOW);
        let repeat = correlator.correlate(&many, NOW);
        assert_eq!((count(&repeat), repeat.is_update()), (expected, saturating_counts));
    }
}

#[test]
fn what_was_never_passed_on_is_created_if_one_wants() {
    let other = event("other");
    let later = NOW + SignedDuration::from_secs(1);
    for (create_unwritten, update) in [(false, true), (true, false)] {
        let options = || CorrelatorOptions { create_unwritten, ..Default::default() };
        let mut correlator = with(CorrelatorOptions { burst_size: 1, qps: 1.0, ..options() });
        let _ = correlator.correlate(&event("m"), NOW);
        assert!(correlator.correlate(&other, NOW).skip);
        let second = correlator.correlate(&other, later);
        assert_eq!((second.skip, count(&second)), (false, 2));
        assert_eq!((second.is_update(), second.patch.is_some()), (update, update));
        let third = correlator.correlate(&other, later + SignedDuration::from_secs(1));
        assert!(third.is_update() && third.patch.is_some(), "it was passed on by now");

        let first = Event { count: Some(5), ..event("m") };
        let first = with(options()).correlate(&first, NOW);
        assert_eq!((first.is_update(), first.patch), (update, None));

        let mut correlator = with(options());
        correlator.update_state(&event("m"));
        assert!(correlator.correlate(&event("m"), NOW).is_update(), "the server has it");
    }
}

#[test]
fn the_servers_state_of_a_group_is_found_by_its_key() {
    let version = |by_key: bool| {
        let mut correlator = with(CorrelatorOptions { max_events: 1, ..Default::default() });
        let first = correlator.correlate(&event("m"), NOW);
        let mut server = first.event.clone();
        server.metadata.resource_version = Some("7".into());
        if by_key {
            correlator.update_state_of(first.key, &server);
        } else {
            correlator.update_state(&server);
        }
        correlator.correlate(&event("m"), NOW).event.metadata.resource_version
    };
    assert_eq!(version(false), None);
    assert_eq!(version(true).as_deref(), Some("7"));
}

#[test]
fn times_beyond_64_bits_of_nanoseconds_are_no_trouble() {
    let mut correlator = with(CorrelatorOptions { max_events: 2, ..Default::default() });
    for now in [Timestamp::MIN, Timestamp::MAX, Timestamp::MIN] {
        let _ = correlator.correlate(&event("m"), now);
        let _ = correlator.correlate(&event("n"), now);
    }
}

#[test]
fn it_can_move_to_a_task() {
    fn needs_send(_: impl Send) {}
    needs_send(EventCorrelator::default());
}
