//! All that is on the stage of the mixed faults: it does harm, and mends it.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tidings_testkit::api_server::EventObject;
use tokio::time::sleep;

use super::POISON;
use super::harm::{Harm, WITHOUT_POISON};
use super::others::Others;
use crate::crash::kill_start;
use crate::faulty_disk::FaultyDisk;
use crate::load::ALONE;
use crate::nasty::{Access, Authority, Collects, Front, Way};
use crate::parts::Part as _;
use crate::receiver::Mode;
use crate::scripted::{Sink, Stage, three_sinks};
use crate::small_disk::{Full, SmallDisk};
use crate::wait::until_within;

/// The webhook that is away for so long that the journal drops what it has not had. For all others
/// intake stands still instead.
pub(super) const LAGGARD: usize = 3;
/// The one for which it does, when it is away for as long.
const STANDS: usize = 2;
/// How long something may take that depends on what is not hurried here.
const PATIENCE: Duration = Duration::from_mins(5);
/// A Collector takes so much at most, while one is sent more. All of these letters are to find room
/// in a small journal.
const MOST: usize = 64 << 10;

/// See the [module](self).
pub(super) struct Play {
    // First, so that the bridge ends before what it is connected to.
    pub(super) stage: Stage,
    pub(super) others: Others,
    /// What came and went while nobody could see it, and when.
    pub(super) unseen: Vec<Timestamp>,
    /// Events that no Collector may be shown again,
    pub(super) large: Vec<String>,
    /// and how many there were in all.
    pub(super) large_written: u64,
    front: Front,
    authority: Authority,
    tokens: u32,
    full: Vec<Full>,
    read_only: bool,
    sync_is_faulty: bool,
    sync: FaultyDisk,
    disk: SmallDisk,
    access: Access,
}

impl Play {
    /// Sets the stage, and starts the bridge; or says why it cannot.
    pub(super) async fn open(seed: u64, retention: &str) -> Result<Self, String> {
        let disk = SmallDisk::mount("64m")?;
        let (sync, others) = (FaultyDisk::make(), Others::start().await);
        let access = Access::new();
        let mut sinks = three_sinks().await;
        sinks.push(Sink::new("laggard").await);
        let mut stage = Stage::set(sinks, seed, |config| {
            config["source"]["kubeconfig"] = json!(access.kubeconfig());
            config["journal"]["path"] = json!(disk.folder());
            config["journal"]["retention"] = json!({"size": retention});
            for (name, mut sink) in others.config() {
                sink["retry"] = json!({"max": "1s"});
                sink["correlate"] = json!({"mode": "annotate"});
                config["sinks"][name] = sink;
            }
            for (name, sink) in config["sinks"].as_object_mut().expect("a map of sinks") {
                // A receiver that hangs is not waited for as long as it is to hang.
                sink["timeout"] = json!("2s");
                let overflow = if name == "laggard" { "dropOldest" } else { "block" };
                sink["overflow"] = json!(overflow);
            }
        });
        sync.carries(&mut stage.bridge);
        disk.carries(&mut stage.bridge);
        let authority = Authority::new();
        let front = Front::start(stage.server.address(), authority.valid()).await;
        access.lead_to(&front, &authority);
        let mut play = Self {
            stage,
            others,
            unseen: Vec::new(),
            large: Vec::new(),
            large_written: 0,
            front,
            authority,
            tokens: 0,
            full: Vec::new(),
            read_only: false,
            sync_is_faulty: false,
            sync,
            disk,
            access,
        };
        let token = play.next_token();
        play.access.give_token(&token);
        play.front.ask_for(&token);
        play.stage.open().await;
        Ok(play)
    }

    fn next_token(&mut self) -> String {
        self.tokens += 1;
        format!("token-{}", self.tokens)
    }

    /// Does it; what lasts ends with [`Play::heal`].
    pub(super) async fn harm(&mut self, harm: &Harm, absence: Duration) {
        if harm.ends() {
            self.end_and_start(harm, absence).await;
            return;
        }
        let Self { stage, others, .. } = self;
        match harm {
            Harm::Webhook(sink, mode) => stage.sinks[*sink].receiver.set(mode.clone()).await,
            Harm::Poison(sink) => {
                stage.sinks[*sink].receiver.set(Mode::Refuse(400, POISON)).await;
                stage.writer().write_alone("Poison", POISON);
            }
            Harm::Secure(manner) => others.secure.set(manner.clone()),
            Harm::Certificate => others.expire(),
            Harm::Collector(which, collects) => others.collectors[*which].set(*collects),
            Harm::PoisonCollected(which) => {
                others.collectors[*which].set(WITHOUT_POISON);
                stage.writer().write_alone("Poison", POISON);
            }
            Harm::TooLarge(which) => {
                others.collectors[*which].set(Collects::AtMost(MOST));
                let large = stage.writer().write_alone("Large", &"x".repeat(MOST));
                self.large.push(large);
                self.large_written += 1;
            }
            Harm::Kafka(produces) => others.broker.set(*produces),
            Harm::ApiServerAway => stage.server.stop_listening().await,
            Harm::Compaction => {
                stage.server.stop_listening().await;
                sleep(absence).await;
                stage.server.compact(stage.server.revision());
                stage.server.listen_again().expect("the port as before");
            }
            Harm::Connections => stage.server.cut_connections(),
            Harm::MidLine => self.front.cut_a_line(),
            Harm::ApiServerCertificate => self.front.show(self.authority.valid()),
            Harm::Answers(on, fault) => {
                stage.server.set_fault(*on, None, fault.clone());
                stage.server.cut_connections();
            }
            Harm::DiskFull => self.full.push(self.disk.fill()),
            Harm::DiskReadOnly => {
                self.disk.turn_read_only();
                self.read_only = true;
            }
            Harm::Sync(fault) => {
                self.sync.begin(*fault);
                self.sync_is_faulty = true;
            }
            Harm::Kill(_) | Harm::Absence | Harm::AbsenceUnseen | Harm::Stop => {}
        }
    }

    async fn end_and_start(&mut self, harm: &Harm, absence: Duration) {
        let Self { stage, others, unseen, .. } = self;
        match harm {
            Harm::Stop => stage.bridge.stop_in_order().await,
            _ => stage.bridge.kill9(),
        }
        others.forget_waits();
        match harm {
            Harm::Kill(Some(soon)) => {
                kill_start(&mut stage.bridge, *soon).await;
                others.forget_waits();
            }
            Harm::Absence => sleep(absence).await,
            Harm::AbsenceUnseen => {
                sleep(absence / 2).await;
                let ghost = format!("ghost-{}", unseen.len());
                let mut event = EventObject::about_pod(ALONE, &ghost, "Unseen", "nobody sees this");
                event.metadata.name = ghost;
                let name = stage.server.create(event).expect("a new Event").name;
                unseen.push(Timestamp::now());
                stage.server.delete(ALONE, &name).expect("it is there");
                sleep(absence / 2).await;
                stage.server.compact(stage.server.revision());
            }
            _ => {}
        }
        stage.bridge.launch().await;
        // A receiver may have read only now what the one before had sent.
        others.forget_waits();
    }

    /// Mends all but the laggard, of which that is to be said.
    pub(super) async fn heal(&mut self) {
        for sink in &self.stage.sinks[..LAGGARD] {
            sink.receiver.set(Mode::Take).await;
        }
        self.others.heal();
        self.full.clear();
        if std::mem::take(&mut self.read_only) {
            self.disk.turn_writable();
        }
        if std::mem::take(&mut self.sync_is_faulty) {
            self.sync.end();
        }
        self.stage.server.clear_faults();
        self.stage.server.listen_again().expect("the port as before");
        // What stalls or is slow goes on in a new stream.
        self.stage.server.cut_connections();
        self.others.note();
    }

    /// No packet of the API server comes through, and none says so. Connections of before stay dead
    /// for ever.
    pub(super) async fn dark(&self, lasts: Duration) {
        self.front.set(Way::Dark);
        sleep(lasts).await;
        self.front.set(Way::Open);
    }

    /// The token of before is not good any more; after a while there is another in its file. A
    /// client reads that once a minute.
    pub(super) async fn change_token(&mut self) {
        let token = self.next_token();
        self.front.ask_for(&token);
        sleep(Duration::from_secs(5)).await;
        self.access.give_token(&token);
        let server = &self.stage.server;
        until_within(PATIENCE, "the new token is used", async || server.open_watches() > 0).await;
    }

    /// A sink is away until intake stands still for its sake, and for a while after that.
    pub(super) async fn stand_still(&self, lasts: Duration) {
        self.stage.sinks[STANDS].receiver.set(Mode::Down).await;
        until_within(PATIENCE, "intake stands still", async || {
            let status = self.stage.bridge.status().await;
            status["journal"]["blockedBy"].as_array().is_some_and(|by| !by.is_empty())
        })
        .await;
        sleep(lasts).await;
        self.stage.sinks[STANDS].receiver.set(Mode::Take).await;
    }

    /// Whether the laggard is there.
    pub(super) async fn laggard_is(&self, mode: Mode) {
        self.stage.sinks[LAGGARD].receiver.set(mode).await;
    }
}
