use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};

use super::*;
use crate::{
    bridge::{FailureClass, Fault, Outcome, RefusedClass, Secrets, Status},
    sinks::{
        BuildSink as _, Compression, Format, HttpOptions, Proxy, Secret, TlsOptions,
        fixtures::batch,
        http::test_server::{Pki, Step, TestServer, answer},
    },
};

fn options(url: String) -> WebhookOptions {
    WebhookOptions {
        http: HttpOptions {
            headers: vec![("authorization".into(), Secret::new("Bearer s3cret"))],
            timeout: Duration::from_secs(5),
            ..HttpOptions::new(url)
        },
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
    let server = TestServer::always("204 No Content", "", "").await;
    let mut options = options(server.url("http") + "/hook?token=t");
    let sink = options.build().unwrap();
    assert_eq!(sink.send(&batch(1..=3)).await, Outcome::Delivered);
    assert_eq!(sink.send(&batch(1..=3)).await, Outcome::Delivered);
    assert_eq!(sink.send(&batch(7..=7)).await, Outcome::Delivered);
    options.single = true;
    assert_eq!(send(&options, &batch(7..=7)).await, Outcome::Delivered);

    let received = server.received.lock().unwrap();
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
async fn a_format_shapes_the_body_and_its_type() {
    let server = TestServer::always("204 No Content", "", "").await;
    let mut options = options(server.url("http"));
    options.format = Format::Ecs;
    assert_eq!(send(&options, &batch(1..=2)).await, Outcome::Delivered);
    (options.format, options.single) = (Format::CloudEvents, true);
    assert_eq!(send(&options, &batch(1..=1)).await, Outcome::Delivered);
    let received = server.received.lock().unwrap();
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
    let server = TestServer::always("200 OK", "", "ok").await;
    let mut options = options(server.url("http"));
    let large = batch(1..=1000);
    for compression in [Compression::Gzip, Compression::Zstd] {
        options.http.compression = compression;
        assert_eq!(send(&options, &large).await, Outcome::Delivered);
    }
    let received = server.received.lock().unwrap();
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
        let server = TestServer::always(status, headers, "no\nthanks").await;
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
    let server = TestServer::always("404 Not Found", "", words).await;
    let url = server.url("http") + "/hooks/T0123/b-s3cr3t?key=k%2F3y9";
    let (_, _, reason) = failure_of(send(&options(url), &batch(1..=1)).await);
    assert_eq!(reason, "HTTP 404 Not Found: Cannot POST … with Bearer …, token …");
    let words = "no Bearer for hook b-s3cr3t, at HTTP://x/hooks: k%2F3y9 is no key";
    let server = TestServer::always("403 Forbidden", "", words).await;
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
    let server = TestServer::start(None, move |i| script[i].clone()).await;
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

    let server = TestServer::start(None, |_| vec![Step::Cut]).await;
    let (class, _, reason) = failure_of(send(&options(server.url("http")), &batch(1..=1)).await);
    assert_eq!(class, FailureClass::Unavailable);
    assert!(reason.contains("connection") && !reason.contains("token"), "{reason}");

    // A part of the status line, and no more.
    let half = || vec![Step::Write(b"HTTP/1.1 200 O".to_vec()), Step::Cut];
    let server = TestServer::start(None, move |_| half()).await;
    let (class, ..) = failure_of(send(&options(server.url("http")), &batch(1..=1)).await);
    assert_eq!(class, FailureClass::Unavailable);

    let server = TestServer::start(None, |_| vec![Step::Wait(Duration::from_secs(50))]).await;
    let mut silent = options(server.url("http"));
    silent.http.timeout = Duration::from_millis(300);
    let (class, _, reason) = failure_of(send(&silent, &batch(1..=1)).await);
    assert_eq!(class, FailureClass::Timeout);
    assert_eq!(reason, format!("no answer from {} within 270ms", server.address));
}

#[tokio::test]
async fn a_record_may_be_at_fault_once_it_was_written() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cut = TestServer::start(None, |_| vec![Step::Cut]).await;
    let half = || vec![Step::Write(b"HTTP/1.1 200 O".to_vec()), Step::Cut];
    let half = TestServer::start(None, move |_| half()).await;
    let silent = TestServer::start(None, |_| vec![Step::Wait(Duration::from_secs(50))]).await;
    let pki = Pki::new("127.0.0.1");
    let stranger = TestServer::start(Some(pki.server_config(false)), |_| vec![Step::Cut]).await;
    let asks = Some(pki.server_config(true));
    let asks = TestServer::start(asks, |_| vec![Step::Cut]).await;
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
    let ok = || Step::Write(answer("204 No Content", "", ""));
    // The third request meets the close, and so does the fifth, which comes in its place.
    let server =
        TestServer::start(
            None,
            move |i| {
                if matches!(i, 2 | 4 | 5) { vec![Step::Cut] } else { vec![ok()] }
            },
        )
        .await;
    let sink = options(server.url("http")).build().unwrap();
    for n in 1..=3 {
        assert_eq!(sink.send(&batch(n..=n)).await, Outcome::Delivered);
    }
    // Once at once, and no more.
    let (class, _, reason) = failure_of(sink.send(&batch(4..=4)).await);
    assert_eq!(class, FailureClass::Unavailable);
    assert!(reason.contains("connection"), "{reason}");
    assert_eq!(sink.send(&batch(4..=4)).await, Outcome::Delivered);
    let received = server.received.lock().unwrap();
    let ids: Vec<_> =
        received.iter().map(|r| r.header("webhook-id").unwrap()[..2].to_owned()).collect();
    assert_eq!(ids, ["e1", "e2", "e3", "e3", "e4", "e4", "e4"]);
    let connections: Vec<_> = received.iter().map(|r| r.connection).collect();
    assert_eq!(connections, [0, 0, 0, 1, 1, 2, 3]);
}

#[tokio::test]
async fn a_connection_used_before_costs_no_attempt_while_another_request_dials() {
    let ok = || Step::Write(answer("204 No Content", "", ""));
    let script = move |i| match i {
        1 => vec![Step::Wait(Duration::from_millis(300)), Step::Cut],
        _ => vec![ok()],
    };
    let server = TestServer::start(None, script).await;
    let sink = options(server.url("http")).build().unwrap();
    assert_eq!(sink.send(&batch(1..=1)).await, Outcome::Delivered);
    let (one, other) = (batch(2..=2), batch(3..=3));
    let other = async {
        while server.received.lock().unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        sink.send(&other).await
    };
    let outcomes = tokio::join!(sink.send(&one), other);
    assert_eq!(outcomes, (Outcome::Delivered, Outcome::Delivered));
    let received = server.received.lock().unwrap();
    let connections: Vec<_> = received.iter().map(|r| r.connection).collect();
    assert_eq!(connections[..3], [0, 0, 1], "the second was cut while the third had begun its own");
    let ids: Vec<_> = received.iter().map(|r| &r.header("webhook-id").unwrap()[..2]).collect();
    assert_eq!(ids, ["e1", "e2", "e3", "e2"]);
}

#[tokio::test]
async fn an_attempt_is_answered_while_another_waits() {
    let hour = Step::Wait(Duration::from_secs(3600));
    let ok = Step::Write(answer("204 No Content", "", ""));
    let script = move |i| vec![if i == 0 { hour.clone() } else { ok.clone() }];
    let server = TestServer::start(None, script).await;
    let sink = options(server.url("http")).build().unwrap();
    let (one, other) = (batch(1..=1), batch(2..=2));
    let other = async {
        while server.received.lock().unwrap().is_empty() {
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
    let server = TestServer::start(None, |i| {
        let ok = Step::Write(answer("204 No Content", "", ""));
        let close = [Step::Wait(Duration::from_millis(i as u64 / 2 % 5)), Step::Cut];
        if i % 2 == 0 { vec![ok] } else { [vec![ok], close.to_vec()].concat() }
    })
    .await;
    let sink = options(server.url("http")).build().unwrap();
    for n in 1..=500 {
        assert_eq!(sink.send(&batch(n..=n)).await, Outcome::Delivered, "{n}");
    }
    let received = server.received.lock().unwrap();
    assert!(received.last().unwrap().connection > 100);
}

/// The proxy is asked for the whole address, as proxies are.
#[tokio::test]
async fn a_proxy_is_asked_only_where_it_is_named() {
    let proxy = TestServer::always("204 No Content", "", "").await;
    let mut options = options("http://receiver.invalid/hook".into());
    options.http.proxy = Proxy::Url(Secret::new(format!("http://user:pass@{}", proxy.address)));
    assert_eq!(send(&options, &batch(1..=1)).await, Outcome::Delivered);
    let received = proxy.received.lock().unwrap();
    assert_eq!(received[0].line(), "POST http://receiver.invalid/hook HTTP/1.1");
    assert_eq!(received[0].header("proxy-authorization"), Some("Basic dXNlcjpwYXNz"));
}

#[tokio::test]
async fn tls_is_verified_both_ways() {
    let pki = Pki::new("127.0.0.1");
    let ok = answer("200 OK", "", "");
    let server = {
        let ok = ok.clone();
        TestServer::start(Some(pki.server_config(true)), move |_| vec![Step::Write(ok.clone())])
            .await
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
    let plain = TestServer::always("200 OK", "", "").await;
    options.http.url = Secret::new(plain.url("https"));
    options.http.timeout = Duration::from_secs(1);
    let (class, ..) = failure_of(send(&options, &batch(1..=1)).await);
    assert_ne!(class, FailureClass::Throttled);
}

#[tokio::test]
async fn the_certificate_may_be_for_another_name() {
    let pki = Pki::new("hooks.example.com");
    let ok = answer("200 OK", "", "");
    let server =
        TestServer::start(Some(pki.server_config(false)), move |_| vec![Step::Write(ok.clone())])
            .await;
    let mut options = options(server.url("https") + "/x");
    options.http.tls = Some(pki.options(false));
    let (class, _, reason) = failure_of(send(&options, &batch(1..=1)).await);
    assert_eq!(class, FailureClass::Misconfigured);
    assert!(reason.contains("is for another name (tls.serverName)"), "{reason}");

    options.http.tls.as_mut().unwrap().server_name = Some("hooks.example.com".into());
    assert_eq!(send(&options, &batch(1..=1)).await, Outcome::Delivered);
    let received = server.received.lock().unwrap();
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
