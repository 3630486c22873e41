//! A flush ends when everything that was recorded before it has a fate everywhere.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tidings_kube::{broadcaster::Stopped, recorder::BroadcasterOptions};
use tokio::time::{Instant, timeout};

use super::support::{Answer, MemorySink, eofs, options, record, start};

#[tokio::test(start_paused = true)]
async fn what_was_recorded_is_written_when_it_ends() {
    let slow = MemorySink::slow(Duration::from_secs(1));
    let (broadcaster, recorder, running) = start(options(), &slow).await;
    for n in 0..5 {
        record(&recorder, n);
    }
    let before = Instant::now();
    let flush = broadcaster.flush();
    record(&recorder, 5);
    assert_eq!(flush.await, Ok(()));
    assert!(running.counts().written >= 5);
    assert!(before.elapsed() >= Duration::from_secs(5));
    broadcaster.flush().await.unwrap();
    assert_eq!(running.counts().written, 6);
    broadcaster.shutdown().await;
    assert_eq!(broadcaster.flush().await, Err(Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_stopped_behind_it_has_heard_everything() {
    let (broadcaster, recorder, _) = start(options(), &MemorySink::new([])).await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let log = {
        let heard = Arc::clone(&heard);
        broadcaster.start_event_watcher(move |event| {
            heard.lock().unwrap().push(event.message.clone().unwrap());
        })
    };
    let log = log.await.unwrap();
    for n in 0..3 {
        record(&recorder, n);
    }
    broadcaster.flush().await.unwrap();
    log.stop();
    record(&recorder, 3);
    log.ended().await;
    assert_eq!(*heard.lock().unwrap(), ["0", "1", "2"]);
    assert_eq!(log.counts().total(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_tried_again_is_waited_for_and_what_was_lost_is_not() {
    let sink = MemorySink::new(eofs(2));
    let queues = BroadcasterOptions { watcher_queue: 2, ..options() };
    let (broadcaster, recorder, running) = start(queues, &sink).await;
    for n in 0..6 {
        record(&recorder, n);
    }
    broadcaster.flush().await.unwrap();
    let counts = running.counts();
    assert_eq!((counts.total(), counts.retries), (6, 2));
    assert!(counts.dropped > 0 && counts.written == 6 - counts.dropped, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_never_answers_is_waited_for_as_long_as_the_caller_likes() {
    let (stuck, other) = (MemorySink::new([Answer::Hang]), MemorySink::new([]));
    let (broadcaster, recorder, _) = start(options(), &stuck).await;
    broadcaster.start_recording_to_sink(other.clone()).await.unwrap();
    record(&recorder, 0);
    for _ in 0..3 {
        assert!(timeout(Duration::from_secs(5), broadcaster.flush()).await.is_err());
    }
    // That ends the waiting and nothing else.
    record(&recorder, 1);
    assert!(timeout(Duration::from_secs(5), broadcaster.flush()).await.is_err());
    assert_eq!(other.messages(), ["0", "1"]);
    let report = broadcaster.shutdown_within(Duration::from_secs(1)).await;
    assert_eq!((report.sinks[0].not_written, report.sinks[1].written), (2, 2));
}
