//! What the API server does not let be written.

use std::fs::{self, File};
use std::sync::Arc;

use serde_json::Value;
use tempfile::NamedTempFile;
use tidings_kube::recorder::{BroadcasterOptions, EventType, SinkCounts};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;

use super::{NOBODY, Stand, pod_in};
use crate::parts::kubectl;
use crate::wait::until;

/// What the library logs on this thread, for as long as this lives; so a test that has it runs
/// everything on its own thread.
struct Log {
    file: NamedTempFile,
    _guard: DefaultGuard,
}

impl Log {
    fn keep() -> Self {
        let file = NamedTempFile::new().expect("a temporary file");
        let writer: File = file.reopen().expect("a second handle");
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_env_filter(EnvFilter::new("tidings=debug"))
            .with_writer(Arc::new(writer))
            .finish();
        Self { file, _guard: tracing::subscriber::set_default(subscriber) }
    }

    fn lines(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.file.path()).expect("the log");
        log.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// The one line that there is, if nothing but that was logged.
    fn only_line(&self) -> Value {
        let lines = self.lines();
        let [line] = &lines[..] else { panic!("one line is enough: {lines:#?}") };
        eprintln!("  {line}");
        line.clone()
    }
}

fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    line[field].as_str().unwrap_or_else(|| panic!("no {field} in {line}"))
}

const ONE_GIVEN_UP: SinkCounts = SinkCounts {
    written: 0,
    skipped: 0,
    given_up: 1,
    dropped: 0,
    not_written: 0,
    panicked: 0,
    retries: 0,
};

#[tokio::test]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn an_account_that_lacks_a_right_is_told_which_one() {
    let stand = Stand::set().await;
    for (lacking, counts) in
        [("create", ONE_GIVEN_UP), ("patch", SinkCounts { written: 1, ..ONE_GIVEN_UP })]
    {
        if lacking == "patch" {
            stand.grant(NOBODY, "create").await;
        }
        let log = Log::keep();
        let recording = stand.recording_as(NOBODY, BroadcasterOptions::default()).await;
        // What may be created is refused when it repeats.
        for _ in 0..counts.total() {
            let web = pod_in("default", "web-0");
            recording.recorder.event(&web, EventType::Warning, "BackOff", "restarting app");
        }
        let report = recording.broadcaster.shutdown().await;

        assert_eq!(report.sinks, [counts]);
        assert!(!report.is_complete());
        let line = log.only_line();
        assert_eq!((text(&line, "level"), text(&line, "reason")), ("ERROR", "BackOff"));
        assert!(text(&line, "event").starts_with("default/web-0."), "{line}");
        let error = format!(r#"User "{NOBODY}" cannot {lacking} resource "events""#);
        assert!(text(&line, "error").contains(&error), "{line}");
        assert!(text(&line, "hint").contains("verbs create and patch"), "{line}");
        let there: Vec<_> = stand.events().iter().map(|event| event.count).collect();
        assert_eq!(there, vec![Some(1); counts.written as usize]);
    }
}

#[tokio::test]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn a_namespace_that_goes_takes_no_new_event_and_nobody_is_alarmed() {
    let stand = Stand::set().await;
    stand.kubectl(&["create", "namespace", "leaving"]);
    let recording = stand.recording(BroadcasterOptions::default()).await;
    let record = |pod: &str| {
        let pod = pod_in("leaving", pod);
        recording.recorder.event(&pod, EventType::Normal, "Killing", "stopping app");
    };
    record("web-0");
    until("it is written", async || recording.running.counts().written == 1).await;

    // Who would empty it is the namespace controller, which does not run here: so it stays like that.
    stand.kubectl(&["delete", "namespace", "leaving", "--wait=false"]);
    until("the API server's admission has heard of it", async || {
        let probe = ["create", "configmap", "probe", "--namespace=leaving", "--dry-run=server"];
        kubectl(&stand.admin).args(probe).output().is_ok_and(|answer| !answer.status.success())
    })
    .await;
    let log = Log::keep();
    record("web-0");
    record("web-1");
    let report = recording.broadcaster.shutdown().await;

    // A repeat makes nothing new.
    assert_eq!(report.sinks, [SinkCounts { written: 2, ..ONE_GIVEN_UP }]);
    let line = log.only_line();
    assert_eq!((text(&line, "level"), text(&line, "reason")), ("DEBUG", "Killing"));
    assert!(text(&line, "event").starts_with("leaving/web-1."), "{line}");
    assert_eq!(text(&line, "why"), "its namespace is being deleted");
    let counts: Vec<_> = stand.events().iter().map(|event| event.count).collect();
    assert_eq!(counts, [Some(2)]);
}
