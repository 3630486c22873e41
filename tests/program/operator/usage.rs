//! What is wrong with a command is said, with a way to mend it, before anything is done.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{commands, stage::Stage};

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_in_the_usage_exit_with_2() {
    let config = Path::new("/nonexistent/tidings.yaml");
    let mut said = Vec::new();
    for arguments in [
        &["dead-letters", "retry"][..],
        &["dead-letters", "drop"],
        &["dead-letters", "drop", "--sink", "pager"],
        &["dead-letters", "drop", "1", "--all"],
        &["dead-letters", "retry", "1", "--class", "invalid"],
        &["dead-letters", "retry", "one"],
        &["dead-letters", "list", "--limit", "0"],
        &["dead-letters", "list", "--class", "to-large"],
        &["replay", "--sink", "pager"],
        &["replay", "--sink", "pager", "--since", "2h", "--from", "1"],
        &["replay", "--sink", "pager", "--since", "yesterday"],
        &["replay", "--since", "2h"],
        &["status", "--output", "yaml"],
        // Last, a configuration that is not there.
        &["dead-letters", "list"],
    ] {
        let answer = commands::tidings(config, arguments).await;
        assert_eq!((answer.code, answer.stdout.as_str()), (2, ""), "{answer:?}");
        said.push(format!("$ tidings {}\n{}", arguments.join(" "), answer.stderr));
    }
    insta::assert_snapshot!(said.join("\n"));
}

/// The words of a start stand in the log, at each restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_signing_secret_without_prefix_is_shown_by_check_alone() {
    const SECRET: &str = "a secret of thirty-odd bytes, live";
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("tidings.yaml");
    let text = "sinks: {hook: {webhook: {url: \"https://receiver\", signing: {secret: {env: \
                HOOK_SECRET}}}}}\n";
    std::fs::write(&config, text).unwrap();
    let said = async |command: &str| {
        let mut command = commands::command(&config, &[command]);
        let output = command.env("HOOK_SECRET", SECRET).output().await.unwrap();
        assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()));
        String::from_utf8(output.stderr).unwrap()
    };
    let encoded = STANDARD.encode(SECRET);
    let run = said("run").await;
    assert!(!run.contains(SECRET) && !run.contains(&encoded), "{run}");
    assert!(run.contains("`tidings check` prints"), "{run}");
    let check = said("check").await;
    assert!(!check.contains(SECRET) && check.contains(&format!("whsec_{encoded}")), "{check}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_is_not_there_is_said() {
    let mut stage = Stage::set().await;
    stage.stop().await;
    let replay = stage.run(&["replay", "--sink", "pager", "--since", "2h"]).await;
    std::fs::remove_file(stage.journal().join("state.redb")).unwrap();
    let nothing_kept = stage.run(&["dead-letters", "list"]).await;
    assert_eq!((nothing_kept.code, nothing_kept.stdout.as_str()), (0, ""));
    assert!(!stage.journal().join("state.redb").exists(), "to look at a journal changes nothing");
    std::fs::write(stage.journal().join("state.redb"), "no state").unwrap();
    let damaged = stage.run(&["dead-letters", "list"]).await;
    assert!(stage.journal().join("state.redb").exists(), "that is the bridge's to set aside");
    std::fs::remove_dir_all(stage.journal()).unwrap();
    let no_journal = stage.run(&["dead-letters", "list"]).await;
    assert!(!stage.journal().exists());
    let said = [replay, damaged, no_journal];
    assert!(said.iter().all(|answer| answer.code == 1 && answer.stdout.is_empty()), "{said:?}");
    insta::assert_snapshot!(stage.steady(&said.map(|answer| answer.stderr).join("\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_does_not_listen_is_told_from_one_that_does_not_run() {
    let stage = Stage::set().await;
    std::fs::remove_file(stage.socket()).unwrap();
    let answer = stage.run(&["dead-letters", "drop", "--all"]).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (1, ""));
    insta::assert_snapshot!(stage.steady(&answer.stderr));
}

#[tokio::test]
async fn an_index_template_is_of_what_was_asked_for() {
    for (options, pattern, is_data_stream, labels) in [
        (&[][..], "k8s-events-*", false, "flattened"),
        (&["--opensearch"], "k8s-events-*", false, "flat_object"),
        (&["--data-stream"], "logs-kubernetes.events-*", true, "flattened"),
        (&["--data-stream", "--opensearch", "--pattern", "a-*"], "a-*", true, "flat_object"),
    ] {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidings"));
        let output =
            command.args(["schema", "elasticsearch"]).args(options).output().await.unwrap();
        let template: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(template["index_patterns"], serde_json::json!([pattern]));
        assert_eq!(template.get("data_stream").is_some(), is_data_stream);
        let type_of_labels = "/template/mappings/properties/kubernetes/properties/labels/type";
        assert_eq!(template.pointer(type_of_labels).unwrap(), labels);
    }
}
