//! A controller reports on an object: once, again and again, in ever new words, and too often. Watch
//! what becomes of it on its way: one Event, a count, an Event for many, and silence.
//!
//! ```text
//! cargo run --example recorder                     about the ConfigMap default/web
//! cargo run --example recorder -- shop/settings    about another
//! ```
//!
//! If the cluster of your kubeconfig answers, the Events are written there, for which one needs the
//! verbs create and patch on events. If not, what would be written is printed.
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{error::Error, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Event, EventSource};
use kube::{Api, Client, Config, api::ObjectMeta};
use tidings_kube::{
    client_without_retry,
    correlator::Patch,
    recorder::{
        ApiServerSink, BroadcasterOptions, EventBroadcaster, EventRecorder, EventSink, EventType,
        Level, RetryPolicy, SinkError,
    },
};

/// What a controller does all day: it tries, and says how it went. No call waits or fails, so there
/// is nothing to handle; an Event is news, and never worth more than the work that it tells of.
fn reconcile(recorder: &EventRecorder, config: &ConfigMap) {
    let normal = |reason, message| recorder.event(config, EventType::Normal, reason, message);
    let warning = |reason, message| recorder.event(config, EventType::Warning, reason, message);

    normal("Synced", "12 keys applied");
    // The same again is no second Event: the first one's count is patched.
    for _ in 0..5 {
        warning("SyncFailed", "the backend does not answer");
    }
    // The same reason in other words: nine Events, and then a combined one for all that follow. It
    // is why a message should have no times, addresses or attempts in it: a repeat has no others.
    for n in 1..=12 {
        let message = format_args!("key-{n} is not a number");
        recorder.eventf(config, EventType::Warning, "InvalidKey", message);
    }
    // Of one type a source may send 25 about an object at once, and then one in five minutes. 5 + 12
    // Warnings went before, so 8 of these pass. The rest is held back, but counted: the next that
    // passes will say 21.
    for _ in 0..20 {
        warning("Reverted", "somebody else writes to it, too");
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The recorder tells its caller nothing, and its log why an event was not written.
    tracing_subscriber::fmt().with_max_level(Level::WARN).with_writer(std::io::stderr).init();
    let about = std::env::args().nth(1).unwrap_or_else(|| "default/web".to_owned());
    let (namespace, name) = about.split_once('/').unwrap_or(("default", &about));

    // One for the process. It behaves as client-go's, but that it does not give up an event because
    // the API server is busy just now.
    let broadcaster = EventBroadcaster::new(BroadcasterOptions {
        retry: RetryPolicy::PATIENT,
        ..BroadcasterOptions::default()
    });
    // Sinks first: an event is for those who listen when it is recorded.
    let config = match find(namespace, name).await {
        Ok((client, config)) => {
            println!("writing Events about the ConfigMap {namespace}/{name} to the cluster");
            broadcaster.start_recording_to_sink(ApiServerSink::new(client)).await?;
            config
        }
        Err(reason) => {
            println!("no cluster ({reason}); this would be written:");
            broadcaster.start_recording_to_sink(PrintSink).await?;
            named(namespace, name)
        }
    };

    // One for each component. The source is what `kubectl describe` shows as "From".
    let source = EventSource { component: Some("config-controller".to_owned()), host: None };
    let recorder = broadcaster.new_recorder(source);
    reconcile(&recorder, &config);

    // Nothing above has waited for a write. So this is not a formality: a program that just ends
    // takes with it what is queued.
    let report = broadcaster.shutdown().await;
    println!("recorded {}, dropped {}", report.recorders.recorded, report.recorders.dropped());
    for sink in &report.sinks {
        println!(
            "written {}, held back {}, given up {}, not written in time {}",
            sink.written, sink.skipped, sink.given_up, sink.not_written
        );
    }
    // Held back is as it should be; everything else that was not written makes this false.
    println!("complete: {}", report.is_complete());
    Ok(())
}

/// The ConfigMap, if there is a cluster that answers within three seconds.
async fn find(namespace: &str, name: &str) -> Result<(Client, ConfigMap), Box<dyn Error>> {
    // The client must not retry by itself, or it and the broadcaster would both.
    let client = client_without_retry(Config::infer().await?)?;
    let config_maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    match tokio::time::timeout(Duration::from_secs(3), config_maps.get_opt(name)).await? {
        Ok(Some(config)) => Ok((client, config)),
        // No such ConfigMap, or none that we may read, are answers, too. A name is enough for an
        // Event; what is lost is the uid, by which `kubectl describe` tells it from its namesakes.
        Ok(None) | Err(kube::Error::Api(_)) => Ok((client, named(namespace, name))),
        Err(error) => Err(error.into()),
    }
}

fn named(namespace: &str, name: &str) -> ConfigMap {
    let (namespace, name) = (Some(namespace.to_owned()), Some(name.to_owned()));
    ConfigMap {
        metadata: ObjectMeta { namespace, name, ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

/// The smallest sink there is: it prints, and says that it has stored what it was given.
struct PrintSink;

impl PrintSink {
    fn print(how: &str, event: &Event) -> Event {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        println!(
            "  {how} {:7} {:10} x{} {}",
            text(&event.type_),
            text(&event.reason),
            event.count.unwrap_or_default(),
            text(&event.message)
        );
        event.clone()
    }
}

impl EventSink for PrintSink {
    async fn create(&self, event: &Event) -> Result<Event, SinkError> {
        Ok(Self::print("create", event))
    }

    async fn patch(&self, event: &Event, _patch: Option<&Patch>) -> Result<Event, SinkError> {
        Ok(Self::print("patch ", event))
    }
}
