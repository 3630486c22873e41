//! The kubelet's wiring of its event recorder: one broadcaster, a log that hears all of it, and the
//! API server behind a limit of 50 writes a second; and without an API server, the log alone.
//!
//! ```text
//! cargo run --example kubelet                         an API server in this process
//! cargo run --example kubelet -- --standalone         none: events are only logged
//! cargo run --example kubelet -- --current-context    the cluster of your kubeconfig, where it
//!                                                     leaves Events about a node of its fancy
//! ```
//!
//! It ends by itself, or at Ctrl-C.
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{
    error::Error,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use kube::{Api, Client, Config, api::ListParams};
use tidings_kube::{
    broadcaster::Stopped,
    client_without_retry,
    recorder::{ApiServerSink, EventBroadcaster, EventRecorder, EventType, Level, Running},
};
use tidings_testkit::api_server::{ApiServer, Options};
use tokio::time::timeout;

/// What the kubelet sends at most: so much at once, and then so much a second. A node has hundreds
/// of containers, a cluster thousands of nodes, and Events are the least of an API server's work.
const BURST: NonZeroU32 = NonZeroU32::new(100).expect("more than none");
const QPS: NonZeroU32 = NonZeroU32::new(50).expect("more than none");

/// What the rest of the kubelet gets.
struct Wiring {
    broadcaster: EventBroadcaster,
    recorder: EventRecorder,
    log: Running,
}

/// client-go calls these the broadcaster, the recorder, structured logging and recording to a sink;
/// the kubelet does it once, before it does anything that is worth an event.
async fn wire(client: Option<Client>, node: &str) -> Result<Wiring, Stopped> {
    let broadcaster = EventBroadcaster::default();
    // Goes into every event: which part of the node speaks, and on which node.
    let source = EventSource { component: Some("kubelet".to_owned()), host: Some(node.to_owned()) };
    let recorder = broadcaster.new_recorder(source);
    // The log and the sink are watchers of one broadcaster. Each has a queue of its own, so an API
    // server that is slow or away takes nothing from the log. (The kubelet's level would be DEBUG.)
    let log = broadcaster.start_structured_logging(Level::INFO).await?;
    match client {
        Some(client) => {
            tracing::info!("Sending events to the API server");
            let sink = ApiServerSink::new(client).with_rate_limit(QPS, BURST);
            broadcaster.start_recording_to_sink(sink).await?;
        }
        // No reason to end: whoever runs Pods without an API server can still read the log.
        None => tracing::warn!("No API server defined, no events will be sent to it"),
    }
    Ok(Wiring { broadcaster, recorder, log })
}

/// What the kubelet has to say.
async fn live(Wiring { broadcaster, recorder, log }: &Wiring, node: &str) {
    // `kubectl describe node` finds the kubelet's events by a uid that is the node's name.
    let node = ObjectReference { uid: Some(node.to_owned()), ..reference("Node", None, node) };
    recorder.event(&node, EventType::Normal, "Starting", "Starting kubelet.");

    // An event about a container is one about its Pod, and the field path says which it is.
    let field_path = Some("spec.containers{app}".to_owned());
    let app = ObjectReference { field_path, ..reference("Pod", Some("default"), "web-0") };
    recorder.event(&app, EventType::Normal, "Pulled", "Container image \"app:1\" already present");
    recorder.event(&app, EventType::Normal, "Started", "Started container app");
    // The log gets five lines. The API server gets one Event, and is told four times of its count.
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let message = "Back-off restarting failed container app";
        recorder.event(&app, EventType::Warning, "BackOff", message);
    }

    // A log can be stopped, as any watcher can, while the others go on. What is on its way to it
    // does not arrive after a stop, so we let it; not for longer than we would wait for a log,
    // because the API server is waited for, too.
    if timeout(Duration::from_secs(1), broadcaster.flush()).await.is_err() {
        tracing::warn!("Events are not written yet, the log may miss some");
    }
    log.stop();
    // The node is drained. Each Pod is an object of its own, so neither the correlator nor the spam
    // filter has anything to hold back; the limit of the sink stretches it.
    for n in 0..120 {
        let pod = reference("Pod", Some("default"), &format!("batch-{n}"));
        recorder.event(&pod, EventType::Normal, "Killing", "Stopping container app");
    }
}

/// A reference by hand, as the kubelet has it, which knows Pods from files and from no API server.
fn reference(kind: &str, namespace: Option<&str>, name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        // Events about what has none, such as a node, lie in the namespace `default`.
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_max_level(Level::INFO).with_writer(std::io::stderr).init();
    let given = |flag| std::env::args().any(|argument| argument == flag);
    let server = ApiServer::start(Options::default())?;
    let config = match (given("--standalone"), given("--current-context")) {
        (true, _) => None,
        (false, true) => Some(Config::infer().await?),
        (false, false) => Some(Config::new(server.url().parse()?)),
    };
    let client = config.map(client_without_retry).transpose()?;

    let node = "node-1";
    let wiring = wire(client.clone(), node).await?;
    let started = Instant::now();
    tokio::select! {
        () = live(&wiring, node) => {}
        ctrl_c = tokio::signal::ctrl_c() => ctrl_c?,
    }
    let live_for = started.elapsed();
    let report = wiring.broadcaster.shutdown().await;

    let recorded = report.recorders.recorded;
    println!("recorded {recorded} events in {live_for:.1?}, and waited for no write");
    let Some(client) = client else {
        println!("sinks: {}", report.sinks.len());
        return Ok(());
    };
    for sink in &report.sinks {
        println!("the API server took {} writes in {:.1?}", sink.written, started.elapsed());
    }
    describe(client, "web-0").await?;
    Ok(())
}

/// The last lines of `kubectl describe pod`.
async fn describe(client: Client, pod: &str) -> kube::Result<()> {
    let about = ListParams::default().fields(&format!("involvedObject.name={pod}"));
    println!("{:8} {:8} {:5} {:16} Message", "Type", "Reason", "Count", "From");
    for event in Api::<Event>::default_namespaced(client).list(&about).await? {
        let source = event.source.unwrap_or_default();
        let [component, host, kind, reason, message] =
            [source.component, source.host, event.type_, event.reason, event.message]
                .map(Option::unwrap_or_default);
        let count = event.count.unwrap_or_default();
        println!("{kind:8} {reason:8} x{count:<4} {:16} {message}", format!("{component}, {host}"));
    }
    Ok(())
}
