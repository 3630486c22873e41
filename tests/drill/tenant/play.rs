//! One scene: the culprit writes among others, and it is looked at what becomes of either.

use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::json;

use super::receiving::{CULPRIT, Receiving, made_by_the_culprit};
use super::scenes::{Fault, Scene};
use crate::accounts::{list_dead_letters, number};
use crate::bridge::Bridge;
use crate::frame::Run;
use crate::judge::{self, Key, Produced, Verdict};
use crate::load::Writer;
use crate::parts::{Kafka, Part as _};
use crate::scripted::Stage;
use crate::wait::until_within;

const SINK: &str = "siem";
/// Mixed events are written in so long.
const MIXED_IN: Duration = Duration::from_secs(5);
/// Before the culprit writes, and while it is judged what became of it.
const QUIET: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_mins(2);

/// The outcome of a scene.
pub(super) struct Played {
    pub(super) scene: Scene,
    pub(super) verdict: Verdict,
    /// How late the others' Events were, half of them and all but one in a hundred.
    pub(super) delays: (Duration, Duration),
    /// The culprit's Events: dead letters and set aside; and waiting, before the fault was mended.
    pub(super) dead_lettered: u64,
    pub(super) set_aside: u64,
    pub(super) queued: u64,
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { delays: (half, most), dead_lettered, set_aside, queued, .. } = self;
        let (half, most) = (half.as_secs_f64(), most.as_secs_f64());
        write!(
            f,
            "others {half:.2} s for half, {most:.1} s for 99 %; {dead_lettered} dead letters, {set_aside} \
             set aside, {queued} queued"
        )
    }
}

/// Events by who has written them.
struct Written {
    /// When the culprit began, and when all ended.
    during: (Instant, Instant),
    /// The ids of the culprit's Events.
    culprits: HashSet<String>,
}

/// Plays it. Panics where a promise is broken.
pub(super) async fn play(scene: Scene, run: Run, kafka: Option<&Kafka>) -> Played {
    let receiver = Receiving::start(&scene, kafka).await;
    let mut stage = Stage::set(Vec::new(), run.seed, |config| {
        let mut sink = receiver.config();
        sink["batch"] = json!({"events": scene.batch});
        sink["concurrency"] = json!(scene.lanes);
        sink["timeout"] = json!(format!("{}s", scene.timeout(run).as_secs()));
        sink["correlate"] = json!({"mode": "annotate"});
        if scene.block {
            sink["overflow"] = json!("block");
            // Of which the culprit has no share that others could want.
            let size = (scene.bytes() * scene.culprits * 8).max(4 << 20) >> 10;
            config["journal"]["retention"] = json!({"size": format!("{size}KiB")});
        }
        config["sinks"][SINK] = sink;
    });
    stage.open().await;

    let (rate, limit) = (run.size(150, 100), scene.limit(run));
    let lasts = match scene.fault {
        Fault::Hang => limit,
        _ => Duration::from_secs(run.size(25, 14)),
    };
    let writer = stage.writer();
    let writing = tokio::task::spawn_blocking(move || write(writer, scene, rate, lasts));
    let written = writing.await.expect("a writer that does not panic");
    let others = others(&stage, &written);

    // One in a hundred may be later.
    let came = async || receiver.count() >= others.len();
    until_within(limit * 2, "all that the others wrote has arrived", came).await;
    let delays = judge::delays(&others, &receiver.arrivals(), written.during);
    let (half, most) = (delays[delays.len() / 2], delays[delays.len() * 99 / 100]);
    assert!(most <= limit, "the others' Events are late: {half:?} for half, {most:?} for most");

    let (dead_lettered, set_aside, queued) = became_of(&stage.bridge, &written, scene, run).await;
    if !run.short && receiver.mend().await {
        if scene.culprits % 2 == 1 {
            stage.bridge.restart().await;
        }
        nothing_waits(&stage).await;
    }
    // What a topic took behind a set that was refused comes again behind that.
    let in_order = async || {
        let last = judge::last_of_each(&receiver.arrivals());
        judge::judge(&stage.record.lock(), &last).order_breaks == 0
    };
    if kafka.is_some() {
        until_within(limit, "the last arrivals of each object are in order", in_order).await;
    }
    let verdict = judge::judge(&stage.record.lock(), &receiver.arrivals());
    if kafka.is_some() {
        Verdict { order_breaks: 0, ..verdict.clone() }.is_honest(SINK);
    } else {
        verdict.is_honest(SINK);
    }
    others_have_all(&others, &receiver);
    let status = stage.bridge.sink(SINK).await;
    let (letters, pending) = (number(&status, "deadLettered"), number(&status, "pending"));
    let kept = letters..=letters + pending;
    assert!(kept.contains(&verdict.missing), "what is missing is kept: {verdict}; {status}");
    if kafka.is_none() {
        assert_eq!(verdict.repeated, 0, "nothing came twice: {verdict}");
    }
    stage.bridge.stop_in_order().await;
    Played { scene, verdict, delays: (half, most), dead_lettered, set_aside, queued }
}

/// Writes at this rate, and among that what the culprit has, until it has had so long.
fn write(mut others: Writer, scene: Scene, rate: u32, lasts: Duration) -> Written {
    let (started, mut written) = (Instant::now(), 0);
    let mut culprits = HashSet::new();
    let until = QUIET + lasts;
    while started.elapsed() < until {
        let elapsed = started.elapsed();
        while f64::from(written) < elapsed.as_secs_f64() * f64::from(rate) {
            others.write();
            written += 1;
        }
        if let Some(since) = elapsed.checked_sub(QUIET) {
            let part = since.as_secs_f64() / MIXED_IN.as_secs_f64();
            let due = if scene.mixed { part.min(1.0) * scene.culprits as f64 } else { f64::MAX };
            while culprits.len() < scene.culprits && (culprits.len() as f64) < due {
                let event = made_by_the_culprit(scene.fault, culprits.len());
                culprits.insert(others.write_made(event));
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(culprits.len(), scene.culprits, "the culprit has written all");
    Written { during: (started + QUIET, Instant::now()), culprits }
}

/// The Events that the others have written.
fn others(stage: &Stage, written: &Written) -> Vec<Produced> {
    let culprits: HashSet<Key> = written.culprits.iter().map(|id| Key::of(id)).collect();
    let all = stage.record.lock();
    all.iter().filter(|one| !culprits.contains(&one.id)).copied().collect()
}

fn others_have_all(others: &[Produced], receiver: &Receiving) {
    let arrived: HashSet<Key> = receiver.arrivals().iter().map(|arrival| arrival.id).collect();
    let lost = others.iter().filter(|one| !arrived.contains(&one.id)).count();
    assert_eq!(lost, 0, "the others have lost Events");
}

/// Counts the culprit's Events: dead letters, set aside, queued. Each is something, and the
/// bridge names them and nobody else's.
async fn became_of(bridge: &Bridge, written: &Written, scene: Scene, run: Run) -> (u64, u64, u64) {
    let judged = async || {
        let sink = bridge.sink(SINK).await;
        number(&sink, "deadLettered") + stated(&sink, "setAside") > 0
    };
    if !run.short && scene.fault.is_for_good() {
        until_within(PATIENCE, "one of the culprit's is judged", judged).await;
    }
    // The last may not be journalled yet, and what has arrived behind the first that waits may be
    // pending with it.
    until_within(PATIENCE, "each of the culprit's is kept", async || {
        let sink = bridge.sink(SINK).await;
        number(&sink, "deadLettered") + number(&sink, "pending") >= scene.culprits as u64
    })
    .await;
    let sink = bridge.sink(SINK).await;
    let letters = number(&sink, "deadLettered");
    assert_eq!(number(&sink, "lost"), 0, "{sink}");
    // There may be more meanwhile.
    for letter in list_dead_letters(bridge, SINK, letters).await {
        let id = letter["id"].as_str().unwrap_or_default();
        assert!(written.culprits.contains(id), "a dead letter of somebody else's: {letter}");
        assert_eq!(letter["object"]["namespace"], CULPRIT, "{letter}");
    }
    is_named(bridge, &written.culprits).await;
    let set_aside = stated(&sink, "setAside");
    (letters, set_aside, (scene.culprits as u64).saturating_sub(letters + set_aside))
}

/// A number of a status that may have none.
pub(crate) fn stated(sink: &serde_json::Value, name: &str) -> u64 {
    sink[name].as_u64().unwrap_or_default()
}

/// The log or the status has the culprit's namespace and one of the ids.
async fn is_named(bridge: &Bridge, ids: &HashSet<String>) {
    let said = async || {
        let lines = bridge.log().into_iter().filter(|line| line["sink"] == SINK);
        let mut said: String = lines.map(|line| line.to_string()).collect();
        said.push_str(&bridge.status().await.to_string());
        let words = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
        let (mut namespace, mut id) = (false, false);
        for word in said.split(words) {
            namespace |= word == CULPRIT;
            id |= ids.contains(word);
        }
        namespace && id
    };
    until_within(Duration::from_secs(30), "the log or the status names the culprit", said).await;
}

/// Once the receiver takes all, nothing is kept but dead letters.
async fn nothing_waits(stage: &Stage) {
    let written = stage.record.len() as u64;
    until_within(PATIENCE, "all that waited has arrived", async || {
        let sink = stage.bridge.sink(SINK).await;
        number(&sink, "seen") == written && number(&sink, "pending") == 0
    })
    .await;
}
