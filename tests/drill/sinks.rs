//! The stage of the sink drills: the in-process API server, one bridge, and several sinks of which
//! each has a fault of its own, at the same time, beside one that has none.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidings_testkit::api_server::{ApiServer, Options};
use tokio::time::sleep;

use crate::accounts;
use crate::bridge::Bridge;
use crate::frame::{Row, Run};
use crate::judge::{self, Arrival, Key, Verdict};
use crate::load::{Record, Writer, Writing};
use crate::nasty::NastyWebhook;
use crate::parts::Part as _;
use crate::wait::{until, until_within};
use tidings_testkit::ledger::{Ledger, SharedLedger};

/// How long it may take until a fault shows, and until everything has arrived once it is gone, on a
/// busy machine.
const PATIENCE: Duration = Duration::from_mins(10);

/// How often the reason of a lasting fault may change: a connection refused, cut, and in time.
const CHANGES: u64 = 12;

/// The sink without a fault.
const WELL: &str = "well";

/// See the [module](self).
pub(crate) struct Stage {
    // First, so that it ends before what it is connected to.
    pub(crate) bridge: Bridge,
    pub(crate) record: Record,
    server: Arc<ApiServer>,
    well: NastyWebhook,
    run: Run,
    _folder: TempDir,
}

impl Stage {
    /// Starts everything but the bridge. To the sinks, each as it is configured, comes the well one.
    pub(crate) async fn set(mut sinks: Value, run: Run) -> Self {
        let server = Arc::new(ApiServer::start(Options::default()).expect("a port"));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig()).expect("the kubeconfig");
        let well = NastyWebhook::start(None).await;
        sinks[WELL] = json!({"webhook": {"url": well.url()}});
        for sink in sinks.as_object_mut().expect("a map of sinks").values_mut() {
            // After a fault a drill does not wait for half a minute.
            sink["retry"] = json!({"max": run.size("5s", "1s")});
            sink["correlate"] = json!({"mode": "annotate"});
        }
        let bridge = Bridge::new(&kubeconfig, &sinks);
        Self { bridge, record: Record::default(), server, well, run, _folder: folder }
    }

    /// Starts the bridge and a load, and waits until all sinks are served.
    pub(crate) async fn open(&mut self, rate: u32, ledgers: &[&SharedLedger]) -> Writing {
        self.bridge.launch().await;
        until("a stream is open", async || self.bridge.readiness().await.0).await;
        let writing = self.write(rate);
        until_within(PATIENCE, "events arrive everywhere", async || {
            ledgers.iter().all(|ledger| ledger.distinct() >= 20)
        })
        .await;
        writing
    }

    /// Starts to write so many events a second.
    pub(crate) fn write(&self, rate: u32) -> Writing {
        Writing::start(Writer::new(&self.server, &self.record, self.run.seed), rate)
    }

    /// Waits until so many events have arrived at a sink. What is acknowledged may yet be on its
    /// way through a part to the one who reads it.
    pub(crate) async fn has_arrived(&self, sink: &str, ledger: &SharedLedger, events: usize) {
        let what = format!("{events} events have arrived at {sink}");
        until_within(PATIENCE, &what, async || ledger.distinct() >= events).await;
    }

    /// Writes an Event for each of these messages, which are so many bytes long.
    pub(crate) fn write_large(&self, messages: &[usize]) {
        let mut writer = Writer::new(&self.server, &self.record, !self.run.seed);
        for bytes in messages {
            writer.write_alone("Large", &"x".repeat(*bytes));
        }
    }

    /// Waits until a sink is in this state with such a reason, and answers what it says.
    pub(crate) async fn shows(&self, sink: &str, state: &str, words: &str) -> String {
        let mut last = Value::Null;
        let what = format!("{sink} is {state}: {words}");
        let shown = async {
            until_within(PATIENCE, &what, async || {
                last = self.bridge.sink(sink).await;
                let says = last["lastError"].as_str().unwrap_or_default();
                last["state"] == state && says.contains(words)
            })
            .await;
        };
        shown.await;
        last["lastError"].as_str().unwrap_or_default().to_owned()
    }

    /// Lets the faults last, and sees to it that the well sink goes on as if there were none:
    /// before any is mended it has all that was produced.
    pub(crate) async fn the_well_goes_on(&self, lasts: Duration) {
        let began = Instant::now();
        while began.elapsed() < lasts {
            let sink = self.bridge.sink(WELL).await;
            assert_eq!(sink["state"], "healthy", "{sink}");
            sleep(Duration::from_millis(500)).await;
        }
        self.has_arrived(WELL, &self.well.ledger, self.record.len()).await;
    }

    /// Waits until every event has a fate at every sink and each is healthy.
    pub(crate) async fn settle(&self) {
        let produced = self.record.len() as u64;
        accounts::settle(&self.bridge, produced).await;
        until_within(PATIENCE, "every sink is healthy", async || {
            let status = self.bridge.status().await;
            accounts::sinks_of(&status).iter().all(|sink| sink["state"] == "healthy")
        })
        .await;
    }

    /// Judges what a sink received: all of it, in order, but for what it refused and the bridge has
    /// counted as dead-lettered. `unanswered` may have come twice.
    pub(crate) async fn judge(&self, sink: &str, ledger: &SharedLedger, doubts: Doubts) -> Verdict {
        self.is_said_and_not_shouted(sink, doubts.refused);
        self.has_arrived(sink, ledger, self.record.len() - doubts.refused as usize).await;
        let verdict = {
            let ledger = ledger.lock();
            assert!(ledger.complaints.is_empty(), "{sink} complains: {:?}", ledger.complaints);
            let mut told = HashMap::<&str, &str>::new();
            for delivery in &ledger.deliveries {
                let first = *told.entry(&delivery.id).or_insert(&delivery.body);
                assert_eq!(first, delivery.body, "{sink}: a repeat is the same as the first");
            }
            judge::judge(&self.record.lock(), &arrivals(&ledger))
        };
        let status = self.bridge.sink(sink).await;
        verdict.is_honest(sink);
        accounts::add_up(&status, &verdict, verdict.produced..=verdict.produced);
        assert_eq!(status["lost"], 0, "{sink}: {status}");
        assert_eq!(status["deadLettered"], doubts.refused, "{sink}: {status}");
        assert_eq!(verdict.missing, doubts.refused, "{sink}: {verdict}");
        verdict.misses_one_increment_each(sink);
        let may = doubts.unanswered as u64;
        assert!(verdict.repeated <= may, "{sink}: at most {may} may come twice: {verdict}");
        verdict
    }

    /// A fault that lasts is said when it begins and when it changes, and each refusal once. What
    /// is said at each attempt nobody reads.
    fn is_said_and_not_shouted(&self, sink: &str, refused: u64) {
        let loud = |line: &&Value| line["level"] == "WARN" || line["level"] == "ERROR";
        let log = self.bridge.log();
        let said: Vec<&Value> = log.iter().filter(|l| l["sink"] == sink).filter(loud).collect();
        assert!(said.len() as u64 <= refused + CHANGES, "{sink}: {said:#?}");
    }

    /// The row of the well sink: what it had during the faults, and how fast.
    pub(crate) async fn well_row(&self, began: Instant, over: Over) -> Row {
        let doubts = Doubts { refused: 0, unanswered: self.well.unanswered() };
        let verdict = self.judge(WELL, &self.well.ledger, doubts).await;
        let arrivals = arrivals(&self.well.ledger.lock());
        let during = judge::delays(&self.record.lock(), &arrivals, (began, over.at));
        let millis = |of: Option<&Duration>| of.map_or(0.0, |delay| delay.as_secs_f64() * 1000.0);
        let notes = format!(
            "during the faults {} events, half of them within {:.0} ms, all within {:.0} ms",
            during.len(),
            millis(during.get(during.len() / 2)),
            millis(during.last()),
        );
        Row { notes, ..verdict.row("none", WELL) }
    }

    /// How long after a moment a sink had all that had been produced until then.
    pub(crate) fn caught_up(&self, ledger: &SharedLedger, over: Over) -> Option<Duration> {
        let ledger = ledger.lock();
        let mut first = HashMap::<Key, Instant>::new();
        for delivery in &ledger.deliveries {
            first.entry(Key::of(&delivery.id)).or_insert(delivery.at);
        }
        let record = self.record.lock();
        let arrived = record[..over.produced].iter().filter_map(|one| first.get(&one.id));
        arrived.max().map(|last| last.saturating_duration_since(over.at))
    }

    /// The faults end now.
    pub(crate) fn over(&self) -> Over {
        Over { at: Instant::now(), produced: self.record.len() }
    }
}

/// What a ledger holds, in the judge's terms.
fn arrivals(ledger: &Ledger) -> Vec<Arrival> {
    ledger.deliveries.iter().map(Arrival::from).collect()
}

/// What may differ from everything once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doubts {
    /// Events that the receiver refused for good.
    pub(crate) refused: u64,
    /// Events that were taken without an answer, so they may come again.
    pub(crate) unanswered: usize,
}

/// The end of a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over {
    at: Instant,
    /// How many versions had been produced.
    produced: usize,
}
