//! `tidings import`: what it makes of configurations of a kubernetes-event-exporter.

use std::{fs, path::Path, process::Command};

use tidings::config::{CheckSecrets, check};

/// Each configuration of the folder: the result, with what is said beside it, and the check's verdict.
#[test]
fn configurations_are_imported_or_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/import");
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 10, "{files:?}");
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
        let output = command.current_dir(&folder).args(["import", name]).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!stdout.contains("hunter2") && !stderr.contains("hunter2"), "{stdout}{stderr}");
        if name.starts_with("kee-wrong") {
            assert_eq!((output.status.code(), &*stdout), (Some(2), ""), "{name}: {stderr}");
        } else {
            assert_eq!(output.status.code(), Some(0), "{name}: {stderr}");
            let result = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
            fs::write(result.path(), &stdout).unwrap();
            check(result.path(), [], CheckSecrets::Optional)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        insta::assert_snapshot!(name.trim_end_matches(".yaml"), format!("{stderr}---\n{stdout}"));
    }
}
