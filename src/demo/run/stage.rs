//! Everything that takes part in a demo, and the account of it.

use std::{
    collections::VecDeque,
    fs::Permissions,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidings_testkit::{
    api_server::{ApiServer, Options},
    story::{Narrator, tell},
};
use tokio::{task::JoinHandle, time::Instant};

use super::{
    DemoError,
    bridge::{BridgeProcess, SinkStatus},
    script::Action,
};
use crate::demo::{
    picture::{BridgeState, BridgeView, Picture, SinkState, SinkView, SourceView},
    receivers::{KafkaReceiver, OtlpReceiver, Outage, Receiver, WebhookReceiver},
};

/// Stories shown at once.
const STORIES: usize = 5;
/// The rate shown is of so long a time.
const RATE_OVER: Duration = Duration::from_secs(2);
const TOPIC: &str = "k8s-events";

/// What was written, which is the truth that the sinks are held against.
#[derive(Default)]
struct Written {
    ids: Vec<(String, Instant)>,
    delta: u64,
    stories: VecDeque<String>,
}

/// A sink as the demo knows it.
struct Sink {
    name: &'static str,
    kind: &'static str,
    receiver: Box<dyn Receiver>,
    down: bool,
}

/// The configuration of the README with two changes: every sink gets every event, so that the end can look for all of
/// them, and a retry waits 2 s at most.
fn three_sinks() -> std::io::Result<Value> {
    let file = include_str!("../../../config/three-sinks.yaml");
    let mut config: Value = serde_saphyr::from_str(file).map_err(std::io::Error::other)?;
    for sink in config["sinks"].as_object_mut().into_iter().flat_map(|sinks| sinks.values_mut()) {
        sink["match"] = "true".into();
        sink["correlate"] = json!({"mode": "annotate"});
        sink["retry"] = json!({"max": "2s"});
    }
    Ok(config)
}

/// What is said at the end, and what is wrong, if anything is.
pub(super) struct Summary {
    pub(super) lines: Vec<String>,
    pub(super) wrong: Option<String>,
}

/// See the [module](self).
pub(super) struct Stage {
    server: Arc<ApiServer>,
    written: Arc<Mutex<Written>>,
    sinks: Vec<Sink>,
    bridge: BridgeProcess,
    status: Vec<SinkStatus>,
    seed: u64,
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
        let kafka = KafkaReceiver::start(TOPIC).map_err(DemoError::start("Kafka"))?;
        let otlp = OtlpReceiver::start().map_err(DemoError::start("the collector"))?;
        let webhook = WebhookReceiver::start().map_err(DemoError::start("the webhook"))?;
        let failed = DemoError::start("the bridge");
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
            sinks["audit"]["kafka"] = json!({"brokers": [kafka.brokers()], "topic": kafka.topic()});
            sinks["otel"]["otlp"]["endpoint"] = otlp.endpoint().into();
            sinks["pager"]["webhook"]["url"] = webhook.url().into();
            std::fs::write(dir.path().join("tidings.yaml"), config.to_string())?;
            Ok((dir, status))
        };
        let (dir, status) = prepare().map_err(failed)?;
        let bridge = BridgeProcess::start(dir.path(), &status)?;
        let sink = |name, kind, receiver| Sink { name, kind, receiver, down: false };
        Ok(Self {
            server: Arc::new(server),
            written: Arc::default(),
            sinks: vec![
                sink("audit", "kafka", Box::new(kafka) as Box<dyn Receiver>),
                sink("otel", "otlp", Box::new(otlp)),
                sink("pager", "webhook", Box::new(webhook)),
            ],
            bridge,
            status: Vec::new(),
            seed,
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
    pub(super) fn tell(&self, rate: f64) -> JoinHandle<()> {
        let (server, written) = (Arc::clone(&self.server), Arc::clone(&self.written));
        let mut narrator = Narrator::new(self.seed);
        tokio::spawn(async move {
            tell(&server, &mut narrator, rate, |step, done| {
                let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
                written.ids.push((done.id(), Instant::now()));
                written.delta += step.delta;
                if let Some(caption) = &step.caption {
                    let now = Timestamp::now().to_zoned(TimeZone::system());
                    written.stories.push_back(format!("{} {caption}", now.strftime("%H:%M:%S")));
                    if written.stories.len() > STORIES {
                        written.stories.pop_front();
                    }
                }
            })
            .await;
        })
    }

    /// Does what the script says.
    pub(super) async fn act(&mut self, action: Action) -> Result<(), DemoError> {
        match action {
            Action::TakeDown(sink, how) => self.take_down(sink, how).await,
            Action::BringBack(sink) => self.bring_back(sink).await?,
            Action::Kill => {
                self.kills += 1;
                self.bridge.kill().await;
            }
            Action::Restart => self.bridge.restart()?,
            Action::End => {}
        }
        Ok(())
    }

    async fn take_down(&mut self, sink: usize, how: Outage) {
        self.outages += 1;
        self.sinks[sink].down = true;
        self.sinks[sink].receiver.take_down(how).await;
    }

    async fn bring_back(&mut self, sink: usize) -> Result<(), DemoError> {
        self.sinks[sink].down = false;
        let back = self.sinks[sink].receiver.bring_back().await;
        back.map_err(DemoError::start("a sink that was taken down"))
    }

    /// Brings back whatever is down.
    pub(super) async fn restore(&mut self) -> Result<(), DemoError> {
        for sink in 0..self.sinks.len() {
            if self.sinks[sink].down {
                self.bring_back(sink).await?;
            }
        }
        if !self.bridge.is_running() {
            self.bridge.restart()?;
        }
        Ok(())
    }

    /// Asks the bridge how its sinks do.
    pub(super) async fn look(&mut self) {
        self.status = self.bridge.sinks().await;
    }

    /// Whether every sink has everything.
    pub(super) fn is_settled(&self) -> bool {
        let written = self.written().ids.len() as u64;
        self.sinks.iter().all(|sink| sink.receiver.ledger().tally().distinct >= written)
    }

    /// Ends the bridge as a stop of its Pod would.
    pub(super) async fn end(&mut self) {
        self.ended_well = self.bridge.end().await;
    }

    /// What there is to see.
    pub(super) fn picture(&self, uptime: Duration, scene: Option<&str>) -> Picture {
        let written = self.written();
        let now = Instant::now();
        let recent = written.ids.iter().rev().take_while(|(_, at)| now - *at < RATE_OVER).count();
        let sinks = self.sinks.iter().map(|sink| {
            let tally = sink.receiver.ledger().tally();
            let behind = (written.ids.len() as u64).saturating_sub(tally.distinct);
            // In order, so the first that has not come is as old as the one in its place.
            let oldest = usize::try_from(tally.distinct).ok().and_then(|n| written.ids.get(n));
            let lag = oldest.map_or(Duration::ZERO, |(_, at)| now - *at);
            let told = self.status.iter().find(|status| status.name == sink.name);
            let state = match told.map(|status| status.state.as_str()) {
                Some("retrying") => SinkState::Retrying,
                Some("misconfigured") => SinkState::Misconfigured,
                Some("healthy") if lag > Duration::from_secs(1) => SinkState::CatchingUp,
                Some("healthy") => SinkState::Live,
                _ => SinkState::Waiting,
            };
            SinkView {
                name: sink.name.to_owned(),
                kind: sink.kind.to_owned(),
                state,
                delivered: tally.distinct,
                repeated: tally.repeated,
                behind,
                lag,
            }
        });
        Picture {
            uptime,
            source: SourceView {
                written: written.ids.len() as u64,
                rate: recent as f64 / RATE_OVER.min(uptime).as_secs_f64().max(0.1),
                watches: self.server.open_watches(),
                gaps: Vec::new(),
            },
            bridge: BridgeView {
                state: match (self.bridge.is_running(), self.status.is_empty()) {
                    (false, _) => BridgeState::Killed,
                    (true, true) => BridgeState::Starting,
                    (true, false) => BridgeState::Running,
                },
                kills: self.kills,
            },
            sinks: sinks.collect(),
            scene: scene.map(str::to_owned),
            stories: written.stories.iter().cloned().collect(),
        }
    }

    /// Holds what arrived against what was written.
    pub(super) fn summary(&self) -> Summary {
        let written = self.written();
        let mut lines = vec![format!(
            "{} events were written; {} outage(s) of a sink, {} kill(s) of the bridge",
            written.ids.len(),
            self.outages,
            self.kills
        )];
        let mut wrong = Vec::new();
        for sink in &self.sinks {
            let ledger = sink.receiver.ledger();
            let tally = ledger.tally();
            let lost = ledger.missing(written.ids.iter().map(|(id, _)| &**id)).len();
            lines.push(format!(
                "  {:<6} {:<8} arrived {}, lost {lost}, repeated under the same id {}, out of order {}, increments {} of {}",
                sink.name, sink.kind, tally.distinct, tally.repeated, tally.out_of_order, tally.delta, written.delta
            ));
            if lost > 0 || tally.out_of_order > 0 || tally.delta != written.delta {
                wrong.push(format!("{} does not have everything, once and in order", sink.name));
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
