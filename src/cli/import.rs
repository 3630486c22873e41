//! `tidings import`: the configuration of a kubernetes-event-exporter as one of Tidings.
//!
//! A comment with its line stands for everything that has no counterpart, and for a sink that the check of
//! configurations refuses.

mod receivers;
mod routes;
mod templates;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;

use self::{
    receivers::{KINDS, Receiver},
    routes::{Condition, Way, Ways},
};
use super::{EXIT_CONFIGURATION, failed, print};
use crate::{
    bridge::Filter,
    config::{self, Error, Problem},
    document::{
        SourceFile, Wrong, wrong,
        yaml::{self, Entry, Node, Origin, Value},
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
    let imported = match config::text_of(&name).and_then(|text| imported(&name, &text)) {
        Ok(imported) => imported,
        Err(error) => return failed(&error, EXIT_CONFIGURATION),
    };
    if let Err(error) = config::check_text("the result", &imported.text) {
        return failed(&format!("the result is no configuration; this is a bug\n{error}"), 1);
    }
    let things = match imported.remarks {
        0 => String::new(),
        1 => "1 thing was not carried over: see the comment\n".to_owned(),
        n => format!("{n} things were not carried over: see the comments\n"),
    };
    let variables = imported.variables.into_iter().collect::<Vec<_>>().join(", ");
    let variables = if variables.is_empty() {
        variables
    } else {
        format!("set these variables of the environment: {variables}\n")
    };
    // Nobody is left to tell when stderr is closed.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), (things + &variables).as_bytes());
    print(&imported.text)
}

struct Imported {
    text: String,
    /// How many things were not carried over.
    remarks: usize,
    /// What stood in the file itself, and has to be in the environment.
    variables: BTreeSet<String>,
}

/// A configuration that is being imported.
struct Import<'a> {
    file: &'a SourceFile,
    problems: Vec<Problem>,
    /// What is not carried over, by line.
    remarks: BTreeSet<(usize, String)>,
    variables: BTreeSet<String>,
}

fn imported(name: &str, text: &str) -> Result<Imported, Error> {
    let file = SourceFile::new(name, text);
    let (root, mistakes) = yaml::parse(text).map_err(|(at, wrong)| file.problem_at(at, wrong))?;
    if !mistakes.is_empty() {
        let problems = mistakes.into_iter().map(|(at, wrong)| file.problem_at(at, wrong));
        return Err(Error::new(problems.collect()));
    }
    let (Some(route), Some(_)) = (root.get("route"), root.get("receivers")) else {
        let what = "expected `route` and `receivers`, found a file without them";
        let hint = match root.entries().iter().find(|e| ["data", "config"].contains(&&*e.key)) {
            Some(entry) => {
                format!("write what stands below `{}` into a file of its own", entry.key)
            }
            None => "name the configuration file of a kubernetes-event-exporter".to_owned(),
        };
        return Err(file.problem(&root.origin, wrong(what).hint(hint)).into());
    };
    let mut import = Import::new(&file);
    let mut ways = Ways::new();
    import.route(&route.node, &Way::default(), &mut ways);
    let (sinks, any) = import.sinks(&root, ways);
    let head = import.head(&root, sinks.contains("\n    enrich:"));
    if import.problems.is_empty() && !any {
        let hint = "let a route lead to a receiver that Tidings has a sink for".to_owned();
        let hint = import.remarks.iter().fold(hint, |hint, remark| {
            format!("{hint}\n    {}", comment(remark).trim_start_matches("# "))
        });
        import.wrong(&route.key_origin, wrong("expected a route to a sink, found none").hint(hint));
    }
    if !import.problems.is_empty() {
        return Err(Error::new(import.problems));
    }
    let made = format!("# Made of {} by `tidings import`.\n", one_line(name, 200));
    let text = format!("{made}{head}sinks:\n{sinks}");
    Ok(Imported { text, remarks: import.remarks.len(), variables: import.variables })
}

impl<'a> Import<'a> {
    fn new(file: &'a SourceFile) -> Self {
        let (problems, remarks, variables) = Default::default();
        Self { file, problems, remarks, variables }
    }

    fn wrong(&mut self, at: &Origin, wrong: Wrong) {
        self.problems.push(self.file.problem(at, wrong));
    }

    /// The line that something stands on.
    fn line(&self, at: &Origin) -> usize {
        let Origin::File(span) = at else { return 0 };
        self.file.text().get(..span.start).map_or(0, |before| before.matches('\n').count()) + 1
    }

    /// Notes that something is not carried over.
    fn remark(&mut self, at: &Origin, what: &str) -> (usize, String) {
        let remark = (self.line(at), what.to_owned());
        self.remarks.insert(remark.clone());
        remark
    }

    /// The items of a list, which may be absent: texts, or mappings.
    fn list<'n>(&mut self, node: &'n Node, key: &str, texts: bool) -> &'n [Node] {
        match node.get(key).map(|entry| &entry.node) {
            None | Some(Node { value: Value::Null, .. }) => &[],
            Some(Node { value: Value::List(items), .. }) => {
                let is_wrong =
                    |item: &&Node| matches!(item.value, Value::Scalar { .. } | Value::List(_));
                if let Some(item) = items.iter().find(is_wrong).filter(|_| !texts) {
                    let what = format!("`{key}`: expected mappings, found {}", item.describe());
                    self.wrong(&item.origin, wrong(what).hint("write `key: value` in each item"));
                }
                items
            }
            Some(other) => {
                let what = format!("`{key}`: expected a list, found {}", other.describe());
                self.wrong(&other.origin, wrong(what).hint("write `- ` before each item"));
                &[]
            }
        }
    }

    /// The text of a key, unless it is absent or empty.
    fn text_of<'n>(&mut self, node: &'n Node, key: &str) -> Option<(&'n Entry, &'n str)> {
        let entry = node.get(key)?;
        if let Value::List(_) | Value::Map(_) = entry.node.value {
            let what = format!("`{key}`: expected a text, found {}", entry.node.describe());
            self.wrong(&entry.node.origin, wrong(what).hint("write one text"));
        }
        Some((entry, scalar(&entry.node)?))
    }

    /// The sections above `sinks`.
    fn head(&mut self, root: &Node, enriches: bool) -> String {
        let old = self.text_of(root, "throttlePeriod");
        if let (Some((at, _)), Some(_)) = (old, self.text_of(root, "maxEventAgeSeconds")) {
            let what = "expected `throttlePeriod` or `maxEventAgeSeconds`, found both";
            self.wrong(&at.key_origin, wrong(what).hint("remove `throttlePeriod`"));
        }
        let mut sections: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut head = Vec::new();
        for Entry { key, key_origin, node } in root.entries() {
            let enabled = node.get("enabled").map_or(node, |entry| &entry.node);
            let Some(text) = scalar(enabled).filter(|text| !["0", "false"].contains(text)) else {
                continue;
            };
            let (section, line) = match &**key {
                "clusterName" => ("cluster", format!("name: {}", reference(text))),
                "namespace" => ("source", format!("namespaces: [{}]", reference(text))),
                "kubeconfig" => ("source", format!("kubeconfig: {}", reference(text))),
                "maxEventAgeSeconds" | "throttlePeriod" => ("source", format!("start: {text}s")),
                "kubeQPS" if enriches => {
                    ("objects", format!("qps: {}", text.split('.').next().unwrap_or(text)))
                }
                "kubeBurst" if enriches => ("objects", format!("burst: {text}")),
                "cacheSize" if enriches => ("objects", format!("cache: {text}")),
                "logLevel" if ["fatal", "panic"].contains(&text) => ("log", "level: error".into()),
                "logLevel" => ("log", format!("level: {text}")),
                "logFormat" if text == "json" => ("log", "format: json".into()),
                "logFormat" => continue,
                _ => ("", String::new()),
            };
            let alone = format!("{section}:\n  {line}\nsinks: {{a: {{stdout: {{}}}}}}\n");
            if !section.is_empty() && accepted(&alone).is_ok() {
                sections.entry(section).or_default().push(line);
                continue;
            }
            let why = match &**key {
                "leaderElection" => "this version has none: run one replica",
                "metricsNamePrefix" => {
                    "names of metrics begin with `tidings_`: see docs/metrics.md"
                }
                "omitLookup" => "objects are read for sinks with `enrich` alone: remove that",
                "kubeQPS" | "kubeBurst" | "cacheSize" => "not needed: no object is looked up",
                _ if section.is_empty() => "not a key of the exporter, which ignores it: remove it",
                _ => "not a value that Tidings takes: see docs/configuration.md",
            };
            head.push(comment(&self.remark(key_origin, &format!("`{key}`: {why}"))) + "\n");
        }
        let section =
            |(name, lines): (&str, Vec<String>)| format!("{name}:\n  {}\n", lines.join("\n  "));
        head.extend(sections.into_iter().map(section));
        head.concat()
    }

    /// A sink for each receiver that a route leads to, or a comment on why there is none; and whether there
    /// is one.
    fn sinks(&mut self, root: &Node, mut ways: Ways) -> (String, bool) {
        let (mut sinks, mut names, mut any) = (String::new(), BTreeSet::new(), false);
        let nodes = self.list(root, "receivers", false);
        for (at, node) in nodes.iter().enumerate() {
            let Some((entry, name)) = self.text_of(node, "name") else {
                let what = "`receivers`: expected a `name` in each, found none";
                self.wrong(&node.origin, wrong(what).hint("write the name that a route has"));
                continue;
            };
            let is_same =
                |node: &Node| node.get("name").and_then(|e| scalar(&e.node)) == Some(name);
            let sink = if nodes[at + 1..].iter().any(is_same) {
                Err("the last one of that name counts: remove this".to_owned())
            } else if let Some((_, ways)) = ways.remove(name) {
                self.sink(node, &unique(name, &mut names), ways, &sinks)
            } else {
                Err("no route leads to it: remove it, or add a route".to_owned())
            };
            any |= sink.is_ok();
            sinks += &sink.unwrap_or_else(|why| {
                let what = format!("receiver `{name}`: {why}");
                format!("  {}\n", comment(&self.remark(&entry.node.origin, &what)))
            });
        }
        for (name, (at, _)) in ways {
            let what = format!("receiver `{name}`: there is none of that name: correct it");
            sinks.extend([format!("  {}\n", comment(&self.remark(&at, &what)))]);
        }
        (sinks, any)
    }

    /// The sink of a receiver, or why there is none.
    fn sink(
        &mut self,
        node: &Node,
        name: &str,
        ways: Vec<Way>,
        before: &str,
    ) -> Result<String, String> {
        let kind = KINDS.split(' ').find_map(|kind| node.get(kind));
        let kind = kind.ok_or("it has no sink: write one, such as `stdout: {}`")?;
        let mut receiver = Receiver::new(self, name, &kind.node);
        let ours = receiver.read(&kind.key)?;
        let Receiver { keys, mut common, mut remarks, variables, mut facts, .. } = receiver;
        for way in &ways {
            facts.extend(way.facts.iter().cloned());
            remarks.extend(way.notes.iter().cloned());
        }
        let condition = Condition::any(ways.into_iter().map(|way| way.condition));
        let filter = condition.lines().join("\n  ");
        match (&*filter, Filter::compile(&filter)) {
            ("true", _) => {}
            ("false", _) => {
                return Err("an empty rule of `drop` drops everything: correct it".to_owned());
            }
            (_, Ok(_)) => common.push(format!("match: |\n  {filter}")),
            (_, Err(error)) => {
                let what = format!("no `match`, so more is sent, since {}: write it", error.what);
                remarks.insert((self.line(&kind.key_origin), what));
            }
        }
        let of = |kind: &str| {
            let keys = facts.iter().filter(|(of, _)| *of == kind).map(|(_, key)| quoted(key));
            let keys: Vec<_> = keys.collect::<BTreeSet<_>>().into_iter().collect();
            (!keys.is_empty()).then(|| format!("{kind}: [{}]", keys.join(", ")))
        };
        let enrich: Vec<_> = ["labels", "annotations"].into_iter().filter_map(of).collect();
        if !enrich.is_empty() {
            common.push(format!("enrich: {{{}}}", enrich.join(", ")));
        }
        let comments: BTreeSet<_> = remarks.iter().chain(variables.values()).collect();
        let mut lines = vec![format!("{name}:")];
        lines.extend(comments.into_iter().map(|remark| format!("  {}", comment(remark))));
        lines.push(format!("  {ours}:{}", if keys.is_empty() { " {}" } else { "" }));
        lines.extend(keys.iter().map(|key| format!("    {}", key.replace('\n', "\n    "))));
        lines.extend(common.iter().map(|key| format!("  {}", key.replace('\n', "\n  "))));
        let sink = format!("  {}\n", lines.join("\n").replace('\n', "\n  "));
        let plain = "    # Credentials travel without TLS, as before: use TLS and remove this.\n";
        let plain = format!("{sink}{plain}    allowPlaintext: true\n");
        let check = |sink: String| accepted(&format!("sinks:\n{before}{sink}")).map(|()| sink);
        let sink = check(sink).or_else(|why| check(plain).map_err(|_| why))?;
        self.remarks.extend(remarks);
        self.variables.extend(variables.into_keys());
        Ok(sink)
    }
}

/// A line with a comment, from which no text of the file can break out.
fn comment((line, what): &(usize, String)) -> String {
    format!("# line {line}: {}", one_line(what, 400))
}

/// The text of a scalar that is not empty.
fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { text, .. } if !text.is_empty() => Some(text),
        _ => None,
    }
}

/// Whether the check takes a configuration, or its first objection.
fn accepted(text: &str) -> Result<(), String> {
    config::check_text("result", text).map_err(|error| {
        let first = error.problems().first().map(ToString::to_string).unwrap_or_default();
        first.split_once(": ").map_or("", |(_, what)| what).replace("\n  hint", "; hint")
    })
}

/// A name for a sink that no other has, of letters, digits and `-`.
fn unique(name: &str, names: &mut BTreeSet<String>) -> String {
    let inner = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = name
        .trim_start_matches(|c: char| !c.is_ascii_alphanumeric())
        .chars()
        .map(inner)
        .take(50)
        .collect();
    let name = if name.is_empty() { "sink".to_owned() } else { name };
    let mut free = name.clone();
    for n in 2.. {
        if names.insert(free.clone()) {
            break;
        }
        free = format!("{name}-{n}");
    }
    free
}

/// A text in double quotes, of YAML and of CEL.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            _ if c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric() => quoted.push(c),
            _ => quoted.extend([format!("\\U{:08x}", u32::from(c))]),
        }
    }
    quoted + "\""
}

/// A text, or the reference that stands for a variable.
fn reference(text: &str) -> String {
    variable(text).map_or_else(|| quoted(text), |name| format!("{{env: {name}}}"))
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
    text.split('$').skip(1).any(|after| {
        after.starts_with(|c: char| c.is_ascii_alphanumeric() || "{_*#@!?-".contains(c))
    })
}

/// Whether a key is the name of a secret.
fn is_secret_key(key: &str) -> bool {
    let key = key.to_lowercase().replace(['-', '_'], "");
    ["password", "token", "secret", "apikey", "authorization", "credential"]
        .iter()
        .any(|word| key.contains(word))
}
