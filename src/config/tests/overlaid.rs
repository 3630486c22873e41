//! The environment overlay.

use super::*;

const FILE: &str = "journal: {path: /j, retention: {size: 2GiB}}\nsinks: {a: {stdout: {}}}\n";

#[test]
fn each_scalar_can_be_set() {
    let variables = [
        ("TIDINGS_CLUSTER__NAME", "1.10"),
        ("TIDINGS_CLUSTER__UID", "u"),
        ("TIDINGS_SOURCE__KUBECONFIG", "/k"),
        ("TIDINGS_SOURCE__PROXY", "env"),
        ("TIDINGS_SOURCE__FIELD_SELECTOR", "type=Warning"),
        ("TIDINGS_SOURCE__START", "now"),
        ("TIDINGS_SOURCE__HEARTBEAT", "0s"),
        ("TIDINGS_JOURNAL__PATH", "/other"),
        ("TIDINGS_JOURNAL__RETENTION__SIZE", "3GiB"),
        ("TIDINGS_JOURNAL__RETENTION__AGE", "2h"),
        ("TIDINGS_JOURNAL__SYNC", "never"),
        ("TIDINGS_JOURNAL__DEAD_LETTERS", "32MiB"),
        ("TIDINGS_JOURNAL__MAX_EVENT", "128KiB"),
        ("TIDINGS_SERVER__LISTEN", "127.0.0.1:0"),
        ("TIDINGS_SERVER__DETAIL", "all"),
        ("TIDINGS_LOG__LEVEL", "trace"),
        ("TIDINGS_LOG__FORMAT", "json"),
        ("TIDINGS_CONFORMANCE_DIR", "/anywhere"),
        ("OTHER", "x"),
    ];
    let unset: Vec<_> = overlay::settable()
        .map(overlay::spelling)
        .filter(|name| !variables.iter().any(|(set, _)| set == name))
        .collect();
    assert!(unset.is_empty(), "expected that each can be set, or stands in `FILE_ONLY`: {unset:?}");
    let settings = read(FILE, &variables).unwrap_or_else(|error| panic!("{error}"));
    insta::assert_snapshot!(format!(
        "{:#?}\n{:#?}\n{:#?}\n{:?}\n{:?}",
        settings.cluster, settings.source, settings.journal, settings.server, settings.log
    ));
}

#[test]
fn a_variable_is_known_when_its_words_are_run_together() {
    let settings = read(FILE, &[("TIDINGS_SOURCE__FIELDSELECTOR", "type=Normal")]).unwrap();
    assert_eq!(settings.source.events.field_selector, "type=Normal");
    assert_eq!(settings.journal.path, Path::new("/j"));
}

#[test]
fn a_variable_that_the_file_names_is_known() {
    let text = "sinks: {a: {webhook: {url: {env: TIDINGS_HOOK}}}}\n";
    assert!(read(text, &[("TIDINGS_HOOK", "http://x")]).is_ok());
}

#[test]
fn variables_that_cannot_be_applied_are_refused() {
    let cases: [&[(&str, &str)]; 12] = [
        &[("TIDINGS_JOURNAL__SYNK", "1s")],
        &[("TIDINGS_COLOUR", "red")],
        &[("TIDINGS_", "x")],
        &[("TIDINGS_SINKS__A__TIMEOUT", "1s")],
        &[("TIDINGS_SOURCE__NAMESPACES", "a")],
        &[("TIDINGS_LEADERELECTION__ENABLED", "true")],
        &[("TIDINGS_SERVICE_HOST", "10.0.0.1"), ("TIDINGS_PORT_8080_TCP", "tcp://10.0.0.1:8080")],
        &[("TIDINGS_SOURCE__FIELD_SELECTOR", "a=b"), ("TIDINGS_SOURCE__FIELDSELECTOR", "a=b")],
        &[("TIDINGS_JOURNAL__SYNC", "often")],
        &[("TIDINGS_JOURNAL__RETENTION__SIZE", "1KiB")],
        &[("TIDINGS_LOG__LEVEL", "")],
        &[("TIDINGS_SERVER__LISTEN", "8080")],
    ];
    let shown: Vec<_> = cases.iter().map(|env| refused(FILE, env)).collect();
    insta::assert_snapshot!(shown.join("\n"));
    insta::assert_snapshot!(drawn(&read(FILE, cases[8]).unwrap_err()));
    insta::assert_snapshot!(refused(
        "journal: 5\nsinks: {a: {stdout: }}",
        &[("TIDINGS_JOURNAL__PATH", "/j")]
    ));
}
