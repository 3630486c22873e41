//! Every configuration that is shipped, or stands in the manual, is one that `tidings check
//! --without-secrets` accepts.

use std::{fs, path::Path};

use tidings::config::{CheckSecrets, check, parse};

/// The files of a folder whose names end so; one that is not there has none.
fn files_of(folder: &str, extension: &str) -> Vec<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|it| it == extension))
        .collect();
    files.sort();
    files
}

#[test]
fn shipped_configurations_are_in_order() {
    let mut files = files_of("config", "yaml");
    assert!(files.len() >= 6, "{files:?}");
    files.append(&mut files_of("examples", "yaml"));
    for file in files {
        if let Err(error) = check(&file, [], CheckSecrets::Optional) {
            panic!("{error}");
        }
    }
}

#[test]
fn configurations_in_the_manual_are_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut pages = files_of("docs", "md");
    pages.extend(files_of("docs/sinks", "md"));
    pages.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"));
    let mut checked = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("```yaml\n").skip(1) {
            let file = dir.path().join("tidings.yaml");
            fs::write(&file, block.split("```").next().unwrap()).unwrap();
            if let Err(error) = check(&file, [], CheckSecrets::Optional) {
                panic!("{}: {error}", page.display());
            }
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked}");
}

/// `all-keys.yaml` says which values are defaults; here is that they are.
#[test]
fn the_defaults_that_are_documented_are_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/all-keys.yaml");
    let text = fs::read_to_string(path).unwrap();
    // The values that are no defaults say so, or are needed.
    let given = [
        "name: prod",
        "uid:",
        "kubeconfig:",
        "proxy:",
        "maxAttempts:",
        "maxEvent: 64KiB",
        "match:",
        "token:",
    ];
    let is_given = |line: &&str| given.iter().any(|key| line.trim_start().starts_with(key));
    let kept: Vec<&str> = text.lines().filter(|line| !is_given(line)).collect();
    let kept = kept.join("\n");
    let sinks = kept.find("\n  kafka:\n").unwrap()..kept.find("\nobjects:").unwrap();
    let documented = format!("{}{}", &kept[..sinks.start], &kept[sinks.end..]);
    let documented = parse("documented", &documented, []).unwrap_or_else(|e| panic!("{e}"));
    let bare = parse("bare", "sinks: {everything: {stdout: {}}}", []).unwrap();
    assert_eq!(format!("{documented:#?}"), format!("{bare:#?}"));
}
