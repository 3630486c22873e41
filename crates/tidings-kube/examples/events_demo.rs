//! How Kubernetes handles events, in one process and in memory: two components produce and send, a
//! broadcaster hands to watchers, a watcher filters, another one caches and aggregates. First each
//! part by itself, from `broadcaster` and `correlator`; then all of it in one, which is `recorder`.
//!
//!     cargo run --example events_demo
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use kube::{api::ObjectMeta, core::Status};
use tidings_kube::{
    broadcaster::{Broadcaster, FullChannel},
    correlator::{EventCorrelator, Patch},
    recorder::{EventBroadcaster, EventSink, EventType, SinkError},
};

/// What a component has to say about the Pod web-0: type, reason, message.
type News = (EventType, &'static str, String);

fn scheduler() -> Vec<News> {
    vec![(EventType::Normal, "Scheduled", "assigned to node-1".to_owned())]
}

fn kubelet() -> Vec<News> {
    let mut news = vec![(EventType::Normal, "Started", "started container app".to_owned())];
    // Twelve that differ in their message …
    let probe = |n| format!("probe failed: HTTP 503 after {n} ms");
    news.extend((1..=12).map(|n| (EventType::Warning, "Unhealthy", probe(n))));
    // … and thirty that do not.
    let back_off = (EventType::Warning, "BackOff", "restarting failed container".to_owned());
    news.extend(std::iter::repeat_n(back_off, 30));
    news
}

fn source(component: &str) -> EventSource {
    EventSource { component: Some(component.to_owned()), host: None }
}

fn web() -> ObjectReference {
    ObjectReference { name: Some("web-0".to_owned()), ..ObjectReference::default() }
}

/// Produce: an Event says what happened (type, reason, message), to what, who says so, and when. This
/// one is made by hand; a recorder makes the same.
fn produce(component: &str, (event_type, reason, message): News) -> Event {
    let now = Timestamp::now();
    Event {
        // The time in the name makes it unique.
        metadata: ObjectMeta {
            name: Some(format!("web-0.{:x}", now.as_nanosecond())),
            ..ObjectMeta::default()
        },
        involved_object: web(),
        type_: Some(event_type.to_string()),
        reason: Some(reason.to_owned()),
        message: Some(message),
        source: Some(source(component)),
        count: Some(1),
        ..Event::default()
    }
}

/// Cache: what `kubectl get events` would show. It stands for the API server, so a new Event is
/// created and a known one patched.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<BTreeMap<String, Event>>>);

impl EventSink for Store {
    async fn create(&self, event: &Event) -> Result<Event, SinkError> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.insert(event.metadata.name.clone().unwrap_or_default(), event.clone());
        Ok(event.clone())
    }

    async fn patch(&self, event: &Event, _patch: Option<&Patch>) -> Result<Event, SinkError> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(stored) = events.get_mut(event.metadata.name.as_deref().unwrap_or_default())
        else {
            return Err(SinkError::status(Status { code: 404, ..Status::default() }));
        };
        stored.clone_from(event);
        Ok(event.clone())
    }
}

impl Store {
    /// Count, reason and message of each, by the alphabet: names of Events would sort them by time.
    fn lines(&self) -> Vec<String> {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |event: &Event| {
            let [reason, message] =
                [&event.reason, &event.message].map(|text| text.clone().unwrap_or_default());
            format!("{reason:9} x{:<2} {message}", event.count.unwrap_or_default())
        };
        let mut lines: Vec<_> = events.values().map(line).collect();
        lines.sort();
        lines
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Broadcast: one queue in, one loop, a queue out for each watcher. A watcher that does not keep
    // up loses events, and neither the senders nor the other watchers ever notice.
    let broadcaster = Broadcaster::new(100, FullChannel::Drop { queue: 100 });
    let (mut all, mut warnings) = (broadcaster.watch().await?, broadcaster.watch().await?);
    let mut early = broadcaster.watch().await?;

    // Send. Whether it waits when the queue is full (`publish`) or drops (`publish_or_drop`) is
    // the sender's choice; who reports on its real work drops.
    let send = |component: &'static str, news: Vec<News>| {
        let broadcaster = broadcaster.clone();
        tokio::spawn(async move {
            for news in news {
                // An `Arc`, as every watcher gets a clone.
                let _ = broadcaster.publish_or_drop(Arc::new(produce(component, news)));
            }
        })
    };
    send("scheduler", scheduler()).await?;
    // A watcher that leaves hears nothing of what comes later, and nobody has to be told.
    let mut heard = usize::from(early.next().await.is_some());
    early.stopper().stop();
    send("kubelet", kubelet()).await?;
    // A watcher that comes now would hear nothing of all this: nobody keeps what was said.
    broadcaster.shutdown().await;
    println!("broadcast");
    while early.next().await.is_some() {
        heard += 1;
    }
    println!("  the watcher that left early heard {heard}");

    // Filter: a watcher hears all of it, and takes what it wants.
    let mut wanted = 0;
    while let Some(event) = warnings.next().await {
        wanted += u32::from(event.type_.as_deref() == Some("Warning"));
    }
    println!("  the one for Warnings took {wanted}");

    // Aggregate: the correlator has no task, no clock and no I/O. It says what is to be written.
    let (store, mut correlator) = (Store::default(), EventCorrelator::default());
    let (mut heard, mut created, mut patched, mut skipped) = (0, 0, 0, 0);
    while let Some(event) = all.next().await {
        heard += 1;
        let correlated = correlator.correlate(&event, Timestamp::now());
        let stored = if correlated.skip {
            // Too many about one object. It was counted, so the next that passes will tell.
            skipped += 1;
            continue;
        } else if correlated.is_update() {
            patched += 1;
            store.patch(&correlated.event, correlated.patch.as_ref()).await?
        } else {
            created += 1;
            store.create(&correlated.event).await?
        };
        // What the next one goes on from is what was stored, not what was sent.
        correlator.update_state(&stored);
    }
    println!("  the one for all heard {heard}");
    println!("aggregate: created {created}, patched {patched}, skipped {skipped}; the cache has");
    for line in store.lines() {
        println!("  {line}");
    }

    // The same by `recorder`: recorders produce and send, a sink's task correlates, writes, and tries
    // again where we have given up.
    let again = Store::default();
    let broadcaster = EventBroadcaster::default();
    broadcaster.start_recording_to_sink(again.clone()).await?;
    for (component, news) in [("scheduler", scheduler()), ("kubelet", kubelet())] {
        let recorder = broadcaster.new_recorder(source(component));
        for (event_type, reason, message) in news {
            recorder.event(&web(), event_type, reason, message);
        }
    }
    let report = broadcaster.shutdown().await;
    println!("record: {:?}", report.sinks);
    println!("  the same in its cache: {}", again.lines() == store.lines());
    Ok(())
}
