use std::{any::Any, ffi::OsString, fs, path::Path, sync::Arc, time::Duration};

use miette::{GraphicalReportHandler, GraphicalTheme};
use proptest::prelude::*;
use tidings_log::Sync;

use super::*;
use crate::{
    bridge::{BatchOptions, RetryOptions, SinkStart, SourceStart},
    sinks::{Compression, KafkaOptions, WebhookOptions},
};

mod bad_input;
mod fixed;
mod journal_alone;
mod overlaid;
mod plaintext;
mod secret_values;
mod without_secrets;

fn vars(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn read(text: &str, env: &[(&str, &str)]) -> Result<Settings, Error> {
    parse("tidings.yaml", text, vars(env))
}

/// The options of a sink's kind.
fn options<T: Any>(sink: &SinkSettings) -> &T {
    let options: &dyn Any = &*sink.sink;
    options.downcast_ref().expect("options of that kind")
}

/// The plain text of what is wrong with a configuration.
fn refused(text: &str, env: &[(&str, &str)]) -> String {
    read(text, env).map(|_| ()).expect_err(text).to_string()
}

/// An error as a terminal shows it, without colours.
fn drawn(error: &Error) -> String {
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor());
    let mut out = String::new();
    for problem in error.problems() {
        handler.render_report(&mut out, problem.report().as_ref()).expect("a string takes it");
    }
    // Trailing white space is the renderer's affair.
    out.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn defaults_are_those_of_the_contract() {
    let settings = read("sinks: {a: {stdout: }, b: {webhook: {url: \"http://x\"}}}", &[]).unwrap();
    assert_eq!(settings.cluster.name, None);
    assert_eq!(settings.source.kubeconfig, None);
    assert!(settings.source.events.namespaces.is_empty());
    assert_eq!(settings.source.events.field_selector, "");
    assert_eq!(settings.source.events.start, SourceStart::All);
    assert_eq!(settings.journal.path, Path::new("/var/lib/tidings"));
    assert_eq!(settings.journal.log.retention_size, 1 << 30);
    assert_eq!(settings.journal.log.retention_age, Duration::from_hours(24));
    assert_eq!(settings.journal.log.sync, Sync::Interval(Duration::from_secs(1)));
    assert_eq!(settings.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(settings.log.level, LogLevel::Info);
    assert_eq!(settings.log.format, LogFormat::Text);
    let [stdout, webhook] = settings.sinks.as_slice() else { panic!("two sinks") };
    assert_eq!(
        stdout.batch,
        BatchOptions { events: 500, bytes: 1 << 20, linger: Duration::from_millis(20) }
    );
    assert_eq!(webhook.batch, BatchOptions { events: 1, ..stdout.batch });
    assert_eq!(
        stdout.retry,
        RetryOptions {
            initial: Duration::from_millis(100),
            max: Duration::from_secs(30),
            max_attempts: None
        }
    );
    assert_eq!(stdout.timeout, Duration::from_secs(10));
    assert_eq!(stdout.start, SinkStart::Now);
    assert!(stdout.filter.is_none());
    let options: &WebhookOptions = options(webhook);
    assert!(options.single);
    assert_eq!(options.http.compression, Compression::None);
    assert!(without_file(vars(&[])).is_ok());
}

#[test]
fn dead_letters_leave_most_of_a_small_journal_to_the_log() {
    for (journal, room) in [
        ("{}", 64 << 20),
        ("{retention: {size: 64MiB}}", 16 << 20),
        ("{retention: {size: 64MiB}, deadLetters: 32MiB}", 32 << 20),
    ] {
        let text = format!("journal: {journal}\nsinks: {{a: {{stdout: {{}}}}}}\n");
        assert_eq!(read(&text, &[]).unwrap().journal.dead_letters, room, "{journal}");
    }
}

#[test]
fn a_secret_of_the_environment_is_shown_by_its_key_alone() {
    let variables = [("TIDINGS_SOURCE__PROXY", "https://u:p@h:1")];
    let settings = read("sinks: {out: {stdout: {}}}", &variables).unwrap();
    insta::assert_snapshot!(settings.shown, @r#"
    # source.proxy is set by TIDINGS_SOURCE__PROXY.
    sinks:
      out:
        stdout: {}
    source:
      proxy: "***"
    "#);
}

#[test]
fn every_key_reaches_the_settings() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cert = file("cert.pem", "-----BEGIN CERTIFICATE-----\neA==\n-----END CERTIFICATE-----\n");
    let key =
        file("key.pem", "-----BEGIN EC PRIVATE KEY-----\neA==\n-----END EC PRIVATE KEY-----\n");
    let password = file("password", "hunter2\r\n");
    let token = file("token", "0123456789abcdef\n");
    let text = format!(
        r#"
cluster: {{name: 1.10, uid: {{env: UID}}}}
source: {{kubeconfig: /k, proxy: "https://u:p@proxy", namespaces: [a, {{env: NS}}], fieldSelector: "type=Warning", start: 10m, heartbeat: 30s}}
journal: {{path: /j, retention: {{size: 64MiB, age: 1h30m}}, sync: always, maxEvent: 8KiB}}
sinks:
  audit:
    kafka:
      brokers: ["a:1", {{env: BROKERS}}]
      topic: t
      key: object
      tls: {{ca: {cert}, cert: {{env: CERT}}, key: {{file: {key}}}, serverName: s}}
      sasl: {{mechanism: scram-sha-512, username: u, password: {{file: {password}}}}}
    batch: {{events: 7, size: 2048, linger: 0s}}
    match: event.type == "Warning" && object.labels["app"] == "web"
    enrich: {{labels: [app, "team/*"], annotations: ["*"], owners: true, node: true}}
    correlate: {{mode: none}}
    retry: {{initial: 1s, max: 1s, maxAttempts: 3}}
    timeout: 1m
    concurrency: 3
    maxEvent: 4KiB
    compression: zstd
    overflow: block
    start: oldest
  otel: {{otlp: {{endpoint: "https://c:4317", protocol: http, headers: {{a: 5, B: {{env: UID}}}}, tls: }}}}
  pager:
    webhook: {{url: {{env: URL}}, signing: {{secret: ["whsec_c3RhbmQtaW4gc3RhbmQtaW4gc3RhbmQtaW4h", whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=]}}, headers: }}
    batch: {{events: 2}}
    connection: {{maxAge: 90s}}
metrics: [{{name: oom, match: "delta > 1", labels: {{ns: "{{{{ event.metadata.namespace }}}}", env: prod}}, max: 5}}, {{name: all}}]
objects: {{watch: [jobs.batch], qps: 5, burst: 6, budget: 1s, cache: 7}}
server: {{listen: "[::1]:0", detail: metrics, token: {{file: {token}}}}}
log: {{level: debug, format: json}}
telemetry: {{otlp: {{endpoint: "http://c:4317", resource: {{a: b}}}}, allowPlaintext: true}}
leaderElection: {{enabled: false, lease: l}}
"#
    );
    let cert_text = fs::read_to_string(&cert).unwrap();
    let settings = read(
        &text,
        &[
            ("UID", "8d6b"),
            ("NS", "b"),
            ("BROKERS", "b:2, c:3"),
            ("CERT", &cert_text),
            ("URL", "https://hooks/T0KEN"),
        ],
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let mut settings = settings;
    let kafka: &KafkaOptions = options(&settings.sinks[0]);
    let mut kafka = kafka.clone();
    let tls = kafka.tls.as_mut().unwrap();
    // Its final line feed is dropped only from a reference.
    assert_eq!(tls.ca.take().unwrap(), cert_text.trim_end().as_bytes());
    assert_eq!(tls.cert.take().unwrap(), cert_text.as_bytes());
    settings.sinks[0].sink = Arc::new(kafka);
    let shown = std::mem::take(&mut settings.shown);
    insta::assert_snapshot!(format!("{settings:#?}"));
    insta::assert_snapshot!(shown.replace(dir.path().to_str().unwrap(), "DIR"));
    let kafka: &KafkaOptions = options(&settings.sinks[0]);
    assert_eq!(kafka.sasl.as_ref().unwrap().password.expose(), "hunter2");
    let webhook: &WebhookOptions = options(&settings.sinks[2]);
    assert_eq!(webhook.http.url.expose(), "https://hooks/T0KEN");
    assert!(!webhook.single);
}

#[test]
fn anchors_and_merges_are_plain_yaml() {
    let text = "sinks:\n  a: &a {stdout: {}, batch: &b {events: 3}}\n  b: {stdout: {}, batch: {<<: *b, linger: 1s}}\n";
    let settings = read(text, &[]).unwrap();
    let batch = settings.sinks[1].batch;
    assert_eq!((batch.events, batch.linger.as_secs()), (3, 1));
}

#[test]
fn check_says_what_it_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidings.yaml");
    fs::write(
        &path,
        "sinks:\n  b: {kafka: {brokers: [\"k:1\"], topic: t, sasl: {mechanism: plain, username: u, password: {env: P}}, tls: {}}}\n  a: {stdout: }\n",
    )
    .unwrap();
    let name = path.to_str().unwrap();
    let summary = check(&path, vars(&[]), CheckSecrets::Optional).unwrap();
    assert_eq!(summary, format!("{name}: ok (2 sinks: b → kafka, a → stdout)"));
    fs::write(&path, "sinks: {a: {stdout: , enrich: {node: true}}}\n").unwrap();
    let summary = check(&path, vars(&[]), CheckSecrets::Optional).unwrap();
    let needs = "enrichment needs these permissions: get, list and watch for pods, replicasets.apps, \
        deployments.apps; get for whatever else events are about (deploy/rbac-enrichment.yaml)";
    assert_eq!(summary, format!("{name}: ok (1 sink: a → stdout)\n{needs}"));
    fs::write(&path, "sinks: {a: {stdout: , overflow: block}}\n").unwrap();
    let summary = check(&path, vars(&[]), CheckSecrets::Optional).unwrap();
    assert!(summary.contains("\nwarning: overflow: block (a): "), "{summary}");
    fs::write(
        &path,
        "sinks:\n  b: {kafka: {brokers: [\"k:1\"], topic: t, sasl: {mechanism: plain, username: u, password: {env: P}}, tls: {}}}\n  a: {stdout: }\n",
    )
    .unwrap();
    let error = check(&path, vars(&[]), CheckSecrets::Required).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "{name}:2:81: `sinks.b.kafka.sasl.password`: the environment variable P is not set\n  hint: set P"
        )
    );
    let error = load(&dir.path().join("none.yaml"), vars(&[])).unwrap_err().to_string();
    assert!(error.contains("none.yaml: cannot be read: "), "{error}");
}

#[test]
fn check_refuses_a_kubeconfig_that_cannot_be_read_unless_secrets_are_optional() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidings.yaml");
    let refused = |kubeconfig: &str, secrets| {
        let text = format!("source: {{kubeconfig: {kubeconfig}}}\nsinks: {{a: {{stdout: }}}}\n");
        fs::write(&path, text).unwrap();
        let checked = check(&path, vars(&[("K", "/no/kubeconfig")]), secrets);
        checked.err().map(|error| error.to_string().replace(path.to_str().unwrap(), "tidings.yaml"))
    };
    assert_eq!(
        refused("/no/kubeconfig", CheckSecrets::Required).unwrap(),
        "tidings.yaml:1:22: `source.kubeconfig`: the file `/no/kubeconfig` cannot be read: No such \
         file or directory (os error 2)\n  hint: create it, or mount the Secret that holds it"
    );
    let by_reference = refused("{env: K}", CheckSecrets::Required).unwrap();
    assert!(by_reference.contains("the file `…` cannot be read: "), "{by_reference}");
    assert_eq!(refused("/no/kubeconfig", CheckSecrets::Optional), None);
    assert_eq!(refused(path.to_str().unwrap(), CheckSecrets::Required), None);
}

/// Random YAML-like text.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "sinks", "a", "kafka", "stdout", "batch", "events", "match", "url", "env", "file", ": ",
        ":", "\n", "\n  ", "\n    ", "- ", "{", "}", "[", "]", ", ", "\"", "'", "|", ">", "&x ",
        "*x", "<<", "1", "10s", "1GiB", "~", "#", "!!str ", "!!int ", "é", "\t", "\u{feff}", "---",
        "..", "event.", "headers", "source", "journal",
    ]);
    prop_oneof![
        4 => prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat()),
        1 => "\\PC{0,80}",
    ]
}

proptest! {
    #[test]
    fn arbitrary_text_causes_no_panic(text in texts()) {
        for text in [text.clone(), format!("sinks:\n  a:\n    {text}"), format!("sinks: {{a: {{stdout: , {text}}}}}")] {
            if let Err(error) = read(&text, &[("TIDINGS_LOG__LEVEL", "debug")]) {
                prop_assert!(!error.problems().is_empty());
                prop_assert!(!error.to_string().is_empty());
                drawn(&error);
            }
        }
    }
}
