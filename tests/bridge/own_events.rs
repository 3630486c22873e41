//! What the bridge says of itself: what is worth an Event, that it comes back, and that it feeds on
//! nothing of its own.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use prometheus_client::encoding::text::encode;
use tidings::{
    admin::registry,
    bridge::{COMPONENT, FailureClass, OwnEvents, OwnWrites},
};
use tidings_kube::{
    correlator::Patch,
    recorder::{EventBroadcaster, EventSink, FakeEvents, SinkError, fake_recorder},
};
use tidings_testkit::api_server::{ApiServer, EventObject};
use tokio::sync::Semaphore;

use crate::support::{MemorySink, Received, Setup, create, health, retry, server, stop, until};

fn pod() -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some("tidings".to_owned()),
        name: Some("tidings-0".to_owned()),
        uid: Some("p-1".to_owned()),
        ..ObjectReference::default()
    }
}

pub(crate) fn fake() -> (OwnEvents, FakeEvents) {
    let (recorder, events) = fake_recorder(100);
    (OwnEvents { recorder, about: pod(), writes: OwnWrites::in_namespace("tidings") }, events)
}

pub(crate) async fn next(events: &mut FakeEvents) -> (String, String) {
    let next = tokio::time::timeout(Duration::from_secs(60), events.next()).await;
    let event = next.expect("an Event within a minute").unwrap();
    assert_eq!(event.involved_object, pod());
    (event.reason.unwrap(), event.message.unwrap())
}

/// An Event as a bridge records it about itself.
fn of_a_bridge() -> Event {
    Event {
        metadata: ObjectMeta {
            namespace: Some("tidings".to_owned()),
            name: Some("tidings-0.18ea1753419cae39".to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: pod(),
        reason: Some("SinkUnavailable".to_owned()),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        ..Event::default()
    }
}

/// The same as somebody else writes it.
fn forged(namespace: &str) -> EventObject {
    let mut event = EventObject::about_pod(namespace, "tidings-0", "SinkUnavailable", "x");
    COMPONENT.clone_into(&mut event.source.component);
    event
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_somebody_has_to_mend_and_its_recovery_are_told() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let (own_events, mut events) = fake();
    let mut setup = Setup::new(&server, dir.path()).sink("audit", &sink);
    setup.own_events = Some(own_events);
    sink.respond(|_| Some(retry(FailureClass::Misconfigured)));
    let bridge = setup.start().await;
    create(&server, "web");
    let (reason, message) = next(&mut events).await;
    assert_eq!(reason, "SinkMisconfigured");
    assert!(message.starts_with("Sink audit is misconfigured"), "{message}");
    sink.accept_everything();
    assert_eq!(next(&mut events).await.0, "SinkRecovered");
    stop(bridge).await;
    assert!(events.events().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fate_of_an_event_of_our_own_causes_no_other() {
    let (server, dir) = (Arc::new(server()), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let (own_events, mut events) = fake();
    let writing = own_events.writes.through(Into(Arc::clone(&server)));
    let mut setup = Setup::new(&server, dir.path()).sink("audit", &sink);
    setup.own_events = Some(own_events);
    let own = |events: &[Received]| events.iter().all(|event| event.envelope.contains(COMPONENT));
    sink.respond(move |batch| own(batch).then(|| retry(FailureClass::Misconfigured)));
    let bridge = setup.start().await;
    writing.create(&of_a_bridge()).await.unwrap();
    until("some attempts", || sink.attempts().len() > 3).await;
    // A look is made each second.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(events.events().is_empty());
    sink.accept_everything();
    sink.wait_for(1).await;
    stop(bridge).await;
    assert!(events.events().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_claims_to_be_of_a_bridge_does_not_silence_a_sick_sink() {
    for namespace in ["shop", "tidings"] {
        let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
        let (own_events, mut events) = fake();
        let mut setup = Setup::new(&server, dir.path()).sink("audit", &sink);
        setup.own_events = Some(own_events);
        sink.respond(|_| Some(retry(FailureClass::Misconfigured)));
        let bridge = setup.start().await;
        server.create(forged(namespace)).unwrap();
        assert_eq!(next(&mut events).await.0, "SinkMisconfigured", "{namespace}");
        sink.accept_everything();
        stop(bridge).await;
    }
}

/// Writes into the scripted API server at once, and answers when it is let.
struct Answers(Into, Arc<Semaphore>);

impl EventSink for Answers {
    async fn create(&self, event: &Event) -> Result<Event, SinkError> {
        let written = self.0.create(event).await;
        self.1.acquire().await.unwrap().forget();
        written
    }
    async fn patch(&self, event: &Event, patch: Option<&Patch>) -> Result<Event, SinkError> {
        self.0.patch(event, patch).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_our_namespace_waits_for_the_answer_to_a_write_of_ours_and_not_for_ever() {
    for answered in [true, false] {
        let (server, dir) = (Arc::new(server()), tempfile::tempdir().unwrap());
        let sink = MemorySink::default();
        let (own_events, _events) = fake();
        let answers = Arc::new(Semaphore::new(0));
        let writing =
            own_events.writes.through(Answers(Into(Arc::clone(&server)), Arc::clone(&answers)));
        let mut setup = Setup::new(&server, dir.path()).sink("audit", &sink);
        setup.own_events = Some(own_events);
        let bridge = setup.start().await;
        until("a watch", || server.open_watches() == 1).await;
        create(&server, "before");
        sink.wait_for(1).await;
        let view = bridge.view();
        let begun = Instant::now();
        let writing = tokio::spawn(async move { writing.create(&of_a_bridge()).await });
        until("it is written", || server.live_events() == 2).await;
        create(&server, "behind");
        let read = server.revision().to_string();
        until("both are read", || health(&view).last_sync_resource_version == read).await;
        // What does not wait is there in some milliseconds.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!((sink.received().len(), view.log.tail().next), (1, 2));
        if answered {
            answers.add_permits(1);
        }
        let ids = sink.wait_for(3).await;
        assert!(ids[1].envelope.contains("SinkUnavailable"));
        assert!(answered || begun.elapsed().as_secs() >= 9, "{:?}", begun.elapsed());
        writing.abort();
        stop(bridge).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_told() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let bridge = Setup::new(&server, dir.path()).sink("audit", &sink).start().await;
    let event = create(&server, "web");
    sink.wait_for(1).await;
    stop(bridge).await;
    for count in [2, 3, 4] {
        server.patch_count("shop", &event.name, count, jiff::Timestamp::now()).unwrap();
    }
    server.compact(server.revision());
    let (own_events, mut events) = fake();
    let mut setup = Setup::new(&server, dir.path()).sink("audit", &sink);
    setup.own_events = Some(own_events);
    let bridge = setup.start().await;
    let (reason, message) = next(&mut events).await;
    assert_eq!(reason, "WatchGap");
    assert!(message.contains("2 increments"), "{message}");
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gaps_of_many_sources_in_one_second_are_all_told_and_measured() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let namespaces: Vec<_> = (0..20).map(|n| format!("team-{n}")).collect();
    let create_in_each = || {
        for namespace in &namespaces {
            let event = EventObject::about_pod(namespace, "web", "Started", "Started container");
            server.create(event).unwrap();
        }
    };
    let setup = || {
        let mut setup = Setup::new(&server, dir.path()).sink("audit", &sink);
        setup.namespaces.clone_from(&namespaces);
        setup
    };
    create_in_each();
    let bridge = setup().start().await;
    sink.wait_for(20).await;
    stop(bridge).await;
    create_in_each();
    create_in_each();
    server.compact(server.revision());
    let (own_events, mut events) = fake();
    let mut again = setup();
    again.own_events = Some(own_events);
    let bridge = again.start().await;
    for _ in 0..20 {
        assert_eq!(next(&mut events).await.0, "WatchGap");
    }
    let mut metrics = String::new();
    encode(&mut metrics, &registry(&bridge.view())).unwrap();
    for end in ["start", "end"] {
        let name = format!("tidings_source_last_gap_{end}_timestamp_seconds{{");
        assert_eq!(metrics.matches(&name).count(), 20, "{metrics}");
    }
    stop(bridge).await;
}

/// Writes into the scripted API server.
struct Into(Arc<ApiServer>);

impl EventSink for Into {
    async fn create(&self, event: &Event) -> Result<Event, SinkError> {
        let mut event = event.clone();
        event.metadata.uid = Some(format!("own-{}", self.0.revision()));
        let object = EventObject::from_json(serde_json::to_value(&event).unwrap()).unwrap();
        let written = self.0.create(object).unwrap();
        event.metadata.resource_version = Some(written.resource_version.to_string());
        Ok(event)
    }
    async fn patch(&self, event: &Event, patch: Option<&Patch>) -> Result<Event, SinkError> {
        unreachable!("nothing is said twice here: {event:?} {patch:?}")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_comes_back_through_the_watch_and_is_exported() {
    let (server, dir) = (Arc::new(server()), tempfile::tempdir().unwrap());
    let (broken, well) = (MemorySink::default(), MemorySink::default());
    let broadcaster = EventBroadcaster::default();
    let writes = OwnWrites::in_namespace("tidings");
    let writing = writes.through(Into(Arc::clone(&server)));
    broadcaster.start_recording_to_sink(writing).await.unwrap();
    let source = EventSource { component: Some(COMPONENT.to_owned()), host: None };
    let recorder = broadcaster.new_recorder(source);
    let mut setup = Setup::new(&server, dir.path()).sink("broken", &broken).sink("well", &well);
    setup.own_events = Some(OwnEvents { recorder, about: pod(), writes });
    broken.respond(|_| Some(retry(FailureClass::Misconfigured)));
    let bridge = setup.start().await;
    create(&server, "web");
    let received = well.wait_for(2).await;
    assert!(received[1].envelope.contains("\"reason\":\"SinkMisconfigured\""));
    assert!(received[1].envelope.contains("\"name\":\"tidings-0\""));
    broken.accept_everything();
    broken.wait_for(3).await;
    well.wait_for(3).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    stop(bridge).await;
    broadcaster.shutdown().await;
    assert_eq!((broken.received().len(), well.received().len()), (3, 3));
}
