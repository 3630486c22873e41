//! From the first occurrence to the final count.

use std::{num::NonZeroUsize, time::Duration};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use serde_json::{Value, json};

use super::server::{Fault, Stage, pod, settle};
use crate::recorder::{
    EventType,
    events_v1::{RecordingOptions, Tally},
};

#[tokio::test(start_paused = true)]
async fn an_event_says_who_what_and_when() {
    let stage = Stage::new().await;
    stage.at(3).await;
    let node = ObjectReference { kind: Some("Node".into()), name: Some("n1".into()), ..pod("") };
    stage.recorder.eventf(&pod("web"), &node, EventType::Warning, "Evicted", "Evicting", "why");
    settle().await;
    let event = serde_json::to_value(&stage.server.state().calls[0].event).unwrap();
    let name = event["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web.d234cd0"), "{name}");
    let expected = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": name, "namespace": "shop"},
        "eventTime": "2000-01-01T00:00:03.000000Z",
        "reportingController": "example.io/scheduler",
        "reportingInstance": "example.io/scheduler-host1",
        "type": "Warning", "reason": "Evicted", "action": "Evicting", "note": "why",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": "shop"},
        "related": {"apiVersion": "v1", "kind": "Node", "name": "n1", "namespace": "shop"},
    });
    assert_eq!(event, expected);
}

#[tokio::test(start_paused = true)]
async fn without_an_object_there_is_no_event_but_without_a_related_one_there_is() {
    let stage = Stage::new().await;
    stage.recorder.event(&None::<Pod>, EventType::Normal, "Evicted", "Evicting", "why");
    let node = ObjectReference { kind: Some("Node".into()), ..ObjectReference::default() };
    stage.recorder.eventf(&node, &None::<Pod>, EventType::Normal, "Ready", "Starting", "");
    settle().await;
    assert_eq!(stage.broadcaster.counts().no_reference, 1);
    let calls = &stage.server.state().calls;
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].event.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(calls[0].event.related, None);
}

#[tokio::test(start_paused = true)]
async fn the_first_is_created_the_second_patched_and_the_rest_counted() {
    let stage = Stage::new().await;
    for second in [10, 20, 30, 40] {
        stage.at(second).await;
        stage.happens("web").await;
    }
    assert_eq!(stage.server.took(), [(10, "create", 1), (20, "patch", 2)]);
    assert_eq!(stage.recording.tally(), Tally { observed: 4, announced: 2, pending: 2, lost: 0 });
    // The last was at 40 s. At 360 s that is less than 6 minutes ago.
    stage.at(719).await;
    assert_eq!((stage.server.took(), stage.recording.tracked()), (vec![], 1));
    stage.at(721).await;
    assert_eq!((stage.server.took(), stage.recording.tracked()), (vec![(720, "patch", 4)], 0));
    assert_eq!(stage.recording.tally().announced, 4);
    stage.happens("web").await;
    assert_eq!(stage.server.took(), [(721, "create", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_single_event_is_forgotten_without_a_word() {
    let stage = Stage::new().await;
    stage.happens("web").await;
    // Exactly 6 minutes old is not older than that; but the event is some nanoseconds younger.
    stage.at(361).await;
    assert_eq!(stage.recording.tracked(), 1);
    stage.at(721).await;
    assert_eq!((stage.server.took().len(), stage.recording.tracked()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_live_series_is_refreshed_and_takes_over_what_the_server_answers() {
    let stage = Stage::new().await;
    stage.happens("single").await;
    let mut resource_versions = Vec::new();
    for second in (0..3700).step_by(200) {
        stage.at(second + 50).await;
        stage.happens("web").await;
    }
    for call in &stage.server.state().calls {
        resource_versions.push(call.event.metadata.resource_version.clone());
    }
    assert_eq!(
        stage.server.took(),
        [
            (0, "create", 1),
            (50, "create", 1),
            (250, "patch", 2),
            (1800, "patch", 9),
            (3600, "patch", 18)
        ]
    );
    // Only the answer of a refresh is taken over, not that of a create or of the first patch.
    assert_eq!(resource_versions, [None, None, None, None, Some("4".into())]);
}

#[tokio::test(start_paused = true)]
async fn each_part_of_the_key_makes_a_series_of_its_own_and_the_note_does_not() {
    let base = json!({
        "metadata": {"name": "e", "namespace": "shop"}, "type": "Normal", "reason": "R",
        "action": "A", "reportingController": "c", "reportingInstance": "i", "note": "n",
        "regarding": {"kind": "Pod", "name": "web"}, "eventTime": "2000-01-01T00:00:00.000000Z"
    });
    let mut others = Vec::new();
    for part in ["type", "reason", "action", "reportingController", "reportingInstance"] {
        others.push((format!("/{part}"), part.to_owned()));
    }
    for part in ["kind", "name", "namespace", "uid", "apiVersion", "resourceVersion", "fieldPath"] {
        others.push(("/regarding".to_owned(), part.to_owned()));
        others.push(("/related".to_owned(), part.to_owned()));
    }
    let stage = Stage::new().await;
    let publish = async |event: &Value| {
        let mut event = event.clone();
        event["metadata"]["name"] = json!(format!("e{}", stage.recording.tally().observed));
        stage.broadcaster.forward(serde_json::from_value(event).unwrap());
        settle().await;
        stage.server.took()[0].1
    };
    assert_eq!(publish(&base).await, "create");
    for (at, part) in others {
        let mut other = base.clone();
        if at == format!("/{part}") {
            other[&part] = json!("other");
        } else {
            other[at.trim_start_matches('/')][&part] = json!("other");
        }
        assert_eq!(publish(&other).await, "create", "{at} {part}");
    }
    let mut same = base.clone();
    same["note"] = json!("another note");
    same["related"] = json!({"name": ""});
    assert_eq!(publish(&same).await, "patch");
}

#[tokio::test(start_paused = true)]
async fn what_is_one_too_many_says_farewell() {
    let two = NonZeroUsize::new(2).unwrap();
    let stage =
        Stage::with(RecordingOptions { max_series: two, ..RecordingOptions::default() }).await;
    for pod in ["old", "old", "old", "quiet", "old", "new"] {
        stage.happens(pod).await;
    }
    // The one that occurred least recently makes room; it owes nothing.
    let (create, patch) = ((0, "create", 1), (0, "patch", 2));
    assert_eq!(stage.server.took(), [create, patch, create, create]);
    stage.happens("newer").await;
    assert_eq!(stage.server.took(), [(0, "patch", 4), create], "the count that nobody knew");
    assert_eq!(stage.recording.tracked(), 2);
    assert_eq!(stage.recording.tally(), Tally { observed: 7, announced: 7, pending: 0, lost: 0 });
}

#[tokio::test(start_paused = true)]
async fn counting_goes_on_while_the_server_takes_its_time() {
    let stage = Stage::new().await;
    for second in [0, 300, 600, 900, 1200, 1500] {
        stage.at(second).await;
        stage.happens("web").await;
    }
    stage.server.took();
    // The refresh at 1800 s takes 100 s.
    stage.server.state().next.push_back((Duration::from_secs(100), None));
    stage.at(1810).await;
    for _ in 0..3 {
        stage.happens("web").await;
    }
    stage.happens("other").await;
    assert_eq!(stage.recording.tally().observed, 10, "nothing waits for the answer");
    stage.at(2000).await;
    assert_eq!(stage.server.took(), [(1800, "patch", 6), (1810, "create", 1)]);
    // The answer says 6, and 3 were counted since.
    stage.at(3000).await;
    assert_eq!(stage.server.took(), [(2260, "patch", 9)]);
}

#[tokio::test(start_paused = true)]
async fn the_writes_of_a_series_come_one_after_the_other() {
    let stage = Stage::new().await;
    stage.server.state().next.push_back((Duration::from_secs(30), None));
    stage.happens("web").await;
    stage.happens("web").await;
    stage.happens("other").await;
    assert_eq!(stage.server.took(), [(0, "create", 1), (0, "create", 1)]);
    stage.at(60).await;
    assert_eq!(stage.server.took(), [(30, "patch", 2)], "not before the create was answered");
}

#[tokio::test(start_paused = true)]
async fn what_happens_while_the_final_count_is_written_keeps_the_series_alive() {
    let stage = Stage::new().await;
    stage.happens("web").await;
    stage.happens("web").await;
    stage.server.took();
    stage.server.state().next.push_back((Duration::from_secs(10), None));
    stage.at(725).await;
    stage.happens("web").await;
    stage.at(1500).await;
    assert_eq!(stage.server.took(), [(720, "patch", 2), (1090, "patch", 3)]);
    assert_eq!(stage.recording.tracked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_final_count_that_cannot_be_written_is_tried_again_and_a_refused_one_is_lost() {
    for (fault, tracked, lost) in
        [(Fault::Transport, 1, 0), (Fault::Status(403, "Forbidden"), 0, 1)]
    {
        let stage = Stage::new().await;
        for _ in 0..3 {
            stage.happens("web").await;
        }
        stage.server.took();
        stage.server.faults([fault]);
        stage.at(721).await;
        assert_eq!(stage.server.took(), [(720, "patch", 3)]);
        assert_eq!((stage.recording.tracked(), stage.recording.tally().lost), (tracked, lost));
        stage.at(1081).await;
        assert_eq!(stage.server.took().len(), tracked);
    }
}
