//! From text to the model: YAML, overlay, decoding; every part that fails is reported, not only
//! the first.

use std::sync::LazyLock;

use serde::de::DeserializeOwned;

use super::{
    mask::masked,
    model::{CommonModel, Model, SinkModel},
    overlay, validate,
};
use crate::{
    document::{
        Error, Problem, SourceFile, Variables, Wrong,
        decode::{self, DecodeError, list},
        keys_of, secrets, wrong,
        yaml::{self, Entry, Node, Origin, Value},
    },
    sinks::{KINDS, Kind},
    suggest::did_you_mean,
};

/// A configuration as it was written, with what is needed to speak about it. Like all that holds
/// the text of the file, it has no `Debug`: there may be secrets in it.
pub(super) struct Loaded {
    pub(super) file: SourceFile,
    pub(super) root: Node,
    pub(super) model: Model,
    /// The problems; the model has defaults in their places.
    pub(super) problems: Vec<Problem>,
}

static SECTIONS: LazyLock<Vec<String>> = LazyLock::new(keys_of::<Model>);

pub(super) fn from_file(name: &str, variables: &Variables) -> Result<Loaded, Error> {
    from_text(name, &text_of(name)?, variables)
}

/// Reads of a file the section `journal` alone; mistakes elsewhere, unless it is no YAML, are nobody's
/// business then.
pub(super) fn journal_from_file(name: &str, variables: &Variables) -> Result<Loaded, Error> {
    let (file, root, mut problems) =
        tree(name, &text_of(name)?, &overlay::of_section(variables, "journal"))?;
    let journal = Reader { file: &file, root: &root, problems: &mut problems }.section("journal");
    Ok(Loaded { file, root, model: Model { journal, ..Model::default() }, problems })
}

/// Reads a text; `name` is what errors call it.
pub(super) fn from_text(name: &str, text: &str, variables: &Variables) -> Result<Loaded, Error> {
    let (file, root, mut problems) = tree(name, text, variables)?;
    let model = Reader { file: &file, root: &root, problems: &mut problems }.model();
    Ok(Loaded { file, root, model, problems })
}

/// The text of a file.
pub(crate) fn text_of(name: &str) -> Result<String, Error> {
    let bytes = secrets::read_bytes(name)
        .map_err(|wrong| Problem::of_file(name, wrong.hint("check the path")))?;
    String::from_utf8(bytes).map_err(|error| {
        let end = error.utf8_error().valid_up_to();
        let before = SourceFile::new(name, String::from_utf8_lossy(&error.as_bytes()[..end]));
        let byte = error.as_bytes()[end];
        let what = format!("expected text in UTF-8, found the byte 0x{byte:02x}");
        before.problem_at(end..end, wrong(what).hint("save the file as UTF-8")).into()
    })
}

/// The tree of a text, with the overlay on it, and what was wrong with that.
fn tree(
    name: &str,
    text: &str,
    variables: &Variables,
) -> Result<(SourceFile, Node, Vec<Problem>), Error> {
    let mut file = SourceFile::new(name, text);
    let (mut root, mistakes) =
        yaml::parse(file.text()).map_err(|mistake| file.mistakes([mistake]))?;
    let masked = masked(file.text(), &root);
    file.show(&masked);
    if !mistakes.is_empty() {
        return Err(file.mistakes(mistakes));
    }
    let problems = overlay::apply(&mut root, variables);
    if !matches!(root.value, Value::Map(_) | Value::Null) {
        let what = format!("expected a mapping, found {}", root.describe());
        let hint = format!("a configuration has the keys {}", list(&SECTIONS));
        return Err(file.problem(&root.origin, wrong(what).hint(hint)).into());
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
        let unknown = |entry: &&Entry| !SECTIONS.contains(&entry.key);
        for entry in self.root.entries().iter().filter(unknown) {
            self.unknown_section(entry);
        }
        Model {
            cluster: self.section("cluster"),
            source: self.section("source"),
            journal: self.section("journal"),
            sinks: self.sinks(),
            metrics: self.section("metrics"),
            objects: self.section("objects"),
            server: self.section("server"),
            log: self.section("log"),
            telemetry: self.section("telemetry"),
            leader_election: self.section("leaderElection"),
        }
    }

    fn wrong(&mut self, at: &Origin, wrong: Wrong) {
        self.problems.push(self.file.problem(at, wrong));
    }

    fn decode_error(&mut self, error: DecodeError) {
        let at = error.at.unwrap_or_else(|| self.root.origin.clone());
        self.wrong(&at, error.wrong);
    }

    fn unknown_section(&mut self, entry: &Entry) {
        let is_kind = kind_of(&entry.key).is_some();
        let hint = if is_kind {
            format!(
                "a sink stands below `sinks`, under a name: `sinks: {{audit: {{{}: …}}}}`",
                entry.key
            )
        } else {
            let keys = || format!("the keys here are {}", list(&SECTIONS));
            did_you_mean(&entry.key, SECTIONS.iter().map(String::as_str), keys)
        };
        let wrong = wrong(format!("expected a known key, found `{}`", entry.key));
        self.wrong(&entry.key_origin, wrong.hint(hint));
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
                let wrong = wrong("expected `sinks`, found none").hint(HINT);
                self.problems.push(Problem::of_file(self.file.name(), wrong));
                return Vec::new();
            }
            Some(Entry { node: Node { value: Value::Map(entries), .. }, .. })
                if !entries.is_empty() =>
            {
                entries
            }
            Some(Entry { key_origin, node, .. }) => {
                let what = match &node.value {
                    Value::Map(_) | Value::Null => {
                        "`sinks`: expected at least one, found none".to_owned()
                    }
                    _ => format!("`sinks`: expected a mapping of names, found {}", node.describe()),
                };
                let is_list = matches!(node.value, Value::List(_));
                let hint = if is_list { "write the name of each sink as a key" } else { HINT };
                self.wrong(key_origin, wrong(what).hint(hint));
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
        let Value::Map(entries) = &entry.node.value else {
            let found = entry.node.describe();
            let what = format!("sink `{name}`: expected a mapping with a kind, found {found}");
            self.wrong(&entry.key_origin, wrong(what).hint(one_kind()));
            return None;
        };
        let (kinds, common): (Vec<_>, Vec<_>) =
            entries.iter().partition(|below| kind_of(&below.key).is_some());
        let (entry_of_kind, kind) = match kinds.as_slice() {
            [only] => (*only, kind_of(&only.key)?),
            [] => {
                self.no_kind(entry, &common);
                return None;
            }
            [first, second, ..] => {
                let what = format!(
                    "sink `{name}`: expected one kind, found `{}` and `{}`",
                    first.key, second.key
                );
                let hint = "make two sinks of it, each with a name of its own";
                self.wrong(&second.key_origin, wrong(what).hint(hint));
                return None;
            }
        };
        if !kind.built {
            let what = format!(
                "sink `{name}`: expected a kind that this build has, found `{}`",
                kind.name
            );
            let hint = format!("build with the cargo feature `{}`", kind.name);
            self.wrong(&entry_of_kind.key_origin, wrong(what).hint(hint));
            return None;
        }
        let path = format!("sinks.{name}");
        let keys = (kind.decode)(&entry_of_kind.node, &format!("{path}.{}", kind.name));
        let common = Value::Map(common.into_iter().cloned().collect());
        let common = Node { value: common, origin: entry.node.origin.clone() };
        let common = decode::decode::<CommonModel>(&common, &path);
        let keys = keys.map_err(|error| self.decode_error(error));
        let common = common.map_err(|error| self.decode_error(error));
        Some(SinkModel { kind: kind.name, keys: keys.ok()?, common: common.ok()? })
    }

    /// Reports a sink without a kind. What is no common key was most likely meant as one.
    fn no_kind(&mut self, sink: &Entry, below: &[&Entry]) {
        let name = &sink.key;
        let common = keys_of::<CommonModel>();
        if kind_of(name).is_some() {
            let what = format!("sink `{name}`: expected a name with a kind below it, found a kind");
            let hint = format!("indent `{name}` below a name of your choice");
            self.wrong(&sink.key_origin, wrong(what).hint(hint));
        } else if let Some(unknown) = below.iter().find(|below| !common.contains(&below.key)) {
            let what = format!("sink `{name}`: expected a known kind, found `{}`", unknown.key);
            let hint = did_you_mean(&unknown.key, kinds(), one_kind);
            self.wrong(&unknown.key_origin, wrong(what).hint(hint));
        } else {
            let what = format!("sink `{name}`: expected one of {}, found none", list(&kinds()));
            self.wrong(&sink.key_origin, wrong(what).hint("add it, for instance `stdout: {}`"));
        }
    }
}

fn kind_of(key: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == key)
}

fn kinds() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

fn one_kind() -> String {
    format!("give it one of {}", list(&kinds()))
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
            "tidings.yaml:3:5: sink `audit`: expected a kind that this build has, found `kafka`\n  \
             hint: build with the cargo feature `kafka`"
        );
    }
}
