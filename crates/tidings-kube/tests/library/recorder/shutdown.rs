//! The end: what is queued is written, or named in the report.

use std::time::Duration;

use tidings_kube::{
    broadcaster::Stopped,
    recorder::{BroadcasterOptions, EventBroadcaster, SinkCounts},
};
use tokio::time::{Instant, sleep};

use super::support::{Answer, MemorySink, eof, eofs, options, record, settle, source, start};

#[tokio::test(start_paused = true)]
async fn shutdown_writes_what_is_queued() {
    // client-go loses most of these: 20 events, a second each, shut down after 1.5 s.
    let sink = MemorySink::slow(Duration::from_secs(1));
    let (broadcaster, recorder, _) =
        start(BroadcasterOptions { drain: Duration::from_secs(30), ..options() }, &sink).await;
    for n in 0..20 {
        record(&recorder, n);
    }
    sleep(Duration::from_millis(1500)).await;
    let before = Instant::now();
    let report = broadcaster.shutdown().await;
    assert_eq!(sink.messages(), (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(report.is_complete());
    // It ends when the work does, not when the time is up.
    assert_eq!(before.elapsed().as_millis(), 18_500);
}

#[tokio::test(start_paused = true)]
async fn when_the_time_is_up_the_rest_is_counted() {
    let sink = MemorySink::slow(Duration::from_secs(1));
    let (broadcaster, recorder, running) = start(options(), &sink).await;
    for n in 0..20 {
        record(&recorder, n);
    }
    settle().await;
    let before = Instant::now();
    let report = broadcaster.shutdown_within(Duration::from_millis(4500)).await;
    assert_eq!(before.elapsed().as_millis(), 4500);
    let expected = SinkCounts { written: 4, not_written: 16, ..SinkCounts::default() };
    assert_eq!((report.sinks[0], running.counts()), (expected, expected));
    assert!(!report.is_complete());
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_never_answers_cannot_hold_up_the_end() {
    let sink = MemorySink::new([Answer::Hang]);
    let (broadcaster, recorder, _) = start(options(), &sink).await;
    record(&recorder, 1);
    record(&recorder, 2);
    let before = Instant::now();
    let report = broadcaster.shutdown().await;
    assert_eq!(before.elapsed(), Duration::from_secs(10));
    assert_eq!(report.sinks[0].not_written, 2);
}

#[tokio::test(start_paused = true)]
async fn retries_go_on_while_there_is_time() {
    let sink = MemorySink::new(eofs(1));
    let (broadcaster, recorder, _) = start(options(), &sink).await;
    record(&recorder, 1);
    settle().await;
    assert!(broadcaster.shutdown().await.is_complete());
    assert_eq!(sink.lines(), ["create 1x at 0", "create 1x at 2500"]);
}

#[tokio::test(start_paused = true)]
async fn at_once_ends_waits_and_tries_the_rest_once() {
    let sink = MemorySink::new([eof(), Answer::Ok, eof(), Answer::Ok]);
    let (broadcaster, recorder, _) = start(options(), &sink).await;
    for n in 0..4 {
        record(&recorder, n);
    }
    settle().await;
    let before = Instant::now();
    let report = broadcaster.shutdown_at_once().await;
    assert!(before.elapsed().is_zero());
    // The one that waited for its second try is given up, and so is the third after its first.
    assert_eq!(sink.messages(), ["0", "1", "2", "3"]);
    let expected = SinkCounts { written: 2, not_written: 2, ..SinkCounts::default() };
    assert_eq!(report.sinks[0], expected);
}

#[tokio::test(start_paused = true)]
async fn of_two_shutdowns_the_stricter_counts() {
    let sink = MemorySink::slow(Duration::from_secs(1));
    let (broadcaster, recorder, _) = start(options(), &sink).await;
    for n in 0..20 {
        record(&recorder, n);
    }
    let hour = Duration::from_secs(3600);
    let (long, short) = tokio::join!(broadcaster.shutdown_within(hour), async {
        sleep(Duration::from_millis(100)).await;
        broadcaster.shutdown_within(Duration::from_millis(2000)).await
    });
    assert_eq!(long, short);
    assert_eq!((long.sinks[0].written, long.sinks[0].not_written), (2, 18));
    // A third has nothing to do.
    assert_eq!(broadcaster.shutdown().await, long);
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_after_the_end() {
    let broadcaster = EventBroadcaster::new(options());
    broadcaster.shutdown().await;
    let sink = MemorySink::new([]);
    assert_eq!(broadcaster.start_recording_to_sink(sink).await.err(), Some(Stopped));
    assert_eq!(broadcaster.start_event_watcher(|_| {}).await.err(), Some(Stopped));
    assert_eq!(broadcaster.start_logging(|_| {}).await.err(), Some(Stopped));
    record(&broadcaster.new_recorder(source()), 1);
    assert_eq!(broadcaster.counts().stopped, 1);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_stopped_writes_what_it_has_and_ends() {
    let (stopped, other) = (MemorySink::slow(Duration::from_secs(1)), MemorySink::new([]));
    let (broadcaster, recorder, running) = start(options(), &stopped).await;
    broadcaster.start_recording_to_sink(other.clone()).await.unwrap();
    for n in 0..3 {
        record(&recorder, n);
    }
    settle().await;
    running.stop();
    running.stop();
    record(&recorder, 3);
    running.ended().await;
    assert_eq!(stopped.messages(), ["0", "1", "2"]);
    assert_eq!(running.counts().total(), 3);
    broadcaster.shutdown().await;
    assert_eq!(other.messages(), ["0", "1", "2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_shutdown_the_work_ends_with_the_last_recorder() {
    let sink = MemorySink::new(eofs(2));
    let (broadcaster, recorder, running) = start(options(), &sink).await;
    for n in 0..3 {
        record(&recorder, n);
    }
    drop(broadcaster);
    settle().await;
    record(&recorder, 3);
    drop(recorder);
    running.ended().await;
    assert_eq!((running.counts().written, running.counts().retries), (4, 2));
}
