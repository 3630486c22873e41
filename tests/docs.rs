//! The manual, `docs/`, and the README are true: their links, commands, keys, metrics and messages are
//! held to what there is.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn has_extension(path: impl AsRef<Path>, extension: &str) -> bool {
    path.as_ref().extension().is_some_and(|it| it == extension)
}

/// The files below a folder whose names end so, by their paths from the root; a folder that is not there
/// has none.
fn files(folder: &str, extension: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(root().join(&folder)).into_iter().flatten();
        for entry in entries.map(Result::unwrap) {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if has_extension(&path, extension) {
                found.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// The pages of the manual, and what else is written for readers.
fn pages() -> Vec<String> {
    let mut pages = files("docs", "md");
    pages.extend(files("crates", "md"));
    pages.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(String::from));
    pages
}

/// One page of Markdown, taken apart.
#[derive(Default)]
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
    /// Each row of each table, cell by cell, with the backticks of code; the head is the first row.
    tables: Vec<Vec<Vec<String>>>,
    /// The code: a line each of the blocks, and each piece within a text.
    code: Vec<String>,
}

impl Page {
    fn read(path: &str) -> Self {
        let text = read(path);
        let mut page = Self::default();
        let (mut heading, mut block) = (None, false);
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. }) => page.links.push(dest_url.to_string()),
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.add_anchor(&heading.take().unwrap()),
                Event::Start(Tag::CodeBlock(_)) => block = true,
                Event::End(TagEnd::CodeBlock) => block = false,
                Event::Start(Tag::Table(_)) => page.tables.push(Vec::new()),
                Event::Start(Tag::TableHead | Tag::TableRow) => {
                    page.tables.last_mut().unwrap().push(Vec::new());
                }
                Event::Start(Tag::TableCell) => page.row().push(String::new()),
                Event::Text(text) if block => page.code.extend(text.lines().map(String::from)),
                Event::Text(text) => page.add_text(&text, heading.as_mut()),
                Event::Code(code) => {
                    page.add_text(&format!("`{code}`"), heading.as_mut());
                    page.code.push(code.to_string());
                }
                _ => {}
            }
        }
        page
    }

    fn row(&mut self) -> &mut Vec<String> {
        self.tables.last_mut().unwrap().last_mut().unwrap()
    }

    fn add_text(&mut self, text: &str, heading: Option<&mut String>) {
        if let Some(heading) = heading {
            heading.push_str(text);
        } else if let Some(cell) =
            self.tables.last_mut().and_then(|table| table.last_mut()?.last_mut())
        {
            cell.push_str(text);
        }
    }

    /// As GitHub and mdBook make them.
    fn add_anchor(&mut self, heading: &str) {
        let plain = heading.to_lowercase().replace(' ', "-");
        let kept: String =
            plain.chars().filter(|c| c.is_alphanumeric() || ['-', '_'].contains(c)).collect();
        let next = (1..).map(|n| format!("{kept}-{n}"));
        let anchor = [kept.clone()].into_iter().chain(next).find(|it| !self.anchors.contains(it));
        self.anchors.extend(anchor);
    }
}

/// The pieces in backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(String::from).collect()
}

/// The path that a link from a page leads to, from the root.
fn resolve(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => assert!(parts.pop().is_some(), "{page}: {link} leaves the repository"),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
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
            let target = if file.is_empty() { path.clone() } else { resolve(path, file) };
            if !root().join(&target).exists() {
                wrong.push(format!("{path}: expected a file for the link {link}, found none"));
            } else if !anchor.is_empty()
                && !pages.get(&target).is_some_and(|page| page.anchors.contains(anchor))
            {
                wrong.push(format!("{path}: expected a heading for the link {link}, found none"));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn the_book_has_every_page_once() {
    let summary = Page::read("docs/SUMMARY.md").links;
    let listed: Vec<String> = summary.iter().map(|link| resolve("docs/SUMMARY.md", link)).collect();
    let mut sorted = listed.clone();
    sorted.sort();
    let mut there = files("docs", "md");
    there.retain(|path| path != "docs/SUMMARY.md");
    assert_eq!(sorted, there);
}

/// Comments, messages and manifests name pages, too.
#[test]
fn pages_named_in_sources_exist() {
    let mut sources: Vec<String> =
        ["Makefile", "Cargo.toml", ".ci/run", ".cargo/config.toml"].map(String::from).to_vec();
    for folder in ["src", "tests", "benches", "examples", "crates"] {
        sources.extend(files(folder, "rs"));
    }
    for folder in ["config", "deploy"] {
        sources.extend(files(folder, "yaml"));
    }
    sources.extend(pages());
    let mut wrong = Vec::new();
    for source in &sources {
        let text = read(source);
        for (at, _) in text.match_indices("docs/") {
            let end = text[at..]
                .find(|c: char| !c.is_ascii_alphanumeric() && !"/-_.#".contains(c))
                .map_or(text.len(), |length| at + length);
            let named = text[at..end].trim_end_matches('.');
            let (file, anchor) = named.split_once('#').unwrap_or((named, ""));
            if !has_extension(file, "md") || text[..at].ends_with(char::is_alphanumeric) {
                continue;
            }
            let there = root().join(file).exists()
                && (anchor.is_empty() || Page::read(file).anchors.contains(anchor));
            if !there {
                wrong.push(format!("{source}: expected the page {named}, found none"));
            }
        }
    }
    assert_none(&wrong);
}

/// `tests/bridge/basics.rs` by its path from the root or in its crate, `bridge/ingest.rs` by its end.
#[test]
fn files_named_in_pages_exist() {
    let mut there = files("src", "rs");
    for folder in ["tests", "benches", "examples", "fuzz/fuzz_targets", "crates"] {
        there.extend(files(folder, "rs"));
    }
    let exists = |named: &str| {
        let (end, within) = (format!("/{named}"), format!("/{}/", named.trim_end_matches('/')));
        root().join(named).exists()
            || there.iter().any(|file| file.ends_with(&end) || file.contains(&within))
    };
    let folders =
        ["src/", "tests/", "config/", "crates/", "deploy/", "examples/", "scripts/", "fuzz/"];
    let mut wrong = Vec::new();
    for page in pages() {
        let named = Page::read(&page).code.into_iter().filter(|code| {
            !code.contains([' ', '<', '*', '…', '$'])
                && (folders.iter().any(|it| code.starts_with(it)) || has_extension(code, "rs"))
        });
        wrong.extend(
            named
                .filter(|named| !exists(named))
                .map(|named| format!("{page}: expected the file {named}, found none")),
        );
    }
    assert_none(&wrong);
}

#[test]
fn commands_exist() {
    let makefile = read("Makefile");
    let mut helps = BTreeMap::new();
    let mut wrong = Vec::new();
    for path in pages() {
        for line in Page::read(&path).code {
            let line = line.trim();
            let words: Vec<&str> = line.split_whitespace().collect();
            let problem = match words[..] {
                ["make", target, ..] if !makefile.contains(&format!("\n{target}:")) => {
                    Some(format!("no target {target} in the Makefile"))
                }
                ["cargo", "run" | "test" | "bench", ..] => missing_of_cargo(&words),
                [program, ..]
                    if program.starts_with("scripts/") || program == "tests/parts/install" =>
                {
                    (!root().join(program).exists()).then(|| format!("no file {program}"))
                }
                [program, ref rest @ ..]
                    if program.trim_start_matches("target/release/") == "tidings" =>
                {
                    missing_of_tidings(rest, &mut helps)
                }
                _ => line.split_once(" -- tidings ").and_then(|(_, rest)| {
                    missing_of_tidings(&rest.split_whitespace().collect::<Vec<_>>(), &mut helps)
                }),
            };
            wrong.extend(problem.map(|problem| format!("{path}: {line}: {problem}")));
        }
    }
    assert_none(&wrong);
}

/// The test, benchmark or example of a command of cargo that is not there.
fn missing_of_cargo(words: &[&str]) -> Option<String> {
    let own = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let crates = files("crates", "rs");
    words[..own].windows(2).find_map(|pair| {
        let folder = match pair[0] {
            "--test" => "tests",
            "--bench" => "benches",
            "--example" => "examples",
            _ => return None,
        };
        let file = format!("{folder}/{}.rs", pair[1]);
        let module = format!("{folder}/{}/main.rs", pair[1]);
        let there = [file, module].iter().any(|path| {
            root().join(path).exists() || crates.iter().any(|it| it.ends_with(&format!("/{path}")))
        });
        (!there).then(|| format!("no {} in {folder}/", pair[1]))
    })
}

/// The subcommand, or the option, that a command of the program does not have.
fn missing_of_tidings(words: &[&str], helps: &mut BTreeMap<String, String>) -> Option<String> {
    let is_command =
        |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase() || "-|".contains(c));
    let commands: Vec<&str> = words
        .iter()
        .take_while(|word| !word.starts_with(['-', '|']))
        .take_while(is_command)
        .copied()
        .collect();
    let (last, parents) = match commands.split_last() {
        Some((last, parents)) => (last.split('|').collect(), parents),
        None => (vec![""], &[][..]),
    };
    let options: Vec<&str> = words
        .iter()
        .take_while(|word| !word.starts_with('#'))
        .map(|word| word.trim_matches(['[', ']', '(', ')']))
        .filter(|word| word.starts_with("--"))
        .collect();
    for command in &last {
        let full: Vec<&str> = parents.iter().chain([command]).copied().collect();
        let full: Vec<&str> = full.into_iter().filter(|word| !word.is_empty()).collect();
        let help = helps.entry(full.join(" ")).or_insert_with(|| {
            let program = env!("CARGO_BIN_EXE_tidings");
            let output = Command::new(program).args(&full).arg("--help").output().unwrap();
            if output.status.success() {
                String::from_utf8(output.stdout).unwrap()
            } else {
                String::new()
            }
        });
        if help.is_empty() {
            return Some(format!("no command {}", full.join(" ")));
        }
        // Options of a line that has several commands are those of one of them.
        let unknown = options.iter().find(|option| !help.contains(**option));
        if let (Some(unknown), 1) = (unknown, last.len()) {
            return Some(format!("no option {unknown}"));
        }
    }
    None
}

/// A key of the schema: its default and the values that it may have.
#[derive(Debug, Default)]
struct Key {
    default: Option<String>,
    values: Vec<String>,
}

/// A value of the schema as the table has it.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().filter_map(shown).collect();
            Some(format!("[{}]", items.join(", ")))
        }
        other => Some(other.to_string()),
    }
}

/// Adds the keys below `path`.
fn add_keys(schema: &Value, node: &Value, path: &str, keys: &mut BTreeMap<String, Key>) {
    let target = node["$ref"]
        .as_str()
        .map_or(node, |reference| schema.pointer(reference.trim_start_matches('#')).unwrap());
    let below =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if let Some(members) = target["properties"].as_object() {
        members.iter().for_each(|(name, member)| add_keys(schema, member, &below(name), keys));
    } else if path == "sinks" {
        add_keys(schema, &target["additionalProperties"], "sink", keys);
    } else {
        let alternatives = target["oneOf"].as_array().into_iter().flatten();
        let values = alternatives.map(|it| &it["const"]);
        let values = values.chain(target["enum"].as_array().into_iter().flatten());
        let values = values.filter_map(shown).collect();
        keys.insert(path.to_owned(), Key { default: shown(&node["default"]), values });
    }
}

#[test]
fn keys_of_the_configuration_are_those_of_the_schema() {
    let schema: Value = serde_json::from_str(&read("config/schema.json")).unwrap();
    let mut keys = BTreeMap::new();
    add_keys(&schema, &schema, "", &mut keys);
    let mut wrong = Vec::new();
    for table in Page::read("docs/configuration.md").tables {
        let prefix = match &*table[0][0] {
            "key" => "",
            "key of a sink" => "sink.",
            _ => continue,
        };
        for row in &table[1..] {
            for name in quoted(&row[0]) {
                let Some(key) = keys.remove(&format!("{prefix}{name}")) else {
                    wrong.push(format!("expected a key of the schema, found {name}"));
                    continue;
                };
                let default = quoted(&row[1]).into_iter().next();
                if key.default.is_some() && key.default != default {
                    wrong.push(format!("{name}: expected {:?}, found {default:?}", key.default));
                }
                let said = quoted(&row[2..].concat());
                for value in key.values.iter().filter(|value| !said.contains(value)) {
                    wrong.push(format!("{name}: expected its value {value}, found {said:?}"));
                }
            }
        }
    }
    wrong.extend(keys.keys().map(|key| format!("expected {key} in the tables, found it in none")));
    assert_none(&wrong);
}

/// That every metric of a running bridge is documented is held in `tests/admin.rs`.
#[test]
fn metrics_that_are_documented_exist() {
    let source = read("src/admin/metrics.rs");
    let names = Page::read("docs/metrics.md").code.into_iter().filter_map(|code| {
        let end = code.find(['{', ' ']).unwrap_or(code.len());
        code[..end].strip_prefix("tidings_").map(String::from)
    });
    let wrong: Vec<String> = names
        .filter(|name| {
            let bases = ["", "_total", "_seconds", "_bytes", "_info", "_seconds_total"];
            let bases = bases.iter().filter_map(|unit| name.strip_suffix(unit));
            !bases.into_iter().any(|base| source.contains(&format!("\"{base}\"")))
        })
        .map(|name| format!("expected a metric, found tidings_{name}"))
        .collect();
    assert_none(&wrong);
}

/// The sources of the program in one text, in which a text that goes on in the next line is whole.
fn texts() -> String {
    let mut texts = String::new();
    for file in files("src", "rs").into_iter().chain(files("crates", "rs")) {
        let source = read(&file).replace("\\\"", "\"");
        let lines: Vec<&str> = source.split("\\\n").collect();
        let first = lines[0].to_owned();
        texts.push_str(&lines[1..].iter().fold(first, |all, line| all + line.trim_start()));
    }
    texts
}

/// Each part of a message, between the places that vary, is text of the sources.
#[test]
fn messages_that_are_explained_exist() {
    let sources = texts();
    let mut wrong = Vec::new();
    for table in Page::read("docs/troubleshooting.md").tables {
        for message in table[1..].iter().flat_map(|row| quoted(&row[0])) {
            for part in message
                .split('…')
                .map(|part| part.trim_matches([' ', ':']))
                .filter(|it| it.len() > 3)
            {
                if !sources.contains(part) {
                    wrong.push(format!("{message}: expected a message with {part:?}, found none"));
                }
            }
        }
    }
    assert_none(&wrong);
}

/// Reasons of Events, states of sinks, classes of dead letters and why an object is missing.
#[test]
fn names_that_are_explained_exist() {
    let sources = texts();
    let heads = ["reason", "state of a sink", "class", "missing"];
    let pages = ["docs/metrics.md", "docs/dead-letters.md", "docs/enrichment.md"];
    let tables = pages.iter().flat_map(|page| Page::read(page).tables);
    let tables = tables.filter(|table| heads.contains(&table[0][0].trim_matches('`')));
    let names: Vec<String> =
        tables.flat_map(|table| table[1..].to_vec()).flat_map(|row| quoted(&row[0])).collect();
    assert!(names.len() >= 20, "{names:?}");
    let unknown = names.iter().filter(|name| !sources.contains(&format!("\"{name}\"")));
    let wrong: Vec<String> =
        unknown.map(|name| format!("expected a name of the program, found {name}")).collect();
    assert_none(&wrong);
}

/// The README is what one reads first, and the manual has the rest.
#[test]
fn readme_keeps_within_10_kb() {
    let length = read("README.md").len();
    assert!(length <= 10_000, "expected 10000 bytes at most, found {length}: move some to docs/");
}
