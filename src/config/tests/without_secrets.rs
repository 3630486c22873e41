//! A check without secrets refuses whatever one with them refuses, wherever they play no part.

use super::*;
use crate::config::model::SinkModel;

/// What a configuration is refused for, with its secrets and without.
fn both(text: &str, secrets: &[(&str, &str)]) -> [Result<String, String>; 2] {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tidings.yaml");
    fs::write(&path, text).expect("it can be written");
    let told = |result: Result<Summary, Error>| {
        let text = result.map(|summary| summary.to_string()).map_err(|error| error.to_string());
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
const CASES: [Case; 5] = [
    (
        "kafka",
        "{kafka: {brokers: [{env: BROKER}], topic: {env: TOPIC}, sasl: {mechanism: plain, username: \
         {env: TEXT}, password: {env: TEXT}}, tls: {ca: {env: CA}, cert: {env: CERT}, key: {env: KEY}}}}",
        &[
            ("[{env: BROKER}]", "[]", "there are no brokers"),
            ("{env: BROKER}", "kafka", "has no port"),
            ("{env: TOPIC}", "a b", "is no name of a topic"),
            ("tls: {", "tls: {serverName: {env: TEXT}, ", "leave it out"),
            ("tls: {", "tls: {serverName: kafka.example.com, ", "leave it out"),
            (", key: {env: KEY}", "", "there is a `cert` but no `key`"),
            ("cert: {env: CERT}, ", "", "there is a `key` but no `cert`"),
            ("{env: CA}", "DIR/garbage.pem", "cannot be read"),
            ("cert: {env: CERT}", "cert: DIR/garbage.pem", "cannot be read"),
            ("key: {env: KEY}", "key: DIR/garbage.pem", "there is no private key"),
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
            ("{env: URL}", "collector:4317", "has no scheme"),
            ("{env: URL}", "https://collector:4317/path", "gRPC takes no path"),
            ("{env: URL}", "https://collector:4317?x=1", "has no query"),
            ("{env: URL}", "http://127.0.0.1:4317", "there is TLS to set up"),
            ("X-Token", "grpc-timeout", "is set by the bridge"),
            ("X-Token", "Keep-Alive", "is set by the bridge"),
            ("X-Token", "x-token-bin", "binary"),
            ("X-Token", "a b", "no name of a header"),
            ("{env: NAME}", "10.0.0.1", "is not a DNS name"),
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
            ("{env: URL}", "ftp://collector", "no scheme that can be spoken here"),
            ("X-Token", "Content-Type", "is set by the bridge"),
            ("X-Token", "Keep-Alive", "is set by the bridge"),
            ("{env: NAME}", "10.0.0.1", "is not a DNS name"),
            ("{env: CA}", "DIR/no-certificate.pem", "set up the client"),
        ],
    ),
    (
        "webhook",
        "{webhook: {url: {env: URL}, headers: {X-Token: {env: TEXT}}, signing: {secret: {env: SIGNING}}, \
         tls: {ca: {env: CA}, cert: {env: CERT}, key: {env: KEY}, serverName: {env: NAME}}}}",
        &[
            ("{env: URL}", "https://u:p@h", "user and password"),
            ("{env: URL}", "http://127.0.0.1/x", "there is TLS to set up"),
            ("{env: SIGNING}", "whsec_?", "base64"),
            ("X-Token", "webhook-id", "is set by the bridge"),
            ("X-Token", "Keep-Alive", "is set by the bridge"),
            ("{env: NAME}", "10.0.0.1", "is not a DNS name"),
            ("{env: CA}", "DIR/no-certificate.pem", "set up the client"),
            ("{webhook: {", "{match: \"event.typ == 1\", webhook: {", "typ"),
            ("{webhook: {", "{timeout: 0s, webhook: {", "expected a time greater than 0"),
            ("{webhook: {", "{proxy: env, webhook: {", "cannot be together with tls.serverName"),
            (
                "{webhook: {",
                "{proxy: {env: URL}, webhook: {",
                "cannot be together with tls.serverName",
            ),
            ("{webhook: {", "{deadLetters: {sink: b}, webhook: {", "there is no sink `b`"),
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
fn both_checks_refuse_alike() {
    let kinds: std::collections::BTreeSet<_> = CASES.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(
        kinds,
        SinkModel::KINDS.iter().map(|(kind, _)| *kind).collect(),
        "a case for each kind"
    );
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
fn a_pem_that_is_there_is_read_though_what_belongs_to_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let garbage = dir.path().join("garbage.pem");
    fs::write(&garbage, "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n").unwrap();
    let text = format!(
        "sinks: {{a: {{webhook: {{url: \"https://x\", tls: {{cert: {}, key: {{env: KEY}}}}}}}}}}\n",
        garbage.display()
    );
    let [_, without] = both(&text, &[]);
    assert!(
        without
            .unwrap_err()
            .contains("`sinks.a.webhook.tls.cert`: the certificate in it cannot be read")
    );
}
