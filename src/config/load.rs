//! From text to the model: YAML, overlay, decoding; every part that fails is reported, not only
//! the first.

use serde::de::DeserializeOwned;

use super::{
    decode::{self, DecodeError, list},
    error::{Error, Problem, SourceFile},
    model::{
        ClusterModel, JournalModel, LeaderElectionModel, LogModel, Model, ObjectsModel,
        ServerModel, SinkModel, SourceModel,
    },
    overlay::{self, Variables},
    secrets,
    validate::{self, Wrong},
    yaml::{self, Entry, Node, Origin, Value},
};
use crate::suggest::nearest;

/// A configuration as it was written, with what is needed to speak about it. Like all that holds
/// the text of the file, it has no `Debug`: there may be secrets in it.
pub(super) struct Loaded {
    pub(super) file: SourceFile,
    pub(super) root: Node,
    pub(super) model: Model,
    /// What did not fit; the model has defaults in the places of it.
    pub(super) problems: Vec<Problem>,
}

/// The keys of the root.
const SECTIONS: [&str; 8] =
    ["cluster", "source", "journal", "sinks", "objects", "server", "log", "leaderElection"];

/// Reads a file.
pub(super) fn from_file(name: &str, variables: &Variables) -> Result<Loaded, Error> {
    from_text(name, &text_of(name)?, variables)
}

/// Reads of a file the section `journal` alone; mistakes elsewhere, unless it is no YAML, are nobody's
/// business then.
pub(super) fn journal_from_file(name: &str, variables: &Variables) -> Result<Loaded, Error> {
    let (file, root, mut problems) = tree(name, &text_of(name)?, &variables.of_section("journal"))?;
    let journal = Reader { file: &file, root: &root, problems: &mut problems }.section("journal");
    Ok(Loaded { file, root, model: Model { journal, ..Model::default() }, problems })
}

/// Reads a text; `name` is what errors call it.
pub(super) fn from_text(name: &str, text: &str, variables: &Variables) -> Result<Loaded, Error> {
    let (file, root, mut problems) = tree(name, text, variables)?;
    let model = Reader { file: &file, root: &root, problems: &mut problems }.model();
    Ok(Loaded { file, root, model, problems })
}

fn text_of(name: &str) -> Result<String, Error> {
    let bytes = secrets::read_bytes(name)
        .map_err(|error| Problem::of_file(name, error.what).hint("check the path"))?;
    String::from_utf8(bytes).map_err(|error| {
        let end = error.utf8_error().valid_up_to();
        let before = SourceFile::new(name, String::from_utf8_lossy(&error.as_bytes()[..end]));
        let byte = error.as_bytes()[end];
        let what = format!("expected text in UTF-8, found the byte 0x{byte:02x}");
        before.problem_at(end..end, what).hint("save the file as UTF-8").into()
    })
}

/// The tree of a text, with the overlay on it, and what was wrong with that.
fn tree(
    name: &str,
    text: &str,
    variables: &Variables,
) -> Result<(SourceFile, Node, Vec<Problem>), Error> {
    let mut file = SourceFile::new(name, text);
    let (mut root, duplicates) = yaml::parse(file.text()).map_err(|error| {
        Error::from(file.problem_at(error.at, error.what).maybe_hint(error.hint))
    })?;
    file.parsed(&root);
    if !duplicates.is_empty() {
        let problem =
            |error: yaml::YamlError| file.problem_at(error.at, error.what).maybe_hint(error.hint);
        return Err(Error::new(duplicates.into_iter().map(problem).collect()));
    }
    let problems = overlay::apply(&mut root, variables);
    if !matches!(root.value, Value::Map(_) | Value::Null) {
        let what = format!("expected a mapping, found {}", root.describe());
        let hint = format!("a configuration has the keys {}", list(&SECTIONS));
        return Err(file.problem(&root.origin, what).hint(hint).into());
    }
    Ok((file, root, problems))
}

struct Reader<'a> {
    file: &'a SourceFile,
    root: &'a Node,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn model(&mut self) -> Model {
        let unknown = |entry: &&Entry| !SECTIONS.contains(&&*entry.key);
        for entry in self.root.entries().iter().filter(unknown) {
            self.unknown_section(entry);
        }
        Model {
            cluster: self.section::<ClusterModel>("cluster"),
            source: self.section::<SourceModel>("source"),
            journal: self.section::<JournalModel>("journal"),
            sinks: self.sinks(),
            objects: self.section::<ObjectsModel>("objects"),
            server: self.section::<ServerModel>("server"),
            log: self.section::<LogModel>("log"),
            leader_election: self.section::<LeaderElectionModel>("leaderElection"),
        }
    }

    fn report(&mut self, at: &Origin, what: impl Into<String>, hint: Option<String>) {
        self.problems.push(self.file.problem(at, what).maybe_hint(hint));
    }

    fn wrong(&mut self, at: &Origin, wrong: Wrong) {
        self.report(at, wrong.what, wrong.hint);
    }

    fn decode_error(&mut self, error: DecodeError) {
        let at = error.at.unwrap_or_else(|| self.root.origin.clone());
        self.report(&at, error.what, error.hint);
    }

    fn unknown_section(&mut self, entry: &Entry) {
        let is_kind = SinkModel::KINDS.iter().any(|(kind, _)| *kind == entry.key);
        let hint = if is_kind {
            format!(
                "a sink stands below `sinks`, under a name: `sinks: {{audit: {{{}: …}}}}`",
                entry.key
            )
        } else if let Some(near) = nearest(&entry.key, SECTIONS) {
            format!("did you mean `{near}`?")
        } else {
            format!("the keys here are {}", list(&SECTIONS))
        };
        self.report(&entry.key_origin, format!("unknown key `{}`", entry.key), Some(hint));
    }

    fn section<T: DeserializeOwned + Default>(&mut self, key: &str) -> T {
        let Some(entry) = self.root.get(key) else { return T::default() };
        decode::decode(&entry.node, key).unwrap_or_else(|error| {
            self.decode_error(error);
            T::default()
        })
    }

    fn sinks(&mut self) -> Vec<(String, SinkModel)> {
        const HINT: &str = "name at least one: `sinks: {stdout: {stdout: {}}}`";
        let entries = match self.root.get("sinks") {
            None => {
                let problem = Problem::of_file(self.file.name(), "there are no `sinks`");
                self.problems.push(problem.hint(HINT));
                return Vec::new();
            }
            Some(Entry { node: Node { value: Value::Map(entries), .. }, .. })
                if !entries.is_empty() =>
            {
                entries
            }
            Some(Entry { key_origin, node, .. }) => {
                let what = match &node.value {
                    Value::Map(_) | Value::Null => "`sinks` is empty".to_owned(),
                    _ => format!("`sinks`: expected a mapping of names, found {}", node.describe()),
                };
                self.report(key_origin, what, Some(HINT.to_owned()));
                return Vec::new();
            }
        };
        let mut sinks = Vec::with_capacity(entries.len());
        for entry in entries {
            if let Err(wrong) = validate::sink_name(&entry.key) {
                self.wrong(&entry.key_origin, wrong);
            }
            if let Some(sink) = self.sink(entry) {
                sinks.push((entry.key.clone(), sink));
            }
        }
        sinks
    }

    fn sink(&mut self, entry: &Entry) -> Option<SinkModel> {
        let name = &entry.key;
        let names = SinkModel::KINDS.map(|(kind, _)| kind);
        let is_kind = |below: &&Entry| names.contains(&&*below.key);
        let one_of = format!("give it one of {}", list(&names));
        let Value::Map(entries) = &entry.node.value else {
            let what = match entry.node.value {
                Value::Null => format!("sink `{name}` is empty"),
                _ => format!("sink `{name}`: expected a mapping, found {}", entry.node.describe()),
            };
            self.report(&entry.key_origin, what, Some(one_of));
            return None;
        };
        let kinds: Vec<&Entry> = entries.iter().filter(is_kind).collect();
        match kinds.as_slice() {
            [kind] => {
                let built = SinkModel::KINDS.iter().any(|(known, on)| *known == kind.key && *on);
                if !built {
                    let what = format!("sink `{name}`: this build has no `{}` sinks", kind.key);
                    let hint = format!("build with the cargo feature `{}`", kind.key);
                    self.report(&kind.key_origin, what, Some(hint));
                    return None;
                }
            }
            [] => {
                // What is no kind and no common key was most likely meant as the kind.
                let known = common_keys();
                if let Some(unknown) = entries.iter().find(|below| !known.contains(&&*below.key)) {
                    let what = format!("sink `{name}`: unknown sink kind `{}`", unknown.key);
                    let hint = nearest(&unknown.key, names)
                        .map_or(one_of, |near| format!("did you mean `{near}`?"));
                    self.report(&unknown.key_origin, what, Some(hint));
                } else {
                    self.report(
                        &entry.key_origin,
                        format!("sink `{name}` has no kind"),
                        Some(one_of),
                    );
                }
                return None;
            }
            [first, second, ..] => {
                let what =
                    format!("sink `{name}` has two kinds, `{}` and `{}`", first.key, second.key);
                let hint = "make two sinks of it, each with a name of its own".to_owned();
                self.report(&second.key_origin, what, Some(hint));
                return None;
            }
        }
        match decode::decode(&entry.node, &format!("sinks.{name}")) {
            Ok(sink) => Some(sink),
            Err(error) => {
                self.decode_error(error);
                None
            }
        }
    }
}

/// The keys that all kinds of sinks share.
fn common_keys() -> [&'static str; 12] {
    [
        "batch",
        "match",
        "correlate",
        "retry",
        "timeout",
        "maxEvent",
        "compression",
        "allowPlaintext",
        "proxy",
        "connection",
        "overflow",
        "start",
    ]
}

#[cfg(all(test, not(feature = "kafka")))]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_was_not_built_names_its_feature() {
        let text = "sinks:\n  audit:\n    kafka: {brokers: [\"a:1\"], topic: t}\n";
        let loaded = from_text("tidings.yaml", text, &Variables::default()).unwrap();
        assert_eq!(
            loaded.problems[0].to_string(),
            "tidings.yaml:3:5: sink `audit`: this build has no `kafka` sinks\n  \
             hint: build with the cargo feature `kafka`"
        );
    }
}
