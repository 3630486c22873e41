//! The environment overlay: `TIDINGS_SERVER__LISTEN` sets `server.listen`.
//!
//! Two underscores separate levels. Words inside a key may be separated by one
//! (`TIDINGS_SOURCE__FIELD_SELECTOR`, the spelling of the documentation) or not at all
//! (`TIDINGS_SOURCE__FIELDSELECTOR`). Only scalars of `cluster`, `source`, `journal`, `server` and
//! `log` can be set, never sinks: a sink that half comes from a file and half from a pod's
//! environment is understood by nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
};

use config::{Environment, Source as _};

use super::{
    error::Problem,
    yaml::{Entry, Node, Origin, Value},
};
use crate::suggest::nearest;

/// What can be set.
const SCALARS: [&[&str]; 17] = [
    &["cluster", "name"],
    &["cluster", "uid"],
    &["source", "kubeconfig"],
    &["source", "proxy"],
    &["source", "fieldSelector"],
    &["source", "start"],
    &["source", "heartbeat"],
    &["journal", "path"],
    &["journal", "retention", "size"],
    &["journal", "retention", "age"],
    &["journal", "sync"],
    &["journal", "deadLetters"],
    &["journal", "maxEvent"],
    &["server", "listen"],
    &["server", "detail"],
    &["log", "level"],
    &["log", "format"],
];

/// What the file has beyond those, sinks aside; in lower case and without separators of words.
const FILE_ONLY: [&str; 4] =
    ["source.namespaces", "source.allowplaintext", "server.token", "leaderelection"];

const PREFIX: &str = "TIDINGS_";

/// Read by the tests of the project, not by the program.
const IGNORED: &str = "TIDINGS_CONFORMANCE_DIR";

/// The variables of a process.
#[derive(Default)]
pub(super) struct Variables(BTreeMap<String, OsString>);

impl Variables {
    pub(super) fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        // A name that is not UTF-8 can neither be one of ours nor be referred to from YAML.
        let named = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value));
        Self(variables.into_iter().filter_map(named).collect())
    }

    /// Without those that overlay another section.
    pub(super) fn of_section(&self, section: &str) -> Self {
        let within = format!("{PREFIX}{section}__").to_ascii_uppercase();
        let wanted = |name: &str| !name.starts_with(PREFIX) || name.starts_with(&within);
        let kept = self.0.iter().filter(|(name, _)| wanted(name));
        Self(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&OsString> {
        self.0.get(name)
    }
}

/// How the documentation spells the variable of a key.
fn spelling(key: &[&str]) -> String {
    let word = |key: &&str| {
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
    for (name, value) in &variables.0 {
        let is_ours = name.starts_with(PREFIX) && name != IGNORED && !referred.contains(name);
        match value.to_str() {
            _ if !is_ours => {}
            Some(value) => {
                ours.insert(name.clone(), value.to_owned());
            }
            None => problems.push(Problem::of_env(name, "the value is not UTF-8")),
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
        Err(error) => return vec![Problem::of_env("TIDINGS_…", error.to_string())],
    };
    let mut set: BTreeMap<&[&str], String> = BTreeMap::new();
    for (dotted, value) in collected {
        let lowered = format!("tidings_{}", dotted.replace('.', "__"));
        let name = names.get(&lowered).cloned().unwrap_or_else(|| lowered.to_ascii_uppercase());
        let Some(key) = SCALARS.into_iter().find(|key| is_key(key, &dotted)) else {
            problems.push(unknown(&name, &dotted));
            continue;
        };
        if let Some(other) = set.insert(key, name.clone()) {
            let what = format!("it sets `{}`, and so does {other}", key.join("."));
            problems.push(Problem::of_env(&name, what).hint("remove one of the two"));
            continue;
        }
        if let Ok(text) = value.into_string() {
            put(root, key, text, &name);
        }
    }
    problems
}

/// Whether a collected name such as `source.field_selector` is that of a key.
fn is_key(key: &[&str], dotted: &str) -> bool {
    let mut parts = dotted.split('.');
    key.iter().all(|word| {
        parts.next().is_some_and(|part| {
            part == word.to_ascii_lowercase()
                || part == spelling(&[word])[PREFIX.len()..].to_ascii_lowercase()
        })
    }) && parts.next().is_none()
}

fn unknown(name: &str, dotted: &str) -> Problem {
    let problem = Problem::of_env(name, "there is no such setting");
    let known: Vec<String> = SCALARS.iter().map(|key| spelling(key)).collect();
    let is_sink = dotted.starts_with("sinks.") || dotted == "sinks";
    let is_service_link = name.starts_with("TIDINGS_SERVICE_") || name.starts_with("TIDINGS_PORT");
    if is_sink {
        problem.hint("sinks are set in the file; a value there can be `{env: NAME}`")
    } else if is_service_link {
        // Kubernetes gives each pod such variables for each Service of its namespace.
        problem.hint(
            "it comes from a Service called `tidings`: set `enableServiceLinks: false` in the pod",
        )
    } else if FILE_ONLY.iter().any(|key| dotted.replace('_', "").starts_with(key)) {
        problem.hint("it can be set in the file only")
    } else if let Some(near) = nearest(name, known.iter().map(String::as_str)) {
        problem.hint(format!("did you mean {near}?"))
    } else {
        problem.hint(format!("unset it; the settings are {}", known.join(", ")))
    }
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
fn put(node: &mut Node, key: &[&str], text: String, name: &str) {
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
        entries.push(Entry { key: (*first).to_owned(), key_origin: origin, node });
        entries.len() - 1
    });
    put(&mut entries[at].node, rest, text, name);
}
