//! Repeats, similar events and floods.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};
use tidings_kube::correlator::CorrelatorOptions;
use tidings_kube::recorder::{BroadcasterOptions, EventType, SinkCounts};

use super::{Stand, message, pod};
use crate::wait::until;

#[tokio::test]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn thirty_equal_events_are_one_with_a_count_of_30() {
    let stand = Stand::set().await;
    // The spam filter lets 25 of one object through at once. Who has more to say than that, and
    // wants it counted at once, gives it a larger burst.
    let correlator = || CorrelatorOptions { burst_size: 30, ..CorrelatorOptions::default() };
    let options =
        BroadcasterOptions { correlator: Arc::new(correlator), ..BroadcasterOptions::default() };
    let recording = stand.recording(options).await;
    for _ in 0..30 {
        recording.recorder.event(&pod("web-0"), EventType::Warning, "BackOff", "restarting app");
    }
    let report = recording.broadcaster.shutdown().await;
    eprintln!("{}", stand.kubectl(&["get", "events", "--output=wide"]));

    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.sinks, [SinkCounts { written: 30, ..SinkCounts::default() }]);
    let events = stand.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((events[0].count, message(&events[0])), (Some(30), "restarting app"));
    assert_eq!(events[0].involved_object.name.as_deref(), Some("web-0"));
    assert!(events[0].first_timestamp <= events[0].last_timestamp);
}

#[tokio::test]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn of_twelve_similar_events_nine_stand_alone_and_three_are_combined() {
    let stand = Stand::set().await;
    let recording = stand.recording(BroadcasterOptions::default()).await;
    for nth in 1..=12 {
        let said = format_args!("no route to 10.0.0.{nth}");
        recording.recorder.eventf(&pod("web-0"), EventType::Warning, "Unreachable", said);
    }
    let report = recording.broadcaster.shutdown().await;

    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.sinks, [SinkCounts { written: 12, ..SinkCounts::default() }]);
    let mut seen: Vec<_> =
        stand.events().iter().map(|event| (event.count, message(event).to_owned())).collect();
    seen.sort_unstable_by_key(|(count, _)| *count);
    let combined = seen.pop();
    let last = "(combined from similar events): no route to 10.0.0.12".to_owned();
    assert_eq!(combined, Some((Some(3), last)));
    seen.sort_unstable();
    let mut single: Vec<_> =
        (1..=9).map(|nth| (Some(1), format!("no route to 10.0.0.{nth}"))).collect();
    single.sort_unstable();
    assert_eq!(seen, single);
}

#[tokio::test]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn of_forty_in_a_row_25_are_written_and_the_next_that_passes_counts_all() {
    let stand = Stand::set().await;
    let ahead = Arc::new(AtomicI64::new(0));
    let seconds = Arc::clone(&ahead);
    let clock =
        move || Timestamp::now() + SignedDuration::from_secs(seconds.load(Ordering::Relaxed));
    let options = BroadcasterOptions { clock: Arc::new(clock), ..BroadcasterOptions::default() };
    let recording = stand.recording(options).await;
    let record = || {
        recording.recorder.event(&pod("web-0"), EventType::Warning, "BackOff", "restarting app");
    };
    for _ in 0..40 {
        record();
    }
    until("each has a fate", async || recording.running.counts().total() == 40).await;
    let flood = SinkCounts { written: 25, skipped: 15, ..SinkCounts::default() };
    assert_eq!(recording.running.counts(), flood);
    let counts = || stand.events().iter().map(|event| event.count).collect::<Vec<_>>();
    assert_eq!(counts(), [Some(25)]);

    // A token comes back every 300 s, and who is skipped was counted.
    ahead.store(300, Ordering::Relaxed);
    record();
    let report = recording.broadcaster.shutdown().await;
    assert_eq!(counts(), [Some(41)]);
    assert_eq!(report.sinks, [SinkCounts { written: 26, ..flood }]);
    assert!(report.is_complete(), "what is skipped is held back on purpose: {report:?}");
}
