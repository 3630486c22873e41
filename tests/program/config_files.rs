//! Every configuration that is shipped is one that `tidings check --without-secrets` accepts.

use std::{fs, path::Path};

use tidings::config::{CheckSecrets, check, parse};

/// The YAML files of a folder; one that is not there has none.
fn yaml_files(folder: &str) -> Vec<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files
}

#[test]
fn shipped_configurations_are_in_order() {
    let mut files = yaml_files("config");
    assert!(files.len() >= 6, "{files:?}");
    files.append(&mut yaml_files("examples"));
    for file in files {
        if let Err(error) = check(&file, [], CheckSecrets::Optional) {
            panic!("{error}");
        }
    }
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
        "env: prod",
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
    let mut documented = parse("documented", &documented, []).unwrap_or_else(|e| panic!("{e}"));
    let bare = parse("bare", "sinks: {everything: {stdout: {}}}", []).unwrap();
    // Keys that have their defaults are shown where they are written.
    documented.shown.clone_from(&bare.shown);
    assert_eq!(format!("{documented:#?}"), format!("{bare:#?}"));
}
