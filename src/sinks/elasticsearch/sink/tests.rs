use std::time::Duration;

use serde_json::{Value, json};
use tidings_testkit::receiver::{HttpReceiver, Received, Step};

use super::*;
use crate::{
    bridge::{EventFate, FailureClass, Outcome},
    sinks::{Auth, BuildSink as _, HttpOptions, Secret, fixtures::batch},
};

const QUERY: &str = "filter_path=errors%2Citems.*.status%2Citems.*.error.type%2Citems.*.error.reason%2Citems.*.error.caused_by.reason";

fn options(url: String) -> ElasticsearchOptions {
    let index = Templated::parse("k8s-events").unwrap();
    ElasticsearchOptions::new(url, index)
}

async fn send(options: &ElasticsearchOptions, batch: &Batch) -> Outcome {
    options.build().unwrap().send(batch).await
}

/// The lines of a body.
fn lines(request: &Received) -> Vec<Value> {
    let body = std::str::from_utf8(&request.body).unwrap();
    assert!(body.ends_with('\n'), "{body}");
    body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn class_of(fate: &EventFate) -> String {
    match fate {
        EventFate::Failed(failure) => word(failure.class).to_owned(),
        other => format!("{other:?}"),
    }
}

fn word(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Unavailable => "unavailable",
        FailureClass::Throttled => "throttled",
        FailureClass::Timeout => "timeout",
        FailureClass::Misconfigured => "misconfigured",
        FailureClass::Refused(class) => class.as_str(),
    }
}

#[tokio::test]
async fn a_batch_is_pairs_of_lines() {
    let server = HttpReceiver::always("200 OK", "", r#"{"errors":false}"#).unwrap();
    let mut options = options(server.url("http") + "/es/");
    options.nodes[0].auth = Some(Auth::ApiKey(Secret::new("aWQ6a2V5")));
    assert_eq!(send(&options, &batch(1..=2)).await, Outcome::Delivered);
    options.pipeline = Some("geo ip".to_owned());
    options.index = Templated::parse("k8s-{{ day }}").unwrap();
    assert_eq!(send(&options, &batch(7..=7)).await, Outcome::Delivered);

    let received = server.received();
    let [fixed, dated] = received.as_slice() else { panic!() };
    assert_eq!(fixed.line(), format!("POST /es/k8s-events/_bulk?{QUERY} HTTP/1.1"));
    assert_eq!(fixed.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(fixed.header("authorization"), Some("ApiKey aWQ6a2V5"));
    let [first, document, second, _] = &*lines(fixed) else { panic!() };
    assert_eq!(*first, json!({"create": {"_id": "e1-1"}}));
    assert_eq!(*second, json!({"create": {"_id": "e2-2"}}));
    assert_eq!(document["event"]["id"], "e1-1");
    assert_eq!(dated.line(), format!("POST /es/_bulk?{QUERY}&pipeline=geo+ip HTTP/1.1"));
    let index = json!({"create": {"_index": "k8s-2026.11.21", "_id": "e7-7"}});
    assert_eq!(lines(dated)[0], index);
}

#[tokio::test]
async fn an_item_has_the_fate_that_its_status_says() {
    let item = |status: u16, kind: &str, reason: &str| json!({"create": {"status": status, "error": {"type": kind, "reason": reason}}});
    let cases = [
        (json!({"create": {"status": 201}}), "Delivered"),
        (item(409, "version_conflict_engine_exception", "[e1-1]: version conflict"), "Duplicate"),
        (item(400, "mapper_parsing_exception", "failed to parse"), "invalid"),
        (item(400, "illegal_argument_exception", "Limit of total fields"), "invalid"),
        (item(413, "too_large", ""), "too-large"),
        (item(409, "status_exception", "not allocated to any nodes"), "misconfigured"),
        (json!({"create": {"status": 409}}), "Duplicate"),
        (item(429, "es_rejected_execution_exception", "queue"), "throttled"),
        (
            item(
                429,
                "cluster_block_exception",
                "index [a] blocked by: [TOO_MANY_REQUESTS/12/disk",
            ),
            "throttled",
        ),
        (item(503, "unavailable_shards_exception", "primary shard is not active"), "unavailable"),
        (item(500, "exception", ""), "unavailable"),
        (item(401, "security_exception", "unable to authenticate"), "misconfigured"),
        (item(403, "security_exception", "action is unauthorized"), "misconfigured"),
        (
            item(403, "cluster_block_exception", "index [a] blocked by: [FORBIDDEN/8/write"),
            "misconfigured",
        ),
        (item(404, "index_not_found_exception", "no such index [a]"), "misconfigured"),
        (item(400, "index_closed_exception", "closed"), "misconfigured"),
        (
            item(400, "validation_exception", "Validation Failed: 1: this action would add"),
            "misconfigured",
        ),
        (
            item(400, "illegal_argument_exception", "pipeline with id [a] does not exist"),
            "misconfigured",
        ),
        (
            item(400, "illegal_argument_exception", "no write index is defined for alias [a]"),
            "misconfigured",
        ),
        (item(400, "mapper_parsing_exception", "pipeline with id [a] does not exist"), "invalid"),
        (json!({"create": {"status": 200}}), "Delivered"),
        (item(500, "fail_processor_exception", "not wanted"), "invalid"),
        (item(500, "find_match", "Unable to find match for dissect pattern"), "invalid"),
        (json!({"create": {"status": 302}}), "misconfigured"),
        (json!({"create": {"status": 7}}), "unavailable"),
    ];
    let body =
        json!({"errors": true, "items": cases.iter().map(|(item, _)| item).collect::<Vec<_>>()});
    let server = HttpReceiver::always("200 OK", "", &body.to_string()).unwrap();
    let outcome = send(&options(server.url("http")), &batch(1..=cases.len() as u64)).await;
    let Outcome::PerEvent(fates) = outcome else { panic!("{outcome:?}") };
    assert_eq!(fates.len(), cases.len());
    for (fate, (item, expected)) in fates.iter().zip(&cases) {
        assert_eq!(class_of(fate), *expected, "{item}");
    }
    let EventFate::Failed(failure) = &fates[2] else { panic!() };
    let words = "HTTP 400 Bad Request: mapper_parsing_exception: failed to parse";
    assert_eq!(&*failure.reason, words);
}

#[tokio::test]
async fn an_answer_without_items_fails_the_whole_batch() {
    for (status, body, class) in [
        (
            "400 Bad Request",
            r#"{"error":{"type":"parse_exception","reason":"no"},"status":400}"#,
            "invalid",
        ),
        (
            "400 Bad Request",
            r#"{"error":{"type":"illegal_argument_exception","reason":"explicit index in bulk is not allowed"}}"#,
            "misconfigured",
        ),
        ("400 Bad Request", r#"{"error":"no handler found for uri [/es/_bulk]"}"#, "misconfigured"),
        ("400 Bad Request", "Client sent an HTTP request to an HTTPS server.", "misconfigured"),
        ("413 Payload Too Large", "", "too-large"),
        ("429 Too Many Requests", "", "throttled"),
        ("401 Unauthorized", "", "misconfigured"),
        ("403 Forbidden", "", "misconfigured"),
        ("404 Not Found", "", "misconfigured"),
        ("302 Found", "", "misconfigured"),
        ("500 Internal Server Error", "", "unavailable"),
        ("503 Service Unavailable", "", "unavailable"),
        // Another program answers.
        ("200 OK", "<html>", "misconfigured"),
        ("200 OK", "", "misconfigured"),
        ("200 OK", "{}", "misconfigured"),
        ("204 No Content", "", "misconfigured"),
        ("200 OK", r#"{"errors":true,"items":[{"index":{"status":201}}]}"#, "misconfigured"),
        // Not an error, but a string.
        (
            "406 Not Acceptable",
            r#"{"error":"Content-Type header is not supported","status":406}"#,
            "misconfigured",
        ),
    ] {
        let server = HttpReceiver::always(status, "", body).unwrap();
        let outcome = send(&options(server.url("http")), &batch(1..=2)).await;
        let Outcome::Failed(failure) = outcome else { panic!("{status} {body:.50}: {outcome:?}") };
        assert_eq!(word(failure.class), class, "{status} {body:.50}");
    }
}

#[tokio::test]
async fn an_event_that_has_no_item_is_not_taken() {
    let body = r#"{"errors":true,"items":[{"create":{"status":201}}]}"#;
    let server = HttpReceiver::always("200 OK", "", body).unwrap();
    let outcome = send(&options(server.url("http")), &batch(1..=2)).await;
    assert_eq!(outcome, Outcome::PerEvent(vec![EventFate::Delivered]));
}

#[tokio::test]
async fn every_node_is_asked() {
    let good = || HttpReceiver::always("200 OK", "", r#"{"errors":false}"#).unwrap();
    let (a, b) = (good(), good());
    let mut options = options(a.url("http"));
    options.nodes.push(HttpOptions::new(b.url("http")));
    let sink = options.build().unwrap();
    for seq in 1..=4 {
        assert_eq!(sink.send(&batch(seq..=seq)).await, Outcome::Delivered);
    }
    assert_eq!([&a, &b].map(|server| server.received().len()), [2, 2]);
}

#[tokio::test]
async fn an_event_without_an_index_is_refused_and_has_no_destination() {
    let server = HttpReceiver::always("200 OK", "", r#"{"errors":false}"#).unwrap();
    let mut options = options(server.url("http"));
    options.index = Templated::parse("k8s-{{ event.metadata.namespace }}").unwrap();
    let sink = options.build().unwrap();
    let of = |namespace: &str| Record {
        seq: 1,
        envelope: format!(r#"{{"id":"a","event":{{"metadata":{{"namespace":"{namespace}"}}}}}}"#)
            .into(),
    };
    assert_eq!(sink.destination(&of("a")).unwrap().as_deref(), Some("k8s-a"));
    let words = "`index`: expected the name of an index, found one with ',' in it";
    assert_eq!(&*sink.destination(&of("a,b")).unwrap_err(), words);
    let outcome = sink.send(&Batch { records: vec![of("a,b")] }).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.class, FailureClass::Refused(RefusedClass::Unsendable));
    assert_eq!(server.received().len(), 0);
}

/// A truncated answer leaves the fate of the batch unknown.
#[tokio::test]
async fn a_batch_is_sent_again_where_the_answer_is_cut() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{\"errors\":fal".to_vec();
    let server =
        HttpReceiver::recording(move |_, _| vec![Step::Write(head.clone()), Step::Cut]).unwrap();
    let mut options = options(server.url("http"));
    options.nodes[0].timeout = Duration::from_secs(5);
    let outcome = send(&options, &batch(1..=1)).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.class, FailureClass::Unavailable);
}
