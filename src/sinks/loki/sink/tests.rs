use std::time::Duration;

use serde_json::{Value, json};
use tidings_testkit::receiver::{HttpReceiver, Received, Step};

use super::*;
use crate::{
    bridge::EventFate,
    sinks::{
        BuildSink as _,
        fixtures::{self, batch},
    },
};

fn templates<const N: usize>(labels: [(&str, &str); N]) -> BTreeMap<String, Templated> {
    let parsed = labels.map(|(name, text)| (name.to_owned(), Templated::parse(text).unwrap()));
    parsed.into()
}

/// An event of a namespace, so many minutes old.
fn record(seq: u64, namespace: &str, minutes: i64) -> Record {
    let at = |minutes| (Timestamp::now() - SignedDuration::from_mins(minutes)).to_string();
    let envelope = json!({
        "id": format!("e{seq}-{seq}"), "cluster": { "name": "prod" }, "change": "created", "time": at(minutes),
        "observedTime": at(0), "occurrences": 1, "delta": 1, "replayed": false, "truncated": { "message": 5, "reason": 1 },
        "event": {
            "metadata": { "namespace": namespace, "creationTimestamp": at(minutes.max(0)) },
            "involvedObject": { "kind": "Pod", "name": "web-0", "uid": "p1" },
            "reason": "BackOff", "type": "Warning",
        },
    });
    Record { seq, envelope: envelope.to_string().into() }
}

async fn send(options: &LokiOptions, batch: &Batch) -> Outcome {
    options.build().unwrap().send(batch).await
}

fn failure(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

/// The one stream of a request.
fn stream(request: &Received) -> Value {
    let mut body: Value = serde_json::from_slice(&request.body).unwrap();
    let [stream] = body["streams"].as_array_mut().unwrap().as_mut_slice() else { panic!() };
    stream.take()
}

#[tokio::test]
async fn each_stream_of_a_batch_gets_a_request_of_its_own() {
    let server = HttpReceiver::always("204 No Content", "", "").unwrap();
    let options = LokiOptions::new(server.url("http") + "/logs/");
    let records = vec![record(1, "shop", 5), record(2, "", 5), record(3, "shop", 6)];
    let sent = Batch { records };
    let taken = Outcome::PerEvent(vec![EventFate::Delivered; 3]);
    assert_eq!(send(&options, &sent).await, taken);

    let received = server.received();
    let mut streams: Vec<_> = received.iter().map(stream).collect();
    streams.sort_by_key(|stream| stream["stream"].to_string());
    let [shop, no_namespace] = streams.as_slice() else { panic!("{streams:?}") };
    assert_eq!(received[0].line(), "POST /logs/loki/api/v1/push HTTP/1.1");
    assert_eq!(received[0].header("x-scope-orgid"), None);
    let mut labels =
        json!({ "cluster": "prod", "kind": "Pod", "type": "Warning", "service_name": "tidings" });
    assert_eq!(no_namespace["stream"], labels);
    labels["namespace"] = "shop".into();
    assert_eq!(shop["stream"], labels);
    let [entry, third] = shop["values"].as_array().unwrap().as_slice() else { panic!() };
    assert_eq!(third[2]["event_id"], "e3-3");
    let mut envelope: Value = serde_json::from_slice(&sent.records[0].envelope).unwrap();
    let time: Timestamp = envelope["time"].as_str().unwrap().parse().unwrap();
    assert_eq!(entry[0], time.as_nanosecond().to_string());
    for member in ["observedTime", "replayed"] {
        envelope.as_object_mut().unwrap().remove(member);
    }
    let line: Value = serde_json::from_str(entry[1].as_str().unwrap()).unwrap();
    assert_eq!(line, envelope);
    assert_eq!(
        entry[2],
        json!({
            "event_id": "e1-1", "name": "web-0", "uid": "p1", "reason": "BackOff",
            "truncated": "message=5,reason=1",
        })
    );
}

#[tokio::test]
async fn labels_and_tenant_are_those_of_the_options() {
    let server = HttpReceiver::always("204 No Content", "", "").unwrap();
    let mut options = LokiOptions::new(server.url("http"));
    let none = "{{ event.action }}";
    let labels = [("env", "test"), ("ns", "{{ event.metadata.namespace }}"), ("none", none)];
    let mut labels = templates(labels);
    labels.insert("service_name".to_owned(), Templated::parse(none).unwrap());
    options.labels = Some(labels);
    options.tenant = Some(Templated::Fixed("team-a".to_owned()));
    options.format = Format::Event;
    let sent = Batch { records: vec![record(1, "shop", 5)] };
    assert_eq!(send(&options, &sent).await, Outcome::Delivered);

    let received = server.received();
    assert_eq!(received[0].header("x-scope-orgid"), Some("team-a"));
    let shop = stream(&received[0]);
    assert_eq!(shop["stream"], json!({ "env": "test", "ns": "shop", "service_name": "tidings" }));
    let line: Value = serde_json::from_str(shop["values"][0][1].as_str().unwrap()).unwrap();
    assert_eq!(line["metadata"]["annotations"]["tidings.dev/id"], "e1-1");
}

#[tokio::test]
async fn an_envelope_is_the_same_line_when_it_is_read_again() {
    let server = HttpReceiver::always("204 No Content", "", "").unwrap();
    let first = fixtures::record(1, "m");
    let text = String::from_utf8(first.envelope.to_vec()).unwrap();
    let text =
        text.replace("10:00:01Z", "11:11:11Z").replace(r#""replayed":false"#, r#""replayed":true"#);
    let again =
        text.replace(r#","event""#, r#","correlation":{"action":"create","count":1},"event""#);
    for envelope in [first.envelope.clone(), again.into()] {
        let records = vec![Record { envelope, ..first.clone() }];
        let options = LokiOptions::new(server.url("http"));
        assert_eq!(send(&options, &Batch { records }).await, Outcome::Delivered);
    }
    let received = server.received();
    assert_eq!(received[0].body, received[1].body);
}

#[tokio::test]
async fn an_entry_is_in_the_live_stream_until_it_is_50_minutes_old() {
    let server = HttpReceiver::always("204 No Content", "", "").unwrap();
    for minutes in [0, 45, 55, 60 * 24 * 40, -4, -20] {
        let sent = Batch { records: vec![record(1, "shop", minutes)] };
        assert_eq!(send(&LokiOptions::new(server.url("http")), &sent).await, Outcome::Delivered);
        let received = server.received();
        let stream = stream(received.last().unwrap());
        let nanoseconds: i128 = stream["values"][0][0].as_str().unwrap().parse().unwrap();
        let time = Timestamp::from_nanosecond(nanoseconds).unwrap();
        let hour = (minutes > 50).then(|| time.strftime("%Y-%m-%dT%H").to_string());
        assert_eq!(stream["stream"].get("replayed").and_then(Value::as_str), hour.as_deref());
    }
}

#[test]
fn a_time_that_loki_would_refuse_is_none() {
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let now = at("2026-11-21T10:00:00Z");
    let of = |time: &str, created: &str| {
        let envelope = json!({
            "id": "e", "cluster": {}, "change": "updated", "time": time, "observedTime": "", "occurrences": 2, "delta": 1,
            "replayed": false, "event": { "metadata": { "creationTimestamp": created } },
        });
        let record = Record { seq: 1, envelope: envelope.to_string().into() };
        Event::of(&record).unwrap().time(now).to_string()
    };
    // An Event that goes on for more than a month.
    assert_eq!(of("2026-11-21T09:59:00Z", "2026-09-01T00:00:00Z"), "2026-11-21T09:59:00Z");
    assert_eq!(of("2026-11-21T08:00:00Z", "2026-11-21T09:59:00Z"), "2026-11-21T09:59:00Z");
    assert_eq!(of("9999-11-21T08:00:00Z", "2026-11-21T09:59:00Z"), "2026-11-21T09:59:00Z");
    // The clock of the API server is ahead.
    assert_eq!(of("2026-11-21T11:00:00Z", "2026-11-21T11:00:00Z"), "2026-11-21T10:00:00Z");
    assert_eq!(of("0001-01-01T00:00:00Z", ""), "2026-11-21T10:00:00Z");
}

#[tokio::test]
async fn values_that_loki_would_refuse_are_made_fit() {
    let server = HttpReceiver::always("204 No Content", "", "").unwrap();
    let mut sent = batch(1..=1);
    let envelope = String::from_utf8(sent.records[0].envelope.to_vec()).unwrap();
    let long = format!("\u{fffd}{}", "é".repeat(1500));
    sent.records[0].envelope =
        envelope.replace("Pod", &long).replace(r#""p1""#, &format!(r#""{long}""#)).into();
    assert_eq!(send(&LokiOptions::new(server.url("http")), &sent).await, Outcome::Delivered);
    let received = server.received();
    let stream = stream(&received[0]);
    let cut = format!("?{}", "é".repeat(1022));
    assert_eq!(
        (&stream["stream"]["kind"], &stream["values"][0][2]["uid"]),
        (&json!(cut), &json!(cut))
    );
    assert!(stream["values"][0][1].as_str().unwrap().contains(&long));
}

#[tokio::test]
async fn every_answer_has_its_outcome() {
    use FailureClass::{Misconfigured, Refused, Throttled, Unavailable};
    const STREAM: &str =
        r#"{kind="' missing required labels 'a' or contact your Loki administrator to enable it"}"#;
    let (invalid, too_large) = (Refused(RefusedClass::Invalid), Refused(RefusedClass::TooLarge));
    for (status, body, class) in [
        ("400 Bad Request", format!("entry for stream '{STREAM}' has timestamp too old: 2026-11-01T00:00:00Z, oldest acceptable timestamp is: 2026-11-21T00:00:00Z"), invalid),
        ("400 Bad Request", format!("max entry size '262144' bytes exceeded for stream '{STREAM}' while adding an entry with length '300000' bytes"), invalid),
        ("400 Bad Request", format!("stream '{STREAM}' has label value too long: 'x'"), invalid),
        ("400 Bad Request", "entry with timestamp 2026-11-21 10:00:00 +0000 UTC ignored, reason: 'entry too far behind', \nuser 'fake', total ignored: 1 out of 2".to_owned(), invalid),
        // An event without a kind.
        ("400 Bad Request", "missing required labels 'kind' for user 'fake' for stream '{}' (policy: '')".to_owned(), invalid),
        // The limits of the tenant, which a person has to change, or the labels.
        ("400 Bad Request", format!("stream '{STREAM}' includes structured metadata, but this feature is disallowed. Please see `limits_config.allow_structured_metadata` or contact your Loki administrator to enable it\n"), Misconfigured),
        ("400 Bad Request", format!("3 errors like: missing required labels 'team' for user 'fake' for stream '{STREAM}' (policy: '')"), Misconfigured),
        ("400 Bad Request", format!("entry for stream '{STREAM}' has 16 label names; limit 15"), Misconfigured),
        // Another program answers.
        ("400 Bad Request", "Client sent an HTTP request to an HTTPS server.\n".to_owned(), Misconfigured),
        ("400 Bad Request", "<html>The plain HTTP request was sent to HTTPS port</html>".to_owned(), Misconfigured),
        ("413 Content Too Large", "request body too large".to_owned(), too_large),
        ("401 Unauthorized", "no org id".to_owned(), Misconfigured),
        ("403 Forbidden", String::new(), Misconfigured),
        ("404 Not Found", String::new(), Misconfigured),
        ("302 Found", String::new(), Misconfigured),
        ("429 Too Many Requests", "Maximum active stream limit exceeded".to_owned(), Throttled),
        ("500 Internal Server Error", String::new(), Unavailable),
        ("503 Service Unavailable", "Ingester is shutting down".to_owned(), Unavailable),
        // A blocked tenant: what was sent is gone.
        ("260 Blocked", "ingestion blocked for user 'fake'".to_owned(), Misconfigured),
        ("202 Accepted", String::new(), Misconfigured),
    ] {
        let server = HttpReceiver::always(status, "", &body).unwrap();
        let options = LokiOptions::new(server.url("http"));
        assert_eq!(failure(send(&options, &batch(1..=2)).await).class, class, "{status} {body}");
    }
    let server = HttpReceiver::always("260 Blocked", "", "ingestion blocked until 2030").unwrap();
    let blocked = send(&LokiOptions::new(server.url("http")), &batch(1..=2)).await;
    assert!(failure(blocked).reason.ends_with(": ingestion blocked until 2030"));
    for status in ["204 No Content", "200 OK"] {
        let server = HttpReceiver::always(status, "", "").unwrap();
        let options = LokiOptions::new(server.url("http"));
        assert_eq!(send(&options, &batch(1..=2)).await, Outcome::Delivered);
    }
}

/// A Loki that answers by the tenant, which is the namespace.
fn by_tenant() -> (HttpReceiver, LokiOptions) {
    let server = HttpReceiver::start(|_, request| {
        let status = match request.header("x-scope-orgid") {
            Some("full") => "429 Too Many Requests",
            Some("old") => "400 Bad Request",
            Some("slow") => return vec![Step::Hang],
            Some(_) if request.line().starts_with("POST /loki/api/v1/push ") => "204 No Content",
            _ => "404 Not Found",
        };
        vec![Step::answer(status, "", "")]
    });
    let server = server.unwrap();
    let mut options = LokiOptions::new(server.url("http"));
    options.tenant = Some(Templated::parse("{{ event.metadata.namespace }}").unwrap());
    (server, options)
}

#[tokio::test]
async fn the_failure_of_one_tenant_costs_no_other_an_event() {
    let (_server, mut options) = by_tenant();
    options.http.timeout = Duration::from_secs(1);
    let sent = |namespaces: &[&str]| {
        let records = (1..).zip(namespaces).map(|(seq, namespace)| record(seq, namespace, 0));
        Batch { records: records.collect() }
    };
    let classes = |outcome: Outcome| match outcome {
        Outcome::PerEvent(fates) => fates
            .into_iter()
            .map(|fate| match fate {
                EventFate::Failed(failure) => Some(failure.class),
                _ => None,
            })
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let outcome = send(&options, &sent(&["a", "full", "b", "full", "slow", "a"])).await;
    let (full, slow) = (Some(FailureClass::Throttled), Some(FailureClass::Timeout));
    assert_eq!(classes(outcome), [None, full, None, full, slow, None]);
    // The one event of a tenant is the one that is refused; of more the batch is halved.
    let refused = FailureClass::Refused(RefusedClass::Invalid);
    let outcome = send(&options, &sent(&["a", "old"])).await;
    assert_eq!(classes(outcome), [None, Some(refused)]);
    assert_eq!(failure(send(&options, &sent(&["old", "a", "old"])).await).class, refused);
    let unsendable = FailureClass::Refused(RefusedClass::Unsendable);
    assert_eq!(failure(send(&options, &sent(&["a", ".."])).await).class, unsendable);
}

#[tokio::test]
async fn a_tenant_and_a_set_of_labels_are_a_destination() {
    let mut options = LokiOptions::new("http://h");
    let of = |options: &LokiOptions, namespace: &str| {
        options.build().unwrap().destination(&record(1, namespace, 300))
    };
    let labels = r#"{"cluster":"prod","kind":"Pod","namespace":"shop","service_name":"tidings","type":"Warning"}"#;
    assert_eq!(of(&options, "shop").unwrap().unwrap(), format!("\n{labels}"));
    options.labels = Some(templates([("env", "test")]));
    options.tenant = Some(Templated::Fixed("team".to_owned()));
    assert_eq!(of(&options, "shop"), Ok(None));
    options.tenant = Some(Templated::parse("{{ event.metadata.namespace }}").unwrap());
    let labels = r#"{"env":"test","service_name":"tidings"}"#;
    assert_eq!(of(&options, "shop").unwrap().unwrap(), format!("shop\n{labels}"));
    let words = "`tenant`: expected a tenant, found another text";
    assert_eq!(&*of(&options, "a/b").unwrap_err(), words);
    options.labels = Some(templates([("n", "{{ occurrences // 0 }}")]));
    let words = "`n`: the template fails in line 1: ";
    assert!(of(&options, "shop").unwrap_err().starts_with(words));
}
