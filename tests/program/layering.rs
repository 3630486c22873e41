//! Layers point one way: a module uses only modules above it in the map of `src/lib.rs`.

use std::{collections::BTreeSet, fs, path::Path};

/// A package's modules from the bottom of the dependencies to the top; those of one row do not know each other.
type Layers = &'static [&'static [&'static str]];

const TIDINGS_KUBE: Layers = &[
    &["text"],
    &["client", "foreign", "object"],
    &["broadcaster", "correlator", "reflector", "workqueue"],
    &["informer", "recorder"],
];
const TIDINGS: Layers = &[
    &["event", "plain", "suggest"],
    &["journal"],
    &["template"],
    &["bridge"],
    &["document", "encode"],
    &["sinks"],
    &["config"],
    &["admin", "demo"],
    &["cli"],
];

fn layer(layers: Layers, module: &str) -> Option<usize> {
    layers.iter().position(|row| row.contains(&module))
}

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

/// The modules that a source names as `crate::name`, or within `use crate::{name…, name…}`.
fn used(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
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

#[test]
fn modules_use_only_lower_layers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for (folder, layers) in [("crates/tidings-kube/src", TIDINGS_KUBE), ("src", TIDINGS)] {
        let mut files = Vec::new();
        sources(&root.join(folder), &mut files);
        for file in files {
            let relative = file.strip_prefix(root.join(folder)).unwrap();
            let module = relative.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
            if ["lib", "main"].contains(&module) {
                continue;
            }
            let own = layer(layers, module)
                .unwrap_or_else(|| panic!("{folder}/{module} has no layer: give it one here"));
            for other in used(&fs::read_to_string(&file).unwrap()) {
                if other != module && layer(layers, &other).is_some_and(|l| l >= own) {
                    wrong.push(format!("{folder}/{} uses {other}", relative.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "layers point one way:\n{}", wrong.join("\n"));
}
