//! Credentials do not travel in plain text, and those in the file itself are told of.

use super::*;

fn sink(sink: &str) -> Result<Settings, Error> {
    read(&format!("sinks: {{a: {sink}}}\n"), &[("URL", "http://receiver/x"), ("T", "hunter2")])
}

#[test]
fn credentials_in_plain_text_are_refused() {
    let kafka = "{kafka: {brokers: [\"127.0.0.1:9092\"], topic: t, sasl: {mechanism: scram-sha-512, username: u, password: {env: T}}}}";
    let shown: Vec<String> = [
        "{webhook: {url: \"http://receiver/x\", headers: {Authorization: {env: T}, Accept: a}}}",
        "{webhook: {url: {env: URL}, headers: {authorization: {env: T}}}}",
        "{webhook: {url: \"http://receiver/x?key=hunter2\"}}",
        "{webhook: {url: \"http://a.localhost/?key=hunter2\"}}",
        "{webhook: {url: \"http://receiver/{{ id }}?key=hunter2\"}}",
        "{webhook: {url: \"http://receiver/{{ id }}\", headers: {X-Token: \"hunter2 {{ id }}\"}}}",
        "{otlp: {endpoint: \"http://127.0.0.1.example.com:4317\", headers: {X-Api-Key: {env: T}}}}",
        "{webhook: {url: \"http://127.0.0.1/x\", headers: {Authorization: {env: T}}}, proxy: env}",
        "{webhook: {url: \"https://receiver/x\"}, proxy: \"http://user:hunter2@proxy:3128\"}",
        "{webhook: {url: \"http://receiver/x\", auth: {bearer: {env: T}}}}",
        "{webhook: {url: \"https://receiver/x\", auth: {oauth2: {tokenUrl: \"http://tokens\", clientId: i, clientSecret: {env: T}}}}}",
        kafka,
    ]
    .map(|text| sink(text).map(|_| ()).expect_err(text).to_string())
    .into();
    assert!(!shown.concat().contains("hunter2"));
    insta::assert_snapshot!(shown.join("\n\n"));
    let allowed = kafka.replace("{kafka", "{allowPlaintext: true, kafka");
    assert!(sink(&allowed).is_ok());
}

#[test]
fn plain_text_is_taken_without_credentials_or_within_the_machine() {
    for text in [
        "{webhook: {url: \"http://receiver/x\", headers: {X-Scope-OrgID: prod, user-agent: b, Accept: c}}}",
        "{webhook: {url: \"http://127.9.9.9/x?key=k\", headers: {Authorization: {env: T}}}}",
        "{webhook: {url: \"http://localhost:1/x?key=k\", headers: {Authorization: {env: T}}}}",
        "{otlp: {endpoint: \"http://[::1]:4317\", headers: {X-Api-Key: {env: T}}}}",
        "{otlp: {endpoint: \"https://collector\", headers: {X-Api-Key: {env: T}}}}",
        "{otlp: {endpoint: \"http://collector\", headers: {X-Api-Key: {env: T}}}, allowPlaintext: true}",
        "{webhook: {url: {env: URL}, headers: {Authorization: {env: T}}}, allowPlaintext: true}",
        "{webhook: {url: \"https://receiver/x?key=k\"}, proxy: \"https://user:p@proxy:3128\"}",
        "{webhook: {url: \"https://receiver/x\"}, proxy: \"http://user:p@127.0.0.1:3128\"}",
        "{webhook: {url: \"https://receiver/x\"}, proxy: \"http://user:p@proxy:3128\", allowPlaintext: true}",
        "{kafka: {brokers: [\"kafka:9092\"], topic: t, tls: {}, sasl: {mechanism: plain, username: u, password: {env: T}}}}",
    ] {
        assert!(sink(text).is_ok(), "{text}: {}", sink(text).unwrap_err());
    }
}

#[test]
fn a_proxy_before_the_api_server_is_held_to_the_same() {
    let source = |source: &str| {
        let text = format!("source: {source}\nsinks: {{a: {{stdout: {{}}}}}}\n");
        read(&text, &[("T", "http://u:hunter2@proxy:3128")]).map(|_| ())
    };
    for text in [
        "{proxy: \"http://u:hunter2@proxy:3128\"}",
        "{proxy: {env: T}}",
        "{proxy: \"socks5h://u:hunter2@proxy\"}",
        "{proxy: \"socks5://u:hunter2@127.0.0.1\"}",
        "{proxy: \"socks4://hunter2\"}",
    ] {
        let error = source(text).expect_err(text).to_string();
        assert!(error.contains("`source.proxy`: ") && !error.contains("hunter2"), "{error}");
    }
    for text in [
        "{proxy: env}",
        "{proxy: \"https://u:p@proxy:3128\"}",
        "{proxy: \"http://u:p@127.0.0.1:3128\"}",
        "{proxy: {env: T}, allowPlaintext: true}",
        "{proxy: \"socks5://proxy\"}",
    ] {
        source(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

#[test]
fn secrets_in_the_file_itself_are_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidings.yaml");
    fs::write(
        &path,
        "source: {proxy: \"https://u:p@h\"}
sinks:
  k: {kafka: {brokers: [\"k:1\"], topic: t, tls: {}, sasl: {mechanism: plain, username: u, password: p}}}
  o: {otlp: {endpoint: \"https://c\", headers: {X-Api-Key: k, X-Scope-OrgID: o, Other: {env: O}}}}
  w: {webhook: {url: \"https://h/services/T0123/B0123/aBcDeFgH\", signing: {secret: whsec_c3RhbmQtaW4gc3RhbmQtaW4gc3RhbmQtaW4h}}}
  x: {webhook: {url: \"https://h/hooks/events\", signing: {secret: {env: S}}}, proxy: \"https://u:p@h\"}
",
    )
    .unwrap();
    let summary = check(&path, vars(&[]), CheckSecrets::Optional).unwrap();
    let (_, warning) = summary.split_once('\n').unwrap();
    assert_eq!(
        warning,
        "warning: the file itself contains secrets: source.proxy, sinks.k.kafka.sasl.password, \
         sinks.o.otlp.headers.X-Api-Key, sinks.w.webhook.url, sinks.w.webhook.signing.secret, \
         sinks.x.proxy. \
         Write {env: NAME} or {file: PATH} instead"
    );
}
