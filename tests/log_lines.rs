//! How much the log says of many refused events.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "bridge/support.rs"]
#[expect(dead_code, reason = "shared with the bridge's tests, which use more of it")]
mod support;

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::Value;
use tidings::{
    bridge::{BatchOptions, FailureClass, Outcome, Secrets},
    demo::api_server::EventObject,
};

use crate::support::{
    MemorySink, Setup, Tuning, create_until, invalid, retry, server, settled, sink_status, stop,
    until,
};

/// So many are refused,
const REFUSED: u64 = 200;
/// and so many are taken with a warning.
const WARNED: u64 = 1000;

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn locked(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap()
    }

    /// The lines with these words.
    fn lines(&self, words: &str) -> Vec<Value> {
        let text = String::from_utf8(self.locked().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["message"].as_str().is_some_and(|m| m.contains(words))).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.locked().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_refused_events_are_a_handful_of_lines_whose_counts_add_up() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone()).init();
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    sink.refuse(|event| event.envelope.contains("poison").then(|| invalid("no")));
    // One that takes events and does not, by turns.
    let (flapping, calls) = (MemorySink::default(), AtomicU64::default());
    flapping.refuse(move |_| {
        let calls = calls.fetch_add(1, Ordering::Relaxed);
        calls.is_multiple_of(4).then(|| retry(FailureClass::Unavailable))
    });
    let batch = BatchOptions { events: 1, ..BatchOptions::default() };
    let one_by_one = Tuning { batch, ..Tuning::default() };
    let setup = Setup::new(&server, dir.path()).sink("a", &sink);
    let bridge = setup.tuned("flapping", &flapping, one_by_one).start().await;
    for n in 0..REFUSED {
        let event = EventObject::about_pod("loud", &format!("web-{n}"), "A", "poison");
        server.create(event).unwrap();
    }
    let view = bridge.view();
    let given_up = || sink_status(&view, "a").dead_lettered == REFUSED;
    let others = create_until(&server, "dead letters", given_up).await;
    settled(&view, "a", REFUSED + others).await;
    let events = |line: &Value| line.get("events").map_or(1, |events| events.as_u64().unwrap());
    let told = || -> u64 {
        let lines = log.lines("the receiver refuses an event: dead-lettered");
        lines.iter().map(events).sum()
    };
    until("all of them are told", || told() == REFUSED).await;
    let lines = log.lines("the receiver refuses an event: dead-lettered");
    // One a second, on a machine of any speed.
    assert!(lines.len() < 100, "{} lines", lines.len());
    assert!(lines[0]["id"].is_string() && lines[0]["reason"].is_string(), "{}", lines[0]);

    // Nor does a receiver that takes everything decide how much is logged.
    let warning = || Outcome::Partial { rejected: 0, reason: Secrets::none().reason("soon full") };
    sink.answer((0..WARNED).map(|_| warning()));
    for n in 0..WARNED {
        server.create(EventObject::about_pod("shop", &format!("db-{n}"), "A", "fine")).unwrap();
    }
    let status = settled(&view, "a", REFUSED + others + WARNED).await;
    assert_eq!((status.delivered, status.dead_lettered), (others + WARNED, REFUSED));
    let warned = || -> u64 {
        let lines = log.lines("the receiver took all events, with a warning");
        lines.iter().map(events).sum()
    };
    until("all warnings are told", || warned() >= WARNED).await;
    let lines = log.lines("the receiver took all events, with a warning");
    assert!(lines.len() < 100, "{} lines", lines.len());
    assert_eq!((&lines[0]["sink"], &lines[0]["warning"]), (&"a".into(), &"soon full".into()));

    // Nor one that is there and away by turns.
    settled(&view, "flapping", REFUSED + others + WARNED).await;
    for words in ["the sink does not take events", "the sink takes events again"] {
        let lines = log.lines(words);
        assert!((1..100).contains(&lines.len()), "{} lines: {words}", lines.len());
    }
    stop(bridge).await;
}
