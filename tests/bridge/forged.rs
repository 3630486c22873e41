//! Events that claim to be a bridge's own: whoever may create Events in a namespace says so in any.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use tidings::{
    admin::status,
    bridge::{COMPONENT, Heartbeat},
    journal::State,
};
use tidings_testkit::api_server::EventObject;

use crate::{
    own_events::fake,
    support::{MemorySink, Setup, server, settled, stop, until},
};

const FORGED: usize = 10_000;

/// An Event of another namespace than the bridge's, as like one of the bridge's own as can be.
fn forged() -> impl Strategy<Value = EventObject> {
    let namespace = prop::sample::select(vec!["shop", "bank", "kube-system", "tidings-2"]);
    let pod = prop::sample::select(vec!["tidings-0", "tidings-1", "x", ""]);
    let suffix =
        prop::sample::select(vec![".heartbeat", ".heartbeat.heartbeat", ".18ea1753419cae39"]);
    let reason =
        prop::sample::select(vec!["Heartbeat", "SinkMisconfigured", "EventsLost", "Failed"]);
    let component = prop::sample::select(vec![COMPONENT, "kubelet", ""]);
    let claimed = prop::sample::select(vec!["tidings", "shop"]);
    (namespace, pod, suffix, reason, component, claimed).prop_map(
        |(namespace, pod, suffix, reason, component, claimed)| {
            let message = "Tidings watches its own watch by this Event";
            let mut event = EventObject::about_pod(namespace, pod, reason, message);
            event.metadata.name = format!("{pod}{suffix}");
            component.clone_into(&mut event.source.component);
            component.clone_into(&mut event.reporting_component);
            claimed.clone_into(&mut event.involved_object.namespace);
            "p-1".clone_into(&mut event.involved_object.uid);
            event
        },
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn no_forged_event_is_dropped_unseen_and_none_is_left_in_what_is_known() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let mut setup = Setup::new(&server, dir.path()).sink("audit", &sink);
    let (own_events, _events) = fake();
    setup.own_events = Some(own_events);
    let about = ObjectReference {
        namespace: Some("tidings".to_owned()),
        name: Some("tidings-0".to_owned()),
        ..ObjectReference::default()
    };
    setup.heartbeat = Some(Heartbeat { about, every: Duration::from_secs(1) });
    let bridge = setup.start().await;
    let view = bridge.view();
    until("a beat", || status(&view).ingest.heartbeats >= 1).await;
    let mut runner = TestRunner::deterministic();
    let mut expected = Vec::new();
    for _ in 0..FORGED {
        let event = forged().new_tree(&mut runner).unwrap().current();
        let namespace = event.metadata.namespace.clone();
        let created = server.create(event).unwrap();
        // Now it looks like one even if it did not before.
        let forge = serde_json::json!({
            "reason": "Heartbeat", "source": {"component": COMPONENT}, "count": 2, "message": "leaks out",
        });
        let forged = server.patch(&namespace, &created.name, &forge).unwrap();
        server.delete(&namespace, &created.name).unwrap();
        expected.extend([created.id(), forged.id()]);
    }
    settled(&view, "audit", 2 * FORGED as u64).await;
    let deleted = server.revision();
    let read = |view: &tidings::bridge::BridgeView| {
        let health = crate::support::health(view);
        health.last_sync_resource_version.parse().is_ok_and(|version: u64| version >= deleted)
    };
    until("the last deletion is read", || read(&view)).await;
    stop(bridge).await;
    assert_eq!(sink.ids(), expected);
    let (state, _) = State::open(&tidings::journal::open(dir.path()).unwrap(), 1 << 30, 0).unwrap();
    assert_eq!(state.seen().len(), 0);
}
