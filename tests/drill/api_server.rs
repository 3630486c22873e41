//! An API server that goes away in every manner and comes back with its history whole: nothing is
//! lost, nothing is repeated, and no gap is stated.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::cluster::{BEARER, Stage};
use crate::frame::{Company, Drill, Page, Row, Run};
use crate::nasty::Way;
use crate::parts::{ApiServerOptions, Part as _};
use crate::wait::until_within;

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "api-server",
    what: "an API server that restarts, breaks off, falls silent, turns away, changes certificate and \
           token: nothing is lost, no gap is stated, and the status says what is going on",
    full: "seven faults one after the other, 30 s to 150 s each, at 40/s",
    short: Some("five of them, a few seconds each, at 40/s"),
    company: Company::Any,
    long: false,
    run: |run| Box::pin(api_server(run)),
}];

/// Longer than a watch may be closed before `/readyz` says so.
const NOT_READY: Duration = Duration::from_secs(75);
/// After it a fault has been noticed, or is gone.
const PATIENCE: Duration = Duration::from_mins(5);

/// A fault that was played, and what the bridge said.
struct Played {
    prefix: &'static str,
    fault: String,
    over: Instant,
    said: String,
}

async fn api_server(run: Run) -> Page {
    let mut stage = Stage::set(ApiServerOptions::default(), |config| {
        config["source"]["heartbeat"] = "30s".into();
    })
    .await;
    // It has a Pod, so it has a heartbeat.
    stage.bridge.be_the_pod("default", "tidings-0");
    stage.open().await;
    let began = stage.write("before", Duration::from_secs(2)).await;
    began.finish(&stage.truth).await;
    stage.all_has_arrived().await;

    let mut played = vec![
        restarted(&mut stage, run).await,
        cut(&stage, run.size(20, 2)).await,
        certificate(&stage).await,
        storm(&stage, run, "too-many", "429 Too Many Requests", "too many requests").await,
        storm(&stage, run, "unavailable", "503 Service Unavailable", "shutting down").await,
    ];
    if !run.short {
        played.push(dark(&stage).await);
        played.push(token(&mut stage).await);
    }

    stage.all_has_arrived().await;
    let (status, verdict) = stage.end().await;
    verdict.lost_nothing("pager");
    for nothing in ["gaps", "epochs", "skippedIncrements"] {
        assert_eq!(status["ingest"][nothing], 0, "{status}");
    }
    assert_eq!(verdict.repeated, 0, "{verdict}");
    let rows = played.into_iter().map(|Played { prefix, fault, over, said }| {
        let row = stage.row(prefix, &fault, over);
        Row { notes: said, ..row }
    });
    Page::Rows(rows.collect())
}

/// Ends in order, and comes back; then without a farewell, and is missed.
async fn restarted(stage: &mut Stage, run: Run) -> Played {
    let writing = stage.write("restart", Duration::from_secs(5)).await;
    if !run.short {
        stage.cluster.server.restart().await;
        stage.watches().await;
    }
    stage.cluster.server.kill9();
    let said = stage.says("cannot ").await;
    stage.cluster.server.launch().await;
    let over = Instant::now();
    writing.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    let fault = run.size("restarted, then killed", "killed").to_owned();
    Played { prefix: "restart", fault, over, said: format!("“{said}”") }
}

/// Connections that break off in the middle of a line.
async fn cut(stage: &Stage, times: usize) -> Played {
    let writing = stage.write("cut", Duration::from_secs(times as u64 + 3)).await;
    for _ in 0..times {
        stage.front.cut_a_line();
        until_within(PATIENCE, "a line is cut", async || stage.front.has_cut()).await;
        stage.watches().await;
    }
    let over = Instant::now();
    writing.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    let log = stage.bridge.log();
    let warned = log.iter().rfind(|line| line["message"] == "the API server cannot be followed");
    let said = format!("“{}”", warned.expect("it is said")["error"].as_str().unwrap_or_default());
    Played { prefix: "cut", fault: format!("cut in mid-line {times} times"), over, said }
}

/// No packet comes through, and none says so. Connections of before stay dead for ever.
async fn dark(stage: &Stage) -> Played {
    const LASTS: Duration = Duration::from_secs(150);
    let writing = stage.write("dark", LASTS + Duration::from_secs(3)).await;
    stage.front.set(Way::Dark);
    let began = Instant::now();
    let status = stage.says("cannot ").await;
    let said = format!("after {:.0} s “{status}”", began.elapsed().as_secs_f64());
    let why = stage.is_not_ready("cannot ").await;
    let said = format!("{said}; /readyz after {:.0} s “{why}”", began.elapsed().as_secs_f64());
    sleep(LASTS.saturating_sub(began.elapsed())).await;
    stage.front.set(Way::Open);
    let over = Instant::now();
    writing.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    let fault = format!("black hole for {} s", over.duration_since(began).as_secs());
    Played { prefix: "dark", fault, over, said }
}

/// Another certificate of the same authority.
async fn certificate(stage: &Stage) -> Played {
    let writing = stage.write("certificate", Duration::from_secs(3)).await;
    stage.front.show(stage.authority.valid());
    let over = Instant::now();
    writing.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    let fault = "server certificate changed".to_owned();
    Played { prefix: "certificate", fault, over, said: String::new() }
}

/// Everything is turned away.
async fn storm(
    stage: &Stage,
    run: Run,
    prefix: &'static str,
    status: &'static str,
    message: &str,
) -> Played {
    let lasts = run.size(NOT_READY, Duration::from_secs(3));
    let writing = stage.write(prefix, lasts + Duration::from_secs(2)).await;
    let (began, before) = (Instant::now(), stage.front.answered());
    stage.front.set(Way::Answer(format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\nretry-after: 1\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{message}",
        message.len(),
    )));
    let (code, _) = status.split_once(' ').expect("a code");
    let mut said = format!("“{}”", stage.says(code).await);
    sleep(lasts.saturating_sub(began.elapsed())).await;
    if !run.short {
        said = format!("{said}; /readyz “{}”", stage.is_not_ready(code).await);
    }
    stage.front.set(Way::Open);
    let (over, asked) = (Instant::now(), stage.front.answered() - before);
    let stormed = over.duration_since(began).as_secs();
    assert!(asked as u64 <= 20 + 4 * stormed, "asked {asked} times in {stormed} s");
    writing.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    let fault = format!("{status} for {stormed} s");
    Played { prefix, fault, over, said: format!("{said}; asked {asked} times") }
}

/// The token of before is not good any more, and its file is replaced.
async fn token(stage: &mut Stage) -> Played {
    let writing = stage.write("token", Duration::from_secs(80)).await;
    stage.cluster.server.change_token(BEARER, "new");
    stage.cluster.server.restart().await;
    let said = stage.says("401").await;
    stage.access.give_token("new");
    let over = Instant::now();
    writing.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    let fault = "token refused, then its file replaced".to_owned();
    Played { prefix: "token", fault, over, said: format!("“{said}”") }
}
