use std::{collections::BTreeMap, fmt::Write as _};

use proptest::prelude::*;
use regex::Regex;

use super::*;
use crate::{bridge::Filter, event::Record};

/// The `match` of each receiver to which a way leads, if it has one, and the remarks on all.
fn matches(route: &str) -> (BTreeMap<String, String>, Vec<String>) {
    let receivers = "receivers: [{name: a, stdout: {}}, {name: b, stdout: {}}]";
    let file = SourceFile::new("kee.yaml", format!("route: {route}\n{receivers}\n"));
    let (root, mistakes) = yaml::parse(file.text()).unwrap();
    assert!(mistakes.is_empty());
    let mut import = Import::new(&file, &root);
    let route_of = import.route(&root.get("route").unwrap().node);
    let sinks = import.sinks(&root, &route_of);
    assert!(import.problems.is_empty(), "{}\n{route}", Error::new(import.problems));
    let of = |(name, sink): (&String, &Value)| {
        (name.clone(), sink["match"].as_str().unwrap_or("true").trim_end().to_owned())
    };
    let matches = sinks.as_object().unwrap().iter().map(of).collect();
    (matches, import.remarks.into_iter().map(|(_, remark)| remark).collect())
}

fn condition_of(route: &str) -> String {
    matches(&format!("{{{}}}", route.trim_matches(['{', '}']))).0.remove("a").unwrap_or_default()
}

#[test]
fn rules_become_conditions() {
    for (route, expected) in [
        ("match: [{receiver: a}]", "true"),
        ("match: [{receiver: a, type: ^W}]", r#"event.type.matches("^W")"#),
        ("match: [{receiver: a, kind: .*, minCount: 3}]", "occurrences >= 3"),
        ("match: [{receiver: a, minCount: 0, reason: '', host: null}]", "true"),
        (
            "drop: [{type: N, minCount: 5}], match: [{receiver: a}]",
            r#"!(event.type.matches("N") && event.count >= 5)"#,
        ),
        (
            "drop: [{type: N}], match: [{receiver: a, kind: P}, {receiver: a, host: n}]",
            r#"!(event.type.matches("N")) &&
(event.involvedObject.kind.matches("P") ||
  event.source.host.matches("n"))"#,
        ),
        // An empty rule matches everything, and the receiver of one that drops does not count.
        ("drop: [{}], match: [{receiver: a}]", ""),
        ("drop: [{receiver: b}], match: [{receiver: a}]", ""),
        // Each rule alone sends; those below come after all of them.
        (
            "match: [{kind: P}, {type: W}], routes: [{match: [{receiver: a}]}]",
            r#"event.involvedObject.kind.matches("P") &&
event.type.matches("W")"#,
        ),
        (
            "match: [{receiver: a, labels: {team: x}}]",
            r#"("team" in object.labels && object.labels["team"].matches("x") || object.missing != "")"#,
        ),
        (
            "drop: [{annotations: {team: .*}}], match: [{receiver: a}]",
            r#"!("team" in object.annotations)"#,
        ),
        (
            "match: [{receiver: a, message: \"a\\\"\\\\\\\\c\\n\\e\\u2028\"}]",
            r#"event.message.matches("a\"\\\\c\U0000000a\U0000001b\U00002028")"#,
        ),
        // Sets of characters are of ASCII there.
        (
            r"match: [{receiver: a, type: '\d\\d[\w.]\<x'}]",
            r#"event.type.matches("[0-9]\\\\d[[0-9A-Za-z_].]<x")"#,
        ),
        ("match: [{receiver: a, type: '[[:alpha:]-]x'}]", r#"event.type.matches("[[:alpha:]-]x")"#),
    ] {
        assert_eq!(condition_of(route), expected, "{route}");
    }
}

#[test]
fn rules_that_cannot_be_carried_over_send_more() {
    for (route, expected, remark) in [
        ("drop: [{type: '*a*', kind: P}], match: [{receiver: a}]", "true", "regular expression"),
        ("match: [{receiver: a, type: '*a*', minCount: 2}]", "occurrences >= 2", "regular expr"),
        ("drop: [{type: 'a**'}], match: [{receiver: a}]", "true", "something else"),
        ("drop: [{type: '(?x)a b'}], match: [{receiver: a}]", "true", "something else"),
        ("drop: [{type: 'a{1001}'}], match: [{receiver: a}]", "true", "something else"),
        ("drop: [{type: 'a$$'}], match: [{receiver: a}]", "true", "variable"),
        ("drop: [{name: x}], match: [{receiver: a}]", "true", "is not a key of a rule"),
        ("drop: [{apiversion: v1}], match: [{receiver: a}]", "true", "is not a key of a rule"),
        ("match: [{receiver: a, apiversion: v1}]", "true", "is not a key of a rule"),
        ("match: [{receiver: a, type: 'a${B}'}]", "true", "variable of the environment"),
        ("match: [{receiver: a, type: '[a&&b]'}]", "true", "something else"),
        ("match: [{receiver: a, type: '[a[b]]'}]", "true", "something else"),
        ("match: [{receiver: a, minCount: many}]", "true", "cannot be a text"),
        ("drop: [{minCount: [5]}], match: [{receiver: a}]", "true", "cannot be a list"),
        ("drop: [{labels: x}], match: [{receiver: a}]", "true", "cannot be a text"),
    ] {
        let (mut conditions, remarks) = matches(&format!("{{{route}}}"));
        assert_eq!(conditions.remove("a").as_deref(), Some(expected), "{route}");
        assert!(remarks.iter().any(|text| text.contains(remark)), "{route}: {remarks:?}");
    }
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
    /// Adds the receivers to which the exporter sends an event.
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
                        "count": 1 + 3 * at,
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
        let (conditions, _) = matches(&route.yaml());
        let compiled = |(name, text): (String, String)| (name, Filter::compile(&text).unwrap());
        let filters: BTreeMap<_, _> = conditions.into_iter().map(compiled).collect();
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
fn an_event_of_which_something_is_not_known_is_sent_rather_than_dropped() {
    let envelope = r#"{"occurrences": 1, "object": {"missing": "timeout"}, "event": {}}"#;
    let record = Record { seq: 1, envelope: envelope.into() };
    for route in [
        "match: [{receiver: a, labels: {team: x}}]",
        "drop: [{labels: {team: .*}}], match: [{receiver: a}]",
        // Events of the scheduler have no count.
        "drop: [{minCount: 1}], match: [{receiver: a}]",
    ] {
        assert_eq!(
            Filter::compile(&condition_of(route)).unwrap().wants(&record),
            Ok(true),
            "{route}"
        );
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
fn names_and_texts_of_any_kind_make_a_configuration() {
    let hostile =
        r#""x\n  y: {{ z }} {% {# \e[31m \u2028\u0085\u202e \U0001F389 \U000E0001 # ' \" ""#;
    let receivers = [
        format!(
            "- {{name: {hostile}, webhook: {{endpoint: \"https://a.example.com/b\", {hostile}: a}}}}"
        ),
        format!(
            "- {{name: b, webhook: {{endpoint: \"https://b\", layout: {{{hostile}: {hostile}}}}}}}"
        ),
        format!("- {{name: c, file: {{path: {hostile}}}}}"),
        format!("- {{name: d, slack: {{channel: {hostile}, token: {hostile}}}}}"),
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
        "A_X_ANY",
        "B_APIKEY",
        "C_PASSWORD",
        "D_SASL_PASSWORD",
        "E_TOKEN",
        "G_AUTHORIZATION",
        "I_ENDPOINT",
    ];
    assert_eq!(variables, expected, "{}", imported.text);
}
