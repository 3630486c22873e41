//! The keys that need a restart, each by its name.

use super::read;

const SINK: &str = "sinks: {out: {stdout: {}}}";

#[track_caller]
fn assert_needs_restart(changed: &str, keys: &[&str]) {
    let before = read(SINK, &[]).expect("a configuration");
    let next = read(&format!("{changed}\n{SINK}"), &[]).expect("a configuration");
    assert_ne!(before, next, "{changed}");
    assert_eq!(before.fixed_keys_changed(&next), keys, "{changed}");
}

#[test]
fn a_change_that_needs_a_restart_is_named() {
    for (changed, key) in [
        ("cluster: {name: prod}", "cluster.name"),
        ("cluster: {uid: 1-2}", "cluster.uid"),
        ("cluster: {labels: {a: b}}", "cluster.labels"),
        ("source: {kubeconfig: /k}", "source.kubeconfig"),
        ("source: {heartbeat: 2s}", "source.heartbeat"),
        ("source: {namespaces: [shop]}", "source.namespaces"),
        ("source: {fieldSelector: type=Warning}", "source.fieldSelector"),
        ("source: {start: now}", "source.start"),
        ("journal: {path: /j}", "journal.path"),
        ("journal: {retention: {size: 2GiB}}", "journal.retention.size"),
        ("journal: {retention: {age: 1h}}", "journal.retention.age"),
        ("journal: {sync: never}", "journal.sync"),
        ("journal: {deadLetters: 1MiB}", "journal.deadLetters"),
        ("journal: {maxEvent: 8KiB}", "journal.maxEvent"),
        ("objects: {qps: 1}", "objects"),
        ("server: {listen: \"127.0.0.1:1\"}", "server.listen"),
        ("server: {detail: all}", "server.detail"),
        ("log: {format: json}", "log.format"),
    ] {
        assert_needs_restart(changed, &[key]);
    }
    let two = "journal: {path: /j, retention: {size: 8MiB}}";
    assert_needs_restart(two, &["journal.path", "journal.retention.size"]);
}

#[test]
fn a_change_that_a_running_bridge_takes_needs_no_restart() {
    for changed in [
        "log: {level: debug}",
        "metrics: [{name: a}]",
        "source: {proxy: \"http://127.0.0.1:1\"}",
        "telemetry: {otlp: {protocol: http, endpoint: \"https://x\"}}",
        "server: {token: {env: TOKEN}}",
        "sinks: {out: {stdout: {}, timeout: 1s}}",
        "sinks: {other: {stdout: {}}}",
        "sinks: {out: {webhook: {url: \"https://x\"}, overflow: block, start: oldest, match: \"true\"}}",
    ] {
        let before = read(SINK, &[]).expect("a configuration");
        let changed = if changed.starts_with("sinks:") {
            changed.to_owned()
        } else {
            format!("{changed}\n{SINK}")
        };
        let next =
            read(&changed, &[("TOKEN", "a-token-of-sixteen-letters")]).expect("a configuration");
        assert_ne!(before, next, "{changed}");
        assert_eq!(before.fixed_keys_changed(&next), [] as [&str; 0], "{changed}");
    }
}
