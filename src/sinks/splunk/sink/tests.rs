use serde_json::{Value, json};
use tidings_testkit::receiver::{HttpReceiver, Received, Step};

use super::*;
use crate::sinks::{
    BuildSink as _,
    fixtures::{self, batch},
};

const TAKEN: &str = r#"{"text":"Success","code":0}"#;

fn options(url: String) -> SplunkOptions {
    SplunkOptions::new(url, "0f6b9c1e-token")
}

fn acknowledged(url: String, within: Duration) -> SplunkOptions {
    SplunkOptions { acknowledge: Some(within), ..options(url) }
}

async fn send(options: &SplunkOptions, batch: &Batch) -> Outcome {
    options.build().unwrap().send(batch).await
}

fn failure(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

fn objects(request: &Received) -> Vec<Value> {
    let objects = serde_json::Deserializer::from_slice(&request.body).into_iter();
    objects.map(Result::unwrap).collect()
}

/// Answers the requests one after the other, and then as the last one.
fn server(answers: &[(&str, &str, &str)]) -> HttpReceiver {
    let answers: Vec<_> =
        answers.iter().map(|(status, headers, body)| Step::answer(status, headers, body)).collect();
    HttpReceiver::recording(move |n, _| vec![answers[n.min(answers.len() - 1)].clone()]).unwrap()
}

#[tokio::test]
async fn a_batch_is_objects_one_after_another() {
    let server = HttpReceiver::always("200 OK", "", TAKEN).unwrap();
    let mut options = options(server.url("http") + "/hec/");
    assert_eq!(send(&options, &batch(1..=2)).await, Outcome::Delivered);
    options.index = Some(Templated::parse("k8s-{{ event.involvedObject.kind | lower }}").unwrap());
    options.host = Some(Templated::Fixed("prod-eu-1".to_owned()));
    options.format = Format::Event;
    assert_eq!(send(&options, &batch(7..=7)).await, Outcome::Delivered);

    let received = server.received();
    let [plain, templated] = received.as_slice() else { panic!() };
    assert_eq!(plain.line(), "POST /hec/services/collector/event HTTP/1.1");
    assert_eq!(plain.header("authorization"), Some("Splunk 0f6b9c1e-token"));
    assert_eq!(plain.header("x-splunk-request-channel"), None);
    let [first, second] = &*objects(plain) else { panic!() };
    let mut event: Value = serde_json::from_slice(&fixtures::record(1, "m").envelope).unwrap();
    for member in ["observedTime", "replayed"] {
        event.as_object_mut().unwrap().remove(member);
    }
    assert_eq!(
        *first,
        json!({
            "time": 1_795_255_200.0,
            "host": "prod",
            "source": "tidings",
            "sourcetype": "kube:events",
            "event": event,
            "fields": { "event_id": "e1-1", "cluster": "prod" },
        })
    );
    assert_eq!(second["fields"]["event_id"], "e2-2");
    let [one] = &*objects(templated) else { panic!() };
    assert_eq!((&one["index"], &one["host"]), (&json!("k8s-pod"), &json!("prod-eu-1")));
    assert_eq!(one["event"]["metadata"]["annotations"]["tidings.dev/id"], "e7-7");
}

#[tokio::test]
async fn a_code_decides() {
    let said = |code: i64| format!(r#"{{"text":"words","code":{code},"invalid-event-number":0}}"#);
    for (status, body, class) in [
        ("403 Forbidden", said(1), FailureClass::Misconfigured),
        ("401 Unauthorized", said(2), FailureClass::Misconfigured),
        ("401 Unauthorized", said(3), FailureClass::Misconfigured),
        ("403 Forbidden", said(4), FailureClass::Misconfigured),
        ("400 Bad Request", said(5), FailureClass::Refused(RefusedClass::Invalid)),
        ("400 Bad Request", said(6), FailureClass::Refused(RefusedClass::Invalid)),
        ("400 Bad Request", said(7), FailureClass::Misconfigured),
        ("500 Internal Server Error", said(8), FailureClass::Unavailable),
        ("503 Service Unavailable", said(9), FailureClass::Unavailable),
        ("400 Bad Request", said(10), FailureClass::Misconfigured),
        ("400 Bad Request", said(11), FailureClass::Misconfigured),
        ("400 Bad Request", said(12), FailureClass::Refused(RefusedClass::Invalid)),
        ("400 Bad Request", said(13), FailureClass::Refused(RefusedClass::Invalid)),
        ("400 Bad Request", said(14), FailureClass::Misconfigured),
        ("400 Bad Request", said(15), FailureClass::Refused(RefusedClass::Invalid)),
        ("503 Service Unavailable", said(18), FailureClass::Unavailable),
        ("503 Service Unavailable", said(20), FailureClass::Unavailable),
        ("503 Service Unavailable", said(23), FailureClass::Unavailable),
        ("429 Too Many Requests", said(99), FailureClass::Throttled),
        ("413 Content Too Large", String::new(), FailureClass::Refused(RefusedClass::TooLarge)),
        ("503 Service Unavailable", String::new(), FailureClass::Unavailable),
        // Another program answers, or another path of this one.
        ("200 OK", said(17), FailureClass::Misconfigured),
        ("200 OK", "<html>".to_owned(), FailureClass::Misconfigured),
        ("200 OK", String::new(), FailureClass::Misconfigured),
        ("204 No Content", String::new(), FailureClass::Misconfigured),
        ("400 Bad Request", "TLS please".to_owned(), FailureClass::Misconfigured),
        ("404 Not Found", String::new(), FailureClass::Misconfigured),
        ("302 Found", String::new(), FailureClass::Misconfigured),
    ] {
        let server = HttpReceiver::always(status, "", &body).unwrap();
        for options in
            [options(server.url("http")), acknowledged(server.url("http"), Duration::from_secs(60))]
        {
            let failure = failure(send(&options, &batch(1..=2)).await);
            assert_eq!(failure.class, class, "{status} {body}");
        }
    }
    let server = HttpReceiver::always("400 Bad Request", "", &said(6)).unwrap();
    let failure = failure(send(&options(server.url("http")), &batch(1..=1)).await);
    assert_eq!(&*failure.reason, "HTTP 400 Bad Request: words (code 6, event 0)");
}

#[tokio::test]
async fn a_batch_is_delivered_once_it_is_acknowledged_in_its_channel() {
    let taken = r#"{"text":"Success","code":0,"ackId":3}"#;
    let server = server(&[
        ("200 OK", "set-cookie: indexer=b7; Path=/; HttpOnly\r\nset-cookie: other=1\r\n", taken),
        ("200 OK", "", r#"{"acks":{"3":false}}"#),
        ("503 Service Unavailable", "", r#"{"text":"Server is busy","code":9}"#),
        ("200 OK", "set-cookie: other=2\r\n", r#"{"acks":{"3":true}}"#),
        ("200 OK", "", taken),
        ("200 OK", "", r#"{"acks":{"3":true}}"#),
    ]);
    let sink = acknowledged(server.url("http"), Duration::from_secs(60)).build().unwrap();
    assert_eq!(sink.send(&batch(1..=2)).await, Outcome::Delivered);
    assert_eq!(sink.send(&batch(3..=3)).await, Outcome::Delivered);

    let received = server.received();
    let channels: Vec<_> = received
        .iter()
        .map(|request| request.header("x-splunk-request-channel").unwrap())
        .collect();
    assert!(channels.iter().all(|channel| *channel == channels[0]), "{channels:?}");
    assert_eq!(uuid::Uuid::parse_str(channels[0]).unwrap().get_version_num(), 4);
    let paths = received.iter().map(|request| request.line().split(' ').nth(1).unwrap());
    let (event, ack) = ("/services/collector/event", "/services/collector/ack");
    assert_eq!(paths.collect::<Vec<_>>(), [event, ack, ack, ack, event, ack]);
    assert_eq!(received[1].body, br#"{"acks":[3]}"#);
    assert_eq!(received[1].header("authorization"), Some("Splunk 0f6b9c1e-token"));
    let cookies: Vec<_> = received.iter().map(|request| request.header("cookie")).collect();
    let (first, later) = (Some("indexer=b7; other=1"), Some("indexer=b7; other=2"));
    assert_eq!(cookies, [None, first, first, first, later, later]);
}

#[tokio::test]
async fn a_batch_that_is_not_acknowledged_in_time_is_not_delivered_and_its_channel_not_used_again()
{
    let taken = r#"{"text":"Success","code":0,"ackId":0}"#;
    let server = server(&[("200 OK", "", taken), ("200 OK", "", r#"{"acks":{"0":false}}"#)]);
    let sink = acknowledged(server.url("http"), Duration::from_secs(1)).build().unwrap();
    let first = failure(sink.send(&batch(1..=1)).await);
    assert_eq!(first.class, FailureClass::Timeout);
    assert_eq!(&*first.reason, "not acknowledged within 1 s");
    // The last answer is that to a question.
    assert_eq!(failure(sink.send(&batch(1..=1)).await).class, FailureClass::Misconfigured);
    let received = server.received();
    let events = received.iter().filter(|request| request.line().contains("/event"));
    let channels: Vec<_> =
        events.map(|request| request.header("x-splunk-request-channel").unwrap()).collect();
    assert_ne!(channels[0], channels[1]);
}

#[tokio::test]
async fn a_token_without_acknowledgement_is_misconfigured() {
    let server = HttpReceiver::always("200 OK", "", TAKEN).unwrap();
    let options = acknowledged(server.url("http"), Duration::from_secs(60));
    let failure = failure(send(&options, &batch(1..=1)).await);
    assert_eq!(failure.class, FailureClass::Misconfigured);
}

#[tokio::test]
async fn a_failed_question_for_an_acknowledgement_neither_refuses_nor_sends_again_before_its_time()
{
    let taken = r#"{"text":"Success","code":0,"ackId":0}"#;
    for (status, body, class) in [
        ("400 Bad Request", r#"{"text":"ACK is disabled","code":14}"#, FailureClass::Misconfigured),
        (
            "400 Bad Request",
            r#"{"text":"Invalid data format","code":6}"#,
            FailureClass::Misconfigured,
        ),
        ("413 Content Too Large", "", FailureClass::Misconfigured),
        ("404 Not Found", "", FailureClass::Misconfigured),
        ("200 OK", "<html>", FailureClass::Misconfigured),
        ("503 Service Unavailable", "", FailureClass::Timeout),
    ] {
        let server = server(&[("200 OK", "", taken), (status, "", body)]);
        let options = acknowledged(server.url("http"), Duration::from_secs(1));
        let failure = failure(send(&options, &batch(1..=2)).await);
        assert_eq!(failure.class, class, "{status} {body}");
        assert!(failure.reason.starts_with("not acknowledged within 1 s: "), "{}", failure.reason);
        let received = server.received();
        let events = received.iter().filter(|request| request.line().contains("/event"));
        assert_eq!(events.count(), 1);
        assert!(received.len() > 2, "it is asked again");
    }
    // The right answer is heard behind wrong ones.
    let server = server(&[
        ("200 OK", "", taken),
        ("404 Not Found", "", ""),
        ("200 OK", "", r#"{"acks":{"0":true,"x":null}}"#),
    ]);
    let options = acknowledged(server.url("http"), Duration::from_secs(60));
    assert_eq!(send(&options, &batch(1..=1)).await, Outcome::Delivered);
}

#[tokio::test]
async fn batches_under_way_have_channels_of_their_own() {
    let taken = r#"{"text":"Success","code":0,"ackId":0}"#;
    let answers =
        [("200 OK", "", taken), ("200 OK", "", taken), ("200 OK", "", r#"{"acks":{"0":true}}"#)];
    let server = server(&answers);
    let sink = acknowledged(server.url("http"), Duration::from_secs(60)).build().unwrap();
    let (one, other) = (batch(1..=1), batch(2..=2));
    let outcomes = futures_util::join!(sink.send(&one), sink.send(&other));
    assert_eq!(outcomes, (Outcome::Delivered, Outcome::Delivered));
    let received = server.received();
    let channel = |at: usize| received[at].header("x-splunk-request-channel").unwrap();
    assert_ne!(channel(0), channel(1));
}

#[tokio::test]
async fn an_index_and_a_source_type_by_template_are_a_destination() {
    let mut options = options("http://h".to_owned());
    let record = fixtures::record(1, "m");
    let of = |options: &SplunkOptions| options.build().unwrap().destination(&record);
    assert_eq!(of(&options), Ok(None));
    options.host = Some(Templated::parse("{{ event.involvedObject.uid }}").unwrap());
    assert_eq!(of(&options), Ok(None));
    options.index = Some(Templated::parse("k8s-{{ event.involvedObject.uid }}").unwrap());
    options.sourcetype = Templated::parse("kube:{{ change }}").unwrap();
    assert_eq!(of(&options).unwrap().as_deref(), Some("k8s-p1\nkube:created"));
    options.index = Some(Templated::parse("{{ event.metadata.namespace }}").unwrap());
    let words = "`index`: expected the name of an index, found an empty text";
    assert_eq!(&*of(&options).unwrap_err(), words);
    let failure = failure(send(&options, &Batch { records: vec![record.clone()] }).await);
    assert_eq!(failure.class, FailureClass::Refused(RefusedClass::Unsendable));
}
