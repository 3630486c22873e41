//! A sink, event watcher or log that panics loses that event, says so, and goes on.

use k8s_openapi::api::{core::v1::Event, events::v1 as events};
use serde_json::Value;
use tidings_kube::{
    correlator::Patch,
    recorder::{
        EventBroadcaster, EventSink, EventType, SinkError,
        events_v1::{self, EventBroadcasterOptions, RecordingOptions, Tally},
    },
};

use super::support::{options, pod, record, source};
use crate::log::Log;

/// Panics on what is about the Pod `web-1`.
struct Moody;

impl EventSink for Moody {
    async fn create(&self, event: &Event) -> Result<Event, SinkError> {
        assert!(event.involved_object.name.as_deref() != Some("web-1"), "of {}", "the sink");
        Ok(event.clone())
    }

    async fn patch(&self, event: &Event, _: Option<&Patch>) -> Result<Event, SinkError> {
        Ok(event.clone())
    }
}

impl events_v1::EventSink for Moody {
    async fn create(&self, event: &events::Event) -> Result<events::Event, SinkError> {
        let regarding = event.regarding.as_ref().unwrap();
        assert!(regarding.name.as_deref() != Some("web-1"), "of {}", "the sink");
        Ok(event.clone())
    }

    async fn patch(&self, event: &events::Event, _: &Value) -> Result<events::Event, SinkError> {
        Ok(event.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_panics_loses_one_event_and_writes_the_rest() {
    let (log, _guard) = Log::begin();
    let broadcaster = EventBroadcaster::new(options());
    let running = broadcaster.start_recording_to_sink(Moody).await.unwrap();
    let recorder = broadcaster.new_recorder(source());
    for n in 0..5 {
        record(&recorder, n);
    }
    let report = broadcaster.shutdown().await;
    assert_eq!((report.sinks[0].written, report.sinks[0].panicked), (4, 1));
    assert_eq!((report.sinks[0].total(), report.is_complete()), (5, false));
    assert_eq!(running.counts(), report.sinks[0]);
    let line = log.line("panicked: this event is lost");
    for part in ["Moody", "shop/web-1.", "of the sink"] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_watcher_and_a_log_that_panic_hear_the_rest() {
    let (log, _guard) = Log::begin();
    let broadcaster = EventBroadcaster::new(options());
    let handler =
        |event: &Event| assert!(event.message.as_deref() != Some("1"), "of the {}", "handler");
    broadcaster.start_event_watcher(handler).await.unwrap();
    let lines = |line: std::fmt::Arguments<'_>| {
        assert!(!line.to_string().ends_with(" 2"), "of the {}", "log");
    };
    broadcaster.start_logging(lines).await.unwrap();
    let recorder = broadcaster.new_recorder(source());
    for n in 0..5 {
        record(&recorder, n);
    }
    let report = broadcaster.shutdown().await;
    let told: Vec<_> = report.watchers.iter().map(|w| (w.written, w.panicked)).collect();
    assert_eq!((told, report.is_complete()), (vec![(4, 1), (4, 1)], false));
    for part in ["of the handler", "of the log"] {
        let line = log.line(part);
        assert!(line.contains("An event watcher panicked"), "{line}");
        assert!(line.contains("an_event_watcher_and_a_log_that_panic_hear_the_rest"), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_recorder_of_events_v1_loses_what_its_sink_panics_on_and_goes_on() {
    let (log, _guard) = Log::begin();
    let broadcaster = events_v1::EventBroadcaster::new(EventBroadcasterOptions::default());
    let recording =
        broadcaster.start_recording_to_sink(Moody, RecordingOptions::default()).await.unwrap();
    let handler = |event: &events::Event| {
        assert!(event.note.as_deref() != Some("2"), "of the {}", "handler");
    };
    broadcaster.start_event_watcher(handler).await.unwrap();
    let recorder = broadcaster.new_recorder("example.io/tester");
    for n in 0..5 {
        let pod = pod(&format!("web-{n}"));
        recorder.event(&pod, EventType::Normal, "Tested", "Testing", n.to_string());
    }
    let report = broadcaster.shutdown().await;
    let tally = Tally { observed: 5, announced: 4, pending: 0, lost: 1 };
    assert_eq!((report.tally, report.watchers_panicked), (tally, 1));
    assert_eq!(recording.tally(), tally);
    for part in ["A sink panicked", "An event watcher panicked"] {
        assert!(log.line(part).contains("panics::"), "the name is there");
    }
}
