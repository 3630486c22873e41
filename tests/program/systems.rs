//! The examples of `config/` for known systems: each sends what the system's documentation asks for, whatever an Event
//! holds, and understands its answers.

use std::{
    ffi::OsString,
    fs,
    io::Read as _,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tidings::{
    bridge::{FailureClass, Outcome},
    config::{SinkSettings, parse},
    event::{Batch, Record},
};

/// An event, as a system shows it.
struct Shown {
    id: String,
    message: String,
}

/// Reads a body as the system does, or says why the system would not take it.
type Reads = fn(&Value) -> Result<Shown, String>;

/// A status, the seconds of `Retry-After`, and a body.
type Answer = (u16, Option<u64>, &'static str);

/// An example of a configuration, and the system that it is for.
struct System {
    file: &'static str,
    sink: &'static str,
    /// Scheme and host, where they stand in the file.
    host: &'static str,
    /// The secrets; `HOST` is scheme and host of the double.
    variables: &'static [(&'static str, &'static str)],
    /// Path and query of each request.
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    reads: Reads,
    taken: Answer,
    /// The answers of one that has too much to do.
    busy: &'static [Answer],
    class: FailureClass,
}

const SLACK: System = System {
    file: "slack.yaml",
    sink: "slack",
    host: "",
    variables: &[
        ("SLACK_URL", "HOST/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX"),
        ("SLACK_TOKEN", "xoxb-1-secret"),
    ],
    path: "/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
    headers: &[("content-type", "application/json")],
    reads: slack,
    taken: (200, None, "ok"),
    busy: &[(429, Some(30), "rate_limited")],
    class: FailureClass::Throttled,
};

const SLACK_API: System = System {
    file: "slack.yaml",
    sink: "slack-api",
    host: "https://slack.com",
    variables: SLACK.variables,
    path: "/api/chat.postMessage",
    headers: &[
        ("content-type", "application/json; charset=utf-8"),
        ("authorization", "Bearer xoxb-1-secret"),
    ],
    reads: slack_api,
    taken: (
        200,
        None,
        r#"{"ok":true,"channel":"C0123456789","ts":"1503435956.000247","message":{}}"#,
    ),
    busy: &[
        (429, Some(30), r#"{"ok":false,"error":"ratelimited"}"#),
        (200, None, r#"{"ok":false,"error":"internal_error"}"#),
    ],
    class: FailureClass::Throttled,
};

const DISCORD: System = System {
    file: "discord.yaml",
    sink: "discord",
    host: "",
    variables: &[(
        "DISCORD_URL",
        "HOST/api/webhooks/223704706495545344/3d89bb7572e0fb30?wait=true",
    )],
    path: "/api/webhooks/223704706495545344/3d89bb7572e0fb30?wait=true",
    headers: &[("content-type", "application/json")],
    reads: discord,
    taken: (200, None, r#"{"id":"1","type":0,"content":"","embeds":[]}"#),
    busy: &[(
        429,
        Some(65),
        r#"{"message":"You are being rate limited.","retry_after":64.57,"global":false}"#,
    )],
    class: FailureClass::Throttled,
};

const GOOGLE_CHAT: System = System {
    file: "google-chat.yaml",
    sink: "google-chat",
    host: "",
    variables: &[(
        "GOOGLE_CHAT_URL",
        "HOST/v1/spaces/AAAA/messages?key=k&token=t&messageReplyOption=REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD",
    )],
    path: "/v1/spaces/AAAA/messages?key=k&token=t&messageReplyOption=REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD",
    headers: &[("content-type", "application/json")],
    reads: google_chat,
    taken: (
        200,
        None,
        r#"{"name":"spaces/AAAA/messages/B.B","thread":{"name":"spaces/AAAA/threads/B"}}"#,
    ),
    busy: &[(
        429,
        None,
        r#"{"error":{"code":429,"message":"Resource has been exhausted","status":"RESOURCE_EXHAUSTED"}}"#,
    )],
    class: FailureClass::Throttled,
};

const DATADOG: System = System {
    file: "datadog.yaml",
    sink: "datadog",
    host: "https://http-intake.logs.datadoghq.com",
    variables: &[("DD_API_KEY", "0123456789abcdef0123456789abcdef")],
    path: "/api/v2/logs",
    headers: &[
        ("content-type", "application/json"),
        ("content-encoding", "gzip"),
        ("dd-api-key", "0123456789abcdef0123456789abcdef"),
    ],
    reads: datadog,
    taken: (202, None, "{}"),
    busy: &[(429, None, r#"{"errors":[{"status":"429","title":"Too Many Requests"}]}"#)],
    class: FailureClass::Throttled,
};

/// Where the double hands out its token.
const TOKEN_PATH: &str = "/tenant/oauth2/v2.0/token";

const SENTINEL: System = System {
    file: "sentinel.yaml",
    sink: "sentinel",
    host: "",
    variables: &[
        (
            "SENTINEL_URL",
            "HOST/dataCollectionRules/dcr-00a/streams/Custom-KubernetesEvents?api-version=2023-01-01",
        ),
        ("SENTINEL_TOKEN_URL", "HOST/tenant/oauth2/v2.0/token"),
        ("SENTINEL_CLIENT_ID", "client"),
        ("SENTINEL_CLIENT_SECRET", "secret"),
    ],
    path: "/dataCollectionRules/dcr-00a/streams/Custom-KubernetesEvents?api-version=2023-01-01",
    headers: &[
        ("content-type", "application/json"),
        ("content-encoding", "gzip"),
        ("authorization", "Bearer eyJ0"),
    ],
    reads: sentinel,
    taken: (204, None, ""),
    busy: &[(
        429,
        Some(17),
        r#"{"error":{"code":"TooManyRequests","message":"Too many requests"}}"#,
    )],
    class: FailureClass::Throttled,
};

const VICTORIALOGS: System = System {
    file: "victorialogs.yaml",
    sink: "victorialogs",
    host: "",
    variables: &[("VICTORIALOGS_URL", "HOST/insert/jsonline?_stream_fields=cluster,namespace")],
    path: "/insert/jsonline?_stream_fields=cluster,namespace",
    headers: &[],
    reads: victorialogs,
    taken: (200, None, ""),
    busy: &[(429, None, "cannot add rows into storage in read-only mode")],
    class: FailureClass::Throttled,
};

const CLICKHOUSE: System = System {
    file: "clickhouse.yaml",
    sink: "clickhouse",
    host: "",
    variables: &[
        (
            "CLICKHOUSE_URL",
            "HOST/?database=default&query=INSERT%20INTO%20k8s_events%20FORMAT%20JSONEachRow",
        ),
        ("CLICKHOUSE_PASSWORD", "secret"),
    ],
    path: "/?database=default&query=INSERT%20INTO%20k8s_events%20FORMAT%20JSONEachRow",
    // `tidings:secret` in base64.
    headers: &[("content-encoding", "gzip"), ("authorization", "Basic dGlkaW5nczpzZWNyZXQ=")],
    reads: clickhouse,
    taken: (200, None, ""),
    busy: &[
        (
            500,
            None,
            "Code: 241. DB::Exception: (total) memory limit exceeded (MEMORY_LIMIT_EXCEEDED)",
        ),
        (503, None, "Code: 439. DB::Exception: Cannot schedule a task (CANNOT_SCHEDULE_TASK)"),
    ],
    class: FailureClass::Unavailable,
};

const PAGERDUTY: System = System {
    file: "pagerduty.yaml",
    sink: "pagerduty",
    host: "https://events.pagerduty.com",
    variables: &[],
    path: "/v2/enqueue",
    headers: &[("content-type", "application/json")],
    reads: pagerduty,
    taken: (202, None, r#"{"status":"success","message":"Event processed","dedup_key":"x"}"#),
    busy: &[(429, None, r#"{"status":"throttle exceeded","message":"Too many requests"}"#)],
    class: FailureClass::Throttled,
};

const OPSGENIE: System = System {
    file: "opsgenie.yaml",
    sink: "opsgenie",
    host: "https://api.opsgenie.com",
    variables: &[("OPSGENIE_AUTHORIZATION", "GenieKey eb243592-faa2")],
    path: "/v2/alerts",
    headers: &[("content-type", "application/json"), ("authorization", "GenieKey eb243592-faa2")],
    reads: opsgenie,
    taken: (
        202,
        None,
        r#"{"result":"Request will be processed","took":0.302,"requestId":"43a29c5c"}"#,
    ),
    busy: &[(429, None, r#"{"message":"You are making too many requests!","took":0.001}"#)],
    class: FailureClass::Throttled,
};

const ALERTMANAGER: System = System {
    file: "alertmanager.yaml",
    sink: "alertmanager",
    host: "http://alertmanager.monitoring:9093",
    variables: &[],
    path: "/api/v2/alerts",
    headers: &[("content-type", "application/json")],
    reads: alertmanager,
    taken: (200, None, ""),
    // Alertmanager knows no 429.
    busy: &[(503, None, "")],
    class: FailureClass::Unavailable,
};

#[tokio::test]
async fn a_slack_webhook_takes_every_event() {
    check(&SLACK).await;
}

#[tokio::test]
async fn the_slack_api_takes_every_event() {
    check(&SLACK_API).await;
}

#[tokio::test]
async fn discord_takes_every_event() {
    check(&DISCORD).await;
}

#[tokio::test]
async fn google_chat_takes_every_event() {
    check(&GOOGLE_CHAT).await;
}

#[tokio::test]
async fn datadog_takes_every_event() {
    check(&DATADOG).await;
}

#[tokio::test]
async fn sentinel_takes_every_event() {
    check(&SENTINEL).await;
}

#[tokio::test]
async fn victorialogs_takes_every_event() {
    check(&VICTORIALOGS).await;
}

#[tokio::test]
async fn clickhouse_takes_every_event() {
    check(&CLICKHOUSE).await;
}

#[tokio::test]
async fn pagerduty_takes_every_event() {
    check(&PAGERDUTY).await;
}

#[tokio::test]
async fn opsgenie_takes_every_event() {
    check(&OPSGENIE).await;
}

#[tokio::test]
async fn alertmanager_takes_every_event() {
    check(&ALERTMANAGER).await;
}

const MESSAGE: &str = "Back-off restarting failed container web in pod web-1_shop(5d41402a)";

/// A harmful text, with which a long message starts.
const HOSTILE: &str = "say \"no\" \\ 'x'\0\u{1}\u{1b}[31m\t\r\u{202e}\u{200f} {{ 7 * 7 }} {% raw %} <!channel> \
                       <@U1> @everyone <users/all> & [a](https://evil.example) ```*_~|> ";

/// Sends events to a double of the system.
async fn check(system: &'static System) {
    let double = Double::start(system).await;
    let settings = double.settings();
    let sink = settings.sink.build().unwrap_or_else(|error| panic!("{error}"));
    let hostile_message = format!("{HOSTILE}{}", "x".repeat(70 << 10));
    let ordinary = json!({
        "metadata": metadata(),
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "5d41402a-bc4b",
            "fieldPath": "spec.containers{web}",
        },
        "type": "Warning", "reason": "BackOff", "message": MESSAGE, "count": 7,
        "source": {"component": "kubelet", "host": "node-1"},
        "firstTimestamp": "2026-11-21T14:27:27Z", "lastTimestamp": "2026-11-21T14:57:27Z",
    });
    let long = "y".repeat(3000);
    let hostile = json!({
        "metadata": metadata(),
        "involvedObject": {
            "kind": format!("Pod\" <!here>, {{% if %}}{long}"), "name": format!("@here <users/all> [x](y)\0{long}"),
            "namespace": "shop", "uid": format!("\u{202e}\"{long}"),
        },
        "type": "Warning", "reason": format!("Back\"Off <!channel>{long}"), "message": hostile_message,
        "source": {"component": "a\"b", "host": "node-1\0"},
    });
    let empty = json!({ "metadata": metadata() });

    let first = batch("0b8e-11", "2026-11-21T14:57:27Z", &ordinary);
    let filter = settings.filter.as_ref();
    assert!(
        filter.is_none_or(|filter| filter.wants(&first.records[0]).unwrap()),
        "{}",
        system.sink
    );
    for busy in system.busy {
        *double.answer.lock().unwrap() = *busy;
        let outcome = sink.send(&first).await;
        assert_eq!(double.shown().len(), 1, "{}", system.sink);
        let Outcome::Failed(failure) = outcome else { panic!("{}: {outcome:?}", system.sink) };
        assert_eq!(failure.class, system.class, "{}: {failure:?}", system.sink);
        assert_eq!(failure.after, busy.1.map(Duration::from_secs), "{}", system.sink);
    }

    *double.answer.lock().unwrap() = system.taken;
    for (id, time, event, message) in [
        ("0b8e-12", "2026-11-21T14:57:27Z", &ordinary, MESSAGE),
        ("0b8e-13", "2026-12-31T23:59:59.123456Z", &hostile, hostile_message.as_str()),
        ("0b8e-14", "2026-11-21T14:57:27Z", &empty, ""),
    ] {
        let outcome = sink.send(&batch(id, time, event)).await;
        let shown = double.shown();
        assert_eq!(outcome, Outcome::Delivered, "{} {id}", system.sink);
        let [shown] = &*shown else { panic!("{} {id}: {} requests", system.sink, shown.len()) };
        assert_eq!(shown.id, id, "{}", system.sink);
        let head: String = shown.message.chars().take(300).collect();
        let what = format!("{} {id}: {head:?}", system.sink);
        match shown.message.strip_suffix('…') {
            _ if message.is_empty() => {
                assert!(["", "no message"].contains(&&*shown.message), "{what}");
            }
            Some(start) => {
                assert!(message != MESSAGE && message.starts_with(start), "{what}");
                assert!(start.len() > HOSTILE.len(), "{what}");
            }
            None => assert!(shown.message == message, "{what}"),
        }
    }
    let tokens = double.tokens.load(Ordering::Relaxed);
    assert_eq!(tokens, usize::from(system.sink == "sentinel"), "tokens of {}", system.sink);
}

fn metadata() -> Value {
    json!({
        "name": "web-1.18ea1753419cae39", "namespace": "shop", "uid": "0b8e", "resourceVersion": "12",
        "creationTimestamp": "2026-11-21T14:27:27Z",
    })
}

fn batch(id: &str, time: &str, event: &Value) -> Batch {
    let cluster = r#"{"name":"prod-eu-1","uid":"c1d4b1b6-2f3e-4b6e-9d7b-5f0f2b3f8a10"}"#;
    let envelope = format!(
        r#"{{"id":"{id}","cluster":{cluster},"change":"updated","time":"{time}","observedTime":"{time}","occurrences":7,"delta":4,"replayed":false,"event":{event}}}"#
    );
    Batch { records: vec![Record { seq: 1, envelope: envelope.into() }] }
}

/// A system that looks at each request.
struct Double {
    system: &'static System,
    host: String,
    answer: Mutex<Answer>,
    seen: Mutex<Vec<Result<Shown, String>>>,
    tokens: AtomicUsize,
}

impl Double {
    async fn start(system: &'static System) -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let double = Arc::new(Self {
            system,
            host: format!("http://{}", listener.local_addr().unwrap()),
            answer: Mutex::new(system.taken),
            seen: Mutex::default(),
            tokens: AtomicUsize::default(),
        });
        let app = Router::new().fallback(receive).with_state(double.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        double
    }

    /// The settings of the example, with the double in place of the system.
    fn settings(&self) -> SinkSettings {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(self.system.file);
        let mut text = fs::read_to_string(path).unwrap();
        assert!(text.starts_with("# yaml-language-server: $schema=schema.json\n"));
        if !self.system.host.is_empty() {
            assert!(text.contains(self.system.host), "{} is not in the file", self.system.host);
            text = text.replace(self.system.host, &self.host);
        }
        let mounted = tempfile::tempdir().unwrap();
        if text.contains("/run/secrets/tidings/") {
            // The content of the file stands in the comment.
            let content = text.lines().filter_map(|line| line.strip_prefix("#     "));
            let content = content.collect::<Vec<_>>().join("\n");
            fs::write(mounted.path().join("pagerduty-body.json"), content).unwrap();
            text = text.replace("/run/secrets/tidings", mounted.path().to_str().unwrap());
        }
        let variables = self.system.variables.iter().map(|(name, value)| {
            (OsString::from(name), OsString::from(value.replace("HOST", &self.host)))
        });
        let settings = parse(self.system.file, &text, variables).unwrap_or_else(|e| panic!("{e}"));
        settings.sinks.into_iter().find(|sink| sink.name == self.system.sink).unwrap()
    }

    /// The events since the last call.
    fn shown(&self) -> Vec<Shown> {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        let taken = |one: Result<Shown, String>| {
            one.unwrap_or_else(|e| panic!("{}: {e}", self.system.sink))
        };
        seen.into_iter().map(taken).collect()
    }

    fn read(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Shown, String> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        if (method, path) != (&Method::POST, self.system.path) {
            return Err(format!("{method} {path}"));
        }
        for (name, value) in self.system.headers {
            if header(name) != Some(*value) {
                return Err(format!("header {name}: {:?}", header(name)));
            }
        }
        let mut plain = Vec::new();
        match header("content-encoding") {
            None => plain.extend_from_slice(body),
            Some("gzip") => {
                GzDecoder::new(body).read_to_end(&mut plain).map_err(|error| error.to_string())?;
            }
            Some(other) => return Err(format!("encoding {other}")),
        }
        if self.system.sink == "victorialogs" && (plain.contains(&b'\n') || plain.len() > 256 << 10)
        {
            return Err("no line, or one that is dropped".to_owned());
        }
        let body = serde_json::from_slice(&plain).map_err(|error| error.to_string())?;
        let shown = (self.system.reads)(&body)?;
        let rest = header("webhook-id").and_then(|id| id.strip_prefix(&*shown.id));
        // That of an array of one has its number and a digest behind the id.
        if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("-1-")) {
            return Err(format!("{} in the body, {:?}", shown.id, header("webhook-id")));
        }
        Ok(shown)
    }

    /// Hands out a token, as Azure does to a client that shows its secret in either way.
    fn token(&self, headers: &HeaderMap, body: &[u8]) -> Response {
        let form: Vec<(String, String)> = form_urlencoded::parse(body).into_owned().collect();
        let has = |name: &str, value: &str| form.iter().any(|(n, v)| (&**n, &**v) == (name, value));
        // `client:secret` in base64.
        let basic = headers.get("authorization").is_some_and(|v| v == "Basic Y2xpZW50OnNlY3JldA==");
        let is_client = basic || (has("client_id", "client") && has("client_secret", "secret"));
        let scope = has("scope", "https://monitor.azure.com/.default");
        if !(is_client && scope && has("grant_type", "client_credentials")) {
            return (StatusCode::BAD_REQUEST, r#"{"error":"invalid_request"}"#).into_response();
        }
        self.tokens.fetch_add(1, Ordering::Relaxed);
        let answer = r#"{"token_type":"Bearer","expires_in":3599,"access_token":"eyJ0"}"#;
        ([("content-type", "application/json")], answer).into_response()
    }
}

async fn receive(
    State(double): State<Arc<Double>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if uri.path() == TOKEN_PATH {
        return double.token(&headers, &body);
    }
    let shown = double.read(&method, &uri, &headers, &body);
    let (status, after, words) = match &shown {
        Ok(_) => *double.answer.lock().unwrap(),
        Err(_) => (400, None, "see the test"),
    };
    double.seen.lock().unwrap().push(shown);
    let mut response = (StatusCode::from_u16(status).unwrap(), words).into_response();
    if let Some(after) = after {
        response.headers_mut().insert("retry-after", after.into());
    }
    response
}

/// A text of at least one and at most so many characters.
fn text<'a>(body: &'a Value, at: &str, most: usize) -> Result<&'a str, String> {
    let text = any_text(body, at)?;
    match text.chars().count() {
        count if (1..=most).contains(&count) => Ok(text),
        count => Err(format!("{at}: {count} characters")),
    }
}

fn any_text<'a>(body: &'a Value, at: &str) -> Result<&'a str, String> {
    body.pointer(at).and_then(Value::as_str).ok_or_else(|| format!("{at}: no text"))
}

fn time(body: &Value, at: &str) -> Result<jiff::Timestamp, String> {
    let text = any_text(body, at)?;
    text.parse::<jiff::Timestamp>().map_err(|error| format!("{at}: {text}: {error}"))
}

fn holds(body: &Value, at: &str, expected: &Value) -> Result<(), String> {
    let found = body.pointer(at);
    if found == Some(expected) { Ok(()) } else { Err(format!("{at}: {found:?}")) }
}

fn one_of(body: &Value, at: &str, known: &[&str]) -> Result<(), String> {
    let found = any_text(body, at)?;
    if known.contains(&found) { Ok(()) } else { Err(format!("{at}: {found}")) }
}

/// That an object has no other members than these.
fn members(body: &Value, at: &str, known: &[&str]) -> Result<(), String> {
    let object = body.pointer(at).and_then(Value::as_object);
    let object = object.ok_or_else(|| format!("{at}: no object"))?;
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        Some(unknown) => Err(format!("{at}: {unknown} is not known")),
        None => Ok(()),
    }
}

/// The only element of an array.
fn only<'a>(body: &'a Value, at: &str) -> Result<&'a Value, String> {
    match body.pointer(at).and_then(Value::as_array).map(Vec::as_slice) {
        Some([one]) => Ok(one),
        other => Err(format!("{at}: {} elements", other.map_or(0, <[Value]>::len))),
    }
}

fn shown(id: &str, message: impl Into<String>) -> Shown {
    Shown { id: id.to_owned(), message: message.into() }
}

/// Blocks of Slack: <https://docs.slack.dev/reference/block-kit/blocks>.
fn slack(body: &Value) -> Result<Shown, String> {
    members(body, "", &["text", "blocks"])?;
    slack_blocks(body)
}

/// <https://docs.slack.dev/reference/methods/chat.postMessage>.
fn slack_api(body: &Value) -> Result<Shown, String> {
    members(body, "", &["channel", "text", "blocks", "metadata"])?;
    holds(body, "/channel", &json!("C0123456789"))?;
    let shown = slack_blocks(body)?;
    let metadata =
        json!({"event_type": "kubernetes_event", "event_payload": {"event_id": shown.id}});
    holds(body, "/metadata", &metadata)?;
    Ok(shown)
}

fn slack_blocks(body: &Value) -> Result<Shown, String> {
    holds(body, "/blocks/0/type", &json!("section"))?;
    holds(body, "/blocks/1/type", &json!("context"))?;
    if body["blocks"].as_array().map(Vec::len) != Some(2) {
        return Err("other blocks".to_owned());
    }
    only(body, "/blocks/1/elements")?;
    for at in ["/blocks/0/text", "/blocks/1/elements/0"] {
        members(body, at, &["type", "verbatim", "text"])?;
        holds(body, &format!("{at}/type"), &json!("mrkdwn"))?;
        holds(body, &format!("{at}/verbatim"), &json!(true))?;
    }
    for (at, most) in
        [("/text", 4000), ("/blocks/0/text/text", 3000), ("/blocks/1/elements/0/text", 3000)]
    {
        if text(body, at, most)?.contains(['<', '>']) {
            return Err(format!("{at}: a mention or a link"));
        }
    }
    let section = any_text(body, "/blocks/0/text/text")?;
    let (_, message) = section.split_once("*\n").ok_or("no title")?;
    let message = message.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let context = any_text(body, "/blocks/1/elements/0/text")?;
    Ok(shown(context.rsplit(" · ").next().unwrap_or_default(), message))
}

/// <https://discord.com/developers/docs/resources/webhook#execute-webhook>, and the limits of embeds.
fn discord(body: &Value) -> Result<Shown, String> {
    members(body, "", &["embeds", "allowed_mentions"])?;
    holds(body, "/allowed_mentions", &json!({"parse": []}))?;
    let embed = only(body, "/embeds")?;
    members(embed, "", &["title", "description", "color", "timestamp", "footer"])?;
    members(embed, "/footer", &["text"])?;
    let title = text(embed, "/title", 256)?;
    let description = text(embed, "/description", 4096)?;
    let footer = text(embed, "/footer/text", 2048)?;
    if [title, description, footer].iter().map(|text| text.chars().count()).sum::<usize>() > 6000 {
        return Err("an embed of more than 6000 characters".to_owned());
    }
    time(embed, "/timestamp")?;
    if embed["color"].as_u64().is_none_or(|color| color > 0xff_ff_ff) {
        return Err("no color".to_owned());
    }
    let message = description.replace("\\[", "[").replace("\\\\", "\\");
    Ok(shown(footer.rsplit(" · ").next().unwrap_or_default(), message))
}

/// <https://developers.google.com/workspace/chat/api/reference/rest/v1/spaces.messages/create>.
fn google_chat(body: &Value) -> Result<Shown, String> {
    members(body, "", &["text", "thread"])?;
    members(body, "/thread", &["threadKey"])?;
    text(body, "/thread/threadKey", 4000)?;
    let text = text(body, "/text", 32_000)?;
    if text.len() > 32_000 || text.contains('<') {
        return Err(format!("{} bytes, or a mention", text.len()));
    }
    let (_, rest) = text.split_once("*\n").ok_or("no title")?;
    let (rest, id) = rest.rsplit_once("\nevent_id: ").ok_or("no id")?;
    let (message, _) = rest.rsplit_once('\n').ok_or("no place")?;
    Ok(shown(id, message.replace('‹', "<")))
}

/// <https://docs.datadoghq.com/api/latest/logs/#send-logs>.
fn datadog(body: &Value) -> Result<Shown, String> {
    let log = only(body, "")?;
    if log.to_string().len() > 1_000_000 {
        return Err("a log that Datadog cuts".to_owned());
    }
    for at in ["/hostname", "/service"] {
        text(log, at, 10_000)?;
    }
    holds(log, "/ddsource", &json!("kubernetes"))?;
    holds(log, "/ddtags", &json!("kube_cluster_name:prod-eu-1,kube_namespace:shop"))?;
    one_of(log, "/status", &["info", "warn"])?;
    time(log, "/timestamp")?;
    Ok(shown(text(log, "/event_id", 60)?, text(log, "/message", 1_000_000)?))
}

/// <https://learn.microsoft.com/en-us/azure/azure-monitor/logs/logs-ingestion-api-overview>, for the stream that the
/// example speaks of.
fn sentinel(body: &Value) -> Result<Shown, String> {
    let row = only(body, "")?;
    let texts = [
        "cluster",
        "namespace",
        "event_type",
        "reason",
        "message",
        "component",
        "change",
        "event_id",
    ];
    let others = ["TimeGenerated", "occurrences", "delta", "object"];
    members(row, "", &[&texts[..], &others[..]].concat())?;
    for name in texts {
        if any_text(row, &format!("/{name}"))?.len() > 64 << 10 {
            return Err(format!("{name} is cut"));
        }
    }
    time(row, "/TimeGenerated")?;
    holds(row, "/occurrences", &json!(7))?;
    holds(row, "/delta", &json!(4))?;
    members(row, "/object", &["apiVersion", "kind", "namespace", "name", "uid", "fieldPath"])?;
    Ok(shown(any_text(row, "/event_id")?, any_text(row, "/message")?))
}

/// <https://docs.victoriametrics.com/victorialogs/data-ingestion/#json-stream-api>.
fn victorialogs(body: &Value) -> Result<Shown, String> {
    time(body, "/_time")?;
    holds(body, "/cluster", &json!("prod-eu-1"))?;
    holds(body, "/namespace", &json!("shop"))?;
    holds(body, "/delta", &json!(4))?;
    Ok(shown(text(body, "/event_id", 60)?, text(body, "/_msg", 30_001)?))
}

/// A row of the table that the example speaks of: <https://clickhouse.com/docs/interfaces/formats/JSONEachRow>.
fn clickhouse(body: &Value) -> Result<Shown, String> {
    let row = only(body, "")?;
    time(row, "/time")?;
    holds(row, "/cluster/name", &json!("prod-eu-1"))?;
    holds(row, "/change", &json!("updated"))?;
    holds(row, "/occurrences", &json!(7))?;
    holds(row, "/delta", &json!(4))?;
    let message =
        row.pointer("/event/message").map_or("", |message| message.as_str().unwrap_or(""));
    Ok(shown(any_text(row, "/id")?, message))
}

/// <https://developer.pagerduty.com/docs/send-alert-event>.
fn pagerduty(body: &Value) -> Result<Shown, String> {
    members(body, "", &["routing_key", "event_action", "dedup_key", "client", "payload"])?;
    if text(body, "/routing_key", 32)?.len() != 32 {
        return Err("length of 'routing_key' is incorrect (should be 32 characters)".to_owned());
    }
    holds(body, "/event_action", &json!("trigger"))?;
    text(body, "/dedup_key", 255)?;
    let known = [
        "summary",
        "severity",
        "source",
        "timestamp",
        "component",
        "group",
        "class",
        "custom_details",
    ];
    members(body, "/payload", &known)?;
    text(body, "/payload/summary", 1024)?;
    text(body, "/payload/source", 10_000)?;
    one_of(body, "/payload/severity", &["critical", "error", "warning", "info"])?;
    time(body, "/payload/timestamp")?;
    if body.to_string().len() > 512 << 10 {
        return Err("an event of more than 512 KB".to_owned());
    }
    let details = &body["payload"]["custom_details"];
    Ok(shown(any_text(details, "/event_id")?, any_text(details, "/message")?))
}

/// <https://docs.opsgenie.com/docs/alert-api#create-alert>.
fn opsgenie(body: &Value) -> Result<Shown, String> {
    let known =
        ["message", "alias", "description", "entity", "source", "priority", "tags", "details"];
    members(body, "", &known)?;
    for (at, most) in [("/message", 130), ("/alias", 512), ("/entity", 512), ("/source", 100)] {
        text(body, at, most)?;
    }
    let description = any_text(body, "/description")?;
    if description.chars().count() > 15_000 {
        return Err("a description of more than 15000 characters".to_owned());
    }
    one_of(body, "/priority", &["P1", "P2", "P3", "P4", "P5"])?;
    text(only(body, "/tags")?, "", 50)?;
    let details = body["details"].as_object().ok_or("no details")?;
    let mut characters = 0;
    for (key, value) in details {
        let value = value.as_str().ok_or_else(|| format!("details.{key} is no text"))?;
        characters += key.chars().count() + value.chars().count();
    }
    if characters > 8000 {
        return Err(format!("details of {characters} characters"));
    }
    Ok(shown(any_text(body, "/details/event_id")?, description))
}

/// <https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml>.
fn alertmanager(body: &Value) -> Result<Shown, String> {
    let alert = only(body, "")?;
    members(alert, "", &["labels", "annotations", "startsAt", "endsAt"])?;
    for at in ["/labels", "/annotations"] {
        let all = alert.pointer(at).and_then(Value::as_object).ok_or("no labels")?;
        let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        if let Some((name, _)) = all.iter().find(|(k, v)| !is_name(k) || !v.is_string()) {
            return Err(format!("{at}/{name} is no label"));
        }
    }
    text(alert, "/labels/alertname", 10_000)?;
    let (start, end) = (time(alert, "/startsAt")?, time(alert, "/endsAt")?);
    if end.duration_since(start).as_secs() != 30 * 60 {
        return Err(format!("from {start} to {end}"));
    }
    Ok(shown(
        any_text(alert, "/annotations/event_id")?,
        any_text(alert, "/annotations/description")?,
    ))
}
