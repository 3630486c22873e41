//! Routes of a kubernetes-event-exporter, as conditions in CEL for each receiver.

use std::fmt::Write as _;

use regex::{Captures, Regex};

use super::{Import, expands, scalar};
use crate::{
    bridge::Filter,
    document::yaml::{Entry, Node, Value},
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

/// Conditions in CEL, all of which an event has to meet.
type Conditions = Vec<String>;

/// A route: a rule of `drop` ends it, each rule of `match` sends by itself, and the routes below need all of them.
pub(super) struct Route {
    /// Of the rules of `drop`; nothing if one drops everything.
    drops: Option<Conditions>,
    /// Of the rules of `match`, with the receivers.
    rules: Vec<(Option<String>, Conditions)>,
    routes: Vec<Route>,
}

impl Route {
    /// The conditions for a receiver to get an event; nothing if it gets none.
    pub(super) fn to(&self, receiver: &str) -> Option<Conditions> {
        let rules = self.rules.iter().filter(|(name, _)| name.as_deref() == Some(receiver));
        let mut ways: Vec<_> = rules.map(|(_, conditions)| conditions.clone()).collect();
        if let Some(below) = any(self.routes.iter().filter_map(|route| route.to(receiver))) {
            let rules = self.rules.iter().flat_map(|(_, conditions)| conditions.clone());
            ways.push(rules.chain(below).collect());
        }
        Some([self.drops.clone()?, any(ways)?].concat())
    }
}

/// The conditions for an event to go one of these ways; nothing if there is none.
fn any(ways: impl IntoIterator<Item = Conditions>) -> Option<Conditions> {
    let mut distinct: Vec<Conditions> = Vec::new();
    for way in ways {
        if !distinct.contains(&way) {
            distinct.push(way);
        }
    }
    if distinct.iter().any(Vec::is_empty) {
        return Some(Vec::new());
    }
    if distinct.len() < 2 {
        return distinct.pop();
    }
    let ways: Vec<_> = distinct.into_iter().map(|way| way.join(" && ")).collect();
    Some(vec![format!("({})", ways.join(" ||\n  "))])
}

impl Import<'_> {
    /// Reads a route and those below it.
    pub(super) fn route(&mut self, route: &Node) -> Route {
        for Entry { key, key_origin, .. } in route.entries() {
            if !["drop", "match", "routes"].contains(&&**key) {
                self.remark(key_origin, format!("`{key}` is not a key of a route: remove it"));
            }
        }
        let drops = self.list(route, "drop").iter().filter_map(|rule| {
            let (conditions, is_whole) = self.rule(rule, true);
            is_whole.then_some(conditions)
        });
        let drops = drops.map(|conditions| {
            (!conditions.is_empty()).then(|| format!("!({})", conditions.join(" && ")))
        });
        let drops = drops.collect();
        let mut rules = Vec::new();
        for rule in self.list(route, "match") {
            let receiver = self.text(rule, "receiver");
            let receiver = receiver.map(|(entry, name)| {
                self.named.entry(name.to_owned()).or_insert(entry.node.origin.clone());
                name.to_owned()
            });
            rules.push((receiver, self.rule(rule, false).0));
        }
        let routes = self.list(route, "routes").iter().map(|route| self.route(route)).collect();
        Route { drops, rules, routes }
    }

    /// The conditions of a rule, and whether these are all of them. More is sent where one cannot be carried over: a
    /// rule of `match` lacks it, and a rule of `drop` counts for nothing.
    fn rule(&mut self, rule: &Node, drops: bool) -> (Conditions, bool) {
        let (mut conditions, mut is_whole) = (Vec::new(), true);
        for entry in rule.entries() {
            if let Err(why) = self.conditions(entry, drops, &mut conditions) {
                let left_out = if drops { "the rule of `drop`" } else { "the condition" };
                let what = format!("{why}: {left_out} is left out, and more is sent");
                self.remark(&entry.key_origin, what);
                is_whole = false;
            }
        }
        (conditions, is_whole)
    }

    /// Adds the conditions of one key of a rule.
    fn conditions(
        &mut self,
        entry: &Entry,
        drops: bool,
        way: &mut Conditions,
    ) -> Result<(), String> {
        let Entry { key, node, .. } = entry;
        match (&**key, &node.value) {
            ("receiver", _) | (_, Value::Null) => {}
            ("minCount", Value::Scalar { text, .. }) if let Ok(least) = text.parse::<i32>() => {
                // The exporter reads `count`, which the scheduler's Events lack.
                let count = if drops { "event.count" } else { "occurrences" };
                way.extend((least > 0).then(|| format!("{count} >= {least}")));
            }
            ("labels" | "annotations", Value::Map(_)) if drops && self.omits_lookup => {
                return Err(format!("`{key}` with `omitLookup` matches nothing"));
            }
            ("labels" | "annotations", Value::Map(entries)) => {
                let kind = if key == "labels" { "labels" } else { "annotations" };
                for Entry { key, node, .. } in entries {
                    let field = format!("object.{kind}[{}]", quoted(key));
                    let value = pattern(key, &field, scalar(node).unwrap_or(""))?;
                    // An absent one reads as "".
                    let has = format!("{} in object.{kind}", quoted(key));
                    self.facts.insert((kind, key.clone(), has.clone()));
                    let has = value.map_or(has.clone(), |value| format!("{has} && {value}"));
                    // An object that is not known is sent rather than dropped.
                    let unknown = "object.missing != \"\"";
                    way.push(if drops { has } else { format!("({has} || {unknown})") });
                }
            }
            (key, value) => match (FIELDS.iter().find(|(name, _)| *name == key), value) {
                (Some((_, field)), Value::Scalar { text, .. }) => {
                    way.extend(pattern(key, field, text)?);
                }
                (None, _) if !["minCount", "labels", "annotations"].contains(&key) => {
                    return Err(format!("`{key}` is not a key of a rule"));
                }
                _ => return Err(format!("`{key}` cannot be {}", node.describe())),
            },
        }
        Ok(())
    }
}

/// Parts of patterns that Go refuses or reads in another way: some escapes, flags and sets; a repetition of a
/// repetition; one of more than a thousand.
const ODD: &str = r"(?x)
    \\ [uUbB] | \(\? [imsU-]* [xuR] | [*+?}] [*+] | [*+?}] \?? \{ | [*+?}] \? [?*+] | \{ , | [0-9]{4}
    | \[ (?s:.*) ( && | -- | ~~ | \[ [^:] )";

/// The condition that a field matches a pattern of Go, if it says anything.
fn pattern(key: &str, field: &str, pattern: &str) -> Result<Option<String>, String> {
    if ["", ".*"].contains(&pattern) {
        return Ok(None);
    }
    let written = format!("`{key}: {pattern}`");
    if expands(pattern) {
        return Err(format!("{written} has a variable of the environment in it"));
    }
    if Regex::new(ODD).is_ok_and(|odd| odd.is_match(pattern)) {
        return Err(format!("{written} may mean something else here"));
    }
    // In Go these sets are of ASCII characters, and `\<` is `<`.
    let escapes = Regex::new(r"(?s)\\(.)").map_err(|error| error.to_string())?;
    let pattern = escapes.replace_all(pattern, |escape: &Captures<'_>| {
        let of_ascii = match &escape[1] {
            "d" => "[0-9]",
            "D" => "[^0-9]",
            "w" => "[0-9A-Za-z_]",
            "W" => "[^0-9A-Za-z_]",
            "s" => r"[\t\n\f\r ]",
            "S" => r"[^\t\n\f\r ]",
            c @ ("<" | ">") => c,
            _ => &escape[0],
        };
        of_ascii.to_owned()
    });
    let condition = format!("{field}.matches({})", quoted(&pattern));
    match Filter::compile(&condition) {
        Ok(_) => Ok(Some(condition)),
        Err(error) => Err(format!("{written}: {}", error.what)),
    }
}

/// A text in double quotes, of CEL.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            _ if c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric() => quoted.push(c),
            _ => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(c));
            }
        }
    }
    quoted + "\""
}
