//! Handlers and logs.

use std::sync::{Arc, Mutex};

use tidings_kube::recorder::{
    BroadcasterOptions, EventBroadcaster, EventType, Level, fake_recorder,
};

use super::support::{options, pod, record, source};
use crate::log::Log;

#[tokio::test(start_paused = true)]
async fn a_handler_is_called_with_each_event_in_order() {
    let broadcaster = EventBroadcaster::new(options());
    let recorder = broadcaster.new_recorder(source());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seen_by_handler = Arc::clone(&seen);
    let running = broadcaster
        .start_event_watcher(move |event| {
            seen_by_handler.lock().unwrap().push(event.message.clone().unwrap());
        })
        .await
        .unwrap();
    for n in 0..5 {
        record(&recorder, n);
    }
    broadcaster.shutdown().await;
    assert_eq!(*seen.lock().unwrap(), ["0", "1", "2", "3", "4"]);
    assert_eq!(running.counts().written, 5);
}

#[tokio::test(start_paused = true)]
async fn a_line_for_each_event() {
    let broadcaster = EventBroadcaster::new(options());
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&lines);
    broadcaster
        .start_logging(move |line| log.lock().unwrap().push(line.to_string()))
        .await
        .unwrap();
    let recorder = broadcaster.new_recorder(source());
    recorder.event(&pod("web"), EventType::Warning, "BackOff", "it fails");
    broadcaster.shutdown().await;
    let lines = lines.lock().unwrap();
    assert!(lines[0].starts_with("Event(ObjectReference {"), "{}", lines[0]);
    assert!(lines[0].ends_with("): type: 'Warning' reason: 'BackOff' it fails"), "{}", lines[0]);
}

#[tokio::test(start_paused = true)]
async fn structured_lines_have_the_fields_of_client_go() {
    let (log, _guard) = Log::begin_json();
    let broadcaster = EventBroadcaster::new(options());
    broadcaster.start_structured_logging(Level::INFO).await.unwrap();
    let recorder = broadcaster.new_recorder(source());
    recorder.event(&pod("web"), EventType::Normal, "Tested", "it works");
    broadcaster.shutdown().await;
    let line: serde_json::Value = serde_json::from_str(log.text().lines().next().unwrap()).unwrap();
    assert_eq!(line["level"], "INFO");
    assert_eq!(
        line["fields"],
        serde_json::json!({
            "message": "Event occurred", "object": "shop/web", "fieldPath": "", "kind": "Pod",
            "apiVersion": "v1", "type": "Normal", "reason": "Tested", "note": "it works",
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_drops_is_no_flood_in_the_log() {
    let (log, _guard) = Log::begin();
    let broadcaster = EventBroadcaster::new(BroadcasterOptions { queue: 1, ..options() });
    let recorder = broadcaster.new_recorder(source());
    for n in 0..1001 {
        record(&recorder, n);
    }
    assert_eq!(recorder.counts().queue_full, 1000);
    // 1, 2, 4, … 512.
    assert_eq!(log.text().matches("too many queued events").count(), 10);
}

#[test]
fn a_fake_recorder_needs_no_runtime_and_never_blocks() {
    let (recorder, mut events) = fake_recorder(2);
    recorder.event(&pod("web"), EventType::Normal, "Started", "it runs");
    recorder.event_of_type(&pod("web"), [].into(), "Info", "Ignored", "no such type");
    let annotations = [("owner".to_owned(), "shop".to_owned())].into();
    let took = format_args!("after {} ms", 7);
    recorder.annotated_eventf(&pod("web"), annotations, EventType::Warning, "Slow", took);
    record(&recorder, 3);
    assert_eq!(events.lines(), ["Normal Started it runs", "Warning Slow after 7 ms"]);
    let counts = recorder.counts();
    assert_eq!((counts.recorded, counts.unknown_type, counts.queue_full), (2, 1, 1));
    record(&recorder, 4);
    assert_eq!(events.events()[0].metadata.namespace.as_deref(), Some("shop"));
}
