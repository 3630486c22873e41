//! Everything that takes part in a demo, and the account of it.

use std::{
    fmt::Write as _,
    fs::Permissions,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidings_testkit::{
    api_server::{ApiServer, Options},
    ledger::SharedLedger,
    receiver::{HttpReceiver, KafkaReceiver, MockKafka, OtlpReceiver, Step, deliveries},
    story::tell,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{Action, DemoError, bridge::BridgeProcess};

/// The sinks, each with its kind.
const NAMES: [(&str, &str); SINKS] = [("audit", "kafka"), ("otel", "otlp"), ("pager", "webhook")];
pub(super) const SINKS: usize = 3;

/// The rate shown is of so long a time.
const RATE_OVER: Duration = Duration::from_secs(2);
/// A sink that is so far behind is catching up.
const BEHIND: Duration = Duration::from_secs(1);
const TOPIC: &str = "k8s-events";
/// The largest request of the collector, in bytes.
const LARGEST: usize = 16 << 20;

/// The writes, which are the truth that the sinks are held against.
#[derive(Default)]
struct Written {
    ids: Vec<(String, Instant)>,
    delta: u64,
}

/// A sink as the demo knows it.
#[derive(Clone)]
struct Sink {
    ledger: SharedLedger,
    /// The receiver takes nothing.
    is_down: Arc<AtomicBool>,
}

impl Sink {
    fn new() -> Self {
        Self { ledger: SharedLedger::of_sums(), is_down: Arc::default() }
    }

    fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }
}

/// The receivers; each stops listening when it is dropped.
struct Receivers {
    // The reader before its broker.
    _reader: KafkaReceiver,
    kafka: MockKafka,
    otlp: OtlpReceiver,
    webhook: HttpReceiver,
}

impl Receivers {
    fn start([audit, otel, pager]: &[Sink; SINKS]) -> Result<Self, DemoError> {
        let kafka = MockKafka::start(TOPIC).map_err(DemoError::start("Kafka"))?;
        let reader = KafkaReceiver::read(kafka.brokers(), TOPIC, audit.ledger.clone());
        let (otel, pager) = (otel.clone(), pager.clone());
        let otlp = OtlpReceiver::start(
            LARGEST,
            Box::new(move |request| {
                if otel.is_down() {
                    return Err(tonic::Status::unavailable("the collector is down for the demo"));
                }
                otel.ledger.take(deliveries(request.get_ref()));
                Ok(ExportLogsServiceResponse::default())
            }),
        );
        let webhook = HttpReceiver::start(move |_, request| {
            let status = if pager.is_down() {
                "503 Service Unavailable"
            } else {
                pager.ledger.take_envelopes(&request.body);
                "204 No Content"
            };
            vec![Step::answer(status, "", "")]
        });
        Ok(Self {
            _reader: reader.map_err(DemoError::start("the reader of Kafka"))?,
            kafka,
            otlp: otlp.map_err(DemoError::start("the collector"))?,
            webhook: webhook.map_err(DemoError::start("the webhook"))?,
        })
    }
}

/// The configuration of the README with two changes: every sink gets every event, so that the end can look for all of
/// them, and a retry waits 2 s at most.
fn three_sinks() -> std::io::Result<Value> {
    let file = include_str!("../../config/three-sinks.yaml");
    let mut config: Value = serde_saphyr::from_str(file).map_err(std::io::Error::other)?;
    for sink in config["sinks"].as_object_mut().into_iter().flat_map(|sinks| sinks.values_mut()) {
        sink["match"] = "true".into();
        sink["correlate"] = json!({"mode": "annotate"});
        sink["retry"] = json!({"max": "2s"});
    }
    Ok(config)
}

/// The last words, and the failure, if there is one.
pub(super) struct Summary {
    pub(super) lines: Vec<String>,
    pub(super) wrong: Option<String>,
}

/// See the [module](self).
pub(super) struct Stage {
    server: Arc<ApiServer>,
    written: Arc<Mutex<Written>>,
    sinks: [Sink; SINKS],
    receivers: Receivers,
    bridge: BridgeProcess,
    kills: u32,
    outages: u32,
    ended_well: bool,
    /// Goes with the stage: configuration, journal and log of the bridge.
    _dir: TempDir,
}

impl Stage {
    /// Starts every part.
    pub(super) fn set(seed: u64) -> Result<Self, DemoError> {
        let server = ApiServer::start(Options { seed, ..Options::default() })
            .map_err(DemoError::start("the API server"))?;
        let sinks = std::array::from_fn(|_| Sink::new());
        let receivers = Receivers::start(&sinks)?;
        let prepare = || {
            let for_us_alone = Permissions::from_mode(0o700);
            let dir = tempfile::Builder::new()
                .prefix("tidings-demo-")
                .permissions(for_us_alone)
                .tempdir()?;
            let status = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
            let kubeconfig = dir.path().join("kubeconfig");
            std::fs::write(&kubeconfig, server.kubeconfig())?;
            let mut config = three_sinks()?;
            config["source"] = json!({"kubeconfig": kubeconfig});
            config["journal"]["path"] = json!(dir.path().join("journal"));
            config["server"] = json!({"listen": status});
            let sinks = &mut config["sinks"];
            let brokers = receivers.kafka.brokers();
            sinks["audit"]["kafka"] = json!({"brokers": [brokers], "topic": TOPIC});
            sinks["otel"]["otlp"]["endpoint"] = receivers.otlp.url().into();
            sinks["pager"]["webhook"]["url"] = receivers.webhook.url("http").into();
            std::fs::write(dir.path().join("tidings.yaml"), config.to_string())?;
            Ok::<_, std::io::Error>((dir, status))
        };
        let (dir, status) = prepare().map_err(DemoError::start("the bridge"))?;
        let bridge = BridgeProcess::start(dir.path(), &status)?;
        Ok(Self {
            server: Arc::new(server),
            written: Arc::default(),
            sinks,
            receivers,
            bridge,
            kills: 0,
            outages: 0,
            ended_well: true,
            _dir: dir,
        })
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to tell stories; aborting the task ends them.
    pub(super) fn tell(&self, seed: u64, rate: f64) -> JoinHandle<()> {
        let (server, written) = (Arc::clone(&self.server), Arc::clone(&self.written));
        tokio::spawn(async move {
            // A list has one version of each Event: all are seen only once the bridge watches.
            while server.open_watches_of("events") == 0 {
                sleep(Duration::from_millis(10)).await;
            }
            tell(&server, seed, rate, |done, delta| {
                let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
                written.ids.push((done.id(), Instant::now()));
                written.delta += delta;
            })
            .await;
        })
    }

    /// Does what the script says.
    pub(super) async fn act(&mut self, action: Action) -> Result<(), DemoError> {
        match action {
            Action::TakeDown(sink) => {
                self.outages += 1;
                self.sinks[sink].is_down.store(true, Ordering::Relaxed);
                // A broker has no answer that says so.
                if sink == 0 {
                    self.receivers.kafka.take_down().await;
                }
            }
            Action::BringBack(sink) => {
                self.sinks[sink].is_down.store(false, Ordering::Relaxed);
                if sink == 0 {
                    self.receivers.kafka.bring_back().await;
                }
            }
            Action::Kill => {
                self.kills += 1;
                self.bridge.kill().await;
            }
            Action::Restart => self.bridge.restart()?,
        }
        Ok(())
    }

    /// Brings back everything that is down.
    pub(super) async fn restore(&mut self) -> Result<(), DemoError> {
        for sink in 0..SINKS {
            if self.sinks[sink].is_down() {
                self.act(Action::BringBack(sink)).await?;
            }
        }
        if !self.bridge.is_running() {
            self.act(Action::Restart).await?;
        }
        Ok(())
    }

    /// Whether every sink has everything.
    pub(super) fn is_settled(&self) -> bool {
        let written = self.written().ids.len();
        self.sinks.iter().all(|sink| sink.ledger.distinct() >= written)
    }

    /// Ends the bridge as a stop of its Pod would.
    pub(super) async fn end(&mut self) {
        self.ended_well = self.bridge.end().await;
    }

    /// A line on how everything does.
    pub(super) async fn line(&self, uptime: Duration) -> String {
        let status = self.bridge.sinks().await;
        let (written, now) = (self.written(), Instant::now());
        let recent = written.ids.iter().rev().take_while(|(_, at)| now - *at < RATE_OVER).count();
        let rate = recent as f64 / RATE_OVER.min(uptime).as_secs_f64().max(0.1);
        let (minutes, seconds) = (uptime.as_secs() / 60, uptime.as_secs() % 60);
        let mut line = format!("{minutes}:{seconds:02} written {} {rate:.0}/s", written.ids.len());
        for ((name, _), sink) in NAMES.iter().zip(&self.sinks) {
            let tally = sink.ledger.lock().tally();
            // In order, so the first that has not come is as old as the one in its place.
            let oldest = usize::try_from(tally.distinct).ok().and_then(|n| written.ids.get(n));
            let lag = oldest.map_or(Duration::ZERO, |(_, at)| now - *at);
            let state = status.iter().find(|status| status.name == *name);
            let state = match state.map(|status| status.state.as_str()) {
                Some("healthy") if lag > BEHIND => "catching up",
                Some("healthy") => "live",
                Some(state @ ("retrying" | "misconfigured")) => state,
                _ => "waiting",
            };
            // Writing to a string cannot fail.
            let _ = write!(line, " | {name} {state} {}", tally.distinct);
            if tally.repeated > 0 {
                let _ = write!(line, " repeated {}", tally.repeated);
            }
            let behind = (written.ids.len() as u64).saturating_sub(tally.distinct);
            if behind > 0 {
                let lag = match lag.as_millis() {
                    ms @ 0..1000 => format!("{ms} ms"),
                    _ => format!("{:.1} s", lag.as_secs_f64()),
                };
                let _ = write!(line, " behind {behind} lag {lag}");
            }
        }
        for ((name, _), _) in NAMES.iter().zip(&self.sinks).filter(|(_, sink)| sink.is_down()) {
            let _ = write!(line, " | {name} is down; its events wait in the journal");
        }
        if !self.bridge.is_running() {
            line += " | the bridge was killed (kill -9); the API server keeps what comes";
        }
        line
    }

    /// Holds what arrived against what was written.
    pub(super) fn summary(&self, told_to_end: bool) -> Summary {
        let written = self.written();
        let mut lines = vec![format!(
            "{} events were written; {} outage(s) of a sink, {} kill(s) of the bridge",
            written.ids.len(),
            self.outages,
            self.kills
        )];
        let mut wrong = Vec::new();
        if written.ids.is_empty() && !told_to_end {
            wrong.push("the bridge did not watch, so no event was written".to_owned());
        }
        for ((name, kind), sink) in NAMES.iter().zip(&self.sinks) {
            let ledger = sink.ledger.lock();
            let tally = ledger.tally();
            let lost = written.ids.iter().filter(|(id, _)| !ledger.ids.contains(id)).count();
            lines.push(format!(
                "  {name:<6} {kind:<8} arrived {}, lost {lost}, repeated under the same id {}, out of order {}, increments {} of {}",
                tally.distinct, tally.repeated, tally.out_of_order, tally.delta, written.delta
            ));
            if lost > 0 || tally.out_of_order > 0 || tally.delta != written.delta {
                wrong.push(format!("{name} does not have everything, once and in order"));
            }
            if let Some(complaint) = ledger.complaints.first() {
                wrong.push(format!("{name} was sent something else: {complaint}"));
            }
        }
        if !self.ended_well {
            wrong.push("the bridge did not end as it should".to_owned());
        }
        if wrong.is_empty() {
            lines.push("nothing was lost".to_owned());
            return Summary { lines, wrong: None };
        }
        lines.push(format!("the bridge's log ends:\n{}", self.bridge.log_tail()));
        Summary { lines, wrong: Some(wrong.join("; ")) }
    }
}
