//! References, and that what they lead to is never shown.

use super::*;

#[test]
fn missing_secrets_say_which_and_how() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    fs::write(&empty, "\n").unwrap();
    let dir_name = dir.path().to_str().unwrap();
    let text = format!(
        "sinks:
  hook:
    webhook:
      url: {{env: HOOK_URL}}
      headers:
        Authorization: {{file: {dir_name}/none}}
        X-Other: {{file: {dir_name}/empty}}
      tls: {{ca: {dir_name}/ca.pem, cert: {{env: EMPTY}}, key: {{file: {dir_name}/empty}}}}
      signing: {{secret: {{env: HOOK_SECRET}}}}
"
    );
    let error = read(&text, &[("EMPTY", "")]).unwrap_err().to_string();
    insta::assert_snapshot!(error.replace(dir_name, "DIR"));
    let path = dir.path().join("tidings.yaml");
    fs::write(&path, &text).unwrap();
    assert!(check(&path, vars(&[]), CheckSecrets::Optional).is_ok());
}

/// Every value that may be a secret is `hunter2` here, and each text is wrong in another way.
#[test]
fn no_error_and_no_debug_shows_a_secret() {
    let kafka = "{brokers: [\"a:1\"], topic: t, sasl: {mechanism: plain, username: hunter2, password: hunter2}}";
    let webhook = "{url: \"https://hunter2@h/hunter2?t=hunter2\", headers: {Authorization: hunter2, name: hunter2}, signing: {secret: hunter2}}";
    let texts = [
        format!("sinks: {{a: {{kafka: {kafka}, batch: {{events: x}}}}}}\n"),
        format!("sinks: {{a: {{kafka: {kafka}, colour: hunter2}}}}\n"),
        format!("sinks: {{a: {{kafka: {kafka}, match: evnt}}}}\n"),
        format!("sinks: {{a: {{kafka: {}}}}}\n", kafka.replace("password:", "pasword:")),
        format!("sinks: {{a: {{kafka: {}}}}}\n", kafka.replace("plain", "none")),
        format!("sinks: {{a: {{kafka: {}}}}}\n", kafka.replace("password: hunter2", "password: [hunter2]")),
        format!("sinks: {{a: {{kafka: {}}}}}\n", kafka.replace("password: hunter2", "password: hunter2, password: hunter2")),
        format!("sinks: {{a: {{kafka: {}}}}}\n", kafka.replace("password: hunter2", "password: {hunter2: hunter2x}").replace("{hunter2:", "{wrong:")),
        format!("sinks: {{a: {{kafka: {}}}}}\n", kafka.replace("a:1", "hunter2@a:1")),
        format!("sinks: {{a: {{webhook: {webhook}}}}}\n"),
        format!("sinks: {{a: {{webhook: {}, timeout: 0s}}}}\n", webhook.replace("hunter2@", "")),
        format!("sinks: {{a: {{webhook: {}}}}}\n", webhook.replace("headers: {", "headers: {a b: x, ")),
        format!("sinks: {{a: {{webhook: {}}}}}\n", webhook.replace("Authorization: hunter2", "Authorization: \"hunter2\\n\"")),
        format!("sinks: {{a: {{webhook: {}}}}}\n", webhook.replace("secret: hunter2", "secret: whsec_hunter2")),
        format!("sinks: {{a: {{webhook: {}}}}}\n", webhook.replace("https:", "htp:")),
        "sinks: {a: {webhook: {url: hunter2}}}\n".to_owned(),
        "server: {token: hunter2}\nsinks: {a: {stdout: {}}}\n".to_owned(),
        "sinks: {a: {webhook: {url: \"hunter2://x\"}}}\n".replace("hunter2:", "hunter2hunter2:"),
        "sinks: {a: {webhook: {url: \"https://x:hunter2\"}}}\n".to_owned(),
        "sinks: {a: {otlp: {endpoint: \"http://u:hunter2@x\"}}}\n".to_owned(),
        "sinks: {a: {webhook: {url: \"https://x\", tls: {key: \"-----BEGIN PRIVATE KEY-----hunter2\"}}}}\n".to_owned(),
        "sinks: {a: {webhook: {url: \"https://x\", headers: hunter2}}}\n".to_owned(),
        "sinks: {a: {webhook: {url: \"https://x\", header: {name: hunter2}}}}\n".to_owned(),
        "sinks: {a: {webhook: {url: \"https://x\", tls: {key: hunter2}}}}\n".to_owned(),
        "sinks: {a: {webhook: {url: \"https://x\", headers: [hunter2]}}}\n".to_owned(),
        "sinks: {a: {webhook: {url: \"https://x\", signing: hunter2}}}\n".to_owned(),
        "sinks:\n  a:\n    webhook:\n      url: https://x\n      headers:\n        A: |\n          hunter2\n          hunter2\n".to_owned(),
        "sinks: {a: {webhook: {url: \"https://x\", signing: {secret: hunter2}}\n".to_owned(),
        "sinks: {a: {webhook: {url: \"https://x\", signing: {secret: 'hunter2}}}}\n".to_owned(),
        "hunter2\n".to_owned(),
        "# was hunter2\nsinks: {a: {webhook: {url: \"https://x\"}, timeout: 0s}} # was hunter2\n#hunter2\n".to_owned(),
        "sinks: {a: {otlp: {endpoint: \"https://x:4317/hunter2\"}, timeout: 0s}}\n".to_owned(),
        "sinks: {a: {webhook: {url: \"https://x\", headers: {Bearer hunter2: x}}}}\n".to_owned(),
        "sinks: {a: {webhook: {url: {env: Bearer hunter2}}, timeout: 0s}}\n".to_owned(),
    ];
    for text in texts {
        let error = read(&text, &[]).map(|_| ()).expect_err(&text);
        for shown in [error.to_string(), drawn(&error), format!("{error:?}")] {
            assert!(!shown.contains("hunter2"), "{text}\n{shown}");
        }
    }
    let text = "sinks:
  a: {kafka: {brokers: [\"a:1\"], topic: t, sasl: {mechanism: plain, username: hunter2, password: {env: P}}, tls: {}}}
  b: {webhook: {url: {env: URL}, headers: {a: hunter2}, signing: {secret: whsec_aHVudGVyMmh1bnRlcjJodW50ZXIyaHVudGVyMg==}}}
";
    let variables = Variables::new(vars(&[("P", "hunter2"), ("URL", "https://hunter2")]));
    let loaded = load::from_text("tidings.yaml", text, &variables).unwrap();
    let settings = build::build(&loaded, &variables, CheckSecrets::Required).unwrap();
    for shown in [format!("{:?}", loaded.model), format!("{settings:?}")] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn a_referenced_value_is_not_shown_where_it_is_misplaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidings.yaml");
    for sink in [
        "{stdout: {}, match: {env: P}}",
        "{stdout: {}, deadLetters: {sink: {env: P}}}",
        "{webhook: {url: \"https://x\", tls: {serverName: {env: P}}}}",
        "{webhook: {url: \"https://x\", tls: {ca: {env: P}}}}",
        "{otlp: {endpoint: \"https://x\", tls: {serverName: {env: P}}}}",
        "{kafka: {brokers: [{env: P}], topic: t}}",
        "{kafka: {brokers: [\"a:1\"], topic: {env: P}}}",
    ] {
        fs::write(&path, format!("sinks: {{a: {sink}}}\n")).unwrap();
        let checked = check(&path, vars(&[("P", "Bearer hunter2")]), CheckSecrets::Required);
        let error = checked.map(|_| ()).expect_err(sink);
        for shown in [error.to_string(), drawn(&error)] {
            assert!(!shown.contains("hunter2"), "{sink}\n{shown}");
        }
    }
}
