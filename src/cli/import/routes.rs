//! Routes of a kubernetes-event-exporter, as a condition in CEL for each receiver.

use std::{collections::BTreeMap, fmt};

use super::{Import, expands, quoted, scalar};
use crate::{
    bridge::Filter,
    document::yaml::{Entry, Node, Origin, Value},
};

/// The fields of a rule that are patterns.
const FIELDS: [(&str, &str); 8] = [
    ("message", "event.message"),
    ("apiVersion", "event.involvedObject.apiVersion"),
    ("kind", "event.involvedObject.kind"),
    ("namespace", "event.metadata.namespace"),
    ("reason", "event.reason"),
    ("type", "event.type"),
    ("component", "event.source.component"),
    ("host", "event.source.host"),
];

/// A condition in CEL.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Condition {
    /// One comparison, and its opposite.
    Test(String, String),
    Not(Box<Self>),
    /// Without any: true.
    All(Vec<Self>),
    /// Without any: false.
    Any(Vec<Self>),
}

use Condition::{All, Any, Not, Test};

impl Condition {
    pub(super) fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let flat = parts.into_iter().flat_map(|part| match part {
            All(inner) => inner,
            other => vec![other],
        });
        let kept = distinct(flat);
        if kept.contains(&Any(Vec::new())) { Any(Vec::new()) } else { only(kept, All) }
    }

    pub(super) fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        let flat = parts.into_iter().flat_map(|part| match part {
            Any(inner) => inner,
            other => vec![other],
        });
        let mut kept = distinct(flat);
        // `a || a && b` is `a`.
        let terms =
            |part: &Self| if let All(terms) = part { terms.clone() } else { vec![part.clone()] };
        for part in kept.clone() {
            let has_more = |other: &Self| {
                *other != part && terms(&part).iter().all(|term| terms(other).contains(term))
            };
            kept.retain(|other| !has_more(other));
        }
        only(kept, Any)
    }

    fn not(self) -> Self {
        match self {
            Test(text, opposite) => Test(opposite, text),
            Not(inner) => *inner,
            All(parts) if parts.is_empty() => Any(Vec::new()),
            Any(parts) if parts.is_empty() => All(Vec::new()),
            other => Not(Box::new(other)),
        }
    }

    /// Its text, each alternative on a line.
    pub(super) fn lines(&self) -> Vec<String> {
        let parts = match self {
            Any(parts) if !parts.is_empty() => parts,
            _ => return vec![self.to_string()],
        };
        let more = |(at, part): (usize, &Self)| {
            if at + 1 < parts.len() { format!("{part} ||") } else { part.to_string() }
        };
        parts.iter().enumerate().map(more).collect()
    }
}

fn distinct(parts: impl Iterator<Item = Condition>) -> Vec<Condition> {
    parts.fold(Vec::new(), |mut kept, part| {
        if !kept.contains(&part) {
            kept.push(part);
        }
        kept
    })
}

fn only(mut parts: Vec<Condition>, of: fn(Vec<Condition>) -> Condition) -> Condition {
    if parts.len() == 1 { parts.remove(0) } else { of(parts) }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Test(text, _) => f.write_str(text),
            Not(inner) => write!(f, "!({inner})"),
            All(parts) | Any(parts) if parts.is_empty() => write!(f, "{}", matches!(self, All(_))),
            All(parts) => {
                let shown = parts.iter().map(|part| match part {
                    Any(_) => format!("({part})"),
                    _ => part.to_string(),
                });
                f.write_str(&shown.collect::<Vec<_>>().join(" && "))
            }
            Any(_) => f.write_str(&self.lines().join(" ")),
        }
    }
}

/// A way through the routes.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) condition: Condition,
    /// The kinds and keys of facts about the object that it needs.
    pub(super) facts: Vec<(&'static str, String)>,
    /// The lines of rules that are not carried over as they are, and why.
    pub(super) notes: Vec<(usize, String)>,
}

impl Default for Way {
    fn default() -> Self {
        Self { condition: All(Vec::new()), facts: Vec::new(), notes: Vec::new() }
    }
}

impl Way {
    fn and(&self, rule: Self) -> Self {
        let mut way = self.clone();
        way.condition = Condition::all([way.condition, rule.condition]);
        way.facts.extend(rule.facts);
        way.notes.extend(rule.notes);
        way
    }
}

/// The ways to each receiver, by its name; with the place of a rule that names it.
pub(super) type Ways = BTreeMap<String, (Origin, Vec<Way>)>;

impl Import<'_> {
    /// Adds the ways that go through a route and those below it.
    pub(super) fn route(&mut self, route: &Node, above: &Way, ways: &mut Ways) {
        let mut here = above.clone();
        let is_known = |key: &str| ["drop", "match", "routes"].contains(&key);
        for entry in route.entries().iter().filter(|entry| !is_known(&entry.key)) {
            let note =
                format!("`{}` is not a key of a route, and is ignored: remove it", entry.key);
            here.notes.push((self.line(&entry.key_origin), note));
        }
        for drop in self.list(route, "drop", false) {
            let rule = self.rule(drop, true);
            here = here.and(Way { condition: rule.condition.not(), ..rule });
        }
        let mut below = here.clone();
        for matching in self.list(route, "match", false) {
            let rule = self.rule(matching, false);
            if let Some((entry, receiver)) = self.text_of(matching, "receiver") {
                let known = ways.entry(receiver.to_owned());
                let at = || (entry.node.origin.clone(), Vec::new());
                known.or_insert_with(at).1.push(here.and(rule.clone()));
            }
            below = below.and(rule);
        }
        for next in self.list(route, "routes", false) {
            self.route(next, &below, ways);
        }
    }

    /// The condition of a rule. Where it cannot be carried over, more is sent: a rule of `match` lacks that
    /// condition, and one of `drop` drops nothing.
    fn rule(&mut self, rule: &Node, drops: bool) -> Way {
        let mut way = Way::default();
        let mut conditions = Vec::new();
        for entry in rule.entries() {
            let field = FIELDS.iter().find(|(key, _)| *key == entry.key);
            match (&*entry.key, field) {
                ("receiver" | "name", _) => {}
                ("minCount", _) => conditions.push(self.at_least(entry, &mut way)),
                ("labels" | "annotations", _)
                    if matches!(entry.node.value, Value::Scalar { .. } | Value::List(_)) =>
                {
                    self.leave_out(entry, &format!("`{}` is no mapping", entry.key), &mut way);
                }
                ("labels" | "annotations", _) => {
                    let kind = if entry.key == "labels" { "labels" } else { "annotations" };
                    for fact in entry.node.entries() {
                        conditions.push(self.fact(kind, fact, drops, &mut way));
                    }
                }
                (key, Some((_, field))) => {
                    if let Some((_, text)) = self.text_of(rule, key) {
                        conditions.push(self.test(entry, field, text, &mut way));
                    }
                }
                (key, None) => {
                    let why = format!("`{key}` is not a key of a rule");
                    self.leave_out(entry, &why, &mut way);
                }
            }
        }
        let ends = if drops {
            "the rule of `drop` is left out, so more is sent: add what is meant to `match`"
        } else {
            "the condition is left out, so more is sent: add what is meant to `match`"
        };
        way.notes.iter_mut().for_each(|(_, note)| *note = format!("{note}: {ends}"));
        way.condition = if drops && !way.notes.is_empty() {
            Any(Vec::new())
        } else {
            Condition::all(conditions)
        };
        way
    }

    fn leave_out(&self, entry: &Entry, why: &str, way: &mut Way) -> Condition {
        way.notes.push((self.line(&entry.key_origin), why.to_owned()));
        All(Vec::new())
    }

    fn at_least(&self, entry: &Entry, way: &mut Way) -> Condition {
        let is_text = matches!(entry.node.value, Value::Scalar { .. } | Value::Null);
        match scalar(&entry.node).unwrap_or("0").parse::<i32>() {
            Ok(..1) if is_text => All(Vec::new()),
            Ok(n @ 1..) => Test(format!("occurrences >= {n}"), format!("occurrences < {n}")),
            _ => self.leave_out(entry, "`minCount` is no number", way),
        }
    }

    /// The condition that a label or annotation is there and matches. An object that is not known passes
    /// a rule of `match`, and is not dropped.
    fn fact(&mut self, kind: &'static str, entry: &Entry, drops: bool, way: &mut Way) -> Condition {
        let key = quoted(&entry.key);
        let pattern = scalar(&entry.node).unwrap_or("");
        way.facts.push((kind, entry.key.clone()));
        let has = Test(format!("{key} in object.{kind}"), format!("!({key} in object.{kind})"));
        let test = self.test(entry, &format!("object.{kind}[{key}]"), pattern, way);
        // An absent one reads as "".
        let matches_nothing = regex::Regex::new(pattern).is_ok_and(|regex| regex.is_match(""));
        let test = if matches_nothing { Condition::all([has, test]) } else { test };
        let missing =
            Test("object.missing != \"\"".to_owned(), "object.missing == \"\"".to_owned());
        if drops { test } else { Condition::any([test, missing]) }
    }

    /// The condition that a field matches a pattern of Go.
    fn test(&self, entry: &Entry, field: &str, pattern: &str, way: &mut Way) -> Condition {
        let written = format!("`{}: {pattern}`", entry.key);
        if expands(pattern) {
            let why = format!("{written} has a variable of the environment in it");
            return self.leave_out(entry, &why, way);
        }
        let test = condition(field, pattern);
        match &test {
            Test(text, _) => match Filter::compile(text) {
                Ok(_) if !is_read_differently(pattern) => test,
                Ok(_) => self.leave_out(entry, &format!("{written} means another set here"), way),
                Err(error) => {
                    let why = error.what.replace("not a regular expression: ", "");
                    self.leave_out(entry, &format!("{written} is no pattern ({why})"), way)
                }
            },
            _ => test,
        }
    }
}

/// The simplest condition that says the same as an unanchored pattern.
fn condition(field: &str, pattern: &str) -> Condition {
    let (rest, starts) = pattern.strip_prefix('^').map_or((pattern, false), |rest| (rest, true));
    let (rest, ends) = rest.strip_suffix('$').map_or((rest, false), |rest| (rest, true));
    let call = |name: &str, text: &str| {
        let call = format!("{field}.{name}({})", quoted(text));
        Test(call.clone(), format!("!{call}"))
    };
    match (literal(rest), starts, ends) {
        (Some(text), true, true) => {
            let text = quoted(&text);
            Test(format!("{field} == {text}"), format!("{field} != {text}"))
        }
        (Some(text), ..) if text.is_empty() => All(Vec::new()),
        (Some(text), true, false) => call("startsWith", &text),
        (Some(text), false, true) => call("endsWith", &text),
        (Some(text), false, false) => call("contains", &text),
        (None, ..) if pattern == ".*" => All(Vec::new()),
        (None, ..) => call("matches", pattern),
    }
}

/// The text that a pattern matches, if that is only one.
fn literal(pattern: &str) -> Option<String> {
    let mut text = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.push(chars.next().filter(char::is_ascii_punctuation)?),
            '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' => {
                return None;
            }
            _ => text.push(c),
        }
    }
    Some(text)
}

/// Whether a set of characters has what Go takes for characters, and this program for a set within it.
fn is_read_differently(pattern: &str) -> bool {
    let (mut inside, mut escaped) = (false, false);
    pattern.char_indices().any(|(at, c)| {
        let rest = &pattern[at..];
        let differs = inside
            && !escaped
            && (["&&", "--", "~~"].iter().any(|operator| rest.starts_with(operator))
                || c == '[' && !rest.starts_with("[:"));
        if !escaped {
            inside = (inside || c == '[') && c != ']';
        }
        escaped = c == '\\' && !escaped;
        differs
    })
}
