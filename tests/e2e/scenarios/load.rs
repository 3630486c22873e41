//! A cluster's worth of Events, with and without a bridge that dies of it.

use std::time::Duration;

use crate::oracle::Expected;
use crate::parts::Part as _;
use crate::stage::{Stage, sinks_of};
use crate::truth::Version;
use crate::wait::until_within;
use crate::writers::{Load, namespaces};

/// For a few thousand writes.
const PATIENCE: Duration = Duration::from_mins(5);

#[tokio::test(flavor = "multi_thread")]
async fn every_version_arrives_at_every_sink_in_order() {
    let mut stage = Stage::set().await;
    stage.bridge.launch().await;
    let load = Load { events: 5_000, repeated: 1_000, rate: 300, ..Load::default() };
    load.write(&stage.cluster.admin().await, &stage.truth).await;
    let scores = stage.finish().await;
    assert!(scores.audit.produced >= load.writes());
    for sink in sinks_of(&scores.status) {
        assert_eq!(sink["delivered"], scores.audit.produced, "{sink}");
        assert_eq!((&sink["redelivered"], &sink["lost"]), (&0.into(), &0.into()), "{sink}");
    }
    // Nothing failed, so nothing had to be sent twice.
    for score in [scores.audit, scores.otel, scores.pager] {
        assert_eq!(score.repeated, 0, "{score:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn a_watch_for_each_namespace_and_otlp_over_http_do_as_well() {
    let mut stage = Stage::set_with(|config, _, collector| {
        config["source"]["namespaces"] = namespaces().to_vec().into();
        config["sinks"]["otel"]["otlp"]["endpoint"] = collector.http_url().into();
        config["sinks"]["otel"]["otlp"]["protocol"] = "http".into();
        config["sinks"]["otel"]["compression"] = "gzip".into();
    })
    .await;
    stage.bridge.launch().await;
    Load::default().write(&stage.cluster.admin().await, &stage.truth).await;
    let within = |versions: &[Version]| Expected::within(&namespaces(), versions);
    let scores = stage.finish_with(within).await;
    let sources = scores.status["sources"].as_array().map(Vec::len);
    assert_eq!(sources, Some(namespaces().len()), "{}", scores.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_is_killed_loses_nothing() {
    let mut stage = Stage::set().await;
    stage.bridge.launch().await;
    let load = Load { events: 5_000, repeated: 1_000, rate: 250, ..Load::default() };
    let writing = load.start(&stage.cluster.admin().await).await;
    for quarter in 1..=3 {
        let at = load.writes() * quarter / 4;
        until_within(PATIENCE, "a quarter is written", async || writing.written() >= at).await;
        stage.bridge.kill9();
        until_within(PATIENCE, "some more is written", async || writing.written() >= at + 200)
            .await;
        stage.bridge.launch().await;
    }
    writing.finish(&stage.truth).await;
    let scores = stage.finish().await;
    for (name, score) in [("audit", scores.audit), ("otel", scores.otel), ("pager", scores.pager)] {
        let sink = sinks_of(&scores.status).iter().find(|sink| sink["name"] == name);
        let sink = sink.expect("a sink of this name");
        assert_eq!(sink["delivered"], score.produced, "{sink}");
        // What it knows to have delivered twice has arrived twice. What was on its way when it was
        // killed it cannot know of.
        let known = sink["redelivered"].as_u64().expect("a number");
        assert!(known as usize <= score.repeated, "{score:?} {sink}");
    }
}
