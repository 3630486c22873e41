//! client-go's `recordToSink` and `recordEvent`: what is tried, how often, and when.

use std::time::Duration;

use jiff::Timestamp;
use kube::core::{Status, response::StatusCause};
use tidings_kube::recorder::{EventType, RetryPolicy, SinkError};
use tokio::time::sleep;

use super::support::{Answer, MemorySink, eof, eofs, options, pod, record, start, status};

const PATIENT: RetryPolicy = RetryPolicy::PATIENT;

#[tokio::test(start_paused = true)]
async fn a_repeat_is_a_patch_of_what_the_server_stored() {
    let sink = MemorySink::new([]);
    let (broadcaster, recorder, _) = start(options(), &sink).await;
    for _ in 0..3 {
        recorder.event(&pod("web"), EventType::Warning, "BackOff", "again");
    }
    let report = broadcaster.shutdown().await;
    assert_eq!(sink.lines(), ["create 1x at 0", "patch 2x at 0", "patch 3x at 0"]);
    let calls = sink.calls();
    assert_eq!(calls[0].event.metadata.resource_version, None);
    assert_eq!(calls[2].event.metadata.resource_version.as_deref(), Some("2"));
    assert_eq!(calls[2].event.metadata.name, calls[0].event.metadata.name);
    assert!(report.is_complete());
    assert_eq!((report.sinks[0].written, report.sinks[0].retries), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn what_has_happened_earlier_has_its_own_time() {
    let sink = MemorySink::new([]);
    let (broadcaster, recorder, _) = start(options(), &sink).await;
    let earlier: Timestamp = "2020-01-02T03:04:05Z".parse().unwrap();
    let message = format_args!("it booted");
    recorder.past_eventf(&pod("web"), earlier, EventType::Normal, "Booted", message);
    broadcaster.shutdown().await;
    let event = sink.calls()[0].event.clone();
    let times = [event.first_timestamp, event.last_timestamp].map(|time| time.unwrap().0);
    assert_eq!((times, event.message.as_deref()), ([earlier; 2], Some("it booted")));
    let nanos = event.metadata.name.unwrap().rsplit('.').next().unwrap().to_owned();
    assert!(i64::from_str_radix(&nanos, 16).unwrap() > earlier.as_nanosecond() as i64);
}

#[tokio::test(start_paused = true)]
async fn twelve_tries_a_part_of_the_sleep_apart_and_then_all_of_it() {
    let sink = MemorySink::new(eofs(12));
    let (_broadcaster, recorder, running) = start(options(), &sink).await;
    record(&recorder, 1);
    record(&recorder, 2);
    sleep(Duration::from_secs(200)).await;
    let at: Vec<u128> = sink.calls().iter().map(|call| call.at.as_millis()).collect();
    let mut expected: Vec<u128> = vec![0];
    expected.extend((0..11).map(|n| 2500 + n * 10_000));
    // The next one's first try.
    expected.push(102_500);
    assert_eq!(at, expected);
    let counts = running.counts();
    assert_eq!((counts.given_up, counts.written, counts.retries), (1, 1, 11));
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_the_server_is_final() {
    let codes = [400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 503, 504];
    let sink = MemorySink::new(codes.map(status));
    let (broadcaster, recorder, _) = start(options(), &sink).await;
    for n in 0..=codes.len() {
        record(&recorder, n);
    }
    let report = broadcaster.shutdown().await;
    assert_eq!(sink.calls().len(), 13);
    assert!(sink.calls().iter().all(|call| call.at.is_zero()));
    assert_eq!((report.sinks[0].given_up, report.sinks[0].written), (12, 1));
}

#[tokio::test(start_paused = true)]
async fn the_class_is_that_of_the_outermost_error() {
    let wrapped = SinkError::status(Status { code: 409, ..Status::default() });
    let errors = [
        SinkError::Other(Box::new(wrapped)),
        SinkError::UnexpectedObject("a Pod".into()),
        SinkError::RequestConstruction("no".into()),
    ];
    let sink = MemorySink::new(errors.map(Answer::Error));
    let (_broadcaster, recorder, running) = start(options(), &sink).await;
    record(&recorder, 1);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(sink.lines(), ["create 1x at 0", "create 1x at 2500", "create 1x at 12500"]);
    assert_eq!(running.counts().given_up, 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_forgot_is_created_in_the_same_try() {
    let answers = [Answer::Ok, status(404), eof(), status(404), Answer::Ok];
    let sink = MemorySink::new(answers);
    let (_broadcaster, recorder, running) = start(options(), &sink).await;
    for _ in 0..2 {
        recorder.event(&pod("web"), EventType::Normal, "Tested", "again");
    }
    sleep(Duration::from_secs(60)).await;
    let expected = [
        "create 1x at 0",
        "patch 2x at 0",
        "create 2x at 0",
        // The next try patches again.
        "patch 2x at 2500",
        "create 2x at 2500",
    ];
    assert_eq!(sink.lines(), expected);
    let versions = sink.calls().into_iter().map(|call| call.event.metadata.resource_version);
    assert_eq!(versions.collect::<Vec<_>>(), [None, Some("1".into()), None, None, None]);
    assert_eq!(running.counts().written, 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_given_up_is_patched_and_then_created_when_it_repeats() {
    let sink = MemorySink::new([status(403), status(404)]);
    let (broadcaster, recorder, _) = start(options(), &sink).await;
    for _ in 0..2 {
        recorder.event(&pod("web"), EventType::Normal, "Tested", "again");
    }
    broadcaster.shutdown().await;
    assert_eq!(sink.lines(), ["create 1x at 0", "patch 2x at 0", "create 2x at 0"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_brings_a_count_is_patched_first() {
    let sink = MemorySink::new([status(404)]);
    let (broadcaster, recorder, _) = start(options(), &sink).await;
    let mut event = {
        let (fake, mut events) = tidings_kube::recorder::fake_recorder(1);
        record(&fake, 1);
        events.events().remove(0)
    };
    event.count = Some(5);
    broadcaster.forward(event);
    broadcaster.shutdown().await;
    assert_eq!(sink.lines(), ["patch 5x at 0", "create 5x at 0"]);
    assert_eq!(recorder.counts().recorded, 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_second_try_finds_there_was_written_by_the_first() {
    let exists = || {
        let reason = "AlreadyExists".to_owned();
        Answer::Error(SinkError::status(Status { code: 409, reason, ..Status::default() }))
    };
    let sink = MemorySink::new([eof(), exists(), exists()]);
    let (_broadcaster, recorder, running) = start(options(), &sink).await;
    record(&recorder, 1);
    record(&recorder, 2);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(sink.lines(), ["create 1x at 0", "create 1x at 2500", "create 1x at 2500"]);
    let counts = running.counts();
    // At the first try it is somebody else's.
    assert_eq!((counts.written, counts.given_up, counts.retries), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn spam_is_held_back_without_a_call() {
    let sink = MemorySink::new([]);
    let (broadcaster, recorder, _) = start(options(), &sink).await;
    for _ in 0..30 {
        recorder.event(&pod("web"), EventType::Normal, "Tested", "again");
    }
    let report = broadcaster.shutdown().await;
    assert_eq!(sink.calls().len(), 25);
    assert_eq!((report.sinks[0].written, report.sinks[0].skipped), (25, 5));
    assert!(report.is_complete());
}

#[tokio::test(start_paused = true)]
async fn the_patient_policy_waits_as_long_as_it_is_asked() {
    let asks = SinkError::Status {
        status: Box::new(Status { code: 429, ..Status::default() }),
        retry_after: Some(Duration::from_secs(7)),
    };
    let sink = MemorySink::new([Answer::Error(asks), status(503), eof(), status(422)]);
    let (_broadcaster, recorder, running) =
        start(tidings_kube::recorder::BroadcasterOptions { retry: PATIENT, ..options() }, &sink)
            .await;
    record(&recorder, 1);
    sleep(Duration::from_secs(60)).await;
    let at: Vec<u128> = sink.calls().iter().map(|call| call.at.as_millis()).collect();
    // 7 s and a quarter of 1 s; a quarter of 2 s; a quarter of 4 s.
    assert_eq!(at, [0, 7250, 7750, 8750]);
    assert_eq!(running.counts().given_up, 1);
}

#[test]
fn a_status_says_what_it_is() {
    let cause = |reason: &str| StatusCause {
        reason: reason.into(),
        message: String::new(),
        field: String::new(),
    };
    let details = serde_json::json!({"retryAfterSeconds": 3});
    let mut details: kube::core::response::StatusDetails = serde_json::from_value(details).unwrap();
    details.causes = vec![cause("FieldValueInvalid"), cause("NamespaceTerminating")];
    let forbidden = Status { code: 403, details: Some(details), ..Status::default() };
    let error = SinkError::status(forbidden);
    assert!(error.is_namespace_terminating() && !error.is_not_found());
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));

    // The reason alone makes it one, the code alone does not.
    let exists = Status { reason: "AlreadyExists".into(), ..Status::default() };
    assert!(SinkError::status(exists).is_already_exists());
    assert!(!SinkError::status(Status { code: 409, ..Status::default() }).is_already_exists());
    // And here the other way round.
    let missing = Status { reason: "NotFound".into(), ..Status::default() };
    assert!(!SinkError::status(missing).is_not_found());
}
