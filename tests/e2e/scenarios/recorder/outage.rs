//! An API server that goes while something is recorded.
//!
//! Here the recorder writes as an admin, whom the API server knows without looking anything up. To
//! all others it answers 403 for a moment after its start, as long as it has not read its RBAC
//! objects; that is an answer, so the event is given up, as it is by client-go.

use std::time::Duration;

use tidings_kube::recorder::{BroadcasterOptions, EventType, RetryPolicy, SinkCounts};
use tokio::time::sleep;

use super::{Recording, Stand, pod};
use crate::parts::Part as _;
use crate::wait::{until, until_within};

/// An event of its own, about a Pod of its own.
fn record(recording: &Recording, nth: u64) {
    let pod = pod(&format!("web-{nth}"));
    recording.recorder.event(&pod, EventType::Normal, "Started", "started app");
}

/// Each of these events is there, just once.
fn are_there(stand: &Stand, events: u64) {
    let there = stand.events();
    assert!(there.iter().all(|event| event.count == Some(1)));
    let mut pods: Vec<_> =
        there.into_iter().filter_map(|event| event.involved_object.name).collect();
    pods.sort_unstable();
    let mut expected: Vec<_> = (0..events).map(|nth| format!("web-{nth}")).collect();
    expected.sort_unstable();
    assert_eq!(pods, expected);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn nothing_is_lost_while_the_api_server_is_down_for_30_seconds() {
    let mut stand = Stand::set().await;
    let recording = stand.recording_as("admin", BroadcasterOptions::default()).await;
    (0..5).for_each(|nth| record(&recording, nth));
    until("five are written", async || recording.running.counts().written == 5).await;

    stand.cluster.server.kill9();
    for nth in 5..35 {
        record(&recording, nth);
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(recording.running.counts().total(), 5, "the first of them is still being tried");
    stand.cluster.server.launch().await;
    (35..40).for_each(|nth| record(&recording, nth));
    until("each has a fate", async || recording.running.counts().total() == 40).await;
    let report = recording.broadcaster.shutdown().await;
    eprintln!("  after an outage of 30 s: {report:?}");

    assert!(report.is_complete(), "{report:?}");
    let counts = report.sinks[0];
    assert_eq!(
        SinkCounts { retries: 0, ..counts },
        SinkCounts { written: 40, ..Default::default() }
    );
    // Within 10 s the second try, and then one every 10 s: the fourth comes before the 30 s are over.
    assert!((3..12).contains(&counts.retries), "one event was tried again, the others wait for it");
    are_there(&stand, 40);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn an_api_server_killed_while_it_is_written_to_has_each_event_once() {
    const KILLS: u64 = 2;
    const EACH: u64 = 1000;
    let mut stand = Stand::set().await;
    let retry = RetryPolicy::ClientGo { sleep: Duration::from_secs(1) };
    let options = BroadcasterOptions { retry, max_tries: 60, ..BroadcasterOptions::default() };
    let recording = stand.recording_as("admin", options).await;
    for kill in 0..KILLS {
        let before = kill * EACH;
        (before..before + EACH).for_each(|nth| record(&recording, nth));
        let under_way = async || recording.running.counts().written >= before + EACH / 8;
        until("some are written", under_way).await;
        stand.cluster.server.kill9();
        stand.cluster.server.launch().await;
        let all = async || recording.running.counts().total() == before + EACH;
        until_within(Duration::from_mins(1), "each has a fate", all).await;
    }
    let report = recording.broadcaster.shutdown().await;
    eprintln!("  after {KILLS} kills: {report:?}");

    assert!(report.is_complete(), "{report:?}");
    assert!(report.sinks[0].retries >= KILLS, "each kill met a write: {report:?}");
    are_there(&stand, KILLS * EACH);
}
