//! Enrichment: what a sink is told of the objects that events are about, live, late and again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tidings::{
    bridge::{CorrelateMode, Enrich, KeyPatterns, ObjectOptions, SinkStart},
    event::{Envelope, Missing, ObjectInfo},
};
use tidings_testkit::api_server::{ApiServer, EventObject, Fault, On, Verb};
use tokio::runtime::Runtime;

use crate::support::{
    MemorySink, Received, Setup, Tuning, saved, server, settled, sink_status, stop, until,
};

/// All labels, and the owners.
fn everything() -> Enrich {
    let all = || KeyPatterns::new(["*".to_owned()]);
    Enrich { labels: all(), annotations: KeyPatterns::default(), owners: true, node: false }
}

fn enriching() -> Tuning {
    Tuning { enrich: Some(everything()), ..Tuning::default() }
}

/// Answers come in time, however busy the machine is.
fn patient() -> ObjectOptions {
    ObjectOptions { budget: Duration::from_secs(2), ..ObjectOptions::default() }
}

/// What the sink was told of the object.
fn object(event: &Received) -> ObjectInfo {
    Envelope::parse(event.envelope.as_bytes()).unwrap().object.unwrap()
}

fn uid(kind: u8, number: usize) -> String {
    format!("{kind:08x}-0000-4000-8000-{number:012x}")
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true}])
}

/// A Deployment with its ReplicaSet.
fn deploy(server: &ApiServer, app: usize) {
    let (deployment, replica_set) = (format!("app-{app}"), format!("app-{app}-5d8f"));
    let metadata = json!({"namespace": "shop", "name": deployment, "uid": uid(1, app)});
    server.create_object("deployments.apps", json!({"metadata": metadata, "spec": {}})).unwrap();
    let owners = owner("Deployment", &deployment, &uid(1, app));
    let metadata = json!({
        "namespace": "shop", "name": replica_set, "uid": uid(2, app), "ownerReferences": owners,
    });
    server.create_object("replicasets.apps", json!({"metadata": metadata, "spec": {}})).unwrap();
}

/// A Pod of it; answers its name.
fn pod(server: &ApiServer, number: usize, app: usize) -> String {
    let name = format!("app-{app}-5d8f-{number}");
    let owners = owner("ReplicaSet", &format!("app-{app}-5d8f"), &uid(2, app));
    let metadata = json!({
        "namespace": "shop", "name": name, "uid": uid(3, number), "ownerReferences": owners,
        "labels": {"app": format!("app-{app}"), "number": number.to_string(), "event": "x"},
        "annotations": {"secret": "y"},
    });
    let pod = json!({"metadata": metadata, "spec": {"nodeName": format!("node-{}", number % 7)}});
    server.create_object("pods", pod).unwrap();
    name
}

/// What is to be told of that Pod.
fn pod_info(number: usize, app: usize) -> ObjectInfo {
    let labels = [("app", format!("app-{app}")), ("number", number.to_string())];
    let mut labels: BTreeMap<_, _> =
        labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    labels.insert("event".to_owned(), "x".to_owned());
    let owner = |kind: &str, name: String, uid| tidings::event::Owner {
        api_version: "apps/v1".to_owned(),
        kind: kind.to_owned(),
        name,
        uid,
    };
    let owners = vec![
        owner("ReplicaSet", format!("app-{app}-5d8f"), uid(2, app)),
        owner("Deployment", format!("app-{app}"), uid(1, app)),
    ];
    ObjectInfo { labels, owners, ..ObjectInfo::default() }
}

fn about(kind: &str, api_version: &str, name: &str, uid: &str, reason: &str) -> EventObject {
    let mut event = EventObject::about_pod("shop", name, reason, "it happened");
    kind.clone_into(&mut event.involved_object.kind);
    api_version.clone_into(&mut event.involved_object.api_version);
    uid.clone_into(&mut event.involved_object.uid);
    event
}

/// An Event about a Pod, by its number.
fn about_pod(name: &str, number: usize, reason: &str) -> EventObject {
    about("Pod", "v1", name, &uid(3, number), reason)
}

fn missing(why: Missing) -> ObjectInfo {
    ObjectInfo { missing: Some(why), ..ObjectInfo::default() }
}

/// Waits until the bridge has its watches.
async fn watching(server: &ApiServer) {
    for resource in ["pods", "replicasets.apps", "deployments.apps", "events"] {
        until("a watch of each kind", || server.open_watches_of(resource) == 1).await;
    }
}

#[tokio::test]
async fn labels_and_owners_come_with_the_event() {
    let (server, sink, plain) = (server(), MemorySink::default(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    deploy(&server, 1);
    let name = pod(&server, 1, 1);
    let mut setup = Setup::new(&server, journal.path()).tuned("told", &sink, enriching());
    setup.objects = patient();
    let bridge = setup.sink("plain", &plain).start().await;
    watching(&server).await;
    server.create(about_pod(&name, 1, "Started")).unwrap();
    let told = sink.wait_for(1).await;
    assert_eq!(object(&told[0]), pod_info(1, 1));
    let plain = plain.wait_for(1).await;
    assert_eq!(Envelope::parse(plain[0].envelope.as_bytes()).unwrap().object, None);
    // A label that changes is news from the next event on; another uid is another object.
    server
        .patch_object("pods", "shop", &name, &json!({"metadata": {"labels": {"event": "z"}}}))
        .unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.create(about_pod(&name, 1, "Changed")).unwrap();
    server.create(about_pod(&name, 99, "Other")).unwrap();
    let told = sink.wait_for(3).await;
    assert_eq!(object(&told[1]).labels["event"], "z");
    assert_eq!(object(&told[2]), missing(Missing::NotFound));
    assert_eq!(server.request_count(Verb::Get, "pods"), 1);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_events_a_second_take_one_watch_a_kind() {
    const PODS: usize = 2000;
    const EVENTS: usize = 10_000;
    let (server, sink) = (server(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    (0..PODS / 10).for_each(|app| deploy(&server, app));
    let names: Vec<_> = (0..PODS).map(|number| pod(&server, number, number / 10)).collect();
    let bridge =
        Setup::new(&server, journal.path()).tuned("told", &sink, enriching()).start().await;
    watching(&server).await;
    let start = Instant::now();
    for event in 0..EVENTS {
        let number = event * 7 % PODS;
        let reason = format!("Reason{event}");
        server.create(about_pod(&names[number], number, &reason)).unwrap();
        // 5 000 a second.
        let due = start + Duration::from_micros(200) * u32::try_from(event).unwrap();
        if event % 50 == 0 {
            tokio::time::sleep_until(due.into()).await;
        }
    }
    let told = sink.wait_for(EVENTS).await;
    for event in &told {
        let info = object(event);
        let number: usize = info.labels["number"].parse().unwrap();
        assert_eq!(info, pod_info(number, number / 10));
        assert!(event.envelope.contains(&format!("\"name\":\"{}\"", names[number])), "{event:?}");
    }
    for resource in ["pods", "replicasets.apps", "deployments.apps"] {
        assert_eq!(server.request_count(Verb::Watch, resource), 1, "{resource}");
        assert_eq!(server.request_count(Verb::Get, resource), 0, "{resource}");
    }
    stop(bridge).await;
}

#[tokio::test]
async fn what_is_deleted_before_its_last_events_is_still_known() {
    let (server, sink) = (server(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    deploy(&server, 1);
    let names: Vec<_> = (0..50).map(|number| pod(&server, number, 1)).collect();
    let bridge =
        Setup::new(&server, journal.path()).tuned("told", &sink, enriching()).start().await;
    watching(&server).await;
    for name in &names {
        server.delete_object("pods", "shop", name).unwrap();
    }
    server.delete_object("replicasets.apps", "shop", "app-1-5d8f").unwrap();
    // A Pod of the same name is another one.
    pod(&server, 1000, 1);
    for (number, name) in names.iter().enumerate() {
        server.create(about_pod(name, number, "Killing")).unwrap();
    }
    let told = sink.wait_for(names.len()).await;
    let infos: Vec<_> = told.iter().map(object).collect();
    let expected: Vec<_> = (0..50).map(|number| pod_info(number, 1)).collect();
    assert_eq!(infos, expected);
    stop(bridge).await;
}

/// A Job, which is not watched.
fn job(server: &ApiServer, number: usize) -> EventObject {
    let name = format!("job-{number}");
    let metadata = json!({
        "namespace": "shop", "name": name, "uid": uid(4, number), "labels": {"job": name},
    });
    server.create_object("jobs.batch", json!({"metadata": metadata, "spec": {}})).unwrap();
    about("Job", "batch/v1", &name, &uid(4, number), "Completed")
}

#[tokio::test]
async fn a_miss_is_marked_while_the_answer_is_held_back() {
    let (server, sink) = (server(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let mut setup = Setup::new(&server, journal.path()).tuned("told", &sink, enriching());
    setup.objects = patient();
    let bridge = setup.start().await;
    watching(&server).await;
    let held = server.set_fault(On::Get.of("jobs.batch"), None, Fault::Hang);
    let event = job(&server, 1);
    deploy(&server, 1);
    let name = pod(&server, 1, 1);
    server.create(event).unwrap();
    server.create(about_pod(&name, 1, "Started")).unwrap();
    // No request is answered as long as this waits.
    let told = sink.wait_for(2).await;
    assert_eq!(object(&told[0]), missing(Missing::Timeout));
    assert_eq!(object(&told[1]), pod_info(1, 1));
    assert_eq!(server.fault_hits(held), 1);
    for (number, fault, why) in
        [(2, Fault::Forbidden, Missing::Forbidden), (3, Fault::Unavailable, Missing::Unavailable)]
    {
        server.clear_faults();
        server.set_fault(On::Get.of("jobs.batch"), None, fault);
        server.create(job(&server, number)).unwrap();
        assert_eq!(object(&sink.wait_for(number + 1).await[number]), missing(why));
    }
    server.clear_faults();
    server.create(job(&server, 4)).unwrap();
    server.create(about("Widget", "shop.example.com/v1", "w", "u", "Made")).unwrap();
    server.create(about("Job", "batch/v1", "../../secrets/x", "u", "Bad")).unwrap();
    let told = sink.wait_for(7).await;
    assert_eq!(object(&told[4]).labels["job"], "job-4");
    assert_eq!(object(&told[5]), missing(Missing::NotFound));
    assert_eq!(object(&told[6]), missing(Missing::NotFound));
    let counts = sink_status(&bridge.view(), "told").enrichments.unwrap();
    let counts: BTreeMap<_, _> = counts.iter().map(|(outcome, n)| (&**outcome, *n)).collect();
    let expected =
        [("known", 2), ("timeout", 1), ("notFound", 2), ("forbidden", 1), ("unavailable", 1)];
    assert_eq!(counts, expected.into());
    stop(bridge).await;
}

#[tokio::test]
async fn no_more_is_asked_for_than_configured() {
    let (server, sink) = (server(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let mut setup = Setup::new(&server, journal.path()).tuned("told", &sink, enriching());
    setup.objects = ObjectOptions { qps: 20, burst: 5, ..patient() };
    let bridge = setup.start().await;
    watching(&server).await;
    let start = Instant::now();
    for number in 0..300 {
        server.create(job(&server, number)).unwrap();
    }
    let told = sink.wait_for(300).await;
    let known = told.iter().filter(|event| object(event).missing.is_none()).count();
    assert!((1..300).contains(&known), "{known}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let most = 5.0 + 20.0 * start.elapsed().as_secs_f64();
    let asked = server.request_count(Verb::Get, "jobs.batch");
    assert!(asked as f64 <= most, "{asked} of {most}");
    // What was asked for is known from then on.
    assert!(asked >= known as u64);
    stop(bridge).await;
}

/// Waits until a flood of one namespace is written, then writes 15 Events about `ConfigMap`s of another
/// one; answers how many of them were enriched.
async fn enriched_in_a_flood(options: ObjectOptions, flood: fn(usize) -> EventObject) -> usize {
    let (server, sink) = (server(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let mut setup = Setup::new(&server, journal.path()).tuned("told", &sink, enriching());
    setup.objects = ObjectOptions { budget: Duration::from_secs(2), ..options };
    let bridge = setup.start().await;
    watching(&server).await;
    let names: Vec<_> = (0..15).map(|number| format!("config-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let metadata = json!({
            "namespace": "quiet", "name": name, "uid": uid(6, number), "labels": {"config": name},
        });
        server.create_object("configmaps", json!({"metadata": metadata})).unwrap();
    }
    (0..1500).map(flood).for_each(|event| drop(server.create(event).unwrap()));
    for (number, name) in names.iter().enumerate() {
        let mut event = about("ConfigMap", "v1", name, &uid(6, number), "Updated");
        "quiet".clone_into(&mut event.metadata.namespace);
        "quiet".clone_into(&mut event.involved_object.namespace);
        server.create(event).unwrap();
    }
    let told = sink.wait_for(1515).await;
    stop(bridge).await;
    told.iter().filter(|event| object(event).labels.contains_key("config")).count()
}

#[tokio::test]
async fn a_flood_of_unknown_kinds_leaves_other_namespaces_their_lookups() {
    let enriched = enriched_in_a_flood(ObjectOptions::default(), |number| {
        let api_version = format!("g{number}.example.com/v1");
        about("Widget", &api_version, "w", &uid(7, number), "Made")
    });
    let enriched = enriched.await;
    assert!(enriched >= 14, "{enriched} of 15");
}

#[tokio::test]
async fn a_flood_of_objects_leaves_other_namespaces_their_share() {
    // Half of the rate is enough for all of them within the budget, and all of it is not enough for
    // those that were written first.
    let options = ObjectOptions { qps: 50, burst: 5, ..ObjectOptions::default() };
    let enriched = enriched_in_a_flood(options, |number| {
        about("ConfigMap", "v1", &format!("none-{number}"), &uid(8, number), "Updated")
    });
    let enriched = enriched.await;
    assert!(enriched >= 14, "{enriched} of 15");
}

#[tokio::test]
async fn the_node_is_what_the_api_server_says_and_a_claim_is_marked() {
    let (server, sink) = (server(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let enrich = Enrich { node: true, ..Enrich::default() };
    let tuning = Tuning { enrich: Some(enrich), ..Tuning::default() };
    let mut setup = Setup::new(&server, journal.path()).tuned("told", &sink, tuning);
    setup.objects = patient();
    let bridge = setup.start().await;
    watching(&server).await;
    let names: Vec<_> = (1..3).map(|number| pod(&server, number, 1)).collect();
    let by = |mut event: EventObject, component: &str, host: &str| {
        component.clone_into(&mut event.source.component);
        host.clone_into(&mut event.source.host);
        event.reporting_component.clear();
        server.create(event).unwrap();
    };
    // Without an answer of the API server there is the claim.
    server.set_fault(On::Get.of("pods"), None, Fault::Unavailable);
    by(about_pod(&names[0], 1, "Pulled"), "kubelet", "node-a");
    sink.wait_for(1).await;
    server.clear_faults();
    by(about_pod(&names[0], 1, "Scheduled"), "default-scheduler", "");
    by(about_pod(&names[1], 2, "Scheduled"), "default-scheduler", "");
    by(about("Node", "v1", "node-c", "node-c", "NodeReady"), "kubelet", "node-c");
    let metadata = json!({"name": "node-c", "uid": uid(5, 1)});
    server.create_object("nodes", json!({"metadata": metadata, "spec": {}})).unwrap();
    sink.wait_for(4).await;
    let asked = server.request_count(Verb::Get, "pods");
    // What the API server has said once is not overridden, whoever claims otherwise.
    by(about_pod(&names[0], 1, "Killing"), "kubelet", "node-b");
    let told = sink.wait_for(5).await;
    let nodes: Vec<_> =
        told.iter().map(object).map(|told| (told.node, told.node_claimed)).collect();
    let expected = [
        ("node-a", true),
        ("node-1", false),
        ("node-2", false),
        ("node-c", false),
        ("node-1", false),
    ];
    assert_eq!(nodes, expected.map(|(node, claimed)| (Some(node.to_owned()), claimed)));
    assert!(told[0].envelope.contains(r#""node":"node-a","nodeClaimed":true"#), "{:?}", told[0]);
    assert_eq!(server.request_count(Verb::Get, "pods"), asked);
    stop(bridge).await;
}

/// Each event as a sink was told of it last, by its id. What was saved of, the first so many events,
/// was told alike each time; what was found out just before a crash is looked up again.
fn told_by_id(sink: &MemorySink, saved: usize) -> BTreeMap<String, ObjectInfo> {
    let received = sink.received();
    let saved: BTreeSet<_> = received[..saved].iter().map(|event| event.id.clone()).collect();
    let mut all = BTreeMap::new();
    for event in received {
        let info = object(&event);
        let before = all.insert(event.id.clone(), info.clone());
        let alike = before.as_ref().is_none_or(|before| *before == info);
        assert!(alike || !saved.contains(&event.id), "{before:?}, {info:?}: {event:?}");
    }
    all
}

#[test]
fn a_late_sink_and_a_restart_enrich_as_the_live_one_did() {
    let outer = Runtime::new().unwrap();
    let server = outer.block_on(async { server() });
    let journal = tempfile::tempdir().unwrap();
    let (live, late) = (MemorySink::default(), MemorySink::default());
    let start = |late_too: bool| {
        let runtime = Runtime::new().unwrap();
        let mut setup = Setup::new(&server, journal.path()).tuned("live", &live, enriching());
        if late_too {
            let tuning = Tuning { start: SinkStart::Oldest, ..enriching() };
            setup = setup.tuned("late", &late, tuning);
        }
        setup.objects = ObjectOptions { cache: 16, ..ObjectOptions::default() };
        let bridge = runtime.block_on(setup.start());
        runtime.block_on(watching(&server));
        (runtime, bridge)
    };
    deploy(&server, 1);
    let names: Vec<_> = (0..60).map(|number| pod(&server, number, 1)).collect();
    let (runtime, bridge) = start(false);
    let mut expected = 0;
    let mut write = |round: usize| {
        for (number, name) in names.iter().enumerate() {
            server.create(about_pod(name, number, &format!("Round{round}"))).unwrap();
            if number % 3 == round % 3 {
                let labels = json!({"metadata": {"labels": {"event": format!("round-{round}")}}});
                // Gone in the last round.
                let _ = server.patch_object("pods", "shop", name, &labels);
            }
        }
        server.create(about_pod("nobody", 5000, &format!("Round{round}"))).unwrap();
        expected += names.len() + 1;
        expected
    };
    for round in 0..4 {
        let written = write(round);
        runtime.block_on(live.wait_for(written));
    }
    for name in &names {
        server.delete_object("pods", "shop", name).unwrap();
    }
    let before = write(4);
    runtime.block_on(live.wait_for(before));
    // Then a crash.
    runtime.block_on(saved(journal.path(), "live", |sink| sink.totals.delivered == before as u64));
    let written = write(5);
    runtime.block_on(live.wait_for(written));
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop(bridge);

    // The Pods are gone, from the API server and from the memory of who saw them.
    let (runtime, bridge) = start(true);
    let written = write(6);
    runtime.block_on(late.wait_for(written));
    runtime.block_on(settled(&bridge.view(), "live", written as u64));
    runtime.block_on(stop(bridge));
    drop(runtime);
    let (live, late) = (told_by_id(&live, before), told_by_id(&late, 0));
    assert_eq!(live.len(), written);
    let known = live.values().filter(|info| info.missing.is_none()).count();
    assert_eq!(known, written - 7);
    for (id, info) in &late {
        assert_eq!(live[id], *info, "{id}");
    }
}

#[test]
fn held_back_by_a_match_on_the_object_nothing_is_lost_in_a_crash() {
    let outer = Runtime::new().unwrap();
    let server = outer.block_on(async { server() });
    let (journal, sink) = (tempfile::tempdir().unwrap(), MemorySink::default());
    let start = || {
        let runtime = Runtime::new().unwrap();
        let tuning = Tuning {
            filter: Some(
                "object.labels[\"app\"] == \"app-1\" && object.owners[1].name == \"app-1\"",
            ),
            correlate: CorrelateMode::Suppress,
            ..enriching()
        };
        let setup = Setup::new(&server, journal.path()).tuned("pager", &sink, tuning);
        let bridge = runtime.block_on(setup.start());
        runtime.block_on(watching(&server));
        (runtime, bridge)
    };
    (1..3).for_each(|app| deploy(&server, app));
    let names = [pod(&server, 1, 1), pod(&server, 2, 2)];
    let (mut runtime, mut bridge) = start();
    let mut seen = 0;
    for round in 0..4 {
        for event in 0..20 {
            for (at, name) in names.iter().enumerate() {
                let reason = format!("Reason{round}x{event}");
                server.create(about_pod(name, at + 1, &reason)).unwrap();
                seen += 1;
            }
        }
        let view = bridge.view();
        runtime.block_on(until("all is read", || sink_status(&view, "pager").seen == seen));
        // With what is saved of it, or without.
        let wait = Duration::from_millis(1500 * (round % 2));
        runtime.block_on(async { tokio::time::sleep(wait).await });
        runtime.shutdown_timeout(Duration::from_secs(10));
        drop((bridge, view));
        if round == 1 {
            server.delete_object("pods", "shop", &names[0]).unwrap();
        }
        (runtime, bridge) = start();
    }
    let view = bridge.view();
    let read = || {
        let status = sink_status(&view, "pager");
        status.seen == seen && status.pending == status.held
    };
    runtime.block_on(until("everything is decided", read));
    let status = sink_status(&view, "pager");
    // All of one Pod's, and of the other's all that is known of it.
    assert_eq!((status.filtered, status.lost), (seen / 2, 0), "{status:?}");
    assert!(status.held > 0, "{status:?}");
    runtime.block_on(stop(bridge));
    let mut deltas = BTreeMap::new();
    for event in sink.received() {
        let before = deltas.insert(event.id.clone(), event.delta);
        assert!(before.is_none_or(|before| before == event.delta), "{}", event.id);
    }
    assert_eq!(deltas.values().sum::<u64>(), seen / 2);
}
