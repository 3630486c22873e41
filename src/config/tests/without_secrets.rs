//! A check without secrets refuses whatever one with them refuses, wherever they play no part.

use super::*;
use crate::sinks::KINDS;

/// The results for a configuration, with its secrets and without.
fn both(text: &str, secrets: &[(&str, &str)]) -> [Result<String, String>; 2] {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tidings.yaml");
    fs::write(&path, text).expect("it can be written");
    let told = |result: Result<String, Error>| {
        let text = result.map_err(|error| error.to_string());
        let short = |text: String| text.replace(&path.display().to_string(), "tidings.yaml");
        text.map(short).map_err(short)
    };
    [
        told(check(&path, vars(secrets), CheckSecrets::Required)),
        told(check(&path, vars(&[]), CheckSecrets::Optional)),
    ]
}

/// A certificate and its key, for whoever asks.
fn pair() -> (String, String) {
    let made =
        rcgen::generate_simple_self_signed(["receiver".to_owned()]).expect("one can be made");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// For each kind a sink whose every secret, address and certificate is somewhere else, and is in order;
/// then changes of it that are refused, as `(what is replaced, by what, what is said of it)`.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str, &'static str)]);
const CASES: [Case; 10] = [
    (
        "kafka",
        "{kafka: {brokers: [{env: BROKER}], topic: {env: TOPIC}, sasl: {mechanism: plain, username: \
         {env: TEXT}, password: {env: TEXT}}, tls: {ca: {env: CA}, cert: {env: CERT}, key: {env: KEY}}}}",
        &[
            ("[{env: BROKER}]", "[]", "expected brokers, found none"),
            ("{env: BROKER}", "kafka", "has no port"),
            ("{env: TOPIC}", "a b", "expected the name of a topic"),
            ("tls: {", "tls: {serverName: {env: TEXT}, ", "leave it out"),
            ("tls: {", "tls: {serverName: kafka.example.com, ", "leave it out"),
            (", key: {env: KEY}", "", "expected `key` beside `cert`"),
            ("cert: {env: CERT}, ", "", "expected `cert` beside `key`"),
            ("{env: CA}", "DIR/garbage.pem", "cannot be read"),
            ("cert: {env: CERT}", "cert: DIR/garbage.pem", "cannot be read"),
            (
                "key: {env: KEY}",
                "key: DIR/garbage.pem",
                "expected a private key in PEM, found none",
            ),
            ("{env: CA}", "DIR/no-certificate.pem", "librdkafka refuses"),
            (
                "[{env: BROKER}], topic: {env: TOPIC}, sasl: {mechanism: plain, username: \
                 {env: TEXT}, password: {env: TEXT}}, tls: {ca: {env: CA}, cert: {env: CERT}, key: {env: KEY}}",
                "[\"kafka:9092\"], topic: t, sasl: {mechanism: plain, username: {env: TEXT}, password: {env: TEXT}}",
                "without TLS",
            ),
        ],
    ),
    (
        "otlp",
        "{otlp: {endpoint: {env: URL}, headers: {X-Token: {env: TEXT}}, tls: {ca: {env: CA}, cert: \
         {env: CERT}, key: {env: KEY}, serverName: {env: NAME}}}}",
        &[
            ("{env: URL}", "collector:4317", "found no scheme"),
            ("{env: URL}", "https://collector:4317/path", "gRPC takes no path"),
            ("{env: URL}", "https://collector:4317?x=1", "expected an address without a query"),
            ("{env: URL}", "http://127.0.0.1:4317", "beside `tls`, found `http://`"),
            ("X-Token", "grpc-timeout", "is set by the bridge"),
            ("X-Token", "Keep-Alive", "is set by the bridge"),
            ("X-Token", "x-token-bin", "binary"),
            ("X-Token", "a b", "expected the name of a header"),
            ("{env: NAME}", "10.0.0.1", "expected a DNS name"),
            (
                "{env: URL}, headers: {X-Token: {env: TEXT}}, tls: {ca: {env: CA}, cert: {env: CERT}, key: \
                 {env: KEY}, serverName: {env: NAME}}",
                "\"http://collector:4317\", headers: {X-Token: {env: TEXT}}",
                "in plain text",
            ),
        ],
    ),
    (
        "otlp",
        "{otlp: {protocol: http, endpoint: {env: URL}, headers: {X-Token: {env: TEXT}}, tls: {ca: \
         {env: CA}, cert: {env: CERT}, key: {env: KEY}, serverName: {env: NAME}}}}",
        &[
            ("{env: URL}", "ftp://collector", "found `ftp://`"),
            ("X-Token", "Content-Type", "is set by the bridge"),
            ("X-Token", "Keep-Alive", "is set by the bridge"),
            ("{env: NAME}", "10.0.0.1", "expected a DNS name"),
            ("{env: CA}", "DIR/no-certificate.pem", "tls.ca`: invalid peer certificate"),
        ],
    ),
    (
        "webhook",
        "{webhook: {url: {env: URL}, headers: {X-Token: {env: TEXT}}, signing: {secret: {env: SIGNING}}, \
         tls: {ca: {env: CA}, cert: {env: CERT}, key: {env: KEY}, serverName: {env: NAME}}}}",
        &[
            ("{env: URL}", "https://u:p@h", "user and password"),
            ("{env: URL}", "http://127.0.0.1/x", "beside `tls`, found `http://`"),
            ("{env: SIGNING}", "whsec_?", "base64"),
            ("X-Token", "webhook-id", "is set by the bridge"),
            ("X-Token", "Keep-Alive", "is set by the bridge"),
            ("{env: NAME}", "10.0.0.1", "expected a DNS name"),
            ("{env: CA}", "DIR/no-certificate.pem", "tls.ca`: invalid peer certificate"),
            ("{webhook: {", "{match: \"event.typ == 1\", webhook: {", "typ"),
            ("{webhook: {", "{timeout: 0s, webhook: {", "expected a duration above zero"),
            ("{webhook: {", "{proxy: env, webhook: {", "cannot be together with tls.serverName"),
            (
                "{webhook: {",
                "{proxy: {env: URL}, webhook: {",
                "cannot be together with tls.serverName",
            ),
            ("{webhook: {", "{deadLetters: {sink: b}, webhook: {", "found `b`"),
        ],
    ),
    (
        "elasticsearch",
        "{elasticsearch: {urls: [{env: URL}], index: k8s, auth: {apiKey: {env: TEXT}}, tls: {ca: {env: CA}, cert: \
         {env: CERT}, key: {env: KEY}, serverName: {env: NAME}}}}",
        &[
            ("{env: URL}", "ftp://h", "found `ftp://`"),
            ("{env: URL}", "https://h?x=1", "expected an address without a query"),
            ("{env: URL}", "http://127.0.0.1", "beside `tls`, found `http://`"),
            ("k8s", "K8s", "found one with the capital"),
            ("{env: TEXT}", "id:key", "expected base64"),
            ("{env: NAME}", "10.0.0.1", "expected a DNS name"),
            ("{env: CA}", "DIR/no-certificate.pem", "tls.ca`: invalid peer certificate"),
        ],
    ),
    (
        "splunk",
        "{splunk: {url: {env: URL}, token: {env: TEXT}, index: k8s, tls: {ca: {env: CA}, cert: {env: CERT}, key: \
         {env: KEY}, serverName: {env: NAME}}}}",
        &[
            ("{env: URL}", "ftp://h", "found `ftp://`"),
            ("{env: URL}", "https://h?x=1", "expected an address without a query"),
            ("{env: URL}", "https://h/services/collector/event", "one of its event collector"),
            ("{env: URL}", "http://127.0.0.1", "beside `tls`, found `http://`"),
            ("{env: TEXT}", "Splunk t", "a text with a blank"),
            ("k8s", "\"{{ idd }}\"", "expected a variable"),
            ("k8s", "k8s, acknowledgeWithin: 1m", "expected `acknowledge: true`"),
            ("{env: NAME}", "10.0.0.1", "expected a DNS name"),
            ("{env: CA}", "DIR/no-certificate.pem", "tls.ca`: invalid peer certificate"),
        ],
    ),
    (
        "loki",
        "{loki: {url: {env: URL}, tenant: team, labels: {env: prod}, auth: {bearer: {env: TEXT}}, tls: {ca: {env: CA}, \
         cert: {env: CERT}, key: {env: KEY}, serverName: {env: NAME}}}}",
        &[
            ("{env: URL}", "ftp://h", "found `ftp://`"),
            ("{env: URL}", "https://h?x=1", "expected an address without a query"),
            ("{env: URL}", "https://h/loki/api/v1/push", "one of pushes"),
            ("{env: URL}", "http://127.0.0.1", "beside `tls`, found `http://`"),
            ("team", "a/b", "expected a tenant"),
            ("env: prod", "env: \"{{ idd }}\"", "expected a variable"),
            ("env: prod", "__env: prod", "expected the name of a label"),
            ("{env: NAME}", "10.0.0.1", "expected a DNS name"),
            ("{env: CA}", "DIR/no-certificate.pem", "tls.ca`: invalid peer certificate"),
        ],
    ),
    (
        "syslog",
        "{syslog: {address: \"h:6514\", transport: tls, appName: tidings, tls: {ca: {env: CA}, cert: {env: CERT}, key: \
         {env: KEY}, serverName: {env: NAME}}}}",
        &[
            ("h:6514", "h", "which has no port"),
            ("h:6514", "tcp://h:514", "an address with a scheme"),
            ("transport: tls", "transport: udp", "expected `transport: tls` beside `tls`"),
            ("appName: tidings", "appName: a b", "expected the name of an application"),
            ("{env: NAME}", "10.0.0.1", "expected a DNS name"),
            ("{env: CA}", "DIR/no-certificate.pem", "tls.ca`: invalid peer certificate"),
        ],
    ),
    (
        "file",
        "{file: {path: /var/log/tidings/events.ndjson, rotate: {size: 1MiB, age: 1h, keep: 3}}}",
        &[
            ("events.ndjson", "", "expected the path of a file, found a directory"),
            (
                "/var/log/tidings/events.ndjson",
                "..",
                "expected the path of a file, found a directory",
            ),
            (
                "/var/log/tidings/events.ndjson",
                "\"\"",
                "expected the path of a file, found an empty text",
            ),
            ("1MiB", "0", "expected a size above zero"),
            ("1h", "0s", "expected a duration above zero"),
            ("keep: 3", "keep: 0", "expected a number from 1 to 100000, found 0"),
        ],
    ),
    (
        "stdout",
        "{stdout: {}}",
        &[
            ("{stdout: {}", "{stdout: {}, compression: gzip", "cannot compress"),
            ("{stdout: {}", "{stdout: {}, allowPlaintext: true", "sends nothing over a network"),
        ],
    ),
];

#[test]
fn both_checks_refuse_the_same_mistakes() {
    let kinds: std::collections::BTreeSet<_> = CASES.iter().map(|(kind, ..)| *kind).collect();
    for kind in KINDS {
        let mut generator = schemars::SchemaGenerator::default();
        (kind.schema)(&mut generator);
        let takes_texts = generator.definitions().contains_key("Text");
        assert!(
            !takes_texts || kinds.contains(kind.name),
            "{}: expected cases, found none",
            kind.name
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let frame = |inside: &str| {
        format!("-----BEGIN CERTIFICATE-----\n{inside}\n-----END CERTIFICATE-----\n")
    };
    file("garbage.pem", &frame("!"));
    file("no-certificate.pem", &frame("eA=="));
    let (certificate, key) = pair();
    let secrets = [
        ("BROKER", "kafka.example.com:9092"),
        ("TOPIC", "t"),
        ("TEXT", "hunter2"),
        ("URL", "https://receiver"),
        ("NAME", "receiver"),
        ("SIGNING", "whsec_aHVudGVyMmh1bnRlcjJodW50ZXIyaHVudGVyMg=="),
        ("CA", &*certificate),
        ("CERT", &*certificate),
        ("KEY", &*key),
    ];
    for (kind, sink, changes) in CASES {
        let text = format!("sinks: {{a: {sink}}}\n");
        let ok = format!("tidings.yaml: ok (1 sink: a → {kind})");
        assert_eq!(both(&text, &secrets), [Ok(ok.clone()), Ok(ok)], "{text}");
        for (place, change, said) in changes {
            assert!(text.contains(place), "{kind}: {place}");
            let changed = text.replacen(place, change, 1);
            let changed = changed.replace("DIR", dir.path().to_str().unwrap());
            let [with, without] = both(&changed, &secrets);
            assert_eq!(with, without, "{changed}");
            let error = with.expect_err(&changed);
            assert!(error.contains(said), "{changed}\n{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}

#[test]
fn a_pem_is_read_though_its_counterpart_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let garbage = dir.path().join("garbage.pem");
    fs::write(&garbage, "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n").unwrap();
    let text = format!(
        "sinks: {{a: {{webhook: {{url: \"https://x\", tls: {{cert: {}, key: {{env: KEY}}}}}}}}}}\n",
        garbage.display()
    );
    let [_, without] = both(&text, &[]);
    assert!(without.unwrap_err().contains(
        "`sinks.a.webhook.tls.cert`: expected a certificate in PEM, found one that cannot be read"
    ));
}
