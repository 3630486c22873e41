//! One snapshot for each way to get a configuration wrong.

use super::*;

/// A configuration in order, for cases that break one thing in it.
fn sink(body: &str) -> String {
    format!("sinks:\n  audit:\n    stdout: {{}}\n    {body}\n")
}

fn all(cases: &[(&str, String)]) -> String {
    cases
        .iter()
        .map(|(name, text)| format!("### {name}\n{text}---\n{}\n", refused(text, &[])))
        .collect::<Vec<_>>()
        .join("\n")
}

macro_rules! cases {
    ($($name:literal: $text:expr),* $(,)?) => {
        all(&[$(($name, String::from($text))),*])
    };
}

#[test]
fn unknown_keys_and_wrong_types_are_refused() {
    insta::assert_snapshot!(cases! {
        "unknown key": sink("retrise: {max: 1s}"),
        "unknown key, far from any": sink("colour: red"),
        "unknown key of a kind": "sinks:\n  audit:\n    kafka:\n      broker: [\"a:1\"]\n      topic: t\n",
        "unknown key of the root": "journals: {}\nsinks: {a: {stdout: {}}}\n",
        "a sink at the root": "kafka: {brokers: [\"a:1\"], topic: t}\nsinks: {a: {stdout: {}}}\n",
        "missing key": "sinks:\n  audit:\n    kafka: {topic: t}\n",
        "wrong type: text for a number": sink("batch: {events: many}"),
        "wrong type: quoted number": sink("batch: {events: \"5\"}"),
        "wrong type: negative": sink("batch: {events: -5}"),
        "wrong type: fraction": sink("batch: {events: 1.5}"),
        "a number too large": sink("batch: {events: 18446744073709551615}"),
        "a number too large for any": sink("retry: {maxAttempts: 4294967296}"),
        "wrong type: list for a text": sink("match: [a]"),
        "wrong type: number for a mapping": sink("batch: 500"),
        "wrong type: text for a list": "source: {namespaces: shop}\nsinks: {a: {stdout: {}}}\n",
        "wrong type: nothing": sink("timeout:"),
        "wrong type: boolean": "leaderElection: {enabled: yes}\nsinks: {a: {stdout: {}}}\n",
        "unparsable duration": sink("timeout: 10 seconds"),
        "duration without a unit": sink("timeout: 10"),
        "unparsable size": sink("batch: {size: 1G}"),
        "unknown word": "log: {level: inf}\nsinks: {a: {stdout: {}}}\n",
        "unknown mechanism": "sinks:\n  a:\n    kafka:\n      brokers: [\"a:1\"]\n      topic: t\n      sasl:\n        mechanism: scram-sha-1\n        username: u\n        password: p\n",
        "unknown reference": "sinks:\n  a:\n    webhook:\n      url: {secret: HOOK}\n",
        "reference to two": "sinks:\n  a:\n    webhook:\n      url: {env: A, file: b}\n",
        "duplicate key": sink("timeout: 1s\n    timeout: 2s"),
        "duplicate sink": "sinks:\n  audit: {stdout: {}}\n  other: {stdout: {}}\n  audit: {stdout: {}}\n",
        "a kind that is null": "sinks:\n  audit:\n    null: {}\n",
        "a sink that is null, and a key": "sinks:\n  ~: {stdout: {}}\nnull: x\n",
        "no key": "sinks:\n  a:\n    stdout: {}\n    : x\n",
        "not YAML": "sinks:\n  a: {stdout: {}\n",
        "a tab": "sinks:\n\ta: {stdout: {}}\n",
        "two documents": "sinks: {a: {stdout: {}}}\n---\nsinks: {a: {stdout: {}}}\n",
        "a list": "- a\n",
        "empty": "# nothing\n",
    });
}

#[test]
fn bad_sinks_are_refused() {
    insta::assert_snapshot!(cases! {
        "no sinks": "log: {level: info}\n",
        "empty sinks": "sinks: {}\n",
        "sinks as a list": "sinks:\n  - stdout: {}\n",
        "unknown sink kind": "sinks:\n  audit:\n    kafak: {topic: t}\n",
        "unknown sink kind, far from any": "sinks:\n  audit:\n    batch: {events: 5}\n    carrier: {url: x}\n",
        "two kinds": "sinks:\n  audit:\n    stdout: {}\n    webhook: {url: \"http://x\"}\n",
        "no kind": "sinks:\n  audit:\n    batch: {events: 5}\n",
        "an empty sink": "sinks:\n  audit:\n",
        "a sink that is a text": "sinks:\n  audit: stdout\n",
        "a signing secret that receivers would decode": "sinks:\n  a: {webhook: {url: \"https://h\", signing: {secret: a text of twenty-four bytes}}}\n",
        "a short signing secret, in a list": "sinks:\n  a: {webhook: {url: \"https://h\", signing: {secret: [whsec_c2VjcmV0, secret]}}}\n",
        "proxies of sinks that have none": "sinks:\n  a: {stdout: {}, proxy: env}\n  b: {otlp: {endpoint: \"http://c:4317\"}, proxy: env}\n  c: {kafka: {brokers: [\"a:1\"], topic: t}, proxy: \"http://p:1\"}\n",
        "connections of sinks that have none": "sinks:\n  a: {stdout: {}, connection: {maxAge: 1m}}\n  b: {kafka: {brokers: [\"a:1\"], topic: t}, connection: {maxAge: 1m}}\n",
        "credentials": "sinks:\n  a: {webhook: {url: \"https://h\", headers: {authorization: x}, auth: {bearer: t}}}\n  b: {webhook: {url: \"https://h\", auth: {bearer: t, basic: {username: u, password: p}}}}\n  c: {webhook: {url: \"https://h\", auth: {}}}\n  d: {webhook: {url: \"https://h\", auth: {basic: {username: \"u:v\", password: p}}}}\n  e: {webhook: {url: \"https://h\", auth: {bearer: \"hunter2\\n\"}}}\n  f: {webhook: {url: \"https://h\", auth: {oauth2: {tokenUrl: h, clientId: i, clientSecret: hunter2}}}}\n",
        "expressions over answers": "sinks:\n  a: {webhook: {url: \"https://h\", success: body.ok == 1 && bdy}}\n  b: {webhook: {url: \"https://h\", retryWhen: status, method: GET}}\n",
        "templates of secrets and headers": "sinks:\n  a: {webhook: {url: \"http://h/{{ id }}\", body: '{\"key\": \"R0aaaaaaaaaaaaaaaaaaaaaaaaa1\"}'}}\n  b: {webhook: {url: \"https://h\", headers: {X-A: \"Zürich {{ id }}\", Content-Type: \"\"}, body: \"{}\"}}\n",
        "a template without quotes": "sinks:\n  a:\n    webhook:\n      url: https://h\n      headers:\n        X-A: {{ id }}\n",
        "templates": "sinks:\n  a: {webhook: {url: \"https://h/{{ event.mesage }}\", body: \"{{ evnt }}\", headers: {X-A: \"{{ id\"}}}\n  b: {webhook: {url: \"https://{{ cluster.name }}/x\", body: '{\"text\": \"{{ event.message }}\"}'}}\n  c:\n    webhook:\n      url: https://h\n      headers: {Content-Type: \"{{ id }}\"}\n      body: |\n        {\"a\": 1,\n         \"b\": {{ event.message | lowr }}}\n  d: {webhook: {url: \"https://h/{{ id }}\"}, batch: {events: 2}}\n  e: {webhook: {url: \"https://h\", body: \"{}\"}, format: ecs}\n",
        "an event collector": "sinks:\n  a: {splunk: {url: \"https://h/services/collector\", token: \"Splunk t\", index: \"\", acknowledgeWithin: 1m}}\n  b: {splunk: {url: \"http://h\", token: t, sourcetype: \"{{ idd }}\", acknowledge: true, acknowledgeWithin: 10ms}, compression: zstd}\n  c: {splunk: {url: \"https://h\"}}\n",
        "labels and tenants": "sinks:\n  a: {loki: {url: \"https://h/loki/api/v1/push\", labels: {__name__: a, 1st: b, pod-name: c, replayed: d, event_id: e, env: \"\", \"a b\": f}, tenant: a/b}}\n  b: {loki: {url: \"http://h\", labels: {a: \"{{ idd }}\"}, tenant: \"{{ event.namespace }}\", auth: {bearer: t}}, compression: zstd}\n  c: {loki: {url: \"https://h\", labels: {a: a, b: a, c: a, d: a, e: a, f: a, g: a, h: a, i: a, j: a, k: a, l: a, m: a, n: a}}}\n",
        "receivers of syslog": "sinks:\n  a: {syslog: {address: h, transport: tpc, facility: local9}}\n  b: {syslog: {address: \"h:514\", appName: \"a b\", tls: {}}, compression: gzip, concurrency: 2, proxy: env}\n  c: {syslog: {address: \"u@h:514\", transport: udp}, maxEvent: 128KiB, connection: {maxAge: 0s}}\n",
        "indices": "sinks:\n  a: {elasticsearch: {urls: [], index: K8s}}\n  b: {elasticsearch: {urls: [\"https://h?a=b\", \"h:9200\", \"https://h/_bulk\"], index: \"k8s-{{ dya }}\", dataStream: a}}\n  c: {elasticsearch: {urls: [\"https://h\"], dataStream: \"k8s-{{ day }}\"}}\n  d: {elasticsearch: {urls: [\"https://h\"]}}\n  e: {elasticsearch: {urls: [\"https://h\"], dataStream: a}, format: event, compression: zstd}\n  f: {elasticsearch: {urls: [\"https://h\"], index: \"k8s-{{ dya }}\", auth: {apiKey: \"id:key\"}}}\n  g: {elasticsearch: {urls: [\"https://h\", \"http://h\"], index: a, auth: {bearer: b, apiKey: c}, tls: {}}}\n",
        "metrics": "sinks: {a: {stdout: {}}}\nmetrics:\n  - {name: 1st, match: event.reasn == \"x\", labels: {metric: a, __x: b, pod-name: c, ns: \"{{ evnt }}\", of: \"\"}, max: 0}\n  - {name: oom, match: \"size(object.labels) > 0\"}\n  - {name: oom}\n",
        "too many series and labels": "sinks: {a: {stdout: {}}}\nmetrics:\n  - {name: a, max: 60000, labels: {a: a, b: b, c: c, d: d, e: e, f: f, g: g, h: h, i: i, j: j, k: k, l: l, m: m, n: n, o: o, p: \"{{ object.node }}\"}}\n  - {name: b, max: 60000}\n",
        "keys of metrics": "sinks: {a: {stdout: {}}}\nmetrics:\n  - {name: oom, lables: {}}\n",
        "a metric without a name": "sinks: {a: {stdout: {}}}\nmetrics:\n  - {match: delta > 1}\n",
        "metrics that are no list": "sinks: {a: {stdout: {}}}\nmetrics: {oom: {}}\n",
        "formats that make no sense": "sinks:\n  a: {otlp: {endpoint: \"http://c:4317\"}, format: ecs}\n  b: {webhook: {url: \"https://h\"}, batch: {events: 2}, format: cloudevents}\n  c: {stdout: {}, format: cloudevent}\n",
        "an age of nothing": "sinks:\n  a: {webhook: {url: \"https://h\"}, connection: {maxAge: 0s}}\n",
        "no proxy": "sinks:\n  a: {webhook: {url: \"https://h\"}, proxy: \"p:hunter2\"}\n",
        "no signing secret": "sinks:\n  a: {webhook: {url: \"https://h\", signing: {secret: []}}}\n",
        "a bad name": "sinks:\n  Audit Log: {stdout: {}}\n",
        "no batch": sink("batch: {events: 0}"),
        "no bytes": sink("batch: {size: 0}"),
        "retry the wrong way round": sink("retry: {initial: 1m, max: 30s}"),
        "retry below the default": sink("retry: {max: 50ms}"),
        "no attempts": sink("retry: {initial: 0s, maxAttempts: 0}"),
        "no time": sink("timeout: 0s"),
        "no attempts at once, and too many": "sinks:\n  a: {otlp: {endpoint: \"http://c:4317\"}, concurrency: 0}\n  b: {webhook: {url: \"https://h\"}, concurrency: 129}\n  c: {stdout: {}, concurrency: 2}\n",
        "no room for an event": sink("maxEvent: 1KiB"),
        "more than the journal has of an event": sink("maxEvent: 1MiB"),
        "negative time": sink("timeout: -1s"),
        "compression of stdout": sink("compression: gzip"),
        "files of others": "journal: {path: /j}\nsinks:\n  a: {file: {path: /var/log/e}}\n  b: {file: {path: /var/log/e}}\n  c: {file: {path: /j/e}}\n",
        "files that are none": "sinks:\n  a: {file: {path: /var/log/}, concurrency: 2, compression: gzip, allowPlaintext: true, proxy: env}\n  b: {file: {path: \"\", rotate: {size: 0, age: 0s, keep: 0}}, connection: {maxAge: 1m}}\n",
        "broker without port, bad topic": "sinks:\n  a: {kafka: {brokers: [kafka], topic: \"a b\"}}\n",
        "no brokers": "sinks:\n  a: {kafka: {brokers: [], topic: t}}\n",
        "bad scheme": "sinks:\n  a: {otlp: {endpoint: \"grpc://collector:4317\"}}\n",
        "no scheme": "sinks:\n  a: {otlp: {endpoint: \"collector:4317\"}}\n",
        "cert without key": "sinks:\n  a: {webhook: {url: \"https://x\", tls: {cert: /nowhere/cert.pem}}}\n",
        "TLS without https": "sinks:\n  a: {webhook: {url: \"http://x\", tls: {}}}\n",
        "inline PEM": "sinks:\n  a:\n    webhook:\n      url: https://x\n      tls:\n        ca: |\n          -----BEGIN CERTIFICATE-----\n          x\n",
        "headers": "sinks:\n  a:\n    webhook:\n      url: http://x\n      headers: {\"a b\": x, Content-Type: y, X-A: \"a\\nb\", x-a: c}\n",
    });
}

#[test]
fn unsupported_settings_are_refused() {
    insta::assert_snapshot!(cases! {
        "off": sink("correlate: {mode: off}"),
        "false": sink("correlate: {mode: false}"),
        "another mode": sink("correlate: {mode: all}"),
        "another overflow": sink("overflow: drop"),
        "leader election": "leaderElection:\n  enabled: true\nsinks: {a: {stdout: {}}}\n",
    });
}

#[test]
fn bad_targets_of_dead_letters_are_refused() {
    let sinks = |forwards: &[(&str, &str)]| {
        let sink = |(name, to): &(&str, &str)| {
            format!("  {name}: {{stdout: {{}}, deadLetters: {{sink: {to}}}}}\n")
        };
        let sinks: String = forwards.iter().map(sink).collect();
        format!("sinks:\n  letters: {{stdout: {{}}}}\n{sinks}")
    };
    insta::assert_snapshot!(cases! {
        "no such sink": sinks(&[("a", "leters")]),
        "itself": sinks(&[("a", "a")]),
        "in a circle": sinks(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]),
        "empty": sinks(&[("a", "\"\"")]),
        "no sink": sink("deadLetters: {}"),
    });
}

#[test]
fn bad_values_of_other_sections_are_refused() {
    insta::assert_snapshot!(cases! {
        "several problems at once": "source:\n  namespaces: [a, b, a, B]\n  fieldSelector: typ=Warning\n  start: later\njournal:\n  path: \"\"\n  retention: {size: 1KiB, age: 0s}\nserver: {listen: \":8080\"}\nsinks: {a: {stdout: {}}}\n",
        "checked values": "source:\n  namespaces: [a, b, a, B]\n  fieldSelector: typ=Warning\njournal:\n  path: \"\"\n  retention: {size: 1KiB, age: 0s}\nserver: {listen: \":8080\"}\nsinks: {a: {stdout: {}}}\n",
        "labels of a cluster": format!("cluster: {{labels: {{\"a b\": x, long: {}}}}}\nsinks: {{a: {{stdout: {{}}}}}}\n", "x".repeat(510)),
        "no room for dead letters": "journal: {deadLetters: 0}\nsinks: {a: {stdout: {}}}\n",
        "dead letters leave no room": "journal: {retention: {size: 64MiB}, deadLetters: 33MiB}\nsinks: {a: {stdout: {}}}\n",
        "no room for an event": "journal: {maxEvent: 4095}\nsinks: {a: {stdout: {}}}\n",
        "more than an event can be": "journal: {maxEvent: 33MiB}\nsinks: {a: {stdout: {}}}\n",
        "sync": "journal: {sync: 0s}\nsinks: {a: {stdout: {}}}\n",
        "sync, not a word": "journal: {sync: often}\nsinks: {a: {stdout: {}}}\n",
        "detail": "server: {detail: everything}\nsinks: {a: {stdout: {}}}\n",
        "a token in the file": "server: {token: 0123456789abcdef}\nsinks: {a: {stdout: {}}}\n",
    });
}

#[test]
fn a_name_of_the_cluster_leaves_room_for_an_event() {
    for member in ["name", "uid"] {
        let text = |length| {
            format!(
                "cluster: {{{member}: {}}}\nsinks: {{a: {{stdout: {{}}}}}}\n",
                "n".repeat(length)
            )
        };
        assert!(read(&text(253), &[]).is_ok());
        let said = refused(&text(254), &[]);
        assert!(said.contains("expected 253 bytes at most, found 254"), "{said}");
    }
}

#[test]
fn bad_match_expressions_are_refused() {
    insta::assert_snapshot!(cases! {
        "unknown field": sink("match: event.typ == \"Warning\""),
        "in quotes": sink("match: 'event.type == \"Warning\" && evnt.reason == \"x\"'"),
        "in double quotes": sink("match: \"event.type == \\\"Warning\\\" && reason == \\\"x\\\"\""),
        "in a block": sink("match: |\n      event.type == \"Warning\" &&\n      event.reason == 3"),
        "folded": sink("match: >-\n      event.type == \"Warning\"\n      && event.count"),
        "syntax": sink("match: event.type = \"Warning\""),
        "too short": sink("match: event.type =="),
        "not a boolean": sink("match: event.type"),
        "empty": sink("match: \"\""),
    });
    let by_reference = refused(&sink("match: {env: EXPRESSION}"), &[("EXPRESSION", "true &&\nx")]);
    insta::assert_snapshot!(by_reference);
}

#[test]
fn a_terminal_shows_the_line() {
    let text = "# Events to Kafka\nsinks:\n  audit:\n    kafka:\n      brokers: [\"kafka:9092\"]\n      topics: k8s\n    match: event.typ == \"Warning\"\n";
    let error = read(text, &[]).unwrap_err();
    let text = text.replace("topics", "topic");
    let second = read(&text, &[]).unwrap_err();
    insta::assert_snapshot!(format!("{}\n{}", drawn(&error), drawn(&second)));
}

#[test]
fn bidirectional_controls_are_replaced_where_the_file_is_quoted() {
    let text = "sinks: {a: {stdout: }}\nlog: {level: \"\u{202e}info\"} # \u{2066}\n";
    let error = read(text, &[]).unwrap_err();
    let said = format!("{error}\n{}", drawn(&error));
    assert!(said.contains(", found `info`"), "{said}");
    assert!(said.contains("???info\"} #****"), "{said}");
    assert!(!said.contains(['\u{202e}', '\u{2066}']), "{said}");
}

#[test]
fn a_file_that_is_not_utf_8_is_refused_at_its_first_such_byte() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), b"cluster:\n  name: caf\xe9\n").expect("it can be written");
    let error = load(file.path(), vars(&[])).unwrap_err();
    let name = file.path().display();
    assert_eq!(
        error.to_string(),
        format!(
            "{name}:2:12: expected text in UTF-8, found the byte 0xe9\n  \
             hint: save the file as UTF-8"
        )
    );
}

#[test]
fn bad_enrichment_is_refused() {
    let objects = |body: &str| format!("objects: {{{body}}}\nsinks: {{a: {{stdout: {{}}}}}}\n");
    insta::assert_snapshot!(cases! {
        "match without enrich": sink("match: object.labels[\"team\"] == \"a\""),
        "nothing asked for": sink("enrich: {}"),
        "unknown member": sink("enrich: {label: [app]}"),
        "unknown field": sink("enrich: {node: true}\n    match: object.nodes == \"a\""),
        "no key": sink("enrich: {labels: [\"app*x\", \"\", \"a b\"]}"),
        "no resource": objects("watch: [Pods, apps/deployments, pods, pods]"),
        "out of bounds": objects("qps: 0, burst: 5000, cache: 0, budget: 1m"),
    });
}
