//! Where the journal is, for commands beside a bridge.

use super::*;

fn journal(text: &str, env: &[(&str, &str)]) -> Result<JournalOptions, String> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), text).expect("it can be written");
    load_journal(file.path(), vars(env))
        .map(|read| {
            assert_eq!(read.sinks.len(), if text.contains("kafkaa") { 2 } else { 0 });
            read.journal
        })
        .map_err(|error| {
            error
                .to_string()
                .replace(file.path().to_str().expect("its path is UTF-8"), "tidings.yaml")
        })
}

#[test]
fn mistakes_outside_the_journal_section_are_ignored() {
    let text = "journal: {path: /j}\nsinks: {a: {webhook: {url: {env: NOT_HERE}}}, b: {kafkaa: 1}}\nx: y\n";
    assert_eq!(journal(text, &[("TIDINGS_NO__SUCH", "1")]).unwrap().path, Path::new("/j"));
    assert_eq!(journal("", &[]).unwrap().path, Path::new("/var/lib/tidings"));
}

#[test]
fn the_environment_overlays_the_journal_section() {
    let overlaid = journal("journal: {path: /j}\n", &[("TIDINGS_JOURNAL__PATH", "/other")]);
    assert_eq!(overlaid.unwrap().path, Path::new("/other"));
    let referred = journal("journal: {path: {env: TIDINGS_DIR}}\n", &[("TIDINGS_DIR", "/third")]);
    assert_eq!(referred.unwrap().path, Path::new("/third"));
}

#[test]
fn mistakes_in_the_journal_section_are_reported() {
    let wrong = [
        journal("journal: {pth: /j}\n", &[]),
        journal("journal: {path: {env: NOT_HERE}}\n", &[]),
        journal("journal: {path: /j}\n", &[("TIDINGS_JOURNAL__PTH", "/j")]),
        journal("journal: [", &[]),
        journal("- a\n", &[]),
    ];
    let wrong: Vec<_> = wrong.into_iter().map(Result::unwrap_err).collect();
    insta::assert_snapshot!(wrong.join("\n---\n"));
}
