use std::{collections::BTreeMap, time::Duration};

use super::*;

struct Scratch {
    dir: tempfile::TempDir,
    rotate: RotateOptions,
}

fn scratch(size: u64, age: u64, keep: usize) -> Scratch {
    let rotate = RotateOptions { size, age: Duration::from_secs(age), keep };
    Scratch { dir: tempfile::tempdir().unwrap(), rotate }
}

impl Scratch {
    fn path(&self) -> PathBuf {
        self.dir.path().join("logs/events.ndjson")
    }

    fn file(&self) -> RotatingFile {
        RotatingFile::new(self.path(), self.rotate)
    }

    /// All files, by what is behind `events.ndjson` in their names.
    fn found(&self) -> BTreeMap<String, String> {
        let directory = self.path().parent().unwrap().read_dir().unwrap();
        let files = directory.map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let name = name.strip_prefix("events.ndjson").unwrap_or(&name).to_owned();
            (name, fs::read_to_string(entry.path()).unwrap())
        });
        files.collect()
    }

    /// Makes the file, as written at noon.
    fn put(&self, text: &[u8]) {
        fs::create_dir_all(self.path().parent().unwrap()).unwrap();
        fs::write(self.path(), text).unwrap();
        self.touch(NOON);
    }

    fn touch(&self, time: &str) {
        let file = File::options().append(true).open(self.path()).unwrap();
        file.set_modified(at(time).into()).unwrap();
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn files<const N: usize>(files: [(&str, &str); N]) -> BTreeMap<String, String> {
    files.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

fn written(file: &mut RotatingFile, lines: &str, now: &str) {
    let (bytes, result) = file.write(lines.as_bytes(), at(now));
    result.unwrap();
    assert_eq!(bytes, lines.len());
}

fn refused(file: &mut RotatingFile, class: FailureClass, words: &str) {
    let (bytes, result) = file.write(b"{}\n", at(NOON));
    let failure = result.unwrap_err();
    assert_eq!((bytes, failure.class), (0, class), "{failure:?}");
    assert!(failure.reason.contains(words), "{failure:?}");
}

const NOON: &str = "2026-11-28T12:00:00.5004Z";

#[test]
fn a_file_is_rotated_when_the_next_line_does_not_fit() {
    let scratch = scratch(20, 86_400, 14);
    let mut file = scratch.file();
    written(&mut file, "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n", NOON);
    written(&mut file, "{\"n\":4}\n{longer than a file}\n{\"n\":5}\n", NOON);
    assert_eq!(
        scratch.found(),
        files([
            (".20261128T120000.500Z", "{\"n\":1}\n{\"n\":2}\n"),
            // Several in a millisecond have names of their own.
            (".20261128T120000.501Z", "{\"n\":3}\n{\"n\":4}\n"),
            (".20261128T120000.502Z", "{longer than a file}\n"),
            ("", "{\"n\":5}\n"),
        ])
    );
}

#[test]
fn a_file_is_rotated_in_another_period_also_after_a_restart() {
    let scratch = scratch(1 << 20, 3600, 14);
    let mut file = scratch.file();
    written(&mut file, "{\"n\":1}\n", "2026-11-28T12:00:00Z");
    written(&mut file, "{\"n\":2}\n", "2026-11-28T12:59:59.999Z");
    written(&mut file, "{\"n\":3}\n", "2026-11-28T13:00:00Z");
    drop(file);
    scratch.touch("2026-11-28T13:10:00Z");
    written(&mut scratch.file(), "{\"n\":4}\n", "2026-11-28T13:20:00Z");
    scratch.touch("2026-11-28T13:20:00Z");
    written(&mut scratch.file(), "{\"n\":5}\n", "2026-11-28T20:00:00Z");
    assert_eq!(
        scratch.found(),
        files([
            (".20261128T130000.000Z", "{\"n\":1}\n{\"n\":2}\n"),
            (".20261128T200000.000Z", "{\"n\":3}\n{\"n\":4}\n"),
            ("", "{\"n\":5}\n"),
        ])
    );
}

#[test]
fn only_the_newest_files_are_kept_and_others_are_left_alone() {
    let scratch = scratch(8, 86_400, 2);
    scratch.put(b"");
    let others = [
        ".20261128T120000.500Z.gz",
        ".20261128T120000Z",
        ".99991230T220000.999Z",
        ".old",
        "-other",
    ];
    let path = |end: &str| format!("{}{end}", scratch.path().display());
    for other in others {
        fs::write(path(other), "other").unwrap();
    }
    let mut file = scratch.file();
    written(&mut file, "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n", NOON);
    // The clock is set back, and names go on.
    written(&mut file, "{\"n\":4}\n{\"n\":5}\n", "2026-11-28T11:00:00Z");
    let mut expected = files([
        (".20261128T120000.502Z", "{\"n\":3}\n"),
        (".20261128T120000.503Z", "{\"n\":4}\n"),
        ("", "{\"n\":5}\n"),
    ]);
    expected.extend(others.map(|other| (other.to_owned(), "other".to_owned())));
    assert_eq!(scratch.found(), expected);
}

#[test]
fn an_incomplete_last_line_is_cut_away() {
    let long = format!("{{\"{}", "x".repeat(20_000));
    let full = format!("{{\"{}\n", "x".repeat(8192 - 3));
    for (before, left) in [
        ("", ""),
        ("{\"n\":1}\n", "{\"n\":1}\n"),
        ("{\"n\":1}\n{\"id\":", "{\"n\":1}\n"),
        ("{\"n\":1}\n{", "{\"n\":1}\n"),
        ("{", ""),
        ("{\"n\":1}\n\0\0\0", "{\"n\":1}\n"),
        ("{\"n\":1}\n{\"id\":\0\0\0", "{\"n\":1}\n"),
        ("\0\0\0", ""),
        // It may be another's, and whole.
        ("{\"n\":1}\n{\"n\":2}", "{\"n\":1}\n{\"n\":2}\n"),
        ("{\"n\":2}", "{\"n\":2}\n"),
        ("{\"n\":2}\0\0", "{\"n\":2}\n"),
        ("{\"n\":1}\n{\"n\":tr", "{\"n\":1}\n"),
        ("{\"n\":1}\n{\"n\":\"\\", "{\"n\":1}\n"),
        (&*format!("{{\"n\":1}}\n{long}"), "{\"n\":1}\n"),
        (&long, ""),
        (&format!("{full}{long}"), &*full),
    ] {
        let scratch = scratch(1 << 20, 86_400, 14);
        scratch.put(before.as_bytes());
        written(&mut scratch.file(), "{\"n\":3}\n", NOON);
        assert_eq!(scratch.found(), files([("", &*format!("{left}{{\"n\":3}}\n"))]), "{before:?}");
    }
}

#[test]
fn a_file_that_is_not_of_lines_of_json_is_left_as_it_is() {
    for text in [
        "a: 1\nb: 2",
        "127.0.0.1 localhost\n",
        "{a: 1, b: 2}",
        "# keep\n{\"a\":",
        "{\n}",
        "{\"n\":1}\n\0\0x",
        "text\n\0\0",
        "\0\0\n{\"n\":1}\n\0\0",
        "\n",
        "{\"n\":1}{\"n\":2}",
        "{\"n\":1} // a comment",
        "{\"n\":{{ .Values.n }}",
    ] {
        let scratch = scratch(1 << 20, 86_400, 14);
        scratch.put(text.as_bytes());
        let words = "expected lines of JSON, found something else";
        refused(&mut scratch.file(), FailureClass::Misconfigured, words);
        assert_eq!(scratch.found(), files([("", text)]));
    }
}

#[test]
fn a_file_is_made_again_when_it_was_moved_or_removed() {
    let scratch = scratch(24, 86_400, 14);
    let mut file = scratch.file();
    written(&mut file, "{\"n\":1}\n", NOON);
    fs::rename(scratch.path(), scratch.path().with_extension("moved")).unwrap();
    written(&mut file, "{\"n\":2}\n", NOON);
    fs::remove_dir_all(scratch.path().parent().unwrap()).unwrap();
    written(&mut file, "{\"n\":3}\n{\"n\":4}\n", NOON);
    scratch.put(b"");
    written(&mut file, "{\"n\":5}\n{\"n\":6}\n{\"n\":7}\n", NOON);
    assert_eq!(scratch.found(), files([("", "{\"n\":5}\n{\"n\":6}\n{\"n\":7}\n")]));
}

#[test]
fn a_file_that_another_program_changes_is_repaired() {
    let scratch = scratch(1 << 20, 86_400, 14);
    let mut file = scratch.file();
    let lines = "{\"n\":1}\n{\"n\":2}\n";
    written(&mut file, lines, NOON);
    File::options().append(true).open(scratch.path()).unwrap().set_len(12).unwrap();
    scratch.touch(NOON);
    written(&mut file, "{\"n\":3}\n", NOON);
    assert_eq!(scratch.found(), files([("", "{\"n\":1}\n{\"n\":3}\n")]));
}

#[test]
fn a_line_of_a_removed_file_does_not_count() {
    let scratch = scratch(1 << 20, 86_400, 14);
    let file = scratch.file();
    let mut open = file.opened(0).unwrap();
    open.write(b"{\"n\":1}\n").unwrap();
    fs::remove_file(scratch.path()).unwrap();
    let error = open.write(b"{\"n\":2}\n").unwrap_err();
    assert_eq!(error.to_string(), "another program removed it");
    assert_eq!((open.length, open.file.metadata().unwrap().len()), (8, 8));
}

#[test]
fn a_file_that_another_writes_is_waited_for() {
    let scratch = scratch(1 << 20, 86_400, 14);
    let (mut first, mut second) = (scratch.file(), scratch.file());
    written(&mut first, "{\"n\":1}\n", NOON);
    let words = "another sink or process writes it";
    refused(&mut second, FailureClass::Unavailable, words);
    drop(first);
    written(&mut second, "{\"n\":2}\n", NOON);
    assert_eq!(scratch.found(), files([("", "{\"n\":1}\n{\"n\":2}\n")]));
}

#[test]
fn a_path_that_is_no_file_is_misconfigured() {
    let scratch = scratch(1 << 20, 86_400, 14);
    let path = scratch.path();
    let refused = |words| refused(&mut scratch.file(), FailureClass::Misconfigured, words);
    scratch.put(b"");
    fs::rename(&path, path.with_extension("other")).unwrap();
    std::os::unix::fs::symlink(path.with_extension("other"), &path).unwrap();
    refused("expected a file, found a symbolic link");
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    refused("expected a file, found something else");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused("cannot open");
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path.parent().unwrap(), "").unwrap();
    refused("cannot open");
}
