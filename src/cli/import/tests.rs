use std::{collections::BTreeMap, fmt::Write as _};

use proptest::prelude::*;
use regex::Regex;
use serde_json::{Value, json};

use super::{templates::Text, *};
use crate::event::Record;

/// The `match` of each receiver to which a way leads, and the remarks on it.
fn matches(text: &str) -> BTreeMap<String, (String, Vec<String>)> {
    let file = SourceFile::new("kee.yaml", text);
    let (root, mistakes) = yaml::parse(text).unwrap();
    assert!(mistakes.is_empty());
    let mut import = Import::new(&file);
    let mut ways = Ways::new();
    import.route(&root.get("route").unwrap().node, &Way::default(), &mut ways);
    assert!(import.problems.is_empty(), "{}\n{text}", Error::new(import.problems));
    let of = |(name, (_, ways)): (String, (Origin, Vec<Way>))| {
        let notes = ways.iter().flat_map(|way| way.notes.iter().map(|(_, note)| note.clone()));
        let notes = notes.collect();
        let condition = Condition::any(ways.into_iter().map(|way| way.condition));
        (name, (condition.to_string(), notes))
    };
    ways.into_iter().map(of).collect()
}

fn condition_of(route: &str) -> String {
    matches(&format!("route:\n  {}\n", route.replace('\n', "\n  "))).remove("a").unwrap().0
}

#[test]
fn rules_become_readable_conditions() {
    for (route, expected) in [
        ("match: [{receiver: a}]", "true"),
        ("match: [{receiver: a, type: Warning}]", r#"event.type.contains("Warning")"#),
        ("match: [{receiver: a, type: ^Warning$}]", r#"event.type == "Warning""#),
        ("match: [{receiver: a, host: ^n1}]", r#"event.source.host.startsWith("n1")"#),
        ("match: [{receiver: a, host: '\\.eu$'}]", r#"event.source.host.endsWith(".eu")"#),
        (
            "match: [{receiver: a, kind: Pod|Job}]",
            r#"event.involvedObject.kind.matches("Pod|Job")"#,
        ),
        ("match: [{receiver: a, kind: .*, minCount: 3}]", "occurrences >= 3"),
        ("match: [{receiver: a, minCount: 0, reason: ''}]", "true"),
        ("{drop: [{type: Normal}], match: [{receiver: a}]}", r#"!event.type.contains("Normal")"#),
        (
            "{drop: [{type: ^Normal$}, {minCount: 5}], match: [{receiver: a}]}",
            r#"event.type != "Normal" && occurrences < 5"#,
        ),
        (
            "{drop: [{type: N, kind: Pod}], match: [{receiver: a}]}",
            r#"!(event.type.contains("N") && event.involvedObject.kind.contains("Pod"))"#,
        ),
        (
            "{drop: [{type: ^N}], match: [{receiver: a, kind: Pod}, {receiver: a, host: n}]}",
            r#"!event.type.startsWith("N") && event.involvedObject.kind.contains("Pod") || !event.type.startsWith("N") && event.source.host.contains("n")"#,
        ),
        // An empty rule matches everything, and the receiver of one that drops does not count.
        ("{drop: [{}], match: [{receiver: a}]}", "false"),
        ("{drop: [{receiver: b}], match: [{receiver: a}]}", "false"),
        // Each rule alone sends; those below come after all of them.
        (
            "{match: [{receiver: a, kind: Pod}, {type: W}], routes: [{match: [{receiver: b}]}]}",
            r#"event.involvedObject.kind.contains("Pod")"#,
        ),
        (
            "{match: [{kind: Pod}, {type: W}], routes: [{match: [{receiver: a}]}, {match: [{receiver: a, host: n}]}]}",
            r#"event.involvedObject.kind.contains("Pod") && event.type.contains("W")"#,
        ),
        (
            "match: [{receiver: a, labels: {team: x}}]",
            r#"object.labels["team"].contains("x") || object.missing != """#,
        ),
        (
            "{drop: [{annotations: {team: .*}}], match: [{receiver: a}]}",
            r#"!("team" in object.annotations)"#,
        ),
        (
            "match: [{receiver: a, message: \"a\\\"\\\\\\\\b\\n\\e\\u2028\"}]",
            r#"event.message.contains("a\"\\b\U0000000a\U0000001b\U00002028")"#,
        ),
    ] {
        assert_eq!(condition_of(route), expected, "{route}");
    }
}

#[test]
fn rules_that_cannot_be_carried_over_send_more() {
    for (route, expected, remark) in [
        ("{drop: [{type: '*a*', kind: Pod}], match: [{receiver: a}]}", "true", "is no pattern"),
        (
            "match: [{receiver: a, type: '*a*', kind: Pod}]",
            r#"event.involvedObject.kind.contains("Pod")"#,
            "is no pattern",
        ),
        ("{drop: [{apiversion: v1}], match: [{receiver: a}]}", "true", "is not a key of a rule"),
        ("match: [{receiver: a, apiversion: v1}]", "true", "is not a key of a rule"),
        ("match: [{receiver: a, type: 'a${B}'}]", "true", "variable of the environment"),
        ("match: [{receiver: a, type: '[a&&b]'}]", "true", "another set"),
        ("match: [{receiver: a, type: '[a[b]]'}]", "true", "another set"),
        ("match: [{receiver: a, minCount: many}]", "true", "no number"),
        ("{drop: [{minCount: [5]}], match: [{receiver: a}]}", "true", "no number"),
        ("{drop: [{labels: x}], match: [{receiver: a}]}", "true", "no mapping"),
    ] {
        let (condition, notes) =
            matches(&format!("route: {{{}}}", route.trim_matches(['{', '}']))).remove("a").unwrap();
        assert_eq!(condition, expected, "{route}");
        assert!(notes.len() == 1 && notes[0].contains(remark), "{route}: {notes:?}");
    }
}

#[test]
fn a_class_in_a_pattern_is_taken() {
    assert_eq!(
        condition_of("match: [{receiver: a, type: '[[:alpha:]\\[-]x'}]"),
        r#"event.type.matches("[[:alpha:]\\[-]x")"#
    );
}

/// A rule, and a route, as the exporter has them.
#[derive(Clone, Debug)]
struct Rule {
    fields: Vec<(&'static str, &'static str)>,
    label: Option<&'static str>,
    min_count: i64,
    receiver: &'static str,
}

#[derive(Clone, Debug)]
struct Route {
    drop: Vec<Rule>,
    matching: Vec<Rule>,
    routes: Vec<Route>,
}

impl Rule {
    fn matches(&self, event: &Value) -> bool {
        let is_match = |(key, pattern): &(&str, &str)| {
            let (_, field) = PATHS.iter().find(|(name, _)| name == key).unwrap();
            let value = event.pointer(field).and_then(Value::as_str).unwrap_or("");
            Regex::new(pattern).unwrap().is_match(value)
        };
        let label = self.label.is_none_or(|pattern| {
            let value = event.pointer("/object/labels/team").and_then(Value::as_str);
            value.is_some_and(|value| Regex::new(pattern).unwrap().is_match(value))
        });
        self.fields.iter().all(is_match)
            && label
            && event["occurrences"].as_i64().unwrap() >= self.min_count
    }

    fn yaml(&self) -> String {
        let mut text = format!("{{receiver: \"{}\", minCount: {}", self.receiver, self.min_count);
        for (key, pattern) in &self.fields {
            write!(text, ", {key}: '{pattern}'").unwrap();
        }
        if let Some(pattern) = self.label {
            write!(text, ", labels: {{team: '{pattern}'}}").unwrap();
        }
        text + "}"
    }
}

impl Route {
    /// What the exporter does with an event.
    fn process(&self, event: &Value, sent: &mut BTreeSet<&'static str>) {
        if self.drop.iter().any(|rule| rule.matches(event)) {
            return;
        }
        let mut all = true;
        for rule in &self.matching {
            if rule.matches(event) {
                sent.insert(rule.receiver);
            } else {
                all = false;
            }
        }
        if all {
            self.routes.iter().for_each(|route| route.process(event, sent));
        }
    }

    fn yaml(&self) -> String {
        let rules = |rules: &[Rule]| rules.iter().map(Rule::yaml).collect::<Vec<_>>().join(", ");
        let routes: Vec<_> = self.routes.iter().map(Self::yaml).collect();
        format!(
            "{{drop: [{}], match: [{}], routes: [{}]}}",
            rules(&self.drop),
            rules(&self.matching),
            routes.join(", ")
        )
    }
}

const PATHS: [(&str, &str); 4] = [
    ("type", "/event/type"),
    ("kind", "/event/involvedObject/kind"),
    ("namespace", "/event/metadata/namespace"),
    ("host", "/event/source/host"),
];
const PATTERNS: [&str; 9] =
    ["Warning", "^Normal$", "Pod|Node", "^sh", "o[dp]$", ".*", "^$", "n\\d", "d"];

fn rule(receivers: &'static [&'static str]) -> impl Strategy<Value = Rule> {
    let field = (0..PATHS.len(), prop::sample::select(&PATTERNS[..]))
        .prop_map(|(at, pattern)| (PATHS[at].0, pattern));
    let fields = prop::collection::vec(field, 0..3).prop_map(|mut fields| {
        fields.sort_by_key(|(key, _)| *key);
        fields.dedup_by_key(|(key, _)| *key);
        fields
    });
    let label = prop::option::weighted(0.3, prop::sample::select(&["pay", "^x?", ".*"][..]));
    let min_count = prop::sample::select(&[0, 0, 2, 6][..]);
    (fields, label, min_count, prop::sample::select(receivers)).prop_map(
        |(fields, label, min_count, receiver)| Rule { fields, label, min_count, receiver },
    )
}

fn route() -> impl Strategy<Value = Route> {
    let rules = || {
        let drop = prop::collection::vec(rule(&["", "a"]), 0..2);
        let matching = prop::collection::vec(rule(&["", "a", "b"]), 0..3);
        (drop, matching)
    };
    let leaf = rules().prop_map(|(drop, matching)| Route { drop, matching, routes: Vec::new() });
    leaf.prop_recursive(3, 12, 3, move |inner| {
        (rules(), prop::collection::vec(inner, 0..3)).prop_map(|((drop, matching), routes)| Route {
            drop,
            matching,
            routes,
        })
    })
}

/// Envelopes of Events that differ in everything that rules speak of.
fn envelopes() -> Vec<Value> {
    let mut envelopes = Vec::new();
    for (at, (kind, namespace)) in
        [("Pod", "shop"), ("Node", "default"), ("Job", "")].into_iter().enumerate()
    {
        for (class, host) in [("Warning", "n1"), ("Normal", "")] {
            for labels in [json!({}), json!({"team": "payments"}), json!({"team": ""})] {
                envelopes.push(json!({
                    "id": "u/1", "change": "created", "occurrences": 1 + 3 * at, "delta": 1,
                    "cluster": {"name": "prod"}, "object": {"labels": labels},
                    "event": {
                        "type": class, "involvedObject": {"kind": kind},
                        "metadata": {"namespace": namespace}, "source": {"host": host},
                    },
                }));
            }
        }
    }
    envelopes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_match_sends_what_the_routes_send(route in route()) {
        let filters: BTreeMap<_, _> = matches(&format!("route: {}\n", route.yaml()))
            .into_iter()
            .map(|(name, (condition, _))| (name, Filter::compile(&condition).unwrap()))
            .collect();
        for envelope in envelopes() {
            let mut sent = BTreeSet::new();
            route.process(&envelope, &mut sent);
            let record = Record { seq: 1, envelope: envelope.to_string().into() };
            for name in ["a", "b"] {
                let wants = filters.get(name).is_some_and(|filter| filter.wants(&record).unwrap());
                prop_assert_eq!(wants, sent.contains(name), "{} {:?}", &envelope, filters.get(name));
            }
        }
    }
}

#[test]
fn an_object_that_is_not_known_is_sent_rather_than_dropped() {
    let envelope = r#"{"occurrences": 1, "object": {"missing": "timeout"}, "event": {}}"#;
    let record = Record { seq: 1, envelope: envelope.into() };
    for route in [
        "match: [{receiver: a, labels: {team: x}}]",
        "drop: [{labels: {team: .*}}]\nmatch: [{receiver: a}]",
    ] {
        assert_eq!(
            Filter::compile(&condition_of(route)).unwrap().wants(&record),
            Ok(true),
            "{route}"
        );
    }
}

#[test]
fn templates_that_name_values_are_carried_over() {
    for (template, expected) in [
        ("", Some(r#""""#)),
        ("plain", Some(r#""plain""#)),
        ("{{ .Message }}", Some("{{ event.message }}")),
        ("{{.Count}}", Some(r#"{{ "" ~ occurrences }}"#)),
        ("a {% {{ .Reason }}", Some(r#"{{ "a {% " ~ event.reason }}"#)),
        ("{# x", Some(r#"{{ "{# x" }}"#)),
        ("{{ toJson . }}", Some("{{ event }}")),
        ("{{ .InvolvedObject.Labels.team }}", Some(r#"{{ object.labels["team"] }}"#)),
        (
            "{{ index .InvolvedObject.Annotations \"a/b\" }}",
            Some(r#"{{ object.annotations["a/b"] }}"#),
        ),
        ("{{ .GetTimestampMs }}", None),
        ("{{ .Reason | lower }}", None),
        ("{{ if .Reason }}x{{ end }}", None),
        ("{{ .Message", None),
        ("${TEAM}: {{ .Message }}", None),
    ] {
        let text = Text::of(template, false).map(|text| text.in_json());
        assert_eq!(text.as_deref(), expected, "{template}");
    }
    for (index, expected) in [
        ("kube-events", Some("kube-events")),
        ("k-{2006.01}", Some("k-{{ day[:4] }}.{{ day[5:7] }}")),
        (
            "k-{{ .Namespace }}-{2006-01-02}",
            Some("k-{{ event.metadata.namespace }}-{{ day[:4] }}-{{ day[5:7] }}-{{ day[8:] }}"),
        ),
        ("k-{Jan}", None),
        ("k-{2006", None),
    ] {
        assert_eq!(Text::of(index, true).map(|text| text.inline()).as_deref(), expected, "{index}");
    }
}

/// The result of a configuration whose routes are in one line, which the check has to take.
fn imported_of(route: &str, receivers: &str) -> Imported {
    let text = format!("route: {route}\nreceivers:\n{receivers}\n");
    let imported = imported("kee.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
    config::check_text("result", &imported.text)
        .unwrap_or_else(|e| panic!("{e}\n{}", imported.text));
    imported
}

#[test]
fn too_long_a_match_is_left_out() {
    let rules: Vec<_> = (0..300).map(|n| format!("{{receiver: a, reason: Reason{n}}}")).collect();
    let imported =
        imported_of(&format!("{{match: [{}]}}", rules.join(", ")), "- {name: a, stdout: {}}");
    assert!(imported.text.contains("no `match`, so more is sent"), "{}", imported.text);
    assert!(!imported.text.contains("match: |"), "{}", imported.text);
    assert_eq!(imported.remarks, 1);
}

#[test]
fn names_and_texts_of_any_kind_make_a_configuration() {
    let hostile = "\"x\\n  y: {{ z }} {% {# \\e[31m \\u2028\\u0085\\u202e \\U0001F389 \\U000E0001 # ' \\\" \"";
    let receivers = [
        format!(
            "- {{name: {hostile}, webhook: {{endpoint: \"https://a.example.com/b\", layout: {{{hostile}: a, a: {hostile}}}}}}}"
        ),
        "- {name: b, webhook: {endpoint: \"https://a.example.com/b\", layout: {\"a\\n# b\": \"c\\n{{ .Message }} \\u2028 {%\"}}}".to_owned(),
        format!("- {{name: c, file: {{path: {hostile}}}, labels: {hostile}}}"),
        format!(
            "- {{name: d, slack: {{channel: {hostile}, message: {hostile}, token: {hostile}}}}}"
        ),
    ];
    let rules = format!(
        "[{{receiver: {hostile}, message: {hostile}}}, {{receiver: b, labels: {{team: {hostile}}}}}, {{receiver: c}}, {{receiver: d}}]"
    );
    let imported = imported_of(&format!("{{match: {rules}}}"), &receivers.join("\n"));
    let is_plain = |line: &str| !line.contains(|c: char| c.is_control() || c == '\u{202e}');
    assert!(imported.text.lines().all(is_plain), "{}", imported.text);
    assert!(imported.text.lines().all(|line| !line.starts_with("  y")), "{}", imported.text);
}

#[test]
fn a_secret_is_never_copied() {
    let receivers = "\
- {name: a, webhook: {endpoint: 'https://u:hunter2@a.example.com', headers: {X-Any: hunter2}, tls: {caFile: ca.pem}}}
- {name: b, elasticsearch: {hosts: ['https://u:hunter2@b', 'https://u:hunter2@c'], index: i, apiKey: hunter2}}
- {name: c, opensearch: {hosts: ['https://c'], index: i, username: u, password: hunter2}}
- {name: d, kafka: {topic: t, brokers: ['d:9092'], sasl: {enable: true, username: u, password: hunter2}}}
- {name: e, slack: {token: hunter2, channel: c, message: m, fields: {reason: x}}}
- {name: f, teams: {endpoint: 'https://f.example.com/hunter2', layout: {api_key: hunter2}}}
- {name: g, opsgenie: {apiKey: hunter2, message: m, details: {token: hunter2}}}
- {name: h, loki: {url: 'https://h', headers: {Authorization: hunter2}}}
- {name: i, webhook: {endpoint: 'https://hooks.example.com/services/T000/B000/hunter2hunter2hunter2'}}";
    let rules: Vec<_> = "abcdefghi".chars().map(|name| format!("{{receiver: {name}}}")).collect();
    let imported = imported_of(&format!("{{match: [{}]}}", rules.join(", ")), receivers);
    assert!(!imported.text.contains("hunter2"), "{}", imported.text);
    let variables: Vec<_> = imported.variables.iter().map(|name| &**name).collect();
    let expected = [
        "A_URL",
        "A_X_ANY",
        "B_API_KEY",
        "B_URL",
        "B_URL_",
        "C_PASSWORD",
        "D_PASSWORD",
        "E_TOKEN",
        "F_URL",
        "G_AUTHORIZATION",
        "I_URL",
    ];
    assert_eq!(variables, expected, "{}", imported.text);
}
