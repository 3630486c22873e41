//! The environment overlay: `TIDINGS_SERVER__LISTEN` sets `server.listen`.
//!
//! Two underscores separate levels. Words inside a key may be separated by one
//! (`TIDINGS_SOURCE__FIELD_SELECTOR`, the spelling of the documentation) or not at all
//! (`TIDINGS_SOURCE__FIELDSELECTOR`). Only scalars of `cluster`, `source`, `journal`, `server` and
//! `log` can be set, never sinks: a sink that half comes from a file and half from a pod's
//! environment is understood by nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    slice,
};

use config::{Environment, Source as _};

use super::schema::LEAVES;
use crate::{
    document::{
        Problem, Variables, wrong,
        yaml::{Entry, Node, Origin, Value},
    },
    suggest::nearest,
};

/// The keys that cannot be set, and all below them; in lower case.
const FILE_ONLY: [&str; 9] = [
    "cluster.labels",
    "sinks",
    "source.namespaces",
    "source.allowplaintext",
    "metrics",
    "objects",
    "server.token",
    "telemetry",
    "leaderelection",
];

/// The keys that can be set: all others.
pub(super) fn settable() -> impl Iterator<Item = &'static [String]> {
    let keys = LEAVES.iter().map(|leaf| &*leaf.path);
    keys.filter(|key| !is_of_file(&key.join(".").to_ascii_lowercase()))
}

fn is_of_file(key: &str) -> bool {
    FILE_ONLY.iter().any(|only| key.starts_with(only))
}

const PREFIX: &str = "TIDINGS_";

/// Read by the tests of the project, not by the program.
const IGNORED: &str = "TIDINGS_CONFORMANCE_DIR";

/// The variables without those that overlay another section.
pub(super) fn of_section(variables: &Variables, section: &str) -> Variables {
    let within = format!("{PREFIX}{section}__").to_ascii_uppercase();
    variables.keep(|name| !name.starts_with(PREFIX) || name.starts_with(&within))
}

/// How the documentation spells the variable of a key.
pub(super) fn spelling(key: &[String]) -> String {
    let word = |key: &String| {
        key.chars().fold(String::new(), |mut word, c| {
            if c.is_ascii_uppercase() {
                word.push('_');
            }
            word.push(c.to_ascii_uppercase());
            word
        })
    };
    format!("{PREFIX}{}", key.iter().map(word).collect::<Vec<_>>().join("__"))
}

/// Puts the values of the environment into the tree, over those of the file.
pub(super) fn apply(root: &mut Node, variables: &Variables) -> Vec<Problem> {
    let mut problems = Vec::new();
    let referred = referred_variables(root);
    let mut ours = BTreeMap::new();
    for (name, value) in variables.all() {
        let is_ours = name.starts_with(PREFIX) && name != IGNORED && !referred.contains(name);
        match value.to_str() {
            _ if !is_ours => {}
            Some(value) => {
                ours.insert(name.clone(), value.to_owned());
            }
            None => {
                let wrong = wrong("expected text in UTF-8, found something else");
                problems.push(Problem::of_env(name, wrong));
            }
        }
    }
    let names: BTreeMap<String, String> =
        ours.keys().map(|name| (name.to_ascii_lowercase(), name.clone())).collect();
    let environment = Environment::default()
        .prefix("TIDINGS")
        .prefix_separator("_")
        .separator("__")
        .source(Some(ours.into_iter().collect()));
    let collected: BTreeMap<_, _> = match environment.collect() {
        Ok(collected) => collected.into_iter().collect(),
        Err(error) => return vec![Problem::of_env("TIDINGS_…", wrong(error.to_string()))],
    };
    let mut set: BTreeMap<&[String], String> = BTreeMap::new();
    for (dotted, value) in collected {
        let lowered = format!("tidings_{}", dotted.replace('.', "__"));
        let name = names.get(&lowered).cloned().unwrap_or_else(|| lowered.to_ascii_uppercase());
        let Some(key) = settable().find(|key| is_key(key, &dotted)) else {
            problems.push(unknown(&name, &dotted));
            continue;
        };
        if let Some(other) = set.insert(key, name.clone()) {
            let what = format!("expected one variable for `{}`, found {other}, too", key.join("."));
            problems.push(Problem::of_env(&name, wrong(what).hint("remove one of the two")));
            continue;
        }
        if let Ok(text) = value.into_string() {
            put(root, key, text, &name);
        }
    }
    problems
}

/// Whether a collected name such as `source.field_selector` is that of a key.
fn is_key(key: &[String], dotted: &str) -> bool {
    let mut parts = dotted.split('.');
    key.iter().all(|word| {
        parts.next().is_some_and(|part| {
            part == word.to_ascii_lowercase()
                || part == spelling(slice::from_ref(word))[PREFIX.len()..].to_ascii_lowercase()
        })
    }) && parts.next().is_none()
}

fn unknown(name: &str, dotted: &str) -> Problem {
    let wrong = wrong("expected a setting of the program, found another name");
    let known: Vec<String> = settable().map(spelling).collect();
    let is_sink = dotted.starts_with("sinks.") || dotted == "sinks";
    let is_service_link = name.starts_with("TIDINGS_SERVICE_") || name.starts_with("TIDINGS_PORT");
    let wrong = if is_sink {
        wrong.hint("sinks are set in the file; a value there can be `{env: NAME}`")
    } else if is_service_link {
        // Kubernetes gives each pod such variables for each Service of its namespace.
        wrong.hint(
            "it comes from a Service called `tidings`: set `enableServiceLinks: false` in the pod",
        )
    } else if is_of_file(&dotted.replace('_', "")) {
        wrong.hint("it can be set in the file only")
    } else if let Some(near) = nearest(name, known.iter().map(String::as_str)) {
        wrong.hint(format!("did you mean {near}?"))
    } else {
        wrong.hint(format!("unset it; the settings are {}", known.join(", ")))
    };
    Problem::of_env(name, wrong)
}

/// The variables that the file names by `{env: NAME}`: those are known, whatever they are called.
fn referred_variables(node: &Node) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let below: Vec<&Node> = match &node.value {
        Value::Map(entries) => entries.iter().map(|entry| &entry.node).collect(),
        Value::List(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    if let [Entry { key, node, .. }] = node.entries()
        && key == "env"
        && let Value::Scalar { text, .. } = &node.value
    {
        names.insert(text.clone());
    }
    for node in below {
        names.append(&mut referred_variables(node));
    }
    names
}

/// Sets one value. A parent that is no mapping stays as it is: decoding will refuse it.
fn put(node: &mut Node, key: &[String], text: String, name: &str) {
    let Some((first, rest)) = key.split_first() else {
        let value = Value::Scalar { text, quoted: false };
        *node = Node { value, origin: Origin::Env(name.to_owned()) };
        return;
    };
    if let Value::Null = node.value {
        node.value = Value::Map(Vec::new());
    }
    let Value::Map(entries) = &mut node.value else { return };
    let at = entries.iter().position(|entry| entry.key == *first).unwrap_or_else(|| {
        let origin = Origin::Env(name.to_owned());
        let node = Node { value: Value::Null, origin: origin.clone() };
        entries.push(Entry { key: first.clone(), key_origin: origin, node });
        entries.len() - 1
    });
    put(&mut entries[at].node, rest, text, name);
}
