//! Templates of Go, as far as they only name a value, as templates of Tidings.

use super::{expands, is_secret_key};
use crate::{
    document::yaml::{Entry, Node, Origin, Value},
    plain::escaped,
};

/// What the paths of an event are called here.
const PATHS: [(&str, &str); 26] = [
    (".", "event"),
    (".Message", "event.message"),
    (".Reason", "event.reason"),
    (".Type", "event.type"),
    (".Count", "occurrences"),
    (".Action", "event.action"),
    (".Name", "event.metadata.name"),
    (".Namespace", "event.metadata.namespace"),
    (".UID", "event.metadata.uid"),
    (".Labels", "event.metadata.labels"),
    (".Annotations", "event.metadata.annotations"),
    (".ClusterName", "cluster.name"),
    (".FirstTimestamp", "event.firstTimestamp"),
    (".LastTimestamp", "event.lastTimestamp"),
    (".EventTime", "event.eventTime"),
    (".GetTimestampISO8601", "time"),
    (".ReportingController", "event.reportingComponent"),
    (".Source.Component", "event.source.component"),
    (".Source.Host", "event.source.host"),
    (".InvolvedObject.APIVersion", "event.involvedObject.apiVersion"),
    (".InvolvedObject.FieldPath", "event.involvedObject.fieldPath"),
    (".InvolvedObject.Kind", "event.involvedObject.kind"),
    (".InvolvedObject.Name", "event.involvedObject.name"),
    (".InvolvedObject.Namespace", "event.involvedObject.namespace"),
    (".InvolvedObject.ResourceVersion", "event.involvedObject.resourceVersion"),
    (".InvolvedObject.UID", "event.involvedObject.uid"),
];

/// A text with values of an event in it.
#[derive(Default)]
pub(super) struct Text {
    parts: Vec<Part>,
    /// The kinds and keys of facts about the object that it needs.
    pub(super) facts: Vec<(&'static str, String)>,
}

enum Part {
    Literal(String),
    Value(String),
}

impl Text {
    /// Reads a template of Go; with `dates` also `{2006-01-02}`. None: it does more than name values.
    pub(super) fn of(template: &str, dates: bool) -> Option<Self> {
        let mut text = Self { parts: Vec::new(), facts: Vec::new() };
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("{{") {
            let (action, after) = after.split_once("}}")?;
            text.literal(before, dates)?;
            let value = text.value(action.trim())?;
            text.parts.push(Part::Value(value));
            rest = after;
        }
        text.literal(rest, dates)?;
        (!expands(template)).then_some(text)
    }

    pub(super) fn literal_of(text: &str) -> Self {
        Self { parts: vec![Part::Literal(text.to_owned())], facts: Vec::new() }
    }

    fn literal(&mut self, literal: &str, dates: bool) -> Option<()> {
        let mut rest = literal;
        while let Some((before, after)) = rest.split_once('{').filter(|_| dates) {
            let (layout, after) = after.split_once('}')?;
            self.push(before);
            self.date(layout)?;
            rest = after;
        }
        self.push(rest);
        Some(())
    }

    fn push(&mut self, literal: &str) {
        if !literal.is_empty() {
            self.parts.push(Part::Literal(literal.to_owned()));
        }
    }

    /// A date in the notation of Go, of year, month and day.
    fn date(&mut self, layout: &str) -> Option<()> {
        const DATES: [(&str, &str); 4] =
            [("2006.01.02", "day"), ("2006", "day[:4]"), ("01", "day[5:7]"), ("02", "day[8:]")];
        let mut rest = layout;
        while let Some(first) = rest.chars().next() {
            let known = DATES.iter().find(|(date, _)| rest.starts_with(date));
            let (length, part) = match known {
                Some((date, value)) => (date.len(), Part::Value((*value).to_owned())),
                None if first.is_ascii_punctuation() => (1, Part::Literal(first.to_string())),
                None => return None,
            };
            self.parts.push(part);
            rest = &rest[length..];
        }
        Some(())
    }

    fn value(&mut self, action: &str) -> Option<String> {
        let words: Vec<_> = action.split_whitespace().collect();
        match words.as_slice() {
            ["toJson" | "toPrettyJson", path] | [path] => self.path(path),
            ["index", path, key] => {
                let key =
                    key.strip_prefix('"')?.strip_suffix('"').filter(|key| !key.contains('\\'))?;
                self.fact(path, key)
            }
            _ => None,
        }
    }

    fn path(&mut self, path: &str) -> Option<String> {
        if let Some((_, ours)) = PATHS.iter().find(|(theirs, _)| *theirs == path) {
            return Some((*ours).to_owned());
        }
        let (map, key) = match path.rsplit_once('.')? {
            (".InvolvedObject", "Labels" | "Annotations") => (path, "*"),
            found => found,
        };
        self.fact(map, key)
    }

    /// A label or an annotation, or all of them.
    fn fact(&mut self, map: &str, key: &str) -> Option<String> {
        let (kind, ours) = match map {
            ".Labels" => ("", "event.metadata.labels"),
            ".Annotations" => ("", "event.metadata.annotations"),
            ".InvolvedObject.Labels" => ("labels", "object.labels"),
            ".InvolvedObject.Annotations" => ("annotations", "object.annotations"),
            _ => return None,
        };
        if !kind.is_empty() {
            self.facts.push((kind, key.to_owned()));
        }
        Some(if key == "*" { ours.to_owned() } else { format!("{ours}[{}]", json(key)) })
    }

    /// The text in a place that is no JSON.
    pub(super) fn inline(&self) -> String {
        let part = |part: &Part| match part {
            Part::Literal(text) if text.contains('{') => format!("{{{{ {} }}}}", json(text)),
            Part::Literal(text) => text.clone(),
            Part::Value(value) => format!("{{{{ {value} }}}}"),
        };
        self.parts.iter().map(part).collect()
    }

    /// The text as an expression.
    pub(super) fn expression(&self) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Literal(text) => json(text),
            Part::Value(value) if self.parts.len() > 1 && is_map(value) => {
                format!("({value} | tojson)")
            }
            Part::Value(value) => value.clone(),
        });
        let parts: Vec<_> = parts.collect();
        match parts.as_slice() {
            [] => json(""),
            // A text, as it was.
            [only] if only == "occurrences" => format!("\"\" ~ {only}"),
            _ => parts.join(" ~ "),
        }
    }

    fn is_literal(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Literal(_)))
    }

    /// The text as a value of JSON.
    pub(super) fn in_json(&self) -> String {
        let expression = self.expression();
        let as_it_is = self.is_literal() && !expression.contains('{');
        if as_it_is { expression } else { format!("{{{{ {expression} }}}}") }
    }
}

fn is_map(value: &str) -> bool {
    ["event", "labels", "annotations"].iter().any(|map| value.rsplit('.').next() == Some(map))
}

/// A text of JSON, which is one of a template, too.
fn json(text: &str) -> String {
    escaped(&serde_json::Value::from(text).to_string())
}

/// A layout on its way to a body.
pub(super) struct Body {
    /// What is done to the expression of a key.
    pub(super) finish: fn(&str, String) -> String,
    pub(super) facts: Vec<(&'static str, String)>,
    /// The values that are not carried over.
    pub(super) lost: Vec<Origin>,
}

impl Body {
    /// The lines of a body that say what a layout does, which stands below `key`.
    pub(super) fn lines(&mut self, key: &str, layout: &Node) -> Vec<String> {
        let (open, close, members): (_, _, Vec<Vec<String>>) = match &layout.value {
            Value::Null => return vec!["null".to_owned()],
            Value::Scalar { text, quoted } => {
                // A number, or true or false.
                return match serde_json::from_str::<serde_json::Value>(text) {
                    Ok(value) if !quoted && (value.is_number() || value.is_boolean()) => {
                        vec![value.to_string()]
                    }
                    _ => vec![self.text(key, text, &layout.origin)],
                };
            }
            Value::List(items) => {
                ("[", "]", items.iter().map(|item| self.lines(key, item)).collect())
            }
            Value::Map(entries) => {
                let member = |Entry { key, node, .. }: &Entry| {
                    let mut lines = self.lines(key, node);
                    lines[0].insert_str(0, &format!("{}: ", Text::literal_of(key).in_json()));
                    lines
                };
                ("{", "}", entries.iter().map(member).collect())
            }
        };
        let mut lines = vec![open.to_owned()];
        for (at, member) in members.iter().enumerate() {
            lines.extend(member.iter().map(|line| format!("  {line}")));
            if let (true, Some(last)) = (at + 1 < members.len(), lines.last_mut()) {
                last.push(',');
            }
        }
        lines.push(close.to_owned());
        lines
    }

    fn text(&mut self, key: &str, text: &str, at: &Origin) -> String {
        let secret = is_secret_key(key) && !text.contains("{{");
        let Some(text) = Text::of(text, false).filter(|_| !secret) else {
            self.lost.push(at.clone());
            let instead =
                if key == "text" || key == "message" { "{{ event.message }}" } else { "\"\"" };
            return instead.to_owned();
        };
        self.facts.extend(text.facts.iter().cloned());
        if text.is_literal() {
            return text.in_json();
        }
        format!("{{{{ {} }}}}", (self.finish)(key, text.expression()))
    }
}
