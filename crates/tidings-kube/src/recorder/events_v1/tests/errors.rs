//! What the errors of a write mean.

use super::server::{Fault, Stage};
use crate::recorder::events_v1::Tally;

const STATUSES: [Fault; 12] = [
    Fault::Status(400, "BadRequest"),
    Fault::Status(401, "Unauthorized"),
    Fault::Status(403, "Forbidden"),
    Fault::Status(409, "Conflict"),
    Fault::Status(409, "AlreadyExists"),
    Fault::Status(410, "Gone"),
    Fault::Status(413, "RequestEntityTooLarge"),
    Fault::Status(422, "Invalid"),
    Fault::Status(429, "TooManyRequests"),
    Fault::Status(500, "InternalError"),
    Fault::Status(503, "ServiceUnavailable"),
    Fault::Status(504, "Timeout"),
];

#[tokio::test(start_paused = true)]
async fn a_create_that_is_refused_is_not_tried_again() {
    let refusals = STATUSES.into_iter().chain([Fault::RequestConstruction]);
    for fault in refusals.chain([Fault::Status(404, "NotFound")]) {
        let stage = Stage::new().await;
        stage.server.faults([fault]);
        stage.happens("web").await;
        stage.at(100).await;
        assert_eq!(stage.server.took(), [(0, "create", 1)], "{fault:?}");
        // It is cached all the same: the next one is a patch of nothing, which becomes a create.
        stage.happens("web").await;
        assert_eq!(stage.server.took(), [(100, "patch", 2), (100, "create", 2)], "{fault:?}");
        assert_eq!(stage.recording.tally().announced, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_is_refused_is_not_tried_again() {
    for fault in STATUSES.into_iter().chain([Fault::RequestConstruction]) {
        if fault == Fault::Status(409, "AlreadyExists") {
            continue;
        }
        let stage = Stage::new().await;
        stage.happens("web").await;
        stage.server.took();
        stage.server.faults([fault]);
        stage.happens("web").await;
        stage.at(100).await;
        assert_eq!(stage.server.took(), [(0, "patch", 2)], "{fault:?}");
        assert_eq!(stage.recording.tally().pending, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_tried_twelve_times_with_10_to_12_and_a_half_seconds_between() {
    for fault in [Fault::Transport, Fault::UnexpectedObject] {
        let stage = Stage::new().await;
        stage.server.state().down = Some(fault);
        stage.happens("web").await;
        stage.at(300).await;
        let calls = std::mem::take(&mut stage.server.state().calls);
        assert_eq!(calls.len(), 12);
        for pair in calls.windows(2) {
            let pause = pair[1].at.saturating_sub(pair[0].at).as_millis();
            assert!((10_000..=12_500).contains(&pause), "{pause}");
        }
        assert_eq!(stage.recording.tally().pending, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_second_try_finds_there_was_written_by_the_first() {
    let stage = Stage::new().await;
    stage.server.faults([Fault::AnswerLost]);
    stage.happens("web").await;
    assert_eq!(stage.recording.tally().pending, 1, "nobody knows yet");
    stage.at(60).await;
    assert_eq!(stage.server.took().len(), 2, "answered AlreadyExists: the end of it");
    let report = stage.broadcaster.shutdown().await;
    let expected = Tally { observed: 1, announced: 1, pending: 0, lost: 0 };
    assert_eq!(report.tally, expected);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_expired_is_created_again_in_the_same_try() {
    let stage = Stage::new().await;
    for second in (0..1700).step_by(300) {
        stage.at(second).await;
        stage.happens("web").await;
    }
    stage.at(1801).await;
    stage.server.state().counts.clear();
    stage.server.took();
    stage.at(3000).await;
    let calls = &stage.server.state().calls;
    let seen: Vec<_> = calls
        .iter()
        .map(|call| (call.op, call.event.metadata.resource_version.as_deref()))
        .collect();
    assert_eq!(seen, [("patch", Some("3")), ("create", None)], "a create carries no version");
}

#[tokio::test(start_paused = true)]
async fn a_create_in_place_of_a_patch_that_finds_the_event_is_patched_again() {
    let stage = Stage::new().await;
    stage.happens("web").await;
    stage.server.took();
    stage.server.faults([Fault::Status(404, "NotFound")]);
    stage.happens("web").await;
    assert_eq!(stage.server.took(), [(0, "patch", 2), (0, "create", 2)]);
    stage.at(13).await;
    let calls = stage.server.took();
    assert_eq!((calls.len(), calls[0].1, calls[0].2), (1, "patch", 2));
    assert_eq!(stage.recording.tally().announced, 2);
}

#[tokio::test(start_paused = true)]
async fn the_second_occurrence_does_not_wait_until_the_first_is_tried_again() {
    let stage = Stage::new().await;
    stage.server.faults([Fault::Transport]);
    stage.happens("web").await;
    stage.at(5).await;
    stage.happens("web").await;
    assert_eq!(stage.server.took(), [(0, "create", 1), (5, "patch", 2), (5, "create", 2)]);
    stage.at(60).await;
    let calls = stage.server.took();
    assert_eq!((calls.len(), calls[0].1), (1, "create"), "answered AlreadyExists: the end of it");
    assert_eq!(stage.recording.tally().announced, 2);
}

#[tokio::test(start_paused = true)]
async fn a_create_that_fails_in_a_refresh_leaves_no_version_behind() {
    let stage = Stage::new().await;
    for second in (0..3700).step_by(300) {
        stage.at(second).await;
        stage.happens("web").await;
        if second == 3300 {
            stage.server.faults([Fault::Status(404, "NotFound"), Fault::Transport]);
        }
    }
    stage.at(5500).await;
    let calls = &stage.server.state().calls;
    let seen: Vec<_> = calls
        .iter()
        .skip(2)
        .map(|call| (call.at.as_secs(), call.op, call.event.metadata.resource_version.as_deref()))
        .collect();
    assert_eq!(
        seen,
        [
            (1800, "patch", None),
            (3600, "patch", Some("3")),
            (3600, "create", None),
            (4320, "patch", None)
        ]
    );
}
