//! The recorder of events.k8s.io/v1.

use k8s_openapi::api::events::v1::Event;
use tidings_kube::recorder::EventType;
use tidings_kube::recorder::events_v1::{
    EventBroadcaster, EventBroadcasterOptions, RecordingOptions, Tally,
};

use super::{RECORDER, Stand, pod};

#[tokio::test]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn five_equal_events_are_one_with_a_series_of_5() {
    let stand = Stand::set().await;
    let broadcaster = EventBroadcaster::new(EventBroadcasterOptions::default());
    let sink = stand.sink(RECORDER).await;
    let options = RecordingOptions::default();
    broadcaster.start_recording_to_sink(sink, options).await.expect("it is not shut down");
    let recorder = broadcaster.new_recorder("example.io/recorder");
    for nth in 1..=5 {
        // The note does not tell events apart.
        let note = format!("back-off {nth}");
        recorder.event(&pod("web-0"), EventType::Warning, "BackOff", "Restarting", note);
    }
    // The first is created and the second makes it a series; the other three are only counted, and
    // written when the series has ended, or the recording has.
    let report = broadcaster.shutdown().await;

    let tally = Tally { observed: 5, announced: 5, pending: 0, lost: 0 };
    assert_eq!((report.tally, report.recorders.dropped()), (tally, 0), "{report:?}");
    let get = ["get", "events.v1.events.k8s.io", "--field-selector=reason=BackOff"];
    let events: Vec<Event> = stand.listed(&get);
    let [event] = &events[..] else { panic!("not one: {events:?}") };
    assert_eq!(event.series.as_ref().map(|series| series.count), Some(5));
    assert_eq!(event.reporting_controller.as_deref(), Some("example.io/recorder"));
    assert_eq!(event.action.as_deref(), Some("Restarting"));
    assert_eq!(event.note.as_deref(), Some("back-off 1"));
}
