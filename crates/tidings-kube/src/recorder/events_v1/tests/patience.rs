//! What `RetryPolicy::Patient` adds: an overload is tried again.

use super::server::{Fault, Stage};
use crate::recorder::{RetryPolicy, events_v1::RecordingOptions};

async fn patient() -> Stage {
    let retry = RetryPolicy::PATIENT;
    Stage::with(RecordingOptions { retry, ..RecordingOptions::default() }).await
}

const OVERLOAD: [Fault; 4] = [
    Fault::Status(429, "TooManyRequests"),
    Fault::Status(500, "InternalError"),
    Fault::Status(503, "ServiceUnavailable"),
    Fault::Status(504, "Timeout"),
];

#[tokio::test(start_paused = true)]
async fn an_overload_is_tried_again_with_waits_that_double() {
    for fault in OVERLOAD {
        let stage = patient().await;
        stage.server.faults([fault, fault]);
        stage.happens("web").await;
        stage.at(4).await;
        let calls = std::mem::take(&mut stage.server.state().calls);
        let at: Vec<_> = calls.iter().map(|call| (call.op, call.at.as_millis())).collect();
        let [("create", first), ("create", second), ("create", third)] = at[..] else {
            panic!("{fault:?}: {at:?}")
        };
        assert!(second - first <= 1000 && third - second <= 2000, "{fault:?}: {at:?}");
        assert_eq!(stage.recording.tally().announced, 1);

        // The patch that makes it a series, too.
        stage.server.faults([fault]);
        stage.happens("web").await;
        stage.at(8).await;
        let patches: Vec<_> = stage.server.took().iter().map(|call| (call.1, call.2)).collect();
        assert_eq!(patches, [("patch", 2), ("patch", 2)]);
        assert_eq!(stage.recording.tally().announced, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn it_waits_as_long_as_it_is_asked_to() {
    let stage = patient().await;
    stage.server.faults([Fault::ComeAgainIn(60)]);
    stage.happens("web").await;
    stage.at(59).await;
    assert_eq!(stage.server.took(), [(0, "create", 1)]);
    stage.at(62).await;
    assert_eq!(stage.server.took().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_overload_that_does_not_end_is_given_up_after_twelve_tries() {
    let stage = patient().await;
    stage.server.state().down = Some(OVERLOAD[2]);
    stage.happens("web").await;
    stage.at(350).await;
    assert_eq!(stage.server.took().len(), 12);
    assert_eq!(stage.recording.tally().pending, 1);
}

#[tokio::test(start_paused = true)]
async fn every_other_answer_is_final_as_ever() {
    let final_answers = [
        Fault::Status(400, "BadRequest"),
        Fault::Status(403, "Forbidden"),
        Fault::Status(409, "Conflict"),
        Fault::Status(422, "Invalid"),
        Fault::RequestConstruction,
    ];
    for fault in final_answers {
        let stage = patient().await;
        stage.server.faults([fault]);
        stage.happens("web").await;
        stage.at(100).await;
        assert_eq!(stage.server.took(), [(0, "create", 1)], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_final_count_that_meets_an_overload_comes_with_the_next_round() {
    for (patient, calls, lost) in [(false, 1, 1), (true, 2, 0)] {
        let retry = if patient { RetryPolicy::PATIENT } else { RetryPolicy::default() };
        let stage = Stage::with(RecordingOptions { retry, ..RecordingOptions::default() }).await;
        for _ in 0..3 {
            stage.happens("web").await;
        }
        stage.server.took();
        stage.server.faults([OVERLOAD[2]]);
        stage.at(1500).await;
        assert_eq!(stage.server.took().len(), calls, "patient: {patient}");
        assert_eq!(stage.recording.tally().lost, lost);
    }
}
