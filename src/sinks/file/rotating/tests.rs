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

    fn put(&self, text: &str) {
        fs::create_dir_all(self.path().parent().unwrap()).unwrap();
        fs::write(self.path(), text).unwrap();
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

fn refused(file: &mut RotatingFile, kind: ErrorKind, words: &str) {
    let (bytes, result) = file.write(b"{}\n", at("2026-11-28T00:00:00Z"));
    let error = result.unwrap_err();
    assert_eq!((bytes, error.kind()), (0, kind), "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

const NOON: &str = "2026-11-28T12:00:00.5004Z";

#[test]
fn a_file_makes_way_when_the_next_line_does_not_fit() {
    let scratch = scratch(10, 86_400, 14);
    let mut file = scratch.file();
    written(&mut file, "{1}\n{2}\n{3}\n", NOON);
    written(&mut file, "{4}\n{longer than a file}\n{5}\n", NOON);
    assert_eq!(
        scratch.found(),
        files([
            (".20261128T120000.500Z", "{1}\n{2}\n"),
            // Several in a millisecond have names of their own.
            (".20261128T120000.501Z", "{3}\n{4}\n"),
            (".20261128T120000.502Z", "{longer than a file}\n"),
            ("", "{5}\n"),
        ])
    );
}

#[test]
fn a_file_makes_way_in_another_period_also_after_a_restart() {
    let scratch = scratch(1 << 20, 3600, 14);
    let mut file = scratch.file();
    written(&mut file, "{1}\n", "2026-11-28T12:00:00Z");
    written(&mut file, "{2}\n", "2026-11-28T12:59:59.999Z");
    written(&mut file, "{3}\n", "2026-11-28T13:00:00Z");
    drop(file);
    let last = File::options().append(true).open(scratch.path()).unwrap();
    last.set_modified(at("2026-11-28T13:10:00Z").into()).unwrap();
    written(&mut scratch.file(), "{4}\n", "2026-11-28T13:20:00Z");
    last.set_modified(at("2026-11-28T13:20:00Z").into()).unwrap();
    written(&mut scratch.file(), "{5}\n", "2026-11-28T20:00:00Z");
    assert_eq!(
        scratch.found(),
        files([
            (".20261128T130000.000Z", "{1}\n{2}\n"),
            (".20261128T200000.000Z", "{3}\n{4}\n"),
            ("", "{5}\n"),
        ])
    );
}

#[test]
fn only_the_newest_files_are_kept_and_others_are_left_alone() {
    let scratch = scratch(4, 86_400, 2);
    scratch.put("");
    let others = [".20261128T120000.500Z.gz", ".20261128T120000Z", ".old", "-other"];
    for other in others {
        fs::write(format!("{}{other}", scratch.path().display()), "other").unwrap();
    }
    let mut file = scratch.file();
    written(&mut file, "{1}\n{2}\n{3}\n", NOON);
    // The clock is set back, and names go on.
    written(&mut file, "{4}\n{5}\n", "2026-11-28T11:00:00Z");
    let mut expected = files([
        (".20261128T120000.502Z", "{3}\n"),
        (".20261128T120000.503Z", "{4}\n"),
        ("", "{5}\n"),
    ]);
    expected.extend(others.map(|other| (other.to_owned(), "other".to_owned())));
    assert_eq!(scratch.found(), expected);
}

#[test]
fn half_a_last_line_is_cut_away() {
    let long = format!("{{{}", "x".repeat(20_000));
    let ended = format!("{}{{\n", "{}\n".repeat(8190 / 3));
    for (before, left) in [
        ("", ""),
        ("{1}\n{2}\n", "{1}\n{2}\n"),
        ("{1}\n{\"id\":", "{1}\n"),
        ("{", ""),
        ("{1}\n\0\0\0", "{1}\n"),
        (&*format!("{{1}}\n{long}"), "{1}\n"),
        (&long, ""),
        (&format!("{ended}{long}"), &*ended),
    ] {
        let scratch = scratch(1 << 20, 86_400, 14);
        scratch.put(before);
        written(&mut scratch.file(), "{3}\n", NOON);
        assert_eq!(scratch.found()[""], format!("{left}{{3}}\n"), "{before:?}");
    }
}

#[test]
fn a_file_that_is_not_of_lines_of_json_is_left_as_it_is() {
    for text in ["a: 1\nb: 2", "no line", "{\n}"] {
        let scratch = scratch(1 << 20, 86_400, 14);
        scratch.put(text);
        refused(&mut scratch.file(), ErrorKind::InvalidInput, "its last line is not JSON");
        assert_eq!(scratch.found()[""], text);
    }
}

#[test]
fn a_file_is_made_again_when_it_was_moved_removed_or_cut() {
    let scratch = scratch(12, 86_400, 14);
    let mut file = scratch.file();
    written(&mut file, "{1}\n", NOON);
    fs::rename(scratch.path(), scratch.path().with_extension("moved")).unwrap();
    written(&mut file, "{2}\n", NOON);
    fs::remove_dir_all(scratch.path().parent().unwrap()).unwrap();
    written(&mut file, "{3}\n{4}\n", NOON);
    fs::write(scratch.path(), "").unwrap();
    written(&mut file, "{5}\n{6}\n{7}\n", NOON);
    fs::write(scratch.path(), "").unwrap();
    written(&mut file, "{8}\n", NOON);
    assert_eq!(scratch.found(), files([("", "{8}\n")]));
}

#[test]
fn a_file_that_cannot_be_written_is_for_a_person_to_mend() {
    let scratch = scratch(1 << 20, 86_400, 14);
    scratch.put("");
    let path = scratch.path();
    let mut file = scratch.file();
    let mut first = scratch.file();
    written(&mut first, "{1}\n", NOON);
    refused(&mut file, ErrorKind::ResourceBusy, "another sink or process writes it");
    drop(first);
    written(&mut file, "{2}\n", NOON);
    drop(file);

    fs::rename(&path, path.with_extension("other")).unwrap();
    std::os::unix::fs::symlink(path.with_extension("other"), &path).unwrap();
    refused(&mut scratch.file(), ErrorKind::InvalidInput, "it is a symbolic link");
    fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    refused(&mut scratch.file(), ErrorKind::InvalidInput, "it is not a regular file");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused(&mut scratch.file(), ErrorKind::IsADirectory, "cannot open");
    fs::remove_dir(&path).unwrap();
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path.parent().unwrap(), "").unwrap();
    refused(&mut scratch.file(), ErrorKind::AlreadyExists, "cannot open");
}
