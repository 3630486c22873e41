//! The admin server: what it says of a running bridge, over HTTP.

mod access;
mod bounds;

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;
use tidings::{
    admin::AdminServer,
    bridge::{Failure, FailureClass, Outcome, Secrets},
    config::ServerSettings,
    journal::Letters,
};
use tidings_testkit::api_server::{EventObject, Fault, On};

use crate::support::{self, MemorySink, Setup, Tuning, exchange, invalid, server, stop, until};

/// Waits until something is so.
async fn becomes(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "after a minute still not: {what}");
}

async fn get(admin: &AdminServer, path: &str) -> (u16, String) {
    let answer = reqwest::get(format!("http://{}{path}", admin.address())).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn status(admin: &AdminServer) -> Value {
    serde_json::from_str(&get(admin, "/api/v1/status").await.1).unwrap()
}

fn at(address: &str) -> ServerSettings {
    address.parse::<SocketAddr>().unwrap().into()
}

fn serve(bridge: &tidings::bridge::Bridge) -> AdminServer {
    AdminServer::start(at("127.0.0.1:0"), bridge.view()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_metrics_say_what_became_of_each_event() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (all, warnings) = (MemorySink::default(), MemorySink::default());
    let only_warnings = Tuning { filter: Some("event.type == \"Warning\""), ..Tuning::default() };
    let bridge = Setup::new(&server, dir.path())
        .sink("all", &all)
        .tuned("warnings", &warnings, only_warnings)
        .start()
        .await;
    let admin = serve(&bridge);
    for n in 0..10 {
        let event = EventObject::about_pod("shop", "web-0", "BackOff", &format!("try {n}"));
        server.create(if n < 3 { event.warning() } else { event }).unwrap();
    }
    all.wait_for(10).await;
    warnings.wait_for(3).await;
    let settled = async || {
        let now = status(&admin).await;
        let open = now["sources"][0]["streamOpen"] == true;
        open && (0..2).all(|sink| now["sinks"][sink]["pending"] == 0)
    };
    while !settled().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let now = status(&admin).await;
    assert_eq!(now["cluster"]["name"], "test");
    assert_eq!(now["cluster"]["uid"], "c1d4b1b6-2f3e-4b6e-9d7b-5f0f2b3f8a10");
    assert_eq!(now["sources"][0]["source"], "*");
    assert_eq!(now["sources"][0]["streamOpen"], true);
    assert_eq!(now["ingest"]["events"], 10);
    assert_eq!(now["journal"]["records"], 10);
    let [first, second] = [&now["sinks"][0], &now["sinks"][1]];
    assert_eq!((&first["name"], &first["state"]), (&"all".into(), &"healthy".into()));
    assert_eq!((&first["seen"], &first["delivered"]), (&10.into(), &10.into()));
    assert_eq!((&second["delivered"], &second["filtered"]), (&3.into(), &7.into()));

    let metrics = get(&admin, "/metrics").await.1;
    for line in [
        "tidings_sink_events_total{sink=\"warnings\",fate=\"delivered\"} 3",
        "tidings_sink_events_total{sink=\"warnings\",fate=\"filtered\"} 7",
        "tidings_sink_events_total{sink=\"all\",fate=\"lost\"} 0",
        "tidings_sink_pending{sink=\"all\"} 0",
        "tidings_sink_overrun{sink=\"all\"} 0",
        "tidings_sink_duplicates_total{sink=\"all\"} 0",
        "tidings_sink_truncated_total{sink=\"all\"} 0",
        "tidings_sink_held{sink=\"all\"} 0",
        "tidings_sink_lag_seconds{sink=\"all\"} 0.0",
        "tidings_sink_redelivered_total{sink=\"all\"} 0",
        "tidings_sink_state{sink=\"all\",state=\"healthy\"} 1",
        "tidings_source_gap_seconds_total 0.0",
        "tidings_source_skipped_increments_total 0",
        "tidings_source_events_total 10",
        "tidings_journal_writable 1",
    ] {
        assert!(metrics.lines().any(|have| have == line), "{line} is not in\n{metrics}");
    }
    assert!(metrics.contains("tidings_source_watch_age_seconds{source=\"*\"} "));
    let delivered = "tidings_sink_delivery_seconds_count{sink=\"warnings\"} 3";
    assert!(metrics.lines().any(|line| line == delivered), "{metrics}");
    assert!(metrics.contains("\nprocess_resident_memory_bytes "), "{metrics}");
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_come_in_the_format_that_is_asked_for() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let bridge = Setup::new(&server, dir.path()).start().await;
    let admin = serve(&bridge);
    let url = format!("http://{}/metrics", admin.address());
    for (accept, kind, end) in [
        ("*/*", "text/plain; version=0.0.4; charset=utf-8", false),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            true,
        ),
    ] {
        let request = reqwest::Client::new().get(&url).header("accept", accept);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], kind);
        assert_eq!(answer.text().await.unwrap().ends_with("# EOF\n"), end, "{accept}");
    }
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_means_that_a_stream_is_open_and_not_that_sinks_are_up() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let refused = server.set_fault(On::List, None, Fault::Forbidden);
    let sink = MemorySink::default();
    sink.refuse(|_| {
        let reason = Secrets::none().reason("down");
        Some(Outcome::Failed(Failure::new(FailureClass::Unavailable, reason)))
    });
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    let admin = serve(&bridge);
    assert_eq!(get(&admin, "/livez").await.0, 200);
    let denied = async || {
        let (code, why) = get(&admin, "/readyz").await;
        code == 503 && why.contains("cannot list resource \"events\"")
    };
    while !denied().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.clear_fault(refused);
    server.create(EventObject::about_pod("shop", "web-0", "Started", "")).unwrap();
    becomes("it is ready", async || get(&admin, "/readyz").await.0 == 200).await;
    until("the sink is retried", || bridge.view().sinks.now()[0].snapshot().failed_attempts > 2)
        .await;
    let now = status(&admin).await;
    assert_eq!(now["sinks"][0]["state"], "retrying");
    assert_eq!(now["sinks"][0]["lastError"], "down");
    assert_eq!((&now["sinks"][0]["seen"], &now["sinks"][0]["pending"]), (&1.into(), &1.into()));
    assert_eq!(get(&admin, "/readyz").await.0, 200, "a sink that is down does not count");
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_whose_files_were_taken_away_and_cannot_be_put_back_is_not_ready() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let journal = dir.path().join("journal");
    let sink = MemorySink::default();
    let bridge = Setup::new(&server, &journal).sink("a", &sink).start().await;
    let admin = serve(&bridge);
    server.create(EventObject::about_pod("shop", "web-0", "Started", "")).unwrap();
    becomes("it is ready", async || get(&admin, "/readyz").await.0 == 200).await;
    sink.wait_for(1).await;
    let away = dir.path().join("away");
    std::fs::write(&away, "no directory").unwrap();
    exchange(&journal, &away);
    std::fs::remove_dir_all(&away).unwrap();
    // Though nothing comes that would have to be written.
    let said = async || {
        let (code, why) = get(&admin, "/readyz").await;
        code == 503 && why.contains("its files were taken away") && why.contains("/journal")
    };
    becomes("it is said", said).await;
    assert!(get(&admin, "/metrics").await.1.contains("\ntidings_journal_writable 0\n"));
    assert!(status(&admin).await["journal"]["error"].is_string());
    std::fs::remove_file(&journal).unwrap();
    becomes("it is ready", async || get(&admin, "/readyz").await.0 == 200).await;
    server.create(EventObject::about_pod("shop", "web-1", "Started", "")).unwrap();
    sink.wait_for(2).await;
    assert!(get(&admin, "/metrics").await.1.contains("\ntidings_journal_writable 1\n"));
    assert!(status(&admin).await["journal"]["damage"]["places"].as_u64().unwrap() > 0);
    stop(bridge).await;
}

/// What Prometheus takes for a counter may not go down: it would take that for a restart, and all that
/// there is for new.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_is_delivered_in_the_end_takes_nothing_from_a_counter() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    sink.refuse(|event| event.envelope.contains("poison").then(|| invalid("no")));
    let setup = || Setup::new(&server, dir.path()).sink("a", &sink).start();
    let (bridge, mut counted) = (setup().await, Vec::new());
    let admin = serve(&bridge);
    for message in ["poison", "fine", "poison"] {
        server.create(EventObject::about_pod("shop", "web-0", "BackOff", message)).unwrap();
    }
    let letters = || bridge.view().dead_letters.counts().get("a").map_or(0, |a| a.letters);
    until("both are kept", || letters() == 2).await;
    counted.push(get(&admin, "/metrics").await.1);
    sink.accept_everything();
    let all = Letters::Of { sink: None, class: None };
    assert_eq!(bridge.control().retry(all).await.unwrap(), 2);
    until("both are delivered", || letters() == 0).await;
    counted.push(get(&admin, "/metrics").await.1);
    assert_eq!(status(&admin).await["sinks"][0]["deadLettered"], 0);
    stop(bridge).await;
    let bridge = setup().await;
    let admin = serve(&bridge);
    counted.push(get(&admin, "/metrics").await.1);
    stop(bridge).await;
    for (metrics, (delivered, retried)) in counted.iter().zip([(1, 0), (3, 2), (3, 2)]) {
        for line in [
            "tidings_sink_events_total{sink=\"a\",fate=\"dead-lettered\"} 2".to_owned(),
            format!("tidings_sink_events_total{{sink=\"a\",fate=\"delivered\"}} {delivered}"),
            format!("tidings_sink_retried_total{{sink=\"a\"}} {retried}"),
        ] {
            assert!(metrics.lines().any(|have| have == line), "{line} is not in\n{metrics}");
        }
    }
}

/// A disk that hangs: who opens a pipe to write to it waits until somebody reads.
fn hang(dir: &std::path::Path) -> std::path::PathBuf {
    let pipe = dir.join("positions.json.tmp");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    pipe
}

#[tokio::test]
async fn a_keeper_that_hangs_on_the_disk_is_stuck_and_one_that_gets_on_again_is_not() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    let admin = serve(&bridge);
    // What gathers for a sink reads the log at the start, and ingest is done with the first list.
    becomes("it is ready", async || get(&admin, "/readyz").await.0 == 200).await;
    let pipe = hang(dir.path());
    // The time is the test's from here on.
    tokio::time::pause();
    let stuck = async || {
        let (code, why) = get(&admin, "/livez").await;
        code == 503 && why.starts_with("the keeper is stuck: saving the state, for 1")
    };
    let mut seconds = 0;
    while !stuck().await {
        assert!(seconds < 60, "{:?}", get(&admin, "/livez").await);
        seconds += 1;
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert!(seconds > 10, "{seconds}");
    let parts = status(&admin).await["parts"].clone();
    let keeper = parts.as_array().unwrap().iter().find(|part| part["part"] == "the keeper");
    assert_eq!(keeper.unwrap()["doing"], "saving the state", "{parts}");
    let metrics = get(&admin, "/metrics").await.1;
    for line in ["tidings_stuck{part=\"the keeper\"} 1", "tidings_stuck{part=\"ingest\"} 0"] {
        assert!(metrics.lines().any(|have| have == line), "{line} is not in\n{metrics}");
    }
    assert_eq!(get(&admin, "/readyz").await.0, 200, "that is another question");
    // The disk answers again.
    let aside = dir.path().join("pipe");
    std::fs::rename(&pipe, &aside).unwrap();
    drop(std::fs::File::open(&aside).unwrap());
    tokio::time::resume();
    while get(&admin, "/livez").await.0 != 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_is_an_error_that_says_so() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let bridge = Setup::new(&server, dir.path()).start().await;
    let first = serve(&bridge);
    let error = AdminServer::start(first.address().into(), bridge.view()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen on {}", first.address())), "{error}");
    assert!(error.contains("hint: "), "{error}");
    stop(bridge).await;
}
