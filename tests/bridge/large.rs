//! Events that are too large for the journal: cut before they are written, and themselves all the same.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};
use tidings::{
    admin::status,
    bridge::{BatchOptions, CorrelateMode, FailureClass},
    event::{CorrelationAction, Envelope},
    journal::{LetterQuery, Letters},
};
use tidings_testkit::api_server::{ApiServer, EventObject, Written};
use tokio::runtime::Runtime;

use crate::support::{
    MemorySink, Received, Setup, Tuning, create, invalid, retry, server, settled, sink_status,
    stop, until,
};

const MOST: usize = 256 << 10;
/// All dead letters.
const ALL: Letters = Letters::Of { sink: None, class: None };
/// What an API server takes of one Event, about.
const LARGE: usize = 1_400_000;

fn create_saying(server: &ApiServer, pod: &str, message: &str) -> Written {
    server.create(EventObject::about_pod("loud", pod, "Noise", message).warning()).unwrap()
}

fn patch(server: &ApiServer, event: &Written, count: i32) -> String {
    server.patch_count("loud", &event.name, count, Timestamp::now()).unwrap().id()
}

fn truncated(event: &Received) -> BTreeMap<String, u64> {
    Envelope::parse(event.envelope.as_bytes()).unwrap().truncated
}

fn message(event: &Received) -> String {
    let event: Value = serde_json::from_str(&event.envelope).unwrap();
    event["event"]["message"].as_str().unwrap().to_owned()
}

fn action(event: &Received) -> CorrelationAction {
    Envelope::parse(event.envelope.as_bytes()).unwrap().correlation.unwrap().action
}

#[tokio::test]
async fn an_event_that_is_too_large_is_cut_and_counted_and_its_increments_are_whole() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let text = "\u{1}é".repeat(LARGE / 3);
    let listed = create_saying(&server, "listed", &text);
    let setup = Setup::new(&server, dir.path());
    let none = Tuning { correlate: CorrelateMode::None, ..Tuning::default() };
    let bridge = setup.tuned("a", &sink, none).start().await;
    sink.wait_for(1).await;
    let again = patch(&server, &listed, 7);
    let small = create(&server, "small").id();
    let received = sink.wait_for(3).await;
    assert_eq!(sink.ids(), [listed.id(), again, small]);
    assert_eq!(received.iter().map(|event| event.delta).collect::<Vec<_>>(), [1, 6, 1]);
    for event in &received[..2] {
        assert!(event.envelope.len() <= MOST && event.envelope.len() > MOST / 8 * 7);
        let left = message(event);
        assert!(text.starts_with(&left));
        assert_eq!(truncated(event), [("message".into(), (text.len() - left.len()) as u64)].into());
    }
    assert_eq!(truncated(&received[2]), BTreeMap::new());
    let ingest = status(&bridge.view()).ingest;
    assert_eq!((ingest.events, ingest.truncated), (3, 2));
    stop(bridge).await;
}

#[tokio::test]
async fn every_member_that_a_writer_fills_is_cut_to_the_bound() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
    setup.max_event = 4 << 10;
    let bridge = setup.start().await;
    until("a watch", || server.open_watches() == 1).await;
    let many: BTreeMap<_, _> = (0..50_000).map(|n| (format!("k{n}"), "v")).collect();
    let long = "é\"\u{7}".repeat(100_000);
    let mut ids = Vec::new();
    for (pointer, value) in [
        ("/metadata/annotations", json!(many)),
        ("/metadata/labels", json!(many)),
        ("/metadata/name", json!("n".repeat(253))),
        ("/involvedObject/fieldPath", json!(long)),
        ("/involvedObject/name", json!(long)),
        ("/related", json!({"kind": "Node", "name": long})),
        ("/reason", json!(long)),
        ("/action", json!(long)),
        ("/source/host", json!(long)),
        ("/reportingInstance", json!(long)),
    ] {
        let event = EventObject::about_pod("loud", &format!("web-{}", ids.len()), "Noise", &long);
        let mut event = serde_json::to_value(event).unwrap();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        event.pointer_mut(parent).unwrap()[name] = value;
        ids.push(server.create(EventObject::from_json(event).unwrap()).unwrap().id());
    }
    for event in sink.wait_for(ids.len()).await {
        let found: Value = serde_json::from_str(&event.envelope).unwrap();
        let journalled = event.envelope.len() - found["correlation"].to_string().len();
        assert!(journalled <= 4 << 10, "{journalled}");
        let metadata = &found["event"]["metadata"];
        let (uid, version) = (metadata["uid"].as_str(), metadata["resourceVersion"].as_str());
        assert_eq!(format!("{}-{}", uid.unwrap(), version.unwrap()), event.id);
        assert_eq!(metadata["namespace"], "loud");
        assert!(!truncated(&event).is_empty());
    }
    assert_eq!(sink.ids(), ids);
    stop(bridge).await;
}

/// What a sink is told of two messages that differ only behind the cut, the second one before or
/// after a kill.
fn twins(killed: bool) -> Vec<Received> {
    let outer = Runtime::new().unwrap();
    let (server, dir) = (outer.block_on(async { server() }), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let start = || {
        let runtime = Runtime::new().unwrap();
        let bridge = runtime.block_on(Setup::new(&server, dir.path()).sink("a", &sink).start());
        (runtime, bridge)
    };
    let text = "x".repeat(LARGE);
    let (mut runtime, mut bridge) = start();
    create_saying(&server, "web", &format!("{text}one"));
    runtime.block_on(sink.wait_for(1));
    if killed {
        // Nothing is settled with it: the journal and what was saved until then are all there is.
        runtime.shutdown_timeout(Duration::from_secs(10));
        drop(bridge);
        (runtime, bridge) = start();
    }
    let other = create_saying(&server, "web", &format!("{text}two")).id();
    runtime.block_on(until("the other", || sink.ids().contains(&other)));
    runtime.block_on(stop(bridge));
    sink.received()
}

#[test]
fn messages_that_differ_behind_the_cut_are_one_to_a_correlator_before_and_after_a_crash() {
    for killed in [false, true] {
        let received = twins(killed);
        let (first, last) = (received.first().unwrap(), received.last().unwrap());
        assert!(message(first) == message(last), "killed: {killed}");
        assert_eq!(action(first), CorrelationAction::Create);
        assert_eq!(action(last), CorrelationAction::Patch, "killed: {killed}");
        assert!(received.iter().all(|event| truncated(event) == truncated(first)));
    }
}

#[test]
fn what_was_cut_comes_out_of_the_journal_as_it_went_in_after_a_crash() {
    let outer = Runtime::new().unwrap();
    let (server, dir) = (outer.block_on(async { server() }), tempfile::tempdir().unwrap());
    let (prompt, down) = (MemorySink::default(), MemorySink::default());
    down.refuse(|_| Some(retry(FailureClass::Unavailable)));
    let start = || {
        let runtime = Runtime::new().unwrap();
        let setup = Setup::new(&server, dir.path()).sink("prompt", &prompt).sink("down", &down);
        let bridge = runtime.block_on(setup.start());
        (runtime, bridge)
    };
    let (runtime, bridge) = start();
    let written = create_saying(&server, "web", &"é".repeat(LARGE / 2));
    runtime.block_on(prompt.wait_for(1));
    patch(&server, &written, 4);
    runtime.block_on(prompt.wait_for(2));
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop(bridge);
    down.accept_everything();
    let (runtime, bridge) = start();
    let last = patch(&server, &written, 9);
    let all = || [&prompt, &down].iter().all(|sink| sink.ids().contains(&last));
    runtime.block_on(until("the last", all));
    runtime.block_on(stop(bridge));
    let (received, sent) = (down.received(), prompt.received());
    assert_eq!(received.iter().map(|event| event.delta).collect::<Vec<_>>(), [1, 3, 5]);
    for event in &received {
        assert!(sent.contains(event), "both are sent the same");
    }
}

#[tokio::test]
async fn a_sink_with_a_smaller_bound_alone_is_sent_less_live_again_and_as_a_dead_letter() {
    const LESS: usize = 8 << 10;
    const MIDDLING: usize = 15_000;
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (whole, less) = (MemorySink::default(), MemorySink::default());
    let text = "é\n".repeat(LARGE / 4);
    less.answer([invalid("not this one")]);
    let one = Tuning {
        batch: BatchOptions { events: 1, ..BatchOptions::default() },
        max_event: Some(LESS),
        ..Tuning::default()
    };
    let setup = Setup::new(&server, dir.path()).sink("whole", &whole).tuned("less", &less, one);
    let bridge = setup.start().await;
    let (view, control) = (bridge.view(), bridge.control());
    let refused = create_saying(&server, "refused", &text);
    until("a dead letter", || sink_status(&view, "less").dead_lettered == 1).await;
    let middling = create_saying(&server, "middling", &text[..MIDDLING]).id();
    let small = create(&server, "small").id();
    less.wait_for(2).await;
    assert_eq!(less.ids(), [&*middling, &*small]);
    let kept = || status(&view).dead_letters.get("less").is_some_and(|counts| counts.letters == 1);
    until("the letter is kept", kept).await;
    let letters =
        control.dead_letters(LetterQuery { limit: 1, ..LetterQuery::default() }).await.unwrap();
    assert!(letters[0].envelope.len() > MOST / 8 * 7, "it is kept as it was journalled");
    assert_eq!(control.retry(ALL).await.unwrap(), 1);
    let received = less.wait_for(3).await;
    assert_eq!(received[2].id, refused.id());
    for event in [&received[0], &received[2]] {
        assert!(event.envelope.len() <= LESS && event.envelope.len() > LESS / 8 * 7);
        let left = message(event);
        let all = if event.id == middling { MIDDLING } else { text.len() };
        assert_eq!(truncated(event), [("message".into(), (all - left.len()) as u64)].into());
    }
    assert_eq!(truncated(&received[1]), BTreeMap::new());
    let others = whole.wait_for(3).await;
    assert!(others[0].envelope.len() > MOST / 8 * 7 && message(&others[1]) == text[..MIDDLING]);
    until("it is counted", || sink_status(&view, "less").truncated == 2).await;
    assert_eq!(sink_status(&view, "whole").truncated, 0);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_large_events_takes_no_event_of_another_namespace() {
    const OTHERS: u64 = 50;
    const PATCHES: u64 = 60;
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    sink.refuse(|_| Some(retry(FailureClass::Unavailable)));
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    let view = bridge.view();
    until("a watch", || server.open_watches() == 1).await;
    let others: Vec<_> = (0..OTHERS).map(|n| create(&server, &format!("web-{n}")).id()).collect();
    let loud = create_saying(&server, "loud", &"x".repeat(LARGE));
    for count in 0..PATCHES {
        patch(&server, &loud, i32::try_from(count).unwrap() + 2);
        // Or the API server, too, would keep only the newest of them.
        until("it is read", || view.log.tail().ordinal() == OTHERS + 2 + count).await;
    }
    let all = OTHERS + 1 + PATCHES;
    assert_eq!((sink_status(&view, "a").pending, sink_status(&view, "a").lost), (all, 0));
    sink.accept_everything();
    let status = settled(&view, "a", all).await;
    assert_eq!((status.delivered, status.lost), (all, 0));
    let (others, loud): (Vec<_>, Vec<_>) =
        sink.received().into_iter().partition(|event| others.contains(&event.id));
    assert_eq!(others.len() as u64, OTHERS);
    let increments: u64 = loud.iter().map(|event| event.delta).sum();
    assert_eq!(increments, PATCHES + 1);
    assert_eq!(tidings::admin::status(&view).ingest.truncated, PATCHES + 1);
    stop(bridge).await;
}
