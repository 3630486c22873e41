//! Shutdown and cancellation.

use std::{num::NonZeroUsize, time::Duration};

use tokio::time::Instant;

use super::server::{Fault, Stage, settle};
use crate::{
    broadcaster::Stopped,
    recorder::{
        EventType, RetryPolicy,
        events_v1::{RecordingOptions, Tally},
    },
};

#[tokio::test(start_paused = true)]
async fn shutdown_writes_what_is_queued_and_the_counts_that_are_owed() {
    let stage = Stage::new().await;
    for _ in 0..5 {
        stage.happens("web").await;
    }
    stage.server.took();
    let pod = super::server::pod("queued");
    stage.recorder.event(&pod, EventType::Normal, "Evicted", "Evicting", "why");
    let report = stage.broadcaster.shutdown().await;
    assert_eq!(stage.server.took(), [(0, "create", 1), (0, "patch", 5)]);
    assert_eq!(report.tally, Tally { observed: 6, announced: 6, pending: 0, lost: 0 });
    assert_eq!(stage.start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn shutdown_tries_once_more_and_does_not_wait_for_a_sink_that_fails() {
    let stage = Stage::new().await;
    stage.server.state().down = Some(Fault::Transport);
    stage.happens("web").await;
    stage.at(3).await;
    let report = stage.broadcaster.shutdown().await;
    assert_eq!(stage.server.took(), [(0, "create", 1), (3, "create", 1)]);
    assert_eq!(report.tally, Tally { observed: 1, announced: 0, pending: 0, lost: 1 });
    assert_eq!(stage.start.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_at_its_deadline() {
    let stage = Stage::new().await;
    stage.happens("web").await;
    stage.happens("web").await;
    stage.happens("web").await;
    stage.server.state().next.push_back((Duration::from_hours(1), None));
    let asked = Instant::now();
    let report = stage.broadcaster.shutdown_within(Duration::from_secs(4)).await;
    assert_eq!(asked.elapsed(), Duration::from_secs(4));
    assert_eq!(report.tally.announced, 2);
    assert_eq!(report.tally.pending + report.tally.lost, 1);
}

#[tokio::test(start_paused = true)]
async fn after_shutdown_nothing_is_recorded_and_everything_says_so() {
    let stage = Stage::new().await;
    assert_eq!(stage.broadcaster.shutdown().await.tally, Tally::default());
    stage.happens("web").await;
    assert_eq!(stage.broadcaster.counts().stopped, 1);
    let event = k8s_openapi::api::events::v1::Event::default();
    stage.broadcaster.forward(event);
    assert_eq!(stage.broadcaster.start_logging().await.err(), Some(Stopped));
    assert_eq!(
        stage.broadcaster.shutdown().await.recorders.stopped,
        2,
        "a second time is harmless"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_recording_ends_at_once() {
    let stage = Stage::new().await;
    stage.server.state().down = Some(Fault::Transport);
    stage.happens("web").await;
    stage.recording.cancel();
    settle().await;
    stage.happens("web").await;
    stage.at(4000).await;
    assert_eq!(stage.server.took(), [(0, "create", 1)]);
    assert_eq!(stage.recording.tally().pending, 1);
    assert_eq!(stage.broadcaster.shutdown().await.tally.pending, 1);
}

#[tokio::test(start_paused = true)]
async fn numbers_without_sense_do_no_harm() {
    let most = NonZeroUsize::MAX;
    let numbers = [(Duration::ZERO, NonZeroUsize::MIN), (Duration::MAX, most)];
    let policies = |duration| {
        let patient = RetryPolicy::Patient { initial: duration, max: duration };
        [RetryPolicy::ClientGo { sleep: duration }, patient]
    };
    let of = |(duration, number)| policies(duration).map(|retry| (duration, number, retry));
    for (duration, number, retry) in numbers.into_iter().flat_map(of) {
        let stage = Stage::with(RecordingOptions {
            max_tries: 0,
            retry,
            refresh_interval: duration,
            finish_interval: duration,
            max_series: number,
            max_writes: number,
        })
        .await;
        stage.server.faults([Fault::Transport]);
        for pod in ["a", "a", "b"] {
            stage.happens(pod).await;
        }
        let tally = stage.broadcaster.shutdown_within(Duration::MAX).await.tally;
        assert_eq!(tally, Tally { observed: 3, announced: 3, pending: 0, lost: 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_sees_every_event_until_it_is_stopped() {
    let stage = Stage::new().await;
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let handler = {
        let seen = std::sync::Arc::clone(&seen);
        move |event: &k8s_openapi::api::events::v1::Event| {
            seen.lock().unwrap().push(event.regarding.clone().unwrap().name.unwrap());
        }
    };
    let watcher = stage.broadcaster.start_event_watcher(handler).await.unwrap();
    stage.happens("a").await;
    stage.happens("a").await;
    watcher.stop();
    stage.happens("b").await;
    assert_eq!(*seen.lock().unwrap(), ["a", "a"], "repeats too: it is no sink");
}
