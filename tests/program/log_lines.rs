//! How much the log says of many refused events.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::Value;
use tidings::bridge::{BatchOptions, FailureClass, Outcome, Secrets};
use tidings_testkit::api_server::EventObject;

use crate::support::{MemorySink, Setup, Tuning, invalid, retry, server, settled, stop, until};

const PICKY: &str = "log-lines-picky";
const FLAPPING: &str = "log-lines-flapping";
/// So many are refused.
const REFUSED: u64 = 1000;

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn locked(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap()
    }

    /// The lines about the sinks of this test with these words. Other tests in the process log, too.
    fn lines(&self, words: &str) -> Vec<Value> {
        let text = String::from_utf8(self.locked().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let wanted = |line: &Value| {
            [PICKY, FLAPPING].map(Value::from).contains(&line["sink"])
                && line["message"].as_str().is_some_and(|m| m.contains(words))
        };
        lines.filter(wanted).collect()
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
async fn a_thousand_refused_events_are_a_handful_of_lines_whose_counts_add_up() {
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
    let setup = Setup::new(&server, dir.path()).sink(PICKY, &sink);
    let bridge = setup.tuned(FLAPPING, &flapping, one_by_one).start().await;
    for n in 0..REFUSED {
        // Not so many in a row that the sink would be in doubt.
        for message in ["poison", "fine"] {
            let event = EventObject::about_pod("shop", &format!("web-{n}"), "A", message);
            server.create(event).unwrap();
        }
    }
    let status = settled(&bridge.view(), PICKY, 2 * REFUSED).await;
    assert_eq!(status.dead_lettered, REFUSED);
    let events = |line: &Value| line.get("events").map_or(1, |events| events.as_u64().unwrap());
    let told = || -> u64 {
        let lines = log.lines("the receiver refuses an event: dead-lettered");
        lines.iter().map(events).sum()
    };
    until("all of them are told", || told() == REFUSED).await;
    let lines = log.lines("the receiver refuses an event: dead-lettered");
    assert!(lines.len() < 100, "{} lines", lines.len());
    assert!(lines[0]["id"].is_string() && lines[0]["reason"].is_string(), "{}", lines[0]);

    // Nor does a receiver that takes everything decide how much is logged.
    let warning = || Outcome::Partial { rejected: 0, reason: Secrets::none().reason("soon full") };
    sink.answer((0..REFUSED).map(|_| warning()));
    for n in 0..REFUSED {
        server.create(EventObject::about_pod("shop", &format!("db-{n}"), "A", "fine")).unwrap();
    }
    let status = settled(&bridge.view(), PICKY, 3 * REFUSED).await;
    assert_eq!((status.delivered, status.dead_lettered), (2 * REFUSED, REFUSED));
    let warned = || -> u64 {
        let lines = log.lines("the receiver took all events, with a warning");
        lines.iter().map(events).sum()
    };
    until("all warnings are told", || warned() >= REFUSED).await;
    let lines = log.lines("the receiver took all events, with a warning");
    assert!(lines.len() < 100, "{} lines", lines.len());
    assert_eq!((&lines[0]["sink"], &lines[0]["warning"]), (&PICKY.into(), &"soon full".into()));

    // Nor one that is there and away by turns.
    settled(&bridge.view(), FLAPPING, 3 * REFUSED).await;
    for words in ["the sink does not take events", "the sink takes events again"] {
        let lines = log.lines(words);
        assert!((1..100).contains(&lines.len()), "{} lines: {words}", lines.len());
    }
    stop(bridge).await;
}
