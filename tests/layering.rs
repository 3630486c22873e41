//! Layers point one way: a module uses only modules above it in the map of `src/lib.rs`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// From the bottom of the dependencies to the top; modules of one row do not know each other.
type Layers = &'static [&'static [&'static str]];

const BRIDGE: Layers = &[
    &["event", "locks", "suggest", "varint"],
    &["journal"],
    &["bridge"],
    &["encode", "document"],
    &["sinks"],
    &["config"],
    &["admin", "demo"],
    &["cli"],
];
const MACHINERY: Layers = &[
    &["panics", "plain"],
    &["words", "token_bucket"],
    &["watch", "correlate", "cache"],
    &["record"],
];

/// The rooms of the bridge, and what several of them use.
const ROOMS: Layers = &[
    &["namespaces", "reason", "error", "stop", "sparse", "frames"],
    &["gap", "failure", "tasks"],
    &["shared", "transport", "filter"],
    &["watchdog", "own_writes", "log_lines", "options", "heard"],
    &["correlation", "objects"],
    &["progress", "published"],
    &["control", "view"],
    &["own_events"],
    &["source"],
    &["setup"],
    &["state", "sink"],
    &["run"],
];

fn sources(dir: &Path, into: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// The names behind a path: for `crate::` those in `crate::name` and in `use crate::{name…, name…}`.
fn used(text: &str, path: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(path) {
        let rest = &text[at + path.len()..];
        let head = |text: &str| {
            text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("").to_owned()
        };
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(head(rest));
            continue;
        };
        let (mut depth, mut start) = (0, true);
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                c if start && !c.is_whitespace() => {
                    found.insert(head(&group[i..]));
                    start = false;
                }
                _ => {}
            }
        }
    }
    found
}

fn hold(sources_of: &str, layers: Layers) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(sources_of);
    let layer = |module: &str| layers.iter().position(|row| row.contains(&module));
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let relative = file.strip_prefix(&root).unwrap();
        let module = relative.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if ["lib", "main"].contains(&module) {
            continue;
        }
        let own =
            layer(module).unwrap_or_else(|| panic!("{module} has no layer: give it one here"));
        for other in used(&fs::read_to_string(&file).unwrap(), "crate::") {
            if other != module && layer(&other).is_some_and(|l| l >= own) {
                wrong.push(format!("{} uses {other}", relative.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "layers point one way:\n{}", wrong.join("\n"));
}

#[test]
fn modules_use_only_lower_layers() {
    hold("src", BRIDGE);
    hold("crates/kube-machinery/src", MACHINERY);
}

/// The modules that the names which others may use are from, as a root exports them.
fn exports(root: &str) -> BTreeMap<String, String> {
    let mut from = BTreeMap::new();
    for item in root.split(';').filter(|item| item.contains("pub")) {
        let Some((_, path)) = item.rsplit_once(" use ") else { continue };
        let (module, names) = path.split_once("::").unwrap();
        for name in names.split(|c: char| !c.is_alphanumeric() && c != '_') {
            from.insert(name.to_owned(), module.to_owned());
        }
    }
    from
}

#[test]
fn rooms_of_the_bridge_use_only_lower_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bridge");
    let exports = exports(&fs::read_to_string(root.with_extension("rs")).unwrap());
    let layer = |module: &str| ROOMS.iter().position(|row| row.contains(&module));
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let relative = file.strip_prefix(&root).unwrap();
        let path: Vec<_> = relative.iter().map(|part| part.to_str().unwrap()).collect();
        // Tests may use what stands above.
        if path.iter().any(|part| part.trim_end_matches(".rs") == "tests") {
            continue;
        }
        let module = path[0].trim_end_matches(".rs");
        let own = layer(module).unwrap_or_else(|| panic!("{module} has no layer: give it one"));
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code = code.collect::<Vec<_>>().join("\n");
        let mut names = used(&code, "bridge::");
        names.extend(used(&code, &"super::".repeat(path.len())));
        for name in names {
            let other = exports.get(&name).unwrap_or(&name);
            if other != module && layer(other).is_some_and(|layer| layer >= own) {
                wrong.push(format!("{} uses {name}", relative.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "rooms point one way:\n{}", wrong.join("\n"));
}

/// A struct where it is defined, or made.
struct Written<'a> {
    is_definition: bool,
    /// Its name; for `Self` all words of the `impl`.
    names: Vec<&'a str>,
    /// How many fields are written.
    fields: usize,
}

/// The structs that a file defines and makes, read as rustfmt lays them out: a field on a line.
fn structs(text: &str) -> Vec<Written<'_>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words = |line| str::split(line, |c| !is_word(c)).filter(|word| !word.is_empty());
    let (mut found, mut own) = (Vec::new(), Vec::new());
    let lines: Vec<_> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if line[indent..].starts_with("impl") {
            own = words(line).collect();
        }
        let Some(head) = line.strip_suffix(" {") else { continue };
        let defined = words(head).skip_while(|word| *word != "struct").nth(1);
        let made = words(head).next_back().filter(|_| head.ends_with(is_word));
        let Some(name) = defined.or(made).filter(|name| name.starts_with(char::is_uppercase))
        else {
            continue;
        };
        let below =
            |line: &str, with: &str| line.get(indent..).is_some_and(|l| l.starts_with(with));
        let inner = || lines[at + 1..].iter().take_while(|line| !below(line, "}"));
        let fields = inner().filter(|line| {
            let field = line.get(indent + 4..).unwrap_or_default();
            let field = ["pub(crate) ", "pub(super) ", "pub "]
                .iter()
                .fold(field, |field, public| field.trim_start_matches(public));
            let is_named = field.starts_with(is_word) && below(line, "    ");
            is_named && field.trim_start_matches(is_word).starts_with([':', ','])
        });
        let end = lines.get(at + 1 + inner().count()).copied().unwrap_or_default();
        let is_taken_apart = ["} =", "=>", "}:", "}|"].iter().any(|sign| end.contains(sign));
        if !is_taken_apart {
            found.push(Written {
                is_definition: defined.is_some(),
                names: if name == "Self" { own.clone() } else { vec![name] },
                fields: fields.count(),
            });
        }
    }
    found.retain(|written| written.fields > 8);
    found
}

#[test]
fn struct_is_made_of_more_than_eight_fields_only_in_its_own_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for dir in ["src", "crates", "tests", "benches", "examples", "fuzz/fuzz_targets"] {
        sources(&root.join(dir), &mut files);
    }
    let texts: Vec<_> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let all: Vec<_> = texts.iter().map(|text| structs(text)).collect();
    let defines = |of: &[Written<'_>], names: &[&str]| {
        of.iter().any(|written| written.is_definition && names.contains(&written.names[0]))
    };
    let mut wrong = Vec::new();
    for (file, of) in files.iter().zip(&all) {
        for Written { names, fields, .. } in of {
            if !defines(of, names) && all.iter().any(|of| defines(of, names)) {
                wrong.push(format!("{}: {names:?} with {fields} fields", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "give it a constructor or smaller parts:\n{}", wrong.join("\n"));
}
