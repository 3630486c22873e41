use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use tidings_testkit::receiver::{HttpReceiver, Received, Step};

use super::*;
use crate::{
    bridge::{FailureClass, Fault, Filter, Outcome, RefusedClass, Secrets, Status},
    sinks::{
        Auth, BuildSink as _, Compression, Format, HttpOptions, OAuth2Options, Proxy, Secret,
        TlsOptions, WebhookBody, fixtures::batch, http::pki::Pki,
    },
};

fn options(url: String) -> WebhookOptions {
    WebhookOptions {
        body: None,
        http: HttpOptions {
            headers: vec![("authorization".into(), Secret::new("Bearer s3cret"))],
            timeout: Duration::from_secs(5),
            ..HttpOptions::new(url)
        },
        method: WebhookMethod::Post,
        success: None,
        retry_when: None,
        signing_secrets: vec![Secret::new("whsec_c2VjcmV0IG9mIHR3ZW50eS1mb3VyIGIu")],
        format: Format::Envelope,
        single: false,
    }
}

async fn send(options: &WebhookOptions, batch: &Batch) -> Outcome {
    options.build().unwrap().send(batch).await
}

fn failure_of(outcome: Outcome) -> (FailureClass, Option<Duration>, String) {
    match outcome {
        Outcome::Failed(Failure { after, class, reason, .. }) => (class, after, reason.into()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_batch_is_an_array_and_a_single_is_an_object() {
    let server = HttpReceiver::always("204 No Content", "", "").unwrap();
    let mut options = options(server.url("http") + "/hook?token=t");
    let sink = options.build().unwrap();
    assert_eq!(sink.send(&batch(1..=3)).await, Outcome::Delivered);
    assert_eq!(sink.send(&batch(1..=3)).await, Outcome::Delivered);
    assert_eq!(sink.send(&batch(7..=7)).await, Outcome::Delivered);
    options.single = true;
    assert_eq!(send(&options, &batch(7..=7)).await, Outcome::Delivered);

    let received = server.received();
    let [first, again, one, single] = received.as_slice() else { panic!() };
    let of = |b: Batch| b.records.iter().map(|r| r.envelope.to_vec()).collect::<Vec<_>>();
    assert_eq!(first.body, [b"[", of(batch(1..=3)).join(&b',').as_slice(), b"]"].concat());
    assert_eq!(one.body, [b"[", of(batch(7..=7))[0].as_slice(), b"]"].concat());
    assert_eq!(single.body, of(batch(7..=7))[0]);

    assert_eq!(first.line(), "POST /hook?token=t HTTP/1.1");
    assert_eq!(first.header("content-type"), Some("application/json"));
    assert_eq!(first.header("user-agent"), Some(concat!("tidings/", env!("CARGO_PKG_VERSION"))));
    assert_eq!(first.header("authorization"), Some("Bearer s3cret"));
    // printf 'e1-1\ne2-2\ne3-3' | sha256sum
    assert_eq!(first.header("webhook-id"), Some("e1-1-3-a9305e0c72dd66e3"));
    assert_eq!(first.header("webhook-id"), again.header("webhook-id"));
    assert_eq!(single.header("webhook-id"), Some("e7-7"));
    // One connection for one sink.
    assert_eq!((first.connection, one.connection, single.connection), (0, 0, 1));

    for request in received.iter() {
        let header = |name| request.header(name).unwrap();
        let timestamp: i64 = header("webhook-timestamp").parse().unwrap();
        assert!((jiff::Timestamp::now().as_second() - timestamp).abs() < 30);
        let mut mac = Hmac::<Sha256>::new_from_slice(b"secret of twenty-four b.").unwrap();
        mac.update(header("webhook-id").as_bytes());
        mac.update(format!(".{timestamp}.").as_bytes());
        mac.update(&request.body);
        let signature = STANDARD.decode(&header("webhook-signature")["v1,".len()..]).unwrap();
        mac.verify_slice(&signature).unwrap();
    }
}

#[tokio::test]
async fn an_answer_is_judged_by_its_expressions() {
    let (ok, no, soon) =
        (r#"{"ok":true}"#, r#"{"ok":false,"error":"no"}"#, r#"{"ok":false,"error":"later"}"#);
    let long = format!("{ok}{}x", " ".repeat(1 << 20));
    let (invalid, throttled) =
        (FailureClass::Refused(RefusedClass::Invalid), FailureClass::Throttled);
    for (status, headers, body, expected) in [
        ("200 OK", "", ok, None),
        ("200 OK", "", no, Some((invalid, None))),
        // What cannot be evaluated is not true.
        ("200 OK", "", "", Some((invalid, None))),
        ("204 No Content", "", "", Some((invalid, None))),
        ("200 OK", "", "<html>", Some((invalid, None))),
        ("200 OK", "", "[1]", Some((invalid, None))),
        ("200 OK", "", &long, Some((invalid, None))),
        ("200 OK", "retry-after: 7\r\n", soon, Some((throttled, Some(Duration::from_secs(7))))),
        ("200 OK", "X-Busy: yes\r\n", no, Some((throttled, None))),
        ("400 Bad Request", "", soon, Some((throttled, None))),
        ("400 Bad Request", "", ok, Some((invalid, None))),
        ("401 Unauthorized", "", ok, Some((FailureClass::Misconfigured, None))),
        ("503 Service Unavailable", "", no, Some((FailureClass::Unavailable, None))),
    ] {
        let server = HttpReceiver::always(status, headers, body).unwrap();
        let mut options = options(server.url("http"));
        options.success = Some(Filter::over_answers("body.ok == true").unwrap());
        let retry_when = r#"body.error == "later" || headers["x-busy"] == "yes""#;
        options.retry_when = Some(Filter::over_answers(retry_when).unwrap());
        let outcome = send(&options, &batch(1..=1)).await;
        let found = match outcome {
            Outcome::Delivered => None,
            Outcome::Failed(failure) => Some((failure.class, failure.after)),
            other => panic!("{other:?}"),
        };
        assert_eq!(found, expected, "{status} {body:.50}");
        // Without `success` every 2xx is one.
        options.success = None;
        let delivered = send(&options, &batch(1..=1)).await == Outcome::Delivered;
        assert_eq!(delivered, status.starts_with('2'));
    }
}

/// Of an answer that has not come whole nobody knows what it says.
#[tokio::test]
async fn an_event_is_sent_again_where_the_answer_to_judge_is_cut_or_late() {
    let head =
        |status: &str| format!("HTTP/1.1 {status}\r\ncontent-length: 11\r\n\r\n{{").into_bytes();
    for status in ["200 OK", "400 Bad Request"] {
        for (step, class) in [
            (Step::Cut, FailureClass::Unavailable),
            (Step::Wait(Duration::from_secs(50)), FailureClass::Timeout),
        ] {
            let head = head(status);
            let script = move |_, _: &Received| vec![Step::Write(head.clone()), step.clone()];
            let server = HttpReceiver::recording(script).unwrap();
            let mut options = options(server.url("http"));
            options.http.timeout = Duration::from_millis(600);
            options.success = Some(Filter::over_answers("body.ok").unwrap());
            options.retry_when = Some(Filter::over_answers("body.busy").unwrap());
            let Outcome::Failed(failure) = send(&options, &batch(1..=1)).await else { panic!() };
            assert_eq!((failure.class, failure.fault), (class, Fault::RecordForNow), "{status}");
        }
    }
}

#[tokio::test]
async fn attempts_that_wait_for_a_token_together_share_the_refusal() {
    let receiver = HttpReceiver::always("200 OK", "", "").unwrap();
    let refused = Step::answer("401 Unauthorized", "", "no");
    let tokens = HttpReceiver::recording(move |_, _| {
        vec![Step::Wait(Duration::from_millis(100)), refused.clone()]
    })
    .unwrap();
    let sink = oauth2(&tokens, receiver.url("http")).build().unwrap();
    let batches: Vec<_> = (1..=8).map(|n| batch(n..=n)).collect();
    let sent = futures_util::future::join_all(batches.iter().map(|batch| sink.send(batch))).await;
    for outcome in sent {
        let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.class, FailureClass::Misconfigured);
    }
    assert_eq!(tokens.received().len(), 2, "once in each way");
}

#[tokio::test]
async fn credentials_and_method_are_sent() {
    let server = HttpReceiver::always("200 OK", "", "").unwrap();
    let mut options = options(server.url("http"));
    options.http.headers.clear();
    options.method = WebhookMethod::Put;
    let (user, password) = (Secret::new("user"), Secret::new("p:ss"));
    for auth in [Auth::Bearer(Secret::new("t0ken")), Auth::Basic { username: user, password }] {
        options.http.auth = Some(auth);
        assert_eq!(send(&options, &batch(1..=1)).await, Outcome::Delivered);
    }
    let received = server.received();
    let sent: Vec<_> = received.iter().map(|r| (r.line(), r.header("authorization"))).collect();
    let line = "PUT / HTTP/1.1";
    assert_eq!(sent, [(line, Some("Bearer t0ken")), (line, Some("Basic dXNlcjpwOnNz"))]);
}

fn oauth2(tokens: &HttpReceiver, url: String) -> WebhookOptions {
    let mut options = options(url);
    options.http.headers.clear();
    options.http.auth = Some(Auth::OAuth2(OAuth2Options {
        token_url: Secret::new(tokens.url("http") + "/token"),
        client_id: Secret::new("a client"),
        client_secret: Secret::new("s3cret&"),
        scope: Some("write all".to_owned()),
    }));
    options
}

/// A server of tokens that are numbered.
fn tokens(rest: &'static str) -> HttpReceiver {
    HttpReceiver::recording(move |i, _| {
        let body = format!(r#"{{"access_token":"t0ken-{i}","token_type":"Bearer"{rest}}}"#);
        vec![Step::answer("200 OK", "", &body)]
    })
    .unwrap()
}

#[tokio::test]
async fn a_token_is_asked_for_once_and_again_when_it_has_expired_or_is_refused() {
    // At the third request what was valid is so no longer.
    let receiver = HttpReceiver::recording(|i, _| {
        let status = if i == 2 { "401 Unauthorized" } else { "200 OK" };
        vec![Step::answer(status, "", "t0ken-0 is not valid")]
    })
    .unwrap();
    let tokens = tokens(r#","expires_in":3600"#);
    let sink = oauth2(&tokens, receiver.url("http")).build().unwrap();
    let (one, two, three) = (batch(1..=1), batch(2..=2), batch(3..=3));
    let outcomes = tokio::join!(sink.send(&one), sink.send(&two));
    assert_eq!(outcomes, (Outcome::Delivered, Outcome::Delivered));
    assert_eq!(sink.send(&three).await, Outcome::Delivered);
    let received = receiver.received();
    let sent: Vec<_> = received.iter().map(|r| r.header("authorization").unwrap()).collect();
    let expected = ["t0ken-0", "t0ken-0", "t0ken-0", "t0ken-1"];
    assert_eq!(sent, expected.map(|token| format!("Bearer {token}")));
    let asked = tokens.received();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].line(), "POST /token HTTP/1.1");
    assert_eq!(asked[0].header("authorization"), Some("Basic YStjbGllbnQ6czNjcmV0JTI2"));
    let form = "grant_type=client_credentials&scope=write+all";
    assert_eq!(String::from_utf8_lossy(&asked[0].body), form);
}

#[tokio::test]
async fn a_token_is_asked_for_again_before_it_expires() {
    let receiver = HttpReceiver::always("200 OK", "", "").unwrap();
    let tokens = tokens(r#","expires_in":"0""#);
    let sink = oauth2(&tokens, receiver.url("http")).build().unwrap();
    for n in 1..=2 {
        assert_eq!(sink.send(&batch(n..=n)).await, Outcome::Delivered);
    }
    assert_eq!(tokens.received().len(), 2);
}

#[tokio::test]
async fn a_server_of_tokens_may_want_the_client_in_the_body() {
    let receiver = HttpReceiver::always("200 OK", "", "").unwrap();
    let tokens = HttpReceiver::recording(|i, _| {
        let refused = Step::answer("401 Unauthorized", "", r#"{"error":"invalid_client"}"#);
        let given = Step::answer("200 OK", "", r#"{"access_token":"t","expires_in":0}"#);
        vec![if i == 0 { refused } else { given }]
    })
    .unwrap();
    let sink = oauth2(&tokens, receiver.url("http")).build().unwrap();
    for n in 1..=2 {
        assert_eq!(sink.send(&batch(n..=n)).await, Outcome::Delivered);
    }
    let asked = tokens.received();
    let named = "&client_id=a+client&client_secret=s3cret%26";
    let in_body = |r: &Received| String::from_utf8_lossy(&r.body).ends_with(named);
    assert_eq!(asked.iter().map(in_body).collect::<Vec<_>>(), [false, true, true]);
}

#[tokio::test]
async fn without_a_token_nothing_is_sent_and_the_reason_says_why() {
    let receiver = HttpReceiver::always("200 OK", "", "").unwrap();
    for (status, body, class, words) in [
        (
            "401 Unauthorized",
            "s3cret& is wrong",
            FailureClass::Misconfigured,
            "HTTP 401 Unauthorized: … is wrong",
        ),
        (
            "403 Forbidden",
            "YStjbGllbnQ6czNjcmV0JTI2 of s3cret%26",
            FailureClass::Misconfigured,
            "HTTP 403 Forbidden: … of …",
        ),
        ("400 Bad Request", "{}", FailureClass::Misconfigured, "HTTP 400 Bad Request: {}"),
        ("503 Service Unavailable", "", FailureClass::Unavailable, "HTTP 503 Service Unavailable"),
        ("200 OK", "{}", FailureClass::Misconfigured, "expected a token, found something else"),
        (
            "200 OK",
            r#"{"access_token":"\n"}"#,
            FailureClass::Misconfigured,
            "expected a token, found one that no header can carry",
        ),
    ] {
        let tokens = HttpReceiver::always(status, "", body).unwrap();
        let outcome = send(&oauth2(&tokens, receiver.url("http")), &batch(1..=1)).await;
        let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!((failure.class, failure.fault), (class, Fault::Sink));
        let expected = format!("auth.oauth2 at {}: {words}", tokens.address);
        assert_eq!(failure.reason.to_string(), expected);
    }
    assert!(receiver.received().is_empty());
}

#[tokio::test]
async fn a_receiver_that_repeats_a_token_gives_none_away() {
    let receiver =
        HttpReceiver::always("400 Bad Request", "", "Bearer t0ken-0 of a client").unwrap();
    let tokens = tokens("");
    let (_, _, reason) =
        failure_of(send(&oauth2(&tokens, receiver.url("http")), &batch(1..=1)).await);
    assert_eq!(reason, "HTTP 400 Bad Request: Bearer … of …");
}

fn templated(url: &str, content_type: &str, body: &str) -> WebhookOptions {
    let mut options = options(url.to_owned());
    let escape = if content_type.contains("json") { Escape::Json } else { Escape::Plain };
    let template = Template::compile(body, escape).unwrap();
    options.body = Some(WebhookBody { template, content_type: content_type.to_owned() });
    options.single = true;
    options
}

/// An event of these, and nothing else.
fn event(event: &serde_json::Value) -> Batch {
    let event = event.to_string();
    let envelope = format!(r#"{{"id":"u-1","time":"2026-11-21T10:00:00Z","event":{event}}}"#);
    Batch { records: vec![Record { seq: 1, envelope: envelope.into() }] }
}

#[tokio::test]
async fn templates_make_the_body_the_address_and_headers_of_a_request() {
    let server = HttpReceiver::always("200 OK", "", "ok").unwrap();
    let url = server.url("http") + "/{{ event.metadata.namespace }}/x?r={{ event.reason }}";
    let mut options = templated(&url, "application/json", r#"{"text": {{ event.message }}}"#);
    let header = |value: &str| ("X-Object".to_owned(), Secret::new(value));
    options.http.headers.push(header("{{ event.involvedObject.kind }} {{ id }}"));
    let message = "a \"b\"\n{{ 7 * 7 }}";
    let sent = event(&serde_json::json!({"metadata": {"namespace": "a/b"}, "reason": "Back Off",
        "involvedObject": {"kind": "Pod"}, "message": message}));
    assert_eq!(send(&options, &sent).await, Outcome::Delivered);
    let received = server.received();
    assert_eq!(received[0].line(), "POST /a%2Fb/x?r=Back%20Off HTTP/1.1");
    assert_eq!(received[0].header("x-object"), Some("Pod u-1"));
    assert_eq!(received[0].header("authorization"), Some("Bearer s3cret"));
    assert_eq!(received[0].header("webhook-id"), Some("u-1"));
    assert_eq!(received[0].header("content-type"), Some("application/json"));
    let body: serde_json::Value = serde_json::from_slice(&received[0].body).unwrap();
    assert_eq!(body, serde_json::json!({ "text": message }));
}

#[tokio::test]
async fn a_body_that_is_no_json_has_texts_as_they_are() {
    let server = HttpReceiver::always("200 OK", "", "ok").unwrap();
    let body = "{{ event.reason }}: {{ event.message | upper }}";
    let mut options = templated(&server.url("http"), "text/plain; charset=utf-8", body);
    options.http.headers.push(("Content-Type".into(), Secret::new("text/plain; charset=utf-8")));
    let sent = event(&serde_json::json!({"reason": "A", "message": "\"b\""}));
    assert_eq!(send(&options, &sent).await, Outcome::Delivered);
    let received = server.received();
    assert_eq!(received[0].body, b"A: \"B\"");
    assert_eq!(received[0].header("content-type"), Some("text/plain; charset=utf-8"));
}

#[tokio::test]
async fn an_event_of_which_a_template_makes_nothing_is_refused_and_not_sent() {
    let server = HttpReceiver::always("200 OK", "", "ok").unwrap();
    let namespace = "/{{ event.metadata.namespace }}";
    let body = "\n{{ [1][event.count] }}";
    for (path, header, body, sent, words) in [
        (
            namespace,
            "",
            "{}",
            serde_json::json!({"metadata": {"namespace": ".."}}),
            "`url`: expected a path whose segments are names, found `..` among them",
        ),
        (
            namespace,
            "",
            "{}",
            serde_json::json!({"metadata": {"namespace": "x".repeat(5000)}}),
            "`url`: expected an address of at most 4096 bytes, found one of ",
        ),
        (
            "",
            "{{ event.message }}",
            "{}",
            serde_json::json!({"message": "a\r\nb: c"}),
            "header `x-text`: expected printable ASCII, found other characters",
        ),
        (
            "",
            "{{ event.message }}",
            "{}",
            serde_json::json!({"message": "é"}),
            "header `x-text`: expected printable ASCII, found other characters",
        ),
        (
            "",
            "{{ event.message }}",
            "{}",
            serde_json::json!({"message": "x".repeat(5000)}),
            "header `x-text`: expected at most 4096 bytes, found 5000",
        ),
        ("", "", body, serde_json::json!({"count": 1}), "`body`: the template fails in line 2: "),
        (
            "",
            "",
            "{{ event.count }}{{ event.count }}",
            serde_json::json!({}),
            "`body`: expected JSON, found another text: ",
        ),
        (
            "",
            "",
            "{{ event.message }}",
            serde_json::json!({"message": 7}),
            "the event cannot be read: ",
        ),
    ] {
        let url = server.url("http") + path;
        let mut options = templated(&url, "application/json", body);
        options.http.headers.push(("X-Text".into(), Secret::new(header)));
        let (class, _, reason) = failure_of(send(&options, &event(&sent)).await);
        assert_eq!(class, FailureClass::Refused(RefusedClass::Unsendable));
        assert!(reason.starts_with(words), "{reason}");
    }
    assert!(server.received().is_empty());
}

#[test]
fn a_template_and_batches_are_refused_together() {
    let mut options = templated("http://h", "application/json", "{}");
    options.single = false;
    assert!(options.build().is_err());
}

#[tokio::test]
async fn a_format_shapes_the_body_and_its_type() {
    let server = HttpReceiver::always("204 No Content", "", "").unwrap();
    let mut options = options(server.url("http"));
    options.format = Format::Ecs;
    assert_eq!(send(&options, &batch(1..=2)).await, Outcome::Delivered);
    (options.format, options.single) = (Format::CloudEvents, true);
    assert_eq!(send(&options, &batch(1..=1)).await, Outcome::Delivered);
    let received = server.received();
    let documents =
        batch(1..=2).records.iter().map(|r| Format::Ecs.encode(r).unwrap()).collect::<Vec<_>>();
    assert_eq!(received[0].body, [b"[", documents.join(&b',').as_slice(), b"]"].concat());
    assert_eq!(received[0].header("content-type"), Some("application/json"));
    assert_eq!(received[1].body, Format::CloudEvents.encode(&batch(1..=1).records[0]).unwrap());
    let content_type = "application/cloudevents+json; charset=UTF-8";
    assert_eq!(received[1].header("content-type"), Some(content_type));
}

#[tokio::test]
async fn a_compressed_body_is_signed_as_it_is_sent_and_before_compression() {
    let server = HttpReceiver::always("200 OK", "", "ok").unwrap();
    let mut options = options(server.url("http"));
    let large = batch(1..=1000);
    for compression in [Compression::Gzip, Compression::Zstd] {
        options.http.compression = compression;
        assert_eq!(send(&options, &large).await, Outcome::Delivered);
    }
    let received = server.received();
    assert_eq!(received[0].header("content-encoding"), Some("gzip"));
    assert_eq!(received[1].header("content-encoding"), Some("zstd"));
    let mut plain = Vec::new();
    let mut gzip = flate2::read::GzDecoder::new(received[0].body.as_slice());
    std::io::Read::read_to_end(&mut gzip, &mut plain).unwrap();
    assert_eq!(plain, array_body(&large, Format::Envelope).unwrap());
    assert_eq!(zstd::stream::decode_all(received[1].body.as_slice()).unwrap(), plain);
    let request = &received[0];
    let id = request.header("webhook-id").unwrap();
    let timestamp = request.header("webhook-timestamp").unwrap();
    let signer = Signer::new(&options.signing_secrets).unwrap().unwrap();
    let signature = signer.sign(id, timestamp, &[&request.body, &plain]);
    assert_eq!(request.header("webhook-signature"), Some(&*signature));
}

#[tokio::test]
async fn answers_become_outcomes() {
    let outcome = |status: &'static str, headers: &'static str| async move {
        let server = HttpReceiver::always(status, headers, "no\nthanks").unwrap();
        send(&options(server.url("http")), &batch(1..=2)).await
    };
    assert_eq!(
        outcome("400 Bad Request", "").await,
        Outcome::Failed(Failure {
            status: Status::Http(400),
            ..Failure::refused(
                RefusedClass::Invalid,
                Secrets::none().reason("HTTP 400 Bad Request: no thanks")
            )
        })
    );
    let (class, ..) = failure_of(outcome("413 Too Large", "").await);
    assert_eq!(class, FailureClass::Refused(RefusedClass::TooLarge));
    let (class, after, reason) = failure_of(outcome("503 Busy", "retry-after: 7\r\n").await);
    assert_eq!((class, after), (FailureClass::Unavailable, Some(Duration::from_secs(7))));
    assert_eq!(reason, "HTTP 503 Service Unavailable: no thanks");
    let (class, after, _) = failure_of(outcome("429 Slow", "retry-after: 0\r\n").await);
    assert_eq!((class, after), (FailureClass::Throttled, Some(Duration::ZERO)));
    // A redirect is not followed.
    let moved = outcome("302 Found", "location: https://127.0.0.1:1/secret\r\n").await;
    let (class, _, reason) = failure_of(moved);
    assert_eq!(class, FailureClass::Misconfigured);
    assert_eq!(
        reason,
        "HTTP 302 Found: points to https://127.0.0.1:1; redirects are not followed, configure the \
         address itself"
    );
    let (class, ..) = failure_of(outcome("401 Unauthorized", "").await);
    assert_eq!(class, FailureClass::Misconfigured);
}

#[tokio::test]
async fn an_answer_that_repeats_the_request_gives_no_secret_away() {
    let words = "Cannot POST /hooks/T0123/b-s3cr3t?key=k%2F3y9 with Bearer s3cret, token s3cret";
    let server = HttpReceiver::always("404 Not Found", "", words).unwrap();
    let url = server.url("http") + "/hooks/T0123/b-s3cr3t?key=k%2F3y9";
    let (_, _, reason) = failure_of(send(&options(url), &batch(1..=1)).await);
    assert_eq!(reason, "HTTP 404 Not Found: Cannot POST … with Bearer …, token …");
    let words = "no Bearer for hook b-s3cr3t, at HTTP://x/hooks: k%2F3y9 is no key";
    let server = HttpReceiver::always("403 Forbidden", "", words).unwrap();
    let url = server.url("http") + "/hooks/T0123/b-s3cr3t?key=k%2F3y9";
    let (_, _, reason) = failure_of(send(&options(url), &batch(1..=1)).await);
    assert_eq!(reason, "HTTP 403 Forbidden: no Bearer for hook …, at HTTP://x/hooks: … is no key");
}

#[tokio::test]
async fn response_bodies_are_limited_in_time_and_size() {
    let head = |status: &str| format!("HTTP/1.1 {status}\r\ncontent-length: 9000000\r\n\r\n");
    let slow = |status: &str| {
        vec![Step::Write(head(status).into_bytes()), Step::Wait(Duration::from_hours(1))]
    };
    let huge = |status: &str| {
        vec![Step::Write(head(status).into_bytes()), Step::Write(vec![b'x'; 9_000_000])]
    };
    let cut = |status: &str| vec![Step::Write(head(status).into_bytes()), Step::Cut];
    let steps = [slow("200 OK"), huge("200 OK"), cut("200 OK")];
    let refusals = [slow("400 No"), huge("400 No"), cut("400 No")];
    let script: Vec<_> = steps.into_iter().chain(refusals).collect();
    let server = HttpReceiver::recording(move |i, _| script[i].clone()).unwrap();
    let sink = options(server.url("http")).build().unwrap();
    let sent = async {
        for _ in 0..3 {
            assert_eq!(sink.send(&batch(1..=1)).await, Outcome::Delivered);
        }
        for _ in 0..3 {
            let (_, _, reason) = failure_of(sink.send(&batch(1..=1)).await);
            assert!(reason.starts_with("HTTP 400"), "{reason}");
            assert!(reason.len() < 400, "{}", reason.len());
        }
    };
    tokio::time::timeout(Duration::from_mins(1), sent).await.expect("no body is waited for");
}

#[tokio::test]
async fn network_failures_are_described_in_words() {
    // Nobody listens.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}/?token=t");
    let (class, _, reason) = failure_of(send(&options(url), &batch(1..=1)).await);
    assert_eq!(class, FailureClass::Unavailable);
    assert_eq!(reason, format!("connection refused by {free}"));

    // A label has 63 letters at most: no name server is asked for this one.
    let no_host = "x".repeat(64);
    let (class, _, reason) =
        failure_of(send(&options(format!("http://{no_host}/")), &batch(1..=1)).await);
    assert_eq!(class, FailureClass::Unavailable);
    assert!(reason.starts_with(&format!("cannot resolve the name of {no_host}:80: ")), "{reason}");

    let server = HttpReceiver::recording(|_, _| vec![Step::Cut]).unwrap();
    let (class, _, reason) = failure_of(send(&options(server.url("http")), &batch(1..=1)).await);
    assert_eq!(class, FailureClass::Unavailable);
    assert!(reason.contains("connection") && !reason.contains("token"), "{reason}");

    // A part of the status line, and no more.
    let half = || vec![Step::Write(b"HTTP/1.1 200 O".to_vec()), Step::Cut];
    let server = HttpReceiver::recording(move |_, _| half()).unwrap();
    let (class, ..) = failure_of(send(&options(server.url("http")), &batch(1..=1)).await);
    assert_eq!(class, FailureClass::Unavailable);

    let server = HttpReceiver::recording(|_, _| vec![Step::Wait(Duration::from_secs(50))]).unwrap();
    let mut silent = options(server.url("http"));
    silent.http.timeout = Duration::from_millis(300);
    let (class, _, reason) = failure_of(send(&silent, &batch(1..=1)).await);
    assert_eq!(class, FailureClass::Timeout);
    assert_eq!(reason, format!("no answer from {} within 270ms", server.address));
}

#[tokio::test]
async fn a_record_may_be_at_fault_once_it_was_written() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cut = HttpReceiver::recording(|_, _| vec![Step::Cut]).unwrap();
    let half = || vec![Step::Write(b"HTTP/1.1 200 O".to_vec()), Step::Cut];
    let half = HttpReceiver::recording(move |_, _| half()).unwrap();
    let silent = HttpReceiver::recording(|_, _| vec![Step::Wait(Duration::from_secs(50))]).unwrap();
    let pki = Pki::new("127.0.0.1");
    let stranger =
        HttpReceiver::recording_over_tls(pki.server_config(false), |_, _| vec![Step::Cut]).unwrap();
    let asks =
        HttpReceiver::recording_over_tls(pki.server_config(true), |_, _| vec![Step::Cut]).unwrap();
    for (url, fault, status) in [
        (format!("http://{free}"), Fault::Sink, Status::Other),
        (cut.url("http"), Fault::RecordForNow, Status::Cut),
        (half.url("http"), Fault::RecordForNow, Status::Cut),
        (silent.url("http"), Fault::RecordForNow, Status::Silence),
        (stranger.url("https"), Fault::RecordForNow, Status::Cut),
        // It does not accept our certificate, and says so when the request is written.
        (asks.url("https"), Fault::Sink, Status::Other),
        (cut.url("https"), Fault::Sink, Status::Other),
    ] {
        let mut options = options(url.clone());
        options.http.tls = url.starts_with("https").then(|| pki.options(false));
        options.http.timeout = Duration::from_secs(1);
        let Outcome::Failed(failure) = send(&options, &batch(1..=1)).await else { panic!("{url}") };
        assert_eq!((failure.fault, failure.status), (fault, status), "{failure:?}");
    }
}

/// Such a failure says nothing of the receiver: it closed what was idle.
#[tokio::test]
async fn a_connection_used_before_that_ends_without_an_answer_costs_no_attempt() {
    let ok = || Step::answer("204 No Content", "", "");
    // The third request meets the close, and so does the fifth, which comes in its place.
    let server =
        HttpReceiver::recording(
            move |i, _| {
                if matches!(i, 2 | 4 | 5) { vec![Step::Cut] } else { vec![ok()] }
            },
        )
        .unwrap();
    let sink = options(server.url("http")).build().unwrap();
    for n in 1..=3 {
        assert_eq!(sink.send(&batch(n..=n)).await, Outcome::Delivered);
    }
    // Once at once, and no more.
    let (class, _, reason) = failure_of(sink.send(&batch(4..=4)).await);
    assert_eq!(class, FailureClass::Unavailable);
    assert!(reason.contains("connection"), "{reason}");
    assert_eq!(sink.send(&batch(4..=4)).await, Outcome::Delivered);
    let received = server.received();
    let ids: Vec<_> =
        received.iter().map(|r| r.header("webhook-id").unwrap()[..2].to_owned()).collect();
    assert_eq!(ids, ["e1", "e2", "e3", "e3", "e4", "e4", "e4"]);
    let connections: Vec<_> = received.iter().map(|r| r.connection).collect();
    assert_eq!(connections, [0, 0, 0, 1, 1, 2, 3]);
}

#[tokio::test]
async fn a_connection_used_before_costs_no_attempt_while_another_request_dials() {
    let ok = || Step::answer("204 No Content", "", "");
    let script = move |i, _: &Received| match i {
        1 => vec![Step::Wait(Duration::from_millis(300)), Step::Cut],
        _ => vec![ok()],
    };
    let server = HttpReceiver::recording(script).unwrap();
    let sink = options(server.url("http")).build().unwrap();
    assert_eq!(sink.send(&batch(1..=1)).await, Outcome::Delivered);
    let (one, other) = (batch(2..=2), batch(3..=3));
    let other = async {
        while server.received().len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        sink.send(&other).await
    };
    let outcomes = tokio::join!(sink.send(&one), other);
    assert_eq!(outcomes, (Outcome::Delivered, Outcome::Delivered));
    let received = server.received();
    let connections: Vec<_> = received.iter().map(|r| r.connection).collect();
    assert_eq!(connections[..3], [0, 0, 1], "the second was cut while the third had begun its own");
    let ids: Vec<_> = received.iter().map(|r| &r.header("webhook-id").unwrap()[..2]).collect();
    assert_eq!(ids, ["e1", "e2", "e3", "e2"]);
}

#[tokio::test]
async fn an_attempt_is_answered_while_another_waits() {
    let hour = Step::Wait(Duration::from_secs(3600));
    let ok = Step::answer("204 No Content", "", "");
    let script = move |i, _: &Received| vec![if i == 0 { hour.clone() } else { ok.clone() }];
    let server = HttpReceiver::recording(script).unwrap();
    let sink = options(server.url("http")).build().unwrap();
    let (one, other) = (batch(1..=1), batch(2..=2));
    let other = async {
        while server.received().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        sink.send(&other).await
    };
    tokio::select! {
        outcome = sink.send(&one) => panic!("{outcome:?}"),
        outcome = other => assert_eq!(outcome, Outcome::Delivered),
    }
}

#[tokio::test]
async fn a_receiver_that_closes_idle_connections_is_no_hindrance() {
    // Within 4 ms of half its answers, as a request may be on its way.
    let server = HttpReceiver::recording(|i, _| {
        let ok = Step::answer("204 No Content", "", "");
        let close = [Step::Wait(Duration::from_millis(i as u64 / 2 % 5)), Step::Cut];
        if i % 2 == 0 { vec![ok] } else { [vec![ok], close.to_vec()].concat() }
    })
    .unwrap();
    let sink = options(server.url("http")).build().unwrap();
    for n in 1..=500 {
        assert_eq!(sink.send(&batch(n..=n)).await, Outcome::Delivered, "{n}");
    }
    let received = server.received();
    assert!(received.last().unwrap().connection > 100);
}

/// The proxy is asked for the whole address, as proxies are.
#[tokio::test]
async fn a_proxy_is_asked_only_where_it_is_named() {
    let proxy = HttpReceiver::always("204 No Content", "", "").unwrap();
    let mut options = options("http://receiver.invalid/hook".into());
    options.http.proxy = Proxy::Url(Secret::new(format!("http://user:pass@{}", proxy.address)));
    assert_eq!(send(&options, &batch(1..=1)).await, Outcome::Delivered);
    let received = proxy.received();
    assert_eq!(received[0].line(), "POST http://receiver.invalid/hook HTTP/1.1");
    assert_eq!(received[0].header("proxy-authorization"), Some("Basic dXNlcjpwYXNz"));
}

#[tokio::test]
async fn tls_is_verified_both_ways() {
    let pki = Pki::new("127.0.0.1");
    let ok = Step::answer("200 OK", "", "");
    let server = {
        let ok = ok.clone();
        HttpReceiver::recording_over_tls(pki.server_config(true), move |_, _| vec![ok.clone()])
            .unwrap()
    };
    let mut options = options(server.url("https"));
    options.http.tls = Some(pki.options(true));
    assert_eq!(send(&options, &batch(1..=1)).await, Outcome::Delivered);

    options.http.tls = Some(pki.options(false));
    let (class, _, reason) = failure_of(send(&options, &batch(1..=1)).await);
    assert_eq!(class, FailureClass::Misconfigured, "{reason}");
    assert!(reason.contains("our certificate"), "{reason}");

    options.http.tls = Some(Pki::new("127.0.0.1").options(true));
    let (class, _, reason) = failure_of(send(&options, &batch(1..=1)).await);
    assert_eq!(class, FailureClass::Misconfigured);
    assert!(reason.ends_with("is signed by an authority that is not trusted (tls.ca)"), "{reason}");

    // TLS towards a server that speaks none.
    let plain = HttpReceiver::always("200 OK", "", "").unwrap();
    options.http.url = Secret::new(plain.url("https"));
    options.http.timeout = Duration::from_secs(1);
    let (class, ..) = failure_of(send(&options, &batch(1..=1)).await);
    assert_ne!(class, FailureClass::Throttled);
}

#[tokio::test]
async fn the_certificate_may_be_for_another_name() {
    let pki = Pki::new("hooks.example.com");
    let ok = Step::answer("200 OK", "", "");
    let server =
        HttpReceiver::recording_over_tls(pki.server_config(false), move |_, _| vec![ok.clone()])
            .unwrap();
    let mut options = options(server.url("https") + "/x");
    options.http.tls = Some(pki.options(false));
    let (class, _, reason) = failure_of(send(&options, &batch(1..=1)).await);
    assert_eq!(class, FailureClass::Misconfigured);
    assert!(reason.contains("is for another name (tls.serverName)"), "{reason}");

    options.http.tls.as_mut().unwrap().server_name = Some("hooks.example.com".into());
    assert_eq!(send(&options, &batch(1..=1)).await, Outcome::Delivered);
    let received = server.received();
    assert_eq!(received[0].header("host"), Some(&*server.address.to_string()));
}

#[test]
fn options_are_checked_without_a_network() {
    let error = |change: fn(&mut WebhookOptions)| {
        let mut options = options("https://hooks.invalid/secret-path".into());
        change(&mut options);
        options.build().map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(error(|_| ()), Ok(()));
    for (change, message) in [
        (
            (|o| o.http.url = Secret::new("hooks.invalid/x")) as fn(&mut WebhookOptions),
            "url: expected `http://` or `https://` in front, found no scheme",
        ),
        (
            |o| o.http.url = Secret::new("ftp://hooks.invalid"),
            "url: expected `http://` or `https://` in front, found `ftp://`",
        ),
        (
            |o| o.http.url = Secret::new("https://h:65536/"),
            "url: expected a port from 1 to 65535, found another",
        ),
        (
            |o| o.http.headers[0].0 = "bad header".into(),
            "headers.bad header: expected the name of a header, found another text",
        ),
        (
            |o| o.http.headers[0].0 = "Webhook-Id".into(),
            "headers.Webhook-Id: expected another header, found `Webhook-Id`, which is set by the bridge",
        ),
        (
            |o| o.http.headers[0].1 = Secret::new("a\nb"),
            "headers.authorization: expected printable ASCII, found other characters",
        ),
        (
            |o| o.signing_secrets = vec![Secret::new("whsec_?")],
            "signing.secret: expected base64 behind `whsec_`, found something else",
        ),
        (
            |o| {
                let ca = Some(b"nonsense".to_vec());
                o.http.tls = Some(TlsOptions { ca, ..Default::default() });
            },
            "tls.ca: expected a certificate in PEM, found none",
        ),
        (
            |o| {
                o.http.tls = Some(TlsOptions { key: Some(Secret::new("k")), ..Default::default() });
            },
            "tls.cert: expected `cert` beside `key`, found none",
        ),
        (
            |o| {
                let name = Some("10.0.0.1".into());
                o.http.tls = Some(TlsOptions { server_name: name, ..Default::default() });
            },
            "tls.serverName: expected a DNS name, found something else",
        ),
        (
            |o| {
                o.http.url = Secret::new("http://hooks.invalid");
                let name = Some("other.example".into());
                o.http.tls = Some(TlsOptions { server_name: name, ..Default::default() });
            },
            "tls.serverName: expected an address with https:// beside it, found http://",
        ),
    ] {
        assert_eq!(error(change), Err(message.into()));
    }
}
