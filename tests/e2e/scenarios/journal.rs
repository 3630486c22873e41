//! A bridge that must not run: it ends, and says why and what to do.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::bridge::Bridge;
use crate::parts::{ApiServerOptions, Part as _};
use crate::receivers::WebhookReceiver;
use crate::stage::{Cluster, only_a_webhook};
use crate::wait::until;

/// Runs a bridge on a journal, which has to end with an exit code, these words and a hint.
async fn ends_with(kubeconfig: &Path, sinks: &Value, journal: &Path, code: i32, words: &str) {
    let mut bridge = Bridge::configured(kubeconfig, sinks, |config| {
        config["journal"]["path"] = journal.display().to_string().into();
    });
    let (status, said) = bridge.run_to_its_end().await;
    assert_eq!(status.code(), Some(code), "{said}");
    let error = said.split("error: ").nth(1).unwrap_or_else(|| panic!("no error in {said}"));
    eprintln!("  {}", error.trim_end());
    assert!(error.contains(words) && error.contains("hint: "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn a_journal_that_cannot_be_used_ends_the_bridge_with_a_hint() {
    let (cluster, other) = tokio::join!(
        Cluster::start(ApiServerOptions::default()),
        Cluster::start(ApiServerOptions::default()),
    );
    let (here, there) = (cluster.server.kubeconfig("admin"), other.server.kubeconfig("admin"));
    let receiver = WebhookReceiver::start();
    let sinks = only_a_webhook(&receiver);
    let folder = tempfile::tempdir().expect("a temporary folder");

    // Not a matter of permissions, which do not hold back a superuser who runs the tests.
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    let journal = file.join("journal");
    ends_with(&here, &sinks, &journal, 1, "cannot create the journal directory").await;

    let mut first = Bridge::new(&here, &sinks);
    first.launch().await;
    let journal = first.journal();
    until("the watch is open", async || first.readiness().await.0).await;
    ends_with(&here, &sinks, &journal, 1, "is held by another process").await;
    first.stop_in_order().await;

    ends_with(&there, &sinks, &journal, 1, "holds the events of the cluster").await;
    let missing = folder.path().join("missing.kubeconfig");
    ends_with(&missing, &sinks, &journal, 2, "missing.kubeconfig").await;

    // It was not touched by any of them.
    first.launch().await;
    until("the watch is open again", async || first.readiness().await.0).await;
    first.stop_in_order().await;
}
