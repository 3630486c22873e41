use proptest::prelude::*;

use super::*;

fn record(envelope: &str) -> Record {
    Record { seq: 1, envelope: envelope.to_owned().into() }
}

fn event(event: &str) -> Record {
    record(&format!(
        r#"{{"id":"u-1","cluster":{{"name":"prod"}},"change":"updated","time":"","observedTime":"",
        "occurrences":7,"delta":3,"replayed":false,"event":{event}}}"#
    ))
}

const BACKOFF: &str = r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"web.1","namespace":"shop",
    "uid":"u","labels":{"app":"web","team/x":"blue"},"ownerReferences":[{"kind":"Job","name":"j","controller":true}],
    "finalizers":["a"]},
    "involvedObject":{"kind":"Pod","namespace":"shop","name":"web-0"},"reason":"BackOff",
    "message":"Back-off restarting failed container é","source":{"component":"kubelet","host":"n1"},
    "count":7,"type":"Warning","eventTime":null,"series":null,"related":null,"reportingComponent":"kubelet"}"#;

#[test]
fn expressions_on_an_event() {
    let record = event(BACKOFF);
    for expression in [
        "true",
        r#"event.type == "Warning""#,
        r#"event["type"] == 'Warning'"#,
        r#"event.type != "Normal" && event.reason in ["BackOff", "Failed"]"#,
        "event.count > 5 && event.count < 8 && event.count == 7.0 && event.count + 1 == 8",
        "delta == 3 && delta >= 3",
        r#"change == "updated""#,
        r#"cluster.name == "prod" && cluster.uid == """#,
        r#"event.message.startsWith("Back-off") && event.message.contains("failed")"#,
        r#"event.message.endsWith("é") && size(event.message) == 38 && event.message.size() == 38"#,
        r#"event.message.matches("(?i)back-OFF .* container") && !matches(event.reason, "^x")"#,
        r#"event.metadata.labels.app == "web" && event.metadata.labels["team/x"] == "blue""#,
        r#"event.metadata.labels.none == "" && event.metadata.annotations["none"] == """#,
        r#""app" in event.metadata.labels && !("x" in event.metadata.labels)"#,
        r#"event.metadata.labels[event.reason] == "" && event.metadata.labels["a" + "pp"] == "web""#,
        "size(event.metadata.labels) == 2 && event.metadata.annotations.size() == 0",
        r#"event.metadata.labels.exists(k, k == "app" && event.metadata.labels[k] == "web")"#,
        r#"event.metadata.ownerReferences.exists(o, o.kind == "Job" && o.controller && o.uid == "")"#,
        r#"event.metadata.finalizers.all(f, f == "a")"#,
        "[1, 2, 3].map(x, x * 2).filter(x, x > 2) == [4, 6]",
        r#"event.related.kind == "" && event.series.count == 0 && event.eventTime == """#,
        "!has(event.series) && !has(event.related) && has(event.type) && has(event.metadata.labels.app)",
        "!has(event.metadata.labels.none) && !has(event.metadata.generation) && has(event.involvedObject)",
        "event.related == event.related && event.involvedObject != event.related",
        r#"event.involvedObject.kind == "Pod" && size(event.involvedObject) == 7"#,
        r#"event.source.component == "kubelet" ? event.source.host == "n1" : false"#,
        r#"string(event.count) == "7" && int("7") == event.count"#,
        // One side decides, whatever the other side fails on.
        "1 / (event.count - 7) > 0 || true",
    ] {
        let filter = Filter::compile(expression).unwrap_or_else(|e| panic!("{expression}: {e:?}"));
        assert_eq!(filter.wants(&record), Ok(true), "{expression}");
    }
}

#[test]
fn absent_members_read_as_zero() {
    let bare = event("{}");
    for expression in [
        r#"event.type == "" && event.metadata.name == "" && event.involvedObject.kind == """#,
        "event.count == 0 && event.series.count == 0",
        "event.metadata.labels.size() == 0 && event.metadata.ownerReferences.size() == 0",
        "!has(event.metadata) && !has(event.type)",
        r#"event.involvedObject.fieldPath == "" && size(event.involvedObject) == 7"#,
    ] {
        assert_eq!(Filter::compile(expression).unwrap().wants(&bare), Ok(true), "{expression}");
    }
}

#[test]
fn evaluation_that_fails_is_an_error() {
    let wants = |expression: &str, record: &Record| {
        Filter::compile(expression).unwrap().wants(record).map_err(|error| error.to_string())
    };
    let shown = [
        wants("1 / event.count == 1", &event("{}")),
        wants("event.metadata.finalizers[3] == ''", &event("{}")),
        wants("int(event.reason) == 1", &event(BACKOFF)),
        wants("event.count == 1", &event(r#"{"count":"many"}"#)),
        wants("event.metadata.name == ''", &event(r#"{"metadata":[]}"#)),
        wants("event.metadata.labels.size() == 1", &event(r#"{"metadata":{"labels":{"a":1}}}"#)),
        wants("event.type == ''", &record("{")),
    ];
    insta::assert_snapshot!(shown.map(|result| format!("{result:?}")).join("\n"));
}

#[test]
fn what_cannot_work_is_refused_with_its_place() {
    let deep = format!("{}1{} == 1", "-(".repeat(60), ")".repeat(60));
    let sum = format!("1{} == 1", "+1".repeat(100));
    let chained = format!("[1]{} == [1]", ".map(x, x)".repeat(30));
    let nested = "[1].all(a, [1].all(b, [1].all(c, a == b && b == c)))";
    let expressions = [
        "",
        "event.type = \"Warning\"",
        "event.type == 'a' and true",
        "event.type == 'a' & true",
        "event.type ==",
        "'unclosed",
        "é == 1",
        "event.type == \"Warnin\\q\"",
        "event.typ == \"Warning\"",
        "event.metadata.foo == ''",
        "event.involvedObject.nam == 'x'",
        "event.metadata.managedFields.size() == 0",
        "has(event.serie)",
        "event[\"typ\"] == ''",
        "event.type.length == 3",
        "event.metadata.ownerReferences.exists(o, o.knd == 'Job')",
        "evnt.type == ''",
        "reason == 'x'",
        "object.kind == 'Pod'",
        "Warning == event.type",
        "event.type",
        "event.count",
        "1 + 1",
        "event",
        "[true]",
        "event.type == 3",
        "event.count == '3'",
        "event.count > '3'",
        "event.type + 1 == ''",
        "event.count && true",
        "!event.type",
        "event.type in 'Warning'",
        "3 in event.metadata.labels",
        "event.message.contain('x')",
        "contains(event.message, 'x')",
        "event.message.lower() == 'x'",
        "event.count.startsWith('x')",
        "size(3) == 1",
        "has(event)",
        "timestamp('x') == 1",
        "optional.of(1).hasValue()",
        "event.message.matches('(')",
        "event.message.matches(event.reason)",
        "event.message.matches('\\\\w{500}{500}')",
        "event.count.exists(x, true)",
        "Foo{a: 1} == 1",
        "event.metadata.labels.app.x == ''",
        "event.?type == ''",
        "size == 1",
        &deep,
        &sum,
        &chained,
        nested,
    ];
    let shown = expressions.map(|expression| {
        let error = Filter::compile(expression).expect_err(expression);
        let head: String = expression.chars().take(60).collect();
        let hint = error.hint.map(|hint| format!("\n    hint: {hint}")).unwrap_or_default();
        assert!(expression.is_char_boundary(error.offset), "{expression}");
        format!("{head}\n  @{} {}{hint}", error.offset, error.what)
    });
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn a_long_or_deep_expression_does_not_overflow_the_stack() {
    for n in [100, 1000, 2040] {
        for source in [
            format!("1{} == 1", "+1".repeat(n)),
            format!("{}1{} == 1", "(".repeat(n), ")".repeat(n)),
            format!("{}true", "!".repeat(n)),
            format!("{}1 == 1", "-".repeat(n)),
            format!("{}1{} == 1", "[".repeat(n), "]".repeat(n)),
            format!("event{} == 1", ".a".repeat(n)),
            format!("true{}", " && true".repeat(n / 5)),
            "x".repeat(2 * n),
        ] {
            // Whatever the answer is, there is one.
            if let Ok(filter) = Filter::compile(&source) {
                let _ = filter.wants(&event("{}"));
            }
        }
    }
}

#[test]
fn arithmetic_at_its_limits_does_not_panic() {
    let lowest = "(-9223372036854775807 - 1)";
    for expression in [
        format!("{lowest} - 1 == 0"),
        format!("-{lowest} == 0"),
        format!("{lowest} / -1 == 0"),
        format!("{lowest} % -1 == 0"),
        format!("{lowest} * -1 == 0"),
        "9223372036854775807 + event.count == 0".to_owned(),
        "event.count % (event.count - 7) == 0".to_owned(),
        "[1][-1] == 1 || [1][9223372036854775807] == 1".to_owned(),
        "int(1e300) == 1 || uint(-1) == 1u || int('x') == 1".to_owned(),
        "1u - 2u == 0u || double(event.reason) > 1.0".to_owned(),
        "{'a': 1, 'a': 2} == {} || {1.5: 1} == {}".to_owned(),
    ] {
        let filter = Filter::compile(&expression).unwrap_or_else(|e| panic!("{expression}: {e}"));
        let _ = filter.wants(&event(BACKOFF));
    }
}

#[test]
fn a_filter_is_shared_between_threads() {
    fn shared<T: Send + Sync + Clone + 'static>(_: &T) {}
    shared(&Filter::compile("true").unwrap());
}

/// Random text made of what expressions are made of.
fn expressions() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "event",
        ".",
        "type",
        "metadata",
        "labels",
        "count",
        "delta",
        "change",
        "cluster",
        "name",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "'a'",
        "\"",
        "\\",
        "==",
        "!=",
        "<",
        "in",
        "&&",
        "||",
        "!",
        "?",
        ":",
        "+",
        "-",
        "/",
        "%",
        "0",
        "1",
        "1u",
        "1.5",
        "true",
        "null",
        "has",
        "size",
        "exists",
        "map",
        "x",
        ",",
        " ",
        "matches",
        "é",
        "`",
        "\n",
        "9223372036854775807",
        "b'x'",
    ]);
    prop_oneof![
        3 => prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat()),
        1 => ".{0,60}",
    ]
}

/// Random JSON below the members that expressions name.
fn envelopes() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| format!("{}", serde_json::json!(n))),
        "[a-zé\\\\\"]{0,4}".prop_map(|text| serde_json::json!(text).to_string()),
    ];
    let name = prop::sample::select(vec![
        "event",
        "type",
        "metadata",
        "labels",
        "count",
        "delta",
        "change",
        "cluster",
        "name",
        "ownerReferences",
        "series",
    ]);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((name.clone(), inner), 0..5).prop_map(|members| {
                let members: Vec<_> = members
                    .into_iter()
                    .map(|(name, value)| format!("\"{name}\":{value}"))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_expression_and_no_event_makes_it_panic(source in expressions(), json in envelopes()) {
        if let Ok(filter) = Filter::compile(&source) {
            let _ = filter.wants(&record(&json));
            let _ = filter.wants(&event(&json));
        }
    }

    #[test]
    fn no_event_makes_an_expression_panic(json in envelopes()) {
        for source in [
            "event.type == 'Warning' && event.metadata.labels.a == ''",
            "event.metadata.ownerReferences.exists(o, o.kind == 'x') || event == event",
            "has(event.series) || event.metadata.labels.size() > delta",
        ] {
            let filter = Filter::compile(source).unwrap();
            let _ = filter.wants(&record(&json));
            let _ = filter.wants(&event(&json));
        }
    }
}

#[test]
fn an_expression_over_answers_reads_what_json_can_hold() {
    let answer = br#"{"status":200,"headers":{"x-a":"b"},"body":{"ok":true,"n":[1,2.5,18446744073709551615],"s":null}}"#;
    for (source, expected) in [
        ("status == 200", Some(true)),
        ("status >= 200 && headers['x-a'] == 'b' && headers['x-c'] == ''", Some(true)),
        ("body.ok", Some(true)),
        ("body.ok && has(body.n) && !has(body.m)", Some(true)),
        ("body['n'][0] == 1 && body.n[1] == 2.5 && size(body.n) == 3", Some(true)),
        ("body.s == null", Some(true)),
        ("body.n.exists(n, n == 2.5)", Some(true)),
        ("body.m == 1", None),
        ("body.ok.deeper", None),
        ("body", None),
    ] {
        let expression = Filter::over_answers(source).unwrap();
        assert_eq!(expression.is_true_of(answer).ok(), expected, "{source}");
    }
    let nothing = br#"{"status":500,"headers":{},"body":null}"#;
    for (source, expected) in [("body == null", Some(true)), ("body.ok", None)] {
        let expression = Filter::over_answers(source).unwrap();
        assert_eq!(expression.is_true_of(nothing).ok(), expected, "{source}");
    }
    for source in ["event.type == 'x'", "statuss == 200", "status", "headers.a.b == ''"] {
        assert!(Filter::over_answers(source).is_err(), "{source}");
    }
    // An expression over events knows nothing of them.
    assert!(Filter::compile("status == 200").is_err());
}
