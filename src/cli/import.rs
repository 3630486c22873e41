//! `tidings import`: the configuration of a kubernetes-event-exporter as one of Tidings.
//!
//! A comment at the head of the result, with its line in the file, stands for everything that has no counterpart.

mod receivers;
mod routes;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use serde_json::{Value, json};

use self::routes::Route;
use super::{EXIT_CONFIGURATION, failed, print};
use crate::{
    config::{self, Error, Problem},
    document::{
        SourceFile, wrong,
        yaml::{self, Entry, Node, Origin, Value as Yaml},
    },
    plain::one_line,
};

#[derive(Debug, Args)]
pub(super) struct ImportArguments {
    /// The configuration file of the kubernetes-event-exporter
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn import(ImportArguments { file }: ImportArguments) -> ExitCode {
    let name = file.to_string_lossy();
    match config::text_of(&name).and_then(|text| imported(&name, &text)) {
        Ok(Imported { text, remarks, variables }) => {
            let mut notice = match remarks {
                0 => String::new(),
                1 => "1 thing was not carried over: see the comment\n".to_owned(),
                n => format!("{n} things were not carried over: see the comments\n"),
            };
            if !variables.is_empty() {
                let variables = Vec::from_iter(variables).join(", ");
                let _ = writeln!(notice, "set these environment variables: {variables}");
            }
            // Nobody is left to tell when stderr is closed.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), notice.as_bytes());
            print(&text)
        }
        Err(error) => failed(&error, EXIT_CONFIGURATION),
    }
}

struct Imported {
    text: String,
    /// How many things were not carried over.
    remarks: usize,
    /// The variables of the environment that it refers to.
    variables: BTreeSet<String>,
}

fn imported(name: &str, text: &str) -> Result<Imported, Error> {
    let file = SourceFile::new(name, text);
    let (root, mistakes) = yaml::parse(text).map_err(|mistake| file.mistakes([mistake]))?;
    if !mistakes.is_empty() {
        return Err(file.mistakes(mistakes));
    }
    let (Some(route), Some(_)) = (root.get("route"), root.get("receivers")) else {
        let what = "expected `route` and `receivers`, found a file without them";
        let hint = "name a configuration of the kubernetes-event-exporter; of a ConfigMap or of Helm values, \
            write what stands below `data` or `config` into a file of its own";
        return Err(file.problem(&root.origin, wrong(what).hint(hint)).into());
    };
    let mut import = Import::new(&file, &root);
    let way = import.route(&route.node);
    let mut result = import.head(&root);
    let sinks = import.sinks(&root, &way);
    let remarks = import.remarks.iter().map(|(line, what)| format!("line {line}: {what}"));
    let remarks: Vec<_> = remarks.map(|remark| one_line(&remark, 400)).collect();
    if import.problems.is_empty() && sinks == json!({}) {
        let hint = "let a route lead to a receiver that Tidings has a sink for";
        let hint = format!("{hint}\n    {}", remarks.join("\n    "));
        import.wrong(&route.key_origin, "expected a route to a sink, found none", &hint);
    }
    if !import.problems.is_empty() {
        return Err(Error::new(import.problems));
    }
    result["sinks"] = sinks;
    let result = yaml_of(&result).trim_end().to_owned() + "\n";
    let mut text = format!("# Made of {} by `tidings import`.\n", one_line(name, 200));
    for remark in &remarks {
        let _ = writeln!(text, "# {remark}");
    }
    let refers = |name: &String| result.contains(&format!("env: {name}\n"));
    let variables = import.variables.into_iter().filter(refers).collect();
    Ok(Imported { text: text + &result, remarks: remarks.len(), variables })
}

/// A configuration that is being imported.
struct Import<'a> {
    file: &'a SourceFile,
    problems: Vec<Problem>,
    /// The things that are not carried over, by line.
    remarks: BTreeSet<(usize, String)>,
    /// Variables of the environment, that the file refers to or that are to be set.
    variables: BTreeSet<String>,
    /// The receivers that rules name, and where.
    named: BTreeMap<String, Origin>,
    /// Whether the exporter reads no labels and annotations.
    omits_lookup: bool,
    /// The labels and annotations that rules speak of: kind, key, and how a condition names them.
    facts: BTreeSet<(&'static str, String, String)>,
}

impl<'a> Import<'a> {
    fn new(file: &'a SourceFile, root: &Node) -> Self {
        let variables = file.text().split('$').skip(1).map(|after| {
            let name = after.trim_start_matches('{');
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            name[..end.unwrap_or(name.len())].to_owned()
        });
        let variables = variables.filter(|name| !name.is_empty()).collect();
        let omits_lookup = root.get("omitLookup").and_then(|entry| scalar(&entry.node));
        let omits_lookup = omits_lookup.is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let (problems, remarks, named, facts) = Default::default();
        Self { file, problems, remarks, variables, named, omits_lookup, facts }
    }

    fn wrong(&mut self, at: &Origin, what: &str, hint: &str) {
        self.problems.push(self.file.problem(at, wrong(what).hint(hint)));
    }

    fn remark(&mut self, at: &Origin, what: String) {
        let Origin::File(span) = at else { return };
        self.remarks.insert((self.file.line(span.start), what));
    }

    /// The mappings of a list, which may be absent.
    fn list<'n>(&mut self, node: &'n Node, key: &str) -> &'n [Node] {
        let Some(Entry { node, .. }) = node.get(key) else { return &[] };
        let (items, odd) = match &node.value {
            Yaml::Null => return &[],
            Yaml::List(items) => {
                let is_odd = |item: &&Node| !matches!(item.value, Yaml::Map(_) | Yaml::Null);
                (&items[..], items.iter().find(is_odd))
            }
            _ => (&[][..], Some(node)),
        };
        if let Some(odd) = odd {
            let what = format!("`{key}`: expected a list of mappings, found {}", odd.describe());
            self.wrong(&odd.origin, &what, "write `- ` before each item, and `key: value` in it");
        }
        items
    }

    /// The text of a key, unless it is absent or empty.
    fn text<'n>(&mut self, node: &'n Node, key: &str) -> Option<(&'n Entry, &'n str)> {
        let entry = node.get(key)?;
        if let Yaml::List(_) | Yaml::Map(_) = entry.node.value {
            let what = format!("`{key}`: expected a text, found {}", entry.node.describe());
            self.wrong(&entry.node.origin, &what, "write one text");
        }
        Some((entry, scalar(&entry.node)?))
    }

    /// The sections beside `sinks`.
    fn head(&mut self, root: &Node) -> Value {
        let mut head = json!({});
        for Entry { key, key_origin, node } in root.entries() {
            let text = scalar(node).unwrap_or_default();
            if text.is_empty() && node.entries().is_empty() {
                continue;
            }
            let path = match (&**key, text) {
                ("route" | "receivers" | "omitLookup", _) | ("logFormat", "pretty") => continue,
                ("clusterName", _) => "cluster.name",
                ("namespace", _) => "source.namespaces",
                ("kubeconfig", _) => "source.kubeconfig",
                ("maxEventAgeSeconds" | "throttlePeriod", _) => "source.start",
                ("logLevel", _) => "log.level",
                ("logFormat", _) => "log.format",
                _ => "",
            };
            let value = match path {
                "source.namespaces" => json!([reference(text)]),
                "source.start" => json!(format!("{text}s")),
                _ => reference(text),
            };
            let mut next = head.clone();
            set(&mut next, path, value);
            let mut whole = next.clone();
            whole["sinks"] = json!({"a": {"stdout": {}}});
            match accepted(&whole) {
                _ if expands(text) && variable(text).is_none() => self.remark(
                    key_origin,
                    format!("`{key}` is not filled in from the environment: write it"),
                ),
                Ok(()) => head = next,
                Err(_) if path.is_empty() => {
                    self.remark(key_origin, format!("`{key}`{NO_COUNTERPART}"));
                }
                Err(why) => self.remark(key_origin, format!("`{key}`: {why}")),
            }
        }
        head
    }

    /// A sink for each receiver that a route leads to, and a remark on any other.
    fn sinks(&mut self, root: &Node, route: &Route) -> Value {
        let mut sinks = json!({});
        let nodes = self.list(root, "receivers");
        let is_named = |node: &Node, name: &str| {
            node.get("name").is_some_and(|entry| scalar(&entry.node) == Some(name))
        };
        for (at, node) in nodes.iter().enumerate() {
            let Some((entry, name)) = self.text(node, "name") else {
                let what = "`receivers`: expected a `name` in each, found none";
                self.wrong(&node.origin, what, "write the name that a route has");
                continue;
            };
            let sink = if nodes[at + 1..].iter().any(|later| is_named(later, name)) {
                Err("the last one of that name counts: remove this".to_owned())
            } else if !self.named.contains_key(name) {
                Err("no route leads to it: remove it, or add a route".to_owned())
            } else if let Some(conditions) = route.to(name) {
                let ours = unique(name, &sinks);
                self.sink(node, &ours, &conditions).map(|sink| sinks[ours] = sink)
            } else {
                Err("an empty rule of `drop` drops everything: remove that".to_owned())
            };
            if let Err(why) = sink {
                self.remark(&entry.node.origin, format!("receiver `{name}`: {why}"));
            }
        }
        for (name, at) in std::mem::take(&mut self.named) {
            if !nodes.iter().any(|node| is_named(node, &name)) {
                let what = format!("receiver `{name}`: expected one of that name, found none");
                self.remark(&at, what);
            }
        }
        sinks
    }
}

/// A name for a sink that no other has.
fn unique(name: &str, sinks: &Value) -> String {
    let name = name.to_ascii_lowercase();
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c), "-");
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let name = if name.is_empty() { "sink" } else { &name[..name.len().min(50)] };
    let others = (2..).map(|n| format!("{name}-{n}"));
    let mut names = std::iter::once(name.to_owned()).chain(others);
    names.find(|name| sinks.get(name).is_none()).unwrap_or_default()
}

const NO_COUNTERPART: &str = " has no counterpart: see docs/migration.md";

/// The text of a scalar that is not empty.
fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Yaml::Scalar { text, .. } if !text.is_empty() => Some(text),
        _ => None,
    }
}

/// Sets the value at a path of keys with dots between them.
fn set(of: &mut Value, path: &str, value: Value) {
    *path.split('.').fold(of, |at, key| &mut at[key]) = value;
}

/// The YAML of a tree, which always has one: its keys are texts.
fn yaml_of(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_default()
}

/// Whether the check takes a configuration, or its first objection.
fn accepted(configuration: &Value) -> Result<(), String> {
    config::check_text("result", &yaml_of(configuration)).map_err(|error| {
        let first = error.problems().first().map(ToString::to_string).unwrap_or_default();
        first.split_once(": ").map_or("", |(_, what)| what).replace("\n  hint", "; hint")
    })
}

/// A text, or the reference to the variable of the environment that it stands for.
fn reference(text: &str) -> Value {
    variable(text).map_or_else(|| json!(text), |name| json!({"env": name}))
}

/// The variable of the environment that a text is.
fn variable(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

/// Whether the environment fills in some of a text.
fn expands(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "{_*#@!?-$".contains(c);
    text.match_indices('$').any(|(at, _)| text[at + 1..].starts_with(is_name))
}
