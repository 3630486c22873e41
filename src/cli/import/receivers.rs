//! Receivers of a kubernetes-event-exporter, as sinks.

use serde_json::{Value, json};

use super::{Import, NO_COUNTERPART, accepted, expands, reference, scalar, set, variable};
use crate::{
    bridge::Filter,
    document::yaml::{Entry, Node, Origin, Value as Yaml},
};

/// A kind of receiver, the kind of its sink, and the keys of both, in pairs.
type Receiver = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// The receivers that there are sinks for, in the order in which the exporter looks for them.
const RECEIVERS: [Receiver; 11] = [
    ("pipe", "stdout", &[]),
    ("webhook", "webhook", &[("endpoint", "url"), ("headers", "headers")]),
    (
        "file",
        "file",
        &[("path", "path"), ("maxsize", "rotate.size"), ("maxbackups", "rotate.keep")],
    ),
    ("syslog", "syslog", &[("address", "address"), ("network", "transport"), ("tag", "appName")]),
    ("stdout", "stdout", &[]),
    ("elasticsearch", "elasticsearch", ELASTICSEARCH),
    ("opensearch", "elasticsearch", ELASTICSEARCH),
    ("opsgenie", "webhook", &[]),
    ("slack", "webhook", &[]),
    (
        "kafka",
        "kafka",
        &[
            ("brokers", "brokers"),
            ("topic", "topic"),
            ("sasl.mechanism", "sasl.mechanism"),
            ("sasl.username", "sasl.username"),
            ("sasl.password", "sasl.password"),
        ],
    ),
    (
        "loki",
        "loki",
        &[("url", "url"), ("streamLabels", "labels"), ("headers.X-Scope-OrgID", "tenant")],
    ),
];

const ELASTICSEARCH: &[(&str, &str)] = &[
    ("hosts", "urls"),
    ("index", "index"),
    ("indexFormat", "index"),
    ("username", "auth.basic.username"),
    ("password", "auth.basic.password"),
    ("apiKey", "auth.apiKey"),
];

/// The keys of `tls`, which are the same everywhere.
const TLS: [(&str, &str); 4] = [
    ("tls.caFile", "tls.ca"),
    ("tls.certFile", "tls.cert"),
    ("tls.keyFile", "tls.key"),
    ("tls.serverName", "tls.serverName"),
];

/// Files that are the output of the program.
const STANDARD_STREAMS: [&str; 5] =
    ["/dev/stdout", "/dev/stderr", "/dev/fd/1", "/proc/1/fd/1", "/proc/self/fd/1"];

/// Headers that hold no secret.
const OPEN_HEADERS: [&str; 4] = ["accept", "content-type", "user-agent", "x-scope-orgid"];

impl Import<'_> {
    /// The sink of a receiver, or why there is none.
    pub(super) fn sink(
        &mut self,
        node: &Node,
        name: &str,
        conditions: &[String],
    ) -> Result<Value, String> {
        // One that is null is none, but people write `stdout:`.
        let of = |receiver: &Receiver| {
            let node = &node.get(receiver.0)?.node;
            let is_there = receiver.0 == "stdout" || !matches!(node.value, Yaml::Null);
            is_there.then_some((*receiver, node))
        };
        let Some(((theirs, ours, keys), node)) = RECEIVERS.iter().find_map(of) else {
            let other = node.entries().iter().find(|entry| entry.key != "name");
            return Err(other.map_or("it has no sink".to_owned(), |other| {
                format!("there is no sink for `{}`: see docs/migration.md", other.key)
            }));
        };
        let path = node.get("path").and_then(|path| scalar(&path.node)).unwrap_or_default();
        let (ours, mut sink) = match theirs {
            "slack" => (ours, example(include_str!("../../../config/slack.yaml"), "slack-api")),
            "opsgenie" => (ours, example(include_str!("../../../config/opsgenie.yaml"), theirs)),
            "file" | "pipe" if STANDARD_STREAMS.contains(&path) => {
                ("stdout", json!({"stdout": {}, "format": "event"}))
            }
            "pipe" => return Err("there is no sink for `pipe`: write a `file`".to_owned()),
            // As the exporter: all files are kept.
            "file" => {
                let rotate = json!({"size": "100MiB", "keep": 100_000});
                (ours, json!({"file": {"rotate": rotate}, "format": "event"}))
            }
            _ => (ours, json!({ours: {}, "format": "event"})),
        };
        let mut reader = Reader { import: self, name, theirs, ours, keys };
        let of_example = match theirs {
            "slack" => Some(("auth.bearer", "TOKEN")),
            "opsgenie" => Some(("headers.Authorization", "AUTHORIZATION")),
            _ => None,
        };
        if let Some((secret, suffix)) = of_example {
            let what = format!("address, texts and correlation are those of config/{theirs}.yaml");
            reader.remark(&node.origin, &format!("{what}: adapt them"));
            set(&mut sink[ours], secret, reader.variable(&node.origin, suffix));
        } else {
            reader.keys("", node, &mut sink);
        }
        let condition = conditions.join(" &&\n");
        match Filter::compile(&condition) {
            _ if condition.is_empty() => {}
            Ok(_) => {
                for (kind, key, has) in &reader.import.facts {
                    if condition.contains(has) {
                        let keys = &mut sink["enrich"][*kind];
                        let others = keys.as_array().into_iter().flatten().cloned();
                        *keys = others.chain([json!(key)]).collect();
                    }
                }
                sink["match"] = json!(condition + "\n");
            }
            Err(error) => {
                let what = format!("no `match`, so more is sent, since {}: write one", error.what);
                reader.remark(&node.origin, &what);
            }
        }
        let check = |sink: &Value| accepted(&json!({"sinks": {name: sink}}));
        if let Err(why) = check(&sink) {
            sink["allowPlaintext"] = json!(true);
            check(&sink).map_err(|_| why)?;
            let what = "credentials travel without TLS: use TLS, and remove `allowPlaintext`";
            reader.remark(&node.origin, what);
        }
        Ok(sink)
    }
}

/// A sink of an example, without its `match`.
fn example(text: &str, name: &str) -> Value {
    let example: Value = serde_saphyr::from_str(text).unwrap_or_default();
    let mut sink = example["sinks"][name].clone();
    sink.as_object_mut().map(|sink| sink.shift_remove("match"));
    sink
}

/// A receiver that becomes a sink.
struct Reader<'i, 'f, 'n> {
    import: &'i mut Import<'f>,
    name: &'n str,
    theirs: &'static str,
    ours: &'static str,
    keys: &'static [(&'static str, &'static str)],
}

impl Reader<'_, '_, '_> {
    fn remark(&mut self, at: &Origin, what: &str) {
        self.import.remark(at, format!("receiver `{}`: {what}", self.name));
    }

    /// Carries over the keys of the receiver, or of a section of it.
    fn keys(&mut self, section: &str, node: &Node, sink: &mut Value) {
        let format = node.get("indexFormat").and_then(|format| scalar(&format.node));
        for Entry { key, key_origin, node } in node.entries() {
            let path = format!("{section}{key}");
            let mut known = self.keys.iter().chain(&TLS).filter(|(theirs, _)| *theirs == path);
            let ours = known.next().map(|(_, ours)| *ours).filter(|_| self.ours != "stdout");
            let is_section = !node.entries().is_empty();
            match (&*path, scalar(node), ours) {
                ("index", ..) if format.is_some() => {}
                (_, _, Some(ours)) => {
                    if let Some(value) = self.value(node, &path) {
                        set(&mut sink[self.ours], ours, value);
                    }
                }
                ("compressionCodec", Some(codec @ ("gzip" | "zstd" | "none")), _) => {
                    sink["compression"] = json!(codec);
                }
                ("layout", ..) if is_section => {
                    self.remark(
                        key_origin,
                        "the layout is not carried over: see docs/formats.md and docs/templates.md",
                    );
                }
                ("tls" | "sasl" | "headers", ..) if is_section => {
                    // Those of Kafka are off unless they are switched on.
                    let enable = node.get("enable").and_then(|enable| scalar(&enable.node));
                    let enable = enable.unwrap_or("false").to_ascii_lowercase();
                    if self.theirs == "kafka" && enable == "false" {
                        continue;
                    }
                    if self.theirs == "kafka" {
                        let plain = json!({"mechanism": "plain"});
                        sink["kafka"][key] = if key == "sasl" { plain } else { json!({}) };
                    }
                    self.keys(&format!("{key}."), node, sink);
                }
                // Each change of an Event has an id of its own.
                ("tls.enable" | "sasl.enable" | "useEventID" | "path", ..) => {}
                (_, None | Some("0" | "false" | "False"), _) if !is_section => {}
                _ => {
                    self.remark(key_origin, &format!("`{path}`{NO_COUNTERPART}"));
                }
            }
        }
    }

    /// A value as one of ours, unless it is empty or not carried over.
    fn value(&mut self, node: &Node, path: &str) -> Option<Value> {
        match &node.value {
            Yaml::List(items) => items.iter().map(|item| self.value(item, path)).collect(),
            Yaml::Map(entries) => {
                let mut values = json!({});
                for Entry { key, node, .. } in entries {
                    // The format has a type of its own.
                    if !key.eq_ignore_ascii_case("content-type")
                        && let Some(value) = self.value(node, &format!("{path}.{key}"))
                    {
                        values[key] = value;
                    }
                }
                Some(values)
            }
            _ => self.text(&node.origin, scalar(node)?, path),
        }
    }

    fn text(&mut self, at: &Origin, text: &str, path: &str) -> Option<Value> {
        let day = text.replace("{2006.01.02}", "{{ day }}");
        let day = day.replace("{2006-01-02}", "{{ day | replace('.', '-') }}");
        Some(match (self.theirs, path) {
            ("file", "maxsize") => json!(format!("{text}MiB")),
            ("file", "maxbackups") => json!(text.parse::<u64>().ok().filter(|keep| *keep > 0)?),
            (_, "sasl.mechanism") if text.starts_with("sha") => {
                json!(text.replace("sha", "scram-sha-"))
            }
            ("loki", "url") => self.reference(at, text.trim_end_matches("/loki/api/v1/push"), path),
            (_, "indexFormat")
                if !expands(text) && text.matches('{').count() == day.matches("{{").count() =>
            {
                json!(day)
            }
            _ if text.contains("{{") || path == "indexFormat" => {
                let what = format!("the template of `{path}` is not carried over");
                self.remark(at, &format!("{what}: see docs/templates.md"));
                (path == "indexFormat").then(|| json!("kube-events-{{ day }}"))?
            }
            _ => self.reference(at, text, path),
        })
    }

    /// A text, or a reference to a variable in place of a secret and of what the environment fills in.
    fn reference(&mut self, at: &Origin, text: &str, path: &str) -> Value {
        let header = path.strip_prefix("headers.").map(str::to_ascii_lowercase);
        let is_secret_header = header.is_some_and(|header| !OPEN_HEADERS.contains(&&*header));
        let is_secret_key = path.ends_with("password") || path == "apiKey";
        let url = text.split_once("://").and_then(|(scheme, rest)| {
            let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            Some((scheme, host.rsplit_once('@')?.1, path))
        });
        if let Some((scheme, host, path_of_url)) = url {
            self.remark(at, "user and password of the URL are not copied: write `auth`");
            return self.reference(at, &format!("{scheme}://{host}{path_of_url}"), path);
        }
        // A URL with a query or a long part with digits.
        let url = text.split_once("://").map_or("", |(_, rest)| rest);
        let is_token = |part: &str| part.len() >= 16 && part.contains(char::is_numeric);
        let is_secret_url = url.contains('?') || url.split('/').skip(1).any(is_token);
        if variable(text).is_none()
            && (is_secret_header || is_secret_key || is_secret_url || expands(text))
        {
            return self.variable(at, path.trim_start_matches("headers."));
        }
        reference(text)
    }

    /// A reference to a variable that is to be set.
    fn variable(&mut self, at: &Origin, suffix: &str) -> Value {
        let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let mut name: String = format!("{}_{suffix}", self.name).chars().map(upper).collect();
        while !self.import.variables.insert(name.clone()) {
            name.push('_');
        }
        self.remark(at, &format!("not copied: set {name} to the value there"));
        json!({"env": name})
    }
}
