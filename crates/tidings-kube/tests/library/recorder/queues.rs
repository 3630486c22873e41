//! Nobody waits for anybody, and what does not fit is counted where it was dropped.

use std::time::Duration;

use tidings_kube::recorder::{
    BroadcasterOptions, EventBroadcaster, EventType, RecorderCounts, SinkCounts,
};
use tokio::time::sleep;

use super::support::{Answer, MemorySink, options, pod, record, settle, source, start};

#[tokio::test(start_paused = true)]
async fn a_call_never_waits_for_a_full_queue() {
    let sink = MemorySink::new([]);
    let (broadcaster, recorder, _) =
        start(BroadcasterOptions { queue: 3, ..options() }, &sink).await;
    // Nobody else runs meanwhile.
    for n in 0..10 {
        record(&recorder, n);
    }
    let report = broadcaster.shutdown().await;
    assert_eq!(sink.messages(), ["0", "1", "2"]);
    let expected = RecorderCounts { recorded: 3, queue_full: 7, ..RecorderCounts::default() };
    assert_eq!(report.recorders, expected);
    assert!(!report.is_complete());
}

#[tokio::test(start_paused = true)]
async fn a_slow_sink_loses_events_alone() {
    let (slow, quick) = (MemorySink::slow(Duration::from_secs(1)), MemorySink::new([]));
    let (broadcaster, recorder, running) =
        start(BroadcasterOptions { watcher_queue: 4, ..options() }, &slow).await;
    broadcaster.start_recording_to_sink(quick.clone()).await.unwrap();
    for n in 0..12 {
        record(&recorder, n);
        settle().await;
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(quick.calls().len(), 12);
    // One in hand and four in its queue; it keeps the oldest.
    assert_eq!(slow.messages(), ["0", "1", "2", "3", "4"]);
    let report = broadcaster.shutdown().await;
    assert_eq!((running.counts().written, running.counts().dropped), (5, 7));
    assert_eq!(report.sinks.iter().map(SinkCounts::total).collect::<Vec<_>>(), [12, 12]);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_hangs_holds_up_no_other() {
    let (stuck, other) = (MemorySink::new([Answer::Hang]), MemorySink::new([]));
    let (broadcaster, recorder, _) = start(options(), &stuck).await;
    broadcaster.start_recording_to_sink(other.clone()).await.unwrap();
    for n in 0..5 {
        record(&recorder, n);
    }
    settle().await;
    assert_eq!((stuck.calls().len(), other.calls().len()), (1, 5));
}

#[tokio::test(start_paused = true)]
async fn each_sink_has_a_correlator_of_its_own() {
    let (first, second) = (MemorySink::new([]), MemorySink::new([]));
    let (broadcaster, recorder, _) = start(options(), &first).await;
    recorder.event(&pod("web"), EventType::Normal, "Tested", "again");
    settle().await;
    broadcaster.start_recording_to_sink(second.clone()).await.unwrap();
    recorder.event(&pod("web"), EventType::Normal, "Tested", "again");
    broadcaster.shutdown().await;
    assert_eq!(first.lines(), ["create 1x at 0", "patch 2x at 1"]);
    // A sink sees what comes after it, and for this one it was the first.
    assert_eq!(second.lines(), ["create 1x at 1"]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_reported_is_counted_by_its_reason() {
    let broadcaster = EventBroadcaster::new(options());
    let recorder = broadcaster.new_recorder(source());
    let none = None::<k8s_openapi::api::core::v1::Pod>;
    recorder.event(&none, EventType::Normal, "Tested", "nothing");
    for event_type in ["", "normal", "Info"] {
        recorder.event_of_type(&pod("web"), [].into(), event_type, "Tested", "what");
    }
    // The object comes first.
    recorder.event_of_type(&none, [].into(), "Info", "Tested", "nothing");
    recorder.event_of_type(&pod("web"), [].into(), "Warning", "Tested", "so");
    broadcaster.shutdown().await;
    record(&recorder, 1);
    let expected =
        RecorderCounts { recorded: 1, no_reference: 2, unknown_type: 3, queue_full: 0, stopped: 1 };
    assert_eq!(recorder.counts(), expected);
    assert_eq!(broadcaster.counts(), expected);
}

#[test]
fn a_recorder_can_be_used_from_any_thread() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (broadcaster, sink) = runtime.block_on(async {
        let sink = MemorySink::new([]);
        (start(options(), &sink).await.0, sink)
    });
    let recorder = broadcaster.new_recorder(source());
    std::thread::scope(|scope| {
        for part in 0..4 {
            let recorder = recorder.clone();
            scope.spawn(move || (0..50).for_each(|n| record(&recorder, part * 50 + n)));
        }
    });
    let report = runtime.block_on(broadcaster.shutdown());
    assert_eq!((report.recorders.recorded, sink.calls().len()), (200, 200));
    assert!(report.is_complete());
}
