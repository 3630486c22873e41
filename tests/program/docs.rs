//! The README and the manual in `docs/`: links, pages, commands, configurations and keys are those that exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use serde_json::Value;
use tidings::config::{CheckSecrets, check};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The pages of the manual by their paths from the root, in order.
fn manual() -> Vec<String> {
    let mut pages = Vec::new();
    for folder in ["docs", "docs/sinks"] {
        for entry in fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if !entry.path().is_dir() && !["SUMMARY.md", "book.toml"].contains(&&*name) {
                pages.push(format!("{folder}/{name}"));
            }
        }
    }
    pages.sort();
    pages
}

fn pages() -> Vec<String> {
    let others = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "docs/SUMMARY.md",
        "crates/tidings-kube/README.md",
        "crates/tidings-testkit/README.md",
    ];
    manual().into_iter().chain(others.map(str::to_owned)).collect()
}

/// A page of Markdown, taken apart.
#[derive(Default)]
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
    /// The language of each block of code, and its text.
    blocks: Vec<(String, String)>,
    /// The code in the first cell of each row of a table whose head begins with "key".
    keys: Vec<String>,
}

impl Page {
    fn read(path: &str) -> Self {
        let text = read(path);
        let mut page = Self::default();
        let (mut heading, mut in_block) = (None::<String>, false);
        let (mut head, mut in_head, mut cell) = (String::new(), false, usize::MAX);
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. }) => page.links.push(dest_url.into_string()),
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.add_anchor(&heading.take().unwrap()),
                Event::Start(Tag::CodeBlock(kind)) => {
                    let language = match kind {
                        CodeBlockKind::Fenced(language) => language.into_string(),
                        CodeBlockKind::Indented => String::new(),
                    };
                    page.blocks.push((language, String::new()));
                    in_block = true;
                }
                Event::End(TagEnd::CodeBlock) => in_block = false,
                Event::Start(Tag::TableHead) => (head, in_head) = (String::new(), true),
                Event::End(TagEnd::TableHead) => in_head = false,
                Event::Start(Tag::TableRow) => cell = 0,
                Event::End(TagEnd::TableCell) => cell = cell.saturating_add(1),
                Event::Code(code) if cell == 0 && head.starts_with("key") => {
                    page.keys.push(code.into_string());
                }
                Event::Text(text) if in_block => page.blocks.last_mut().unwrap().1.push_str(&text),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    } else if in_head {
                        head.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        page
    }

    /// The anchor that GitHub and mdBook give a heading.
    fn add_anchor(&mut self, heading: &str) {
        let heading = heading.to_lowercase().replace(' ', "-");
        let kept = |c: &char| c.is_alphanumeric() || ['-', '_'].contains(c);
        self.anchors.insert(heading.chars().filter(kept).collect());
    }
}

/// The path that a link of a page leads to, from the root.
fn target(page: &str, link: &str) -> String {
    let mut path = PathBuf::from(page);
    path.pop();
    for part in link.split('/') {
        match part {
            ".." => assert!(path.pop(), "{page}: {link} leaves the repository"),
            part => path.push(part),
        }
    }
    path.into_os_string().into_string().unwrap()
}

#[track_caller]
fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let pages: BTreeMap<_, _> =
        pages().into_iter().map(|path| (path.clone(), Page::read(&path))).collect();
    let mut wrong = Vec::new();
    for (path, page) in &pages {
        for link in page.links.iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let file = if file.is_empty() { path.clone() } else { target(path, file) };
            let has_heading = || pages.get(&file).is_some_and(|page| page.anchors.contains(anchor));
            if !root().join(&file).exists() {
                wrong.push(format!("{path}: expected a file for the link {link}, found none"));
            } else if !anchor.is_empty() && !has_heading() {
                wrong.push(format!("{path}: expected a heading for the link {link}, found none"));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn the_summary_lists_every_page_once() {
    let links = Page::read("docs/SUMMARY.md").links;
    let mut listed: Vec<_> = links.iter().map(|link| target("docs/SUMMARY.md", link)).collect();
    listed.sort();
    assert_eq!(listed, manual());
}

/// A block of `yaml` is a whole configuration; `yaml,fragment` is part of one, or of something else.
#[test]
fn configurations_in_pages_are_accepted() {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    let (mut accepted, mut wrong) = (0, Vec::new());
    for path in pages() {
        for (_, text) in Page::read(&path).blocks.iter().filter(|(language, _)| language == "yaml")
        {
            fs::write(file.path(), text).unwrap();
            match check(file.path(), [], CheckSecrets::Optional) {
                Ok(_) => accepted += 1,
                Err(error) => wrong.push(format!("{path}: {error}\n{text}")),
            }
        }
    }
    assert_none(&wrong);
    assert!(accepted > 0);
}

/// Adds the keys of a schema below `path`, each in full.
fn add_keys(schema: &Value, node: &Value, path: &str, keys: &mut BTreeSet<String>) {
    let target = node["$ref"]
        .as_str()
        .map_or(node, |reference| schema.pointer(reference.trim_start_matches('#')).unwrap());
    let below =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if let Some(members) = target["properties"].as_object() {
        members.iter().for_each(|(name, member)| add_keys(schema, member, &below(name), keys));
    } else if path == "sinks" {
        add_keys(schema, &target["additionalProperties"], "sinks.<name>", keys);
    } else {
        keys.insert(path.to_owned());
    }
}

/// The keys of the schema.
fn keys() -> BTreeSet<String> {
    let schema: Value = serde_json::from_str(&read("config/schema.json")).unwrap();
    let mut keys = BTreeSet::new();
    add_keys(&schema, &schema, "", &mut keys);
    keys
}

/// Adds the keys of a configuration, with those that are above them.
fn add_written(node: &Value, path: &str, keys: &mut BTreeSet<String>) {
    for (name, member) in node.as_object().into_iter().flatten() {
        let name = if path == "sinks" { "<name>" } else { name };
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        add_written(member, &path, keys);
        keys.insert(path);
    }
}

/// What kinds share, such as the keys of `tls`, stands there for one of them.
#[test]
fn all_keys_yaml_has_every_key_of_the_schema() {
    let written: Value = serde_saphyr::from_str(&read("config/all-keys.yaml")).unwrap();
    let mut found = BTreeSet::new();
    add_written(&written, "", &mut found);
    let has = |key: &str| {
        let shared = key.rsplitn(3, '.').take(2).collect::<Vec<_>>();
        let ends_so = |found: &String| found.rsplitn(3, '.').take(2).eq(shared.iter().copied());
        let shares = ["sinks.<name>.", "telemetry.otlp."].iter().any(|of| key.starts_with(of));
        found.contains(key) || shares && found.iter().any(ends_so)
    };
    let missing = keys().into_iter().filter(|key| !has(key));
    assert_none(&missing.map(|key| format!("expected {key}, found none")).collect::<Vec<_>>());
}

#[test]
fn keys_of_the_configuration_page_are_those_of_the_schema() {
    let keys = keys();
    let page = Page::read("docs/configuration.md").keys;
    let listed: BTreeSet<_> = page.into_iter().collect();
    let mut wrong: Vec<_> = keys
        .difference(&listed)
        .map(|key| format!("expected {key} in a table, found it in none"))
        .collect();
    wrong.extend(
        listed.difference(&keys).map(|key| format!("expected a key of the schema, found {key}")),
    );
    assert_none(&wrong);
}

#[test]
fn targets_of_make_in_pages_exist() {
    let makefile = read("Makefile");
    let mut wrong = Vec::new();
    for path in pages() {
        for (_, text) in Page::read(&path).blocks {
            for target in text.lines().filter_map(|line| line.trim().strip_prefix("make ")) {
                let target = target.split_whitespace().next().unwrap();
                if !makefile.contains(&format!("\n{target}:")) {
                    wrong
                        .push(format!("{path}: expected a target of the Makefile, found {target}"));
                }
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn the_readme_is_short() {
    let length = read("README.md").len();
    assert!(length <= 10_240, "expected 10240 bytes at most, found {length}: move some to docs/");
}
