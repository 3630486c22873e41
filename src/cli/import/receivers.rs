//! Receivers of a kubernetes-event-exporter, as sinks.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Import, expands, is_secret_key, quoted, scalar,
    templates::{Body, Text},
    variable,
};
use crate::document::yaml::{Entry, Node, Origin, Value};

/// The kinds of receivers; of several in one, the first counts.
pub(super) const KINDS: &str = "inMemory pipe webhook file syslog stdout elasticsearch kinesis firehose \
    opensearch opsgenie sqs sns slack kafka pubsub opscenter teams bigquery eventbridge loki prometheus";

/// Headers that hold no secret.
const OPEN_HEADERS: [&str; 4] = ["accept", "content-type", "user-agent", "x-scope-orgid"];

/// A receiver on its way to a sink.
pub(super) struct Receiver<'i, 'f, 'n> {
    import: &'i mut Import<'f>,
    sink: &'n str,
    node: &'n Node,
    /// The keys that were read.
    used: Vec<&'static str>,
    /// The lines below the kind of the sink, and beside it.
    pub(super) keys: Vec<String>,
    pub(super) common: Vec<String>,
    /// What is not carried over, and the variables to be set, by line.
    pub(super) remarks: BTreeSet<(usize, String)>,
    pub(super) variables: BTreeMap<String, (usize, String)>,
    pub(super) facts: Vec<(&'static str, String)>,
}

impl<'i, 'f, 'n> Receiver<'i, 'f, 'n> {
    pub(super) fn new(import: &'i mut Import<'f>, sink: &'n str, node: &'n Node) -> Self {
        let (used, keys, common, remarks, variables, facts) = Default::default();
        Self { import, sink, node, used, keys, common, remarks, variables, facts }
    }

    /// Reads the keys of a receiver, and answers with the kind of its sink, or why there is none.
    pub(super) fn read(&mut self, kind: &str) -> Result<&'static str, String> {
        let is_stdout = matches!(self.text("path"), Some((_, "/dev/stdout")));
        let ours = match kind {
            "webhook" | "teams" => self.webhook(kind),
            "slack" => self.slack(),
            "opsgenie" => self.opsgenie(),
            "elasticsearch" | "opensearch" => self.elasticsearch(),
            "kafka" => self.kafka(),
            "loki" => self.loki(),
            "syslog" => {
                self.put(&[("address", "address"), ("network", "transport"), ("tag", "appName")]);
                self.format("syslog")
            }
            "file" if !is_stdout => {
                self.put(&[("path", "path")]);
                let size = self.text("maxsize").map(|(_, size)| format!("size: {size}MiB"));
                let keep = self.text("maxbackups").map(|(_, keep)| format!("keep: {keep}"));
                self.section("rotate", &size.into_iter().chain(keep).collect::<Vec<_>>());
                self.format("file")
            }
            "file" | "pipe" if is_stdout => self.format("stdout"),
            "stdout" => self.format("stdout"),
            "prometheus" => return Err("write `metrics`, see docs/metrics.md".to_owned()),
            _ => return Err(format!("Tidings has no sink `{kind}`: send by Kafka or a webhook")),
        };
        for entry in self.node.entries() {
            let is_off = matches!(scalar(&entry.node), None | Some("0" | "false"));
            if !(is_off && entry.node.entries().is_empty() || self.used.contains(&&*entry.key)) {
                let what = format!("`{}` has no counterpart: see docs/migration.md", entry.key);
                self.remark(&entry.key_origin, &what);
            }
        }
        Ok(ours)
    }

    fn remark(&mut self, at: &Origin, what: &str) {
        self.remarks.insert((self.import.line(at), what.to_owned()));
    }

    fn get(&mut self, key: &'static str) -> Option<&'n Entry> {
        self.used.push(key);
        self.node.get(key)
    }

    fn entries(&mut self, key: &'static str) -> &'n [Entry] {
        self.get(key).map_or(&[], |entry| entry.node.entries())
    }

    fn text(&mut self, key: &'static str) -> Option<(&'n Origin, &'n str)> {
        self.used.push(key);
        self.import.text_of(self.node, key).map(|(entry, text)| (&entry.node.origin, text))
    }

    /// A value as a text of ours: a secret, and what the environment fills in, becomes a reference.
    fn value(&mut self, (at, text): (&Origin, &str), suffix: &str, secret: bool) -> String {
        match variable(text) {
            Some(name) => format!("{{env: {name}}}"),
            None if secret => self.variable(at, suffix, "the value there"),
            None if expands(text) => self.variable(at, suffix, "the value there, filled in"),
            None => quoted(text),
        }
    }

    /// A reference to a variable that is to be set.
    fn variable(&mut self, at: &Origin, suffix: &str, to: &str) -> String {
        let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let mut name: String = format!("{}_{suffix}", self.sink).chars().map(upper).collect();
        while self.variables.contains_key(&name) {
            name.push('_');
        }
        let what = format!("not copied: set {name} to {to}");
        self.variables.insert(name.clone(), (self.import.line(at), what));
        format!("{{env: {name}}}")
    }

    fn put(&mut self, keys: &[(&'static str, &str)]) {
        for (theirs, ours) in keys {
            if let Some(text) = self.text(theirs) {
                let value = self.value(text, theirs, is_secret_key(theirs));
                self.keys.push(format!("{ours}: {value}"));
            }
        }
    }

    fn section(&mut self, name: &str, members: &[String]) {
        if !members.is_empty() {
            self.keys.push(format!("{name}: {{{}}}", members.join(", ")));
        }
    }

    /// An address; one with a user, a query or a long part with digits holds a secret.
    fn address(&mut self, (at, text): (&Origin, &str)) -> String {
        let (_, host) = text.split_once("://").unwrap_or(("", text));
        let is_token = |part: &str| part.len() >= 16 && part.contains(char::is_numeric);
        let secret = host.contains(['@', '?']) || host.split('/').skip(1).any(is_token);
        self.value((at, text), "URL", secret)
    }

    fn addresses(&mut self, theirs: &'static str, ours: &str) {
        self.used.push(theirs);
        let nodes = self.import.list(self.node, theirs, true).iter();
        let addresses: Vec<_> =
            nodes.filter_map(|node| Some(self.address((&node.origin, scalar(node)?)))).collect();
        self.keys.push(format!("{ours}: [{}]", addresses.join(", ")));
    }

    fn tls(&mut self) -> Vec<String> {
        const KEYS: [(&str, &str); 4] = [
            ("caFile", "ca"),
            ("certFile", "cert"),
            ("keyFile", "key"),
            ("serverName", "serverName"),
        ];
        let mut lines = Vec::new();
        for Entry { key, key_origin, node } in self.entries("tls") {
            let ours = KEYS.iter().find(|(theirs, _)| theirs == key);
            match (scalar(node), ours) {
                (None | Some("false"), _) => {}
                (Some(text), Some((_, ours))) if !expands(text) => {
                    lines.push(format!("{ours}: {}", quoted(text)));
                }
                (_, Some(_)) => {
                    self.remark(key_origin, &format!("`{key}` is not filled in: write it"));
                }
                _ if key == "enable" => {}
                _ => self.remark(
                    key_origin,
                    &format!("`{key}`: certificates are always checked: write `tls.ca`"),
                ),
            }
        }
        lines
    }

    /// The shape of what is sent: the Event alone, as before, or the envelope in place of a layout.
    fn format(&mut self, kind: &'static str) -> &'static str {
        let layout = self.get("layout").filter(|entry| !entry.node.entries().is_empty());
        if let Some(layout) = layout {
            self.remark(
                &layout.key_origin,
                "layout not carried over, the envelope is sent: see docs/formats.md",
            );
        }
        let format = if layout.is_some() { "envelope" } else { "event" };
        self.common.push(format!("format: {format}"));
        kind
    }

    fn body(&mut self, lines: &[String]) -> &'static str {
        self.keys.push(format!("body: |\n  {}", lines.join("\n  ")));
        "webhook"
    }

    fn webhook(&mut self, kind: &str) -> &'static str {
        if let Some(text) = self.text("endpoint") {
            let is_teams = kind == "teams";
            let url = if is_teams { self.value(text, "URL", true) } else { self.address(text) };
            self.keys.push(format!("url: {url}"));
        }
        let layout = self.get("layout").filter(|entry| !entry.node.entries().is_empty());
        let mut body = Body { finish: |_, text| text, facts: Vec::new(), lost: Vec::new() };
        let of_teams = map(vec![
            ("summary", node("event")),
            ("text", node("Event: {{ .Message }}\nStatus: {{ .Reason }}")),
        ]);
        let lines = match layout {
            Some(layout) => Some(body.lines("", &layout.node)).filter(|_| body.lost.is_empty()),
            None => (kind == "teams").then(|| body.lines("", &of_teams)),
        };
        self.headers(lines.is_some());
        let tls = self.tls();
        self.section("tls", &tls);
        let Some(lines) = lines else { return self.format("webhook") };
        self.facts.extend(body.facts);
        self.body(&lines)
    }

    fn headers(&mut self, with_type: bool) {
        let mut headers = Vec::new();
        for Entry { key, node, .. } in self.entries("headers") {
            let (Some(text), name) = (scalar(node), key.to_lowercase()) else { continue };
            let value = match Text::of(text, false) {
                // A body of JSON, which is filled in as such.
                _ if name == "content-type" && !(with_type && text.contains("json")) => continue,
                Some(template) if text.contains("{{") => {
                    self.facts.extend(template.facts.iter().cloned());
                    quoted(&template.inline())
                }
                _ => self.value((&node.origin, text), key, !OPEN_HEADERS.contains(&&*name)),
            };
            headers.push(format!("\n  {}: {value}", quoted(key)));
        }
        if !headers.is_empty() {
            self.keys.push(format!("headers:{}", headers.concat()));
        }
    }

    /// A body of texts for people, of which each is carried over, or lost, alone.
    fn told(
        &mut self,
        layout: Vec<(&str, Node)>,
        finish: fn(&str, String) -> String,
    ) -> &'static str {
        let mut body = Body { finish, facts: Vec::new(), lost: Vec::new() };
        let lines = body.lines("", &map(layout));
        for at in &body.lost {
            self.remark(at, "this template is not carried over: write one of docs/templates.md");
        }
        self.facts.extend(body.facts);
        self.common.push("correlate: {mode: suppress}".to_owned());
        self.body(&lines)
    }

    fn values(&mut self, keys: &[&'static str]) -> Vec<(&'static str, Node)> {
        keys.iter().filter_map(|key| Some((*key, self.get(key)?.node.clone()))).collect()
    }

    fn slack(&mut self) -> &'static str {
        self.keys.push("url: https://slack.com/api/chat.postMessage".to_owned());
        self.keys.push("headers: {Content-Type: application/json; charset=utf-8}".to_owned());
        if let Some(token) = self.text("token") {
            let token = self.value(token, "TOKEN", true);
            self.keys.push(format!("auth: {{bearer: {token}}}"));
        }
        self.keys.push("success: body.ok == true".to_owned());
        self.keys.push("retryWhen: body.error in [\"ratelimited\", \"internal_error\", \"service_unavailable\"]".to_owned());
        let mut layout = self.values(&["channel", "message"]);
        layout.iter_mut().filter(|(key, _)| *key == "message").for_each(|(key, _)| *key = "text");
        let mut attachment = self.values(&["author_name", "color", "title", "footer"]);
        let field = |Entry { key, node: value, .. }: &Entry| {
            map(vec![("title", node(key)), ("value", value.clone())])
        };
        let fields: Vec<_> = self.entries("fields").iter().map(field).collect();
        if !fields.is_empty() {
            attachment.push(("fields", list(fields)));
            layout.push(("attachments", list(vec![map(attachment)])));
        }
        self.told(layout, |key, text| match key {
            "text" => format!(
                r#"({text}) | replace("&", "&amp;") | replace("<", "&lt;") | replace(">", "&gt;")"#
            ),
            _ => text,
        })
    }

    fn opsgenie(&mut self) -> &'static str {
        let host = self.text("URL").map_or("api.opsgenie.com", |(_, url)| url);
        let host = host.trim_start_matches("https://").trim_end_matches('/');
        self.keys.push(format!("url: {}", quoted(&format!("https://{host}/v2/alerts"))));
        if let Some((at, _)) = self.text("apiKey") {
            let value =
                self.variable(at, "AUTHORIZATION", "`GenieKey `, with the blank, and the key");
            self.keys.push(format!("headers: {{Authorization: {value}}}"));
        }
        let layout =
            self.values(&["message", "alias", "description", "priority", "tags", "details"]);
        self.told(layout, |key, text| match key {
            "message" => format!("({text})[:130]"),
            "alias" => format!("({text})[:512]"),
            "description" => format!("({text})[:15000]"),
            _ => text,
        })
    }

    fn elasticsearch(&mut self) -> &'static str {
        self.addresses("hosts", "urls");
        let index = self.text("index").map_or("kube-events", |(_, index)| index).to_owned();
        let index = self.text("indexFormat").map_or(Some(index), |(at, format)| {
            let Some(text) = Text::of(format, true) else {
                self.remark(
                    at,
                    "`indexFormat` is not carried over: write a template of docs/templates.md",
                );
                return Some("kube-events-{{ day }}".to_owned());
            };
            self.facts.extend(text.facts.iter().cloned());
            Some(text.inline())
        });
        self.keys.extend(index.map(|index| format!("index: {}", quoted(&index))));
        let (key, user, password) =
            (self.text("apiKey"), self.text("username"), self.text("password"));
        if let Some(key) = key {
            let key = self.value(key, "API_KEY", true);
            self.section("auth", &[format!("apiKey: {key}")]);
        } else if let (Some(user), Some(password)) = (user, password) {
            let user = self.value(user, "USERNAME", false);
            let password = self.value(password, "PASSWORD", true);
            self.section("auth", &[format!("basic: {{username: {user}, password: {password}}}")]);
        }
        // Each change of an Event has an id of its own here.
        self.used.push("useEventID");
        let tls = self.tls();
        self.section("tls", &tls);
        self.format("elasticsearch")
    }

    fn kafka(&mut self) -> &'static str {
        self.addresses("brokers", "brokers");
        self.put(&[("topic", "topic")]);
        let is_on = |entry: &&Entry| {
            entry.node.get("enable").and_then(|on| scalar(&on.node)) == Some("true")
        };
        if self.get("tls").as_ref().is_some_and(is_on) {
            let tls = self.tls();
            self.keys.push(format!("tls: {{{}}}", tls.join(", ")));
        }
        if let Some(sasl) = self.get("sasl").filter(is_on) {
            let mut of = |key: &str| {
                self.import.text_of(&sasl.node, key).map(|(entry, text)| (&entry.node.origin, text))
            };
            let (user, password, mechanism) = (of("username"), of("password"), of("mechanism"));
            let mechanism = match mechanism {
                Some((_, "sha256")) => "scram-sha-256",
                Some((_, "sha512")) => "scram-sha-512",
                _ => "plain",
            };
            let user = user.map(|user| self.value(user, "USERNAME", false)).unwrap_or_default();
            let password =
                password.map(|password| self.value(password, "PASSWORD", true)).unwrap_or_default();
            self.section(
                "sasl",
                &[format!("mechanism: {mechanism}, username: {user}, password: {password}")],
            );
        }
        match self.text("compressionCodec") {
            Some((_, codec @ ("gzip" | "zstd"))) => {
                self.common.push(format!("compression: {codec}"));
            }
            Some((at, codec)) if codec != "none" => {
                self.remark(at, "the codec is not carried over: write `compression: zstd`");
            }
            _ => {}
        }
        self.format("kafka")
    }

    fn loki(&mut self) -> &'static str {
        if let Some((at, url)) = self.text("url") {
            let url = self.address((at, url.trim_end_matches("/loki/api/v1/push")));
            self.keys.push(format!("url: {url}"));
        }
        let label = |Entry { key, node, .. }: &Entry| {
            let text = Text::of(scalar(node)?, false)?;
            Some(format!("{}: {}", quoted(key), quoted(&text.inline())))
        };
        let labels: Vec<_> = self.entries("streamLabels").iter().filter_map(label).collect();
        self.section("labels", &labels);
        for Entry { key, key_origin, node } in self.entries("headers") {
            match scalar(node) {
                Some(text) if key.eq_ignore_ascii_case("X-Scope-OrgID") => {
                    let tenant = self.value((&node.origin, text), "TENANT", false);
                    self.keys.push(format!("tenant: {tenant}"));
                }
                _ => self.remark(key_origin, &format!("the header `{key}`: write `loki.auth`")),
            }
        }
        let tls = self.tls();
        self.section("tls", &tls);
        self.format("loki")
    }
}

/// A text as it would stand in a file.
fn node(text: &str) -> Node {
    of(Value::Scalar { text: text.to_owned(), quoted: true })
}

fn list(items: Vec<Node>) -> Node {
    of(Value::List(items))
}

fn map(members: Vec<(&str, Node)>) -> Node {
    let entry = |(key, node): (&str, Node)| Entry {
        key: key.to_owned(),
        key_origin: Origin::File(0..0),
        node,
    };
    of(Value::Map(members.into_iter().map(entry).collect()))
}

fn of(value: Value) -> Node {
    Node { value, origin: Origin::File(0..0) }
}
