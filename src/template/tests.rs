use super::*;

const EVENT: &str = r#"{"metadata":{"name":"web.1","namespace":"shop","uid":"0b8e","resourceVersion":"12",
    "creationTimestamp":"2026-11-21T10:00:00Z","labels":{"app":"web","app.kubernetes.io/part":"x"},
    "ownerReferences":[{"kind":"Job","name":"j"}]},"involvedObject":{"kind":"Pod","name":"web-1"},
    "type":"Warning","reason":"BackOff","message":"say \"no\"\u0000\nto {{ 7 * 7 }} <b>&","count":3}"#;

fn record(event: &str) -> Record {
    let envelope = format!(
        r#"{{"id":"0b8e-12","cluster":{{"name":"prod","labels":{{"env":"eu"}}}},"change":"updated",
        "time":"2026-11-21T23:59:59Z","observedTime":"2026-11-22T00:00:00Z","occurrences":3,"delta":2,
        "replayed":false,"object":{{"labels":{{"team":"a"}},"owners":[{{"kind":"ReplicaSet","name":"web"}}]}},
        "event":{event}}}"#
    );
    Record { seq: 1, envelope: envelope.into() }
}

fn rendered(source: &str, escape: Escape, event: &str) -> Result<String, String> {
    let template = Template::compile(source, escape).map_err(|error| {
        format!("@{} {} / {}", error.offset, error.what, error.hint.unwrap_or_default())
    })?;
    template.render(&Context::of(&record(event)).unwrap()).map_err(|error| error.to_string())
}

#[test]
fn a_value_is_written_for_the_place_of_the_template() {
    let message = "say \"no\"\0\nto {{ 7 * 7 }} <b>&";
    let plain = rendered("{{ event.message }}", Escape::Plain, EVENT);
    assert_eq!(plain.as_deref(), Ok(message));
    let json = rendered(r#"{"text": {{ event.message }}, "n": {{ delta }}}"#, Escape::Json, EVENT);
    let json: serde_json::Value = serde_json::from_str(&json.unwrap()).unwrap();
    assert_eq!(json, serde_json::json!({ "text": message, "n": 2 }));
    let url = rendered("{{ event.message }}/{{ event.reason }}", Escape::Url, EVENT);
    let expected = "say%20%22no%22%00%0Ato%20%7B%7B%207%20%2A%207%20%7D%7D%20%3Cb%3E%26/BackOff";
    assert_eq!(url.as_deref(), Ok(expected));
}

#[test]
fn an_expression_reads_fields_and_what_is_absent_as_zero() {
    for (source, on_event, on_none) in [
        ("{{ event.type }} {{ event.count }} {{ event.series.count }}", "Warning 3 0", " 0 0"),
        (
            "{{ id }} {{ day }} {{ occurrences }} {{ change }}",
            "0b8e-12 2026.11.21 3 updated",
            "0b8e-12 2026.11.21 3 updated",
        ),
        (
            "{{ cluster.name }} {{ cluster.labels.env }} {{ cluster.labels.x }}.",
            "prod eu .",
            "prod eu .",
        ),
        (
            "{{ event.metadata.labels['app.kubernetes.io/part'] }}{{ event.metadata.labels.none }}",
            "x",
            "",
        ),
        (
            "{{ 'Warn' in event.type }} {{ event.type in ['Warning', 'Error'] }}",
            "True True",
            "False False",
        ),
        (
            "{% for k, v in event.metadata.labels | items %}{{ k }}={{ v }};{% endfor %}",
            "app=web;app.kubernetes.io/part=x;",
            "",
        ),
        (
            "{% for o in event.metadata.ownerReferences %}{{ o.kind }}{{ o.uid }}{% endfor %}",
            "Job",
            "",
        ),
        ("{% for o in object.owners %}{{ loop.index }}{{ o.name }}{% endfor %}", "1web", "1web"),
        ("{{ 'a' if event.series else 'b' }}{{ event.related.name | default('x') }}", "b", "b"),
        (
            "{{ event.metadata.namespace ~ '/' ~ event.involvedObject.name | upper }}",
            "shop/WEB-1",
            "/",
        ),
        ("{% set r = event.reason %}{{ r | lower }}{# note #}", "backoff", ""),
        ("{{ event.involvedObject }}", "{'kind': 'Pod', 'name': 'web-1'}", "{}"),
    ] {
        assert_eq!(rendered(source, Escape::Plain, EVENT).as_deref(), Ok(on_event), "{source}");
        assert_eq!(rendered(source, Escape::Plain, "{}").as_deref(), Ok(on_none), "{source}");
        assert_eq!(
            rendered(source, Escape::Plain, r#"{"metadata":null,"type":null,"series":null}"#)
                .as_deref(),
            Ok(on_none),
            "{source}"
        );
    }
}

#[test]
fn a_bad_template_is_refused_with_its_place() {
    let long = "x".repeat(MAX_LENGTH + 1);
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000));
    let sources = [
        "{{ event.mesage }}",
        "a\n{% if false %}{{ evnt.message }}{% endif %}",
        "{{ reason }}",
        "{{ event.message.text }}",
        "{{ event.metadata.labels.app.x }}",
        "{{ event['mesage'] }}",
        "{{ event.metadata.ownerReferences.name }}",
        "{% for o in object.owners %}{{ o.nmae }}{% endfor %}",
        "{% for o in object.owners %}{% endfor %}{{ o }}",
        "{{ event.message | safe }}",
        "{{ event.message | lowr }}",
        "{{ event.message is likely }}",
        "{{ event.message.lower() }}",
        "{{ now() }}",
        "{{ debug() }}",
        "{{ 'app' in event.metadata.labels }}",
        "{% if id and 'app' not in event.metadata.labels %}{% endif %}",
        "{{ 'app' is in event.metadata.labels }}",
        "{{ event.message | e }}",
        "{{ event.message | replace('a') }}",
        "{{ ['a'] | map('safe') | join }}",
        "{% set x = namespace(a=1) %}",
        "{% set x %}{{ event.message }}{% endset %}{{ x }}",
        "{% filter upper %}{{ event.message }}{% endfilter %}",
        "{% unknown`word %}",
        "{% autoescape false %}{{ event.message }}{% endautoescape %}",
        "{% include 'x' %}",
        "{% macro x() %}{% endmacro %}",
        "{{ event.message",
        "{{ event.message }",
        "{% if event.message %}",
        "{{ }}",
        "ä{{ ü }}",
        &deep,
        &long,
    ];
    let shown = sources.map(|source| {
        let error = Template::compile(source, Escape::Json).expect_err(source);
        assert!(source.is_char_boundary(error.offset), "{source}");
        let head: String = source.chars().take(60).collect();
        format!("{head}\n  @{} {} / {}", error.offset, error.what, error.hint.unwrap_or_default())
    });
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn a_chain_as_long_as_a_template_may_be_is_compiled() {
    for (start, link, end) in [
        ("{{ 1", "~1", " }}"),
        ("{{ ", "not ", "1 }}"),
        ("{{ ", "-", "1 }}"),
        ("{{ 1", "|d", " }}"),
        ("{{ object", ".labels", " }}"),
        ("{{ 1", "**1", " }}"),
        ("{{ 1", " if 1 else 1", " }}"),
        ("{% if 1 %}", "{% elif 1 %}", "{% endif %}"),
        ("", "{%set n=[n]%}", "{{ n }}"),
    ] {
        let links = (MAX_LENGTH - start.len() - end.len()) / link.len();
        let source = format!("{start}{}{end}", link.repeat(links));
        if let Ok(template) = Template::compile(&source, Escape::Json) {
            // That it fails is as good.
            let _ = template.render(&Context::of(&record(EVENT)).unwrap());
        }
    }
}

#[test]
fn a_loop_over_labels_may_ask_for_their_number_each_time() {
    let labels: serde_json::Map<_, _> =
        (0..4000).map(|n| (format!("label-{n}"), "x".into())).collect();
    let event = serde_json::json!({ "metadata": { "labels": labels } }).to_string();
    let source = "{% for k in event.metadata.labels %}{{ event.metadata.labels | length }} \
        {%- if event.metadata.labels %},{% endif %}{% endfor %}";
    assert_eq!(rendered(source, Escape::Plain, &event), Ok("4000,".repeat(4000)));
}

#[test]
fn a_text_that_was_made_json_before_is_escaped_like_any_other() {
    let event = serde_json::json!({ "message": "x\", \"admin\": true, \"z\": \"" }).to_string();
    let source = "{{ event.message | tojson }}";
    let once = rendered(source, Escape::Json, &event).unwrap();
    assert_eq!(serde_json::from_str::<String>(&once).unwrap(), "x\", \"admin\": true, \"z\": \"");
    let pieces = r#"[{% for p in event.message | tojson | split("\\") %}{{ p }},{% endfor %}0]"#;
    let pieces = rendered(pieces, Escape::Json, &event).unwrap();
    assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&pieces).unwrap().len(), 2);
}

#[test]
fn a_rendering_that_fails_names_the_line() {
    let huge = "\n{{ event.message | replace('', event.message) | replace('', event.message) }}";
    let large = format!(r#"{{"message":"{}"}}"#, "x".repeat(65 << 10));
    let shown = [
        rendered("\n\n{{ 1 / event.series.count }}", Escape::Json, EVENT),
        rendered("{{ event.message.split }}", Escape::Json, EVENT),
        rendered("{{ (event.message | split)[99] }}", Escape::Json, EVENT),
        rendered("{{ event.reason | int }}", Escape::Json, EVENT),
        rendered(
            "{% for a in range(5000) %}{% for b in range(5000) %}{% endfor %}{% endfor %}",
            Escape::Plain,
            EVENT,
        ),
        rendered("{% for a in range(100) %}{{ event.message }}{% endfor %}", Escape::Plain, &large),
        rendered(huge, Escape::Plain, &large),
        rendered(
            "{{ event.message * event.count }}",
            Escape::Plain,
            r#"{"message":"xxxxxxxxxx","count":1000000000}"#,
        ),
    ];
    insta::assert_snapshot!(shown.map(|result| format!("{result:?}")).join("\n"));
    for bad in ["{", r#"{"id":1}"#, r#"{"event":{"count":"many"}}"#, r#"{"event":[]}"#] {
        let record = Record { seq: 1, envelope: bad.into() };
        assert!(matches!(Context::of(&record), Err(RenderError::Event(_))), "{bad}");
    }
}

#[test]
fn a_message_as_long_as_an_event_may_be_is_rendered() {
    let message = "\u{1}\"é".repeat(90 << 10);
    let event = serde_json::json!({ "message": message }).to_string();
    let json = rendered("[{{ event.message }}, {{ event.message | upper }}]", Escape::Json, &event);
    let json: Vec<String> = serde_json::from_str(&json.unwrap()).unwrap();
    assert_eq!(json[0], message);
}

#[test]
fn hostile_text_stays_within_its_value() {
    let hostile = [
        "\",\"x\":\"",
        "\\",
        "\\\"}",
        "{{ 7 * 7 }}{% raw %}{# #}",
        "\0\u{1}\u{1b}[31m\r\n\t\u{7f}",
        "\u{202e}\u{2066}\u{feff}\u{2028}\u{2029}",
        "</script><!channel> @everyone",
        "?a=b&c=d#e/../..;%2e%2e",
        "\u{10ffff}é",
    ];
    for text in hostile {
        let event =
            serde_json::json!({ "message": text, "metadata": { "labels": { text: text } } });
        let source = r#"{"a": {{ event.message }}, "b": {{ event.metadata.labels }}, "c": {{ "<" ~ event.message }}}"#;
        let json = rendered(source, Escape::Json, &event.to_string()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let expected =
            serde_json::json!({ "a": text, "b": { text: text }, "c": format!("<{text}") });
        assert_eq!(json, expected);
        let url = rendered("{{ event.message }}", Escape::Url, &event.to_string()).unwrap();
        assert!(url.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(&b)), "{url}");
        let decoded = percent_encoding::percent_decode_str(&url).decode_utf8().unwrap();
        assert_eq!(decoded, text);
    }
}
