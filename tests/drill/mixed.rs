//! Everything at once, by seed.

use std::time::{Duration, Instant};

use fastrand::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};
use tidings::demo::api_server::{Ending, Fault, On, Place, StreamFault};
use tokio::time::sleep;

use crate::accounts::retry_dead_letters;
use crate::crash::{STARTS_WITHIN, kill_start};
use crate::frame::{Drill, Page, Run};
use crate::parts::Part as _;
use crate::poison::POISON;
use crate::receiver::Mode;
use crate::sampler::{Sample, Sampler, median};
use crate::scripted::{Stage, three_sinks};
use crate::small_disk::SmallDisk;

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "mixed",
    what: "faults of every kind, one or two at a time, by seed; in the second half no kills",
    full: "30 minutes at 300/s",
    short: Some("20 s at 200/s"),
    alone: false,
    long: true,
    run: |run| Box::pin(mixed(run)),
}];

/// So many more descriptors or tasks than before are no leak: of connections that come and go.
const SLACK: f64 = 16.0;
/// So many MiB more are none: what the allocator keeps, and how long the backlog was of late.
const RSS_SLACK: f64 = 16.0;

/// What goes wrong.
#[derive(Clone, Debug)]
enum Harm {
    /// Perhaps its next start is killed, too, after so long.
    Kill(Option<Duration>),
    /// Killed, and started only after a while.
    Absence,
    Stop,
    Sink(usize, Mode),
    /// An event that a sink refuses.
    Poison(usize),
    ApiServerAway,
    /// Away, and its history with it.
    Compaction,
    Connections,
    /// Answers, and streams as far as they are.
    Answers(On, Fault),
    DiskFull,
}

impl Harm {
    /// Any; without `ends` none that ends the bridge.
    fn any(random: &mut Rng, ends: bool, disk: bool) -> Self {
        loop {
            return match random.u8(..11) {
                0 | 1 if ends => Self::kill(random),
                2 if ends => Self::Absence,
                3 if ends => Self::Stop,
                4 => Self::ApiServerAway,
                5 => Self::Compaction,
                6 => Self::Connections,
                7 => Self::answers(random),
                8 if disk => Self::DiskFull,
                9 => Self::Sink(random.usize(..3), mode(random)),
                10 => Self::Poison(random.usize(..3)),
                _ => continue,
            };
        }
    }

    fn kill(random: &mut Rng) -> Self {
        let soon = STARTS_WITHIN.mul_f64(random.f64());
        Self::Kill((random.u8(..3) == 0).then_some(soon))
    }

    fn answers(random: &mut Rng) -> Self {
        let events = random.usize(..200);
        let stream = |then| Fault::Stream { after: events, then };
        let (on, fault) = match random.u8(..9) {
            0 => (On::Any, Fault::TooManyRequests { retry_after: 1 }),
            1 => (On::Any, Fault::Unavailable),
            2 => (On::Any, Fault::InternalError),
            3 => (On::Watch, Fault::Gone),
            4 => (On::Any, Fault::Reset),
            5 => (On::Watch, Fault::EmptyStream),
            6 => (On::Watch, stream(StreamFault::Expired)),
            7 => (On::Watch, stream(StreamFault::Cut(Place::MidLine, Ending::Reset))),
            _ => (On::Watch, Fault::Slow { bytes_per_second: 20_000 }),
        };
        Self::Answers(on, fault)
    }
}

fn mode(random: &mut Rng) -> Mode {
    match random.u8(..7) {
        0 => Mode::Down,
        1 => Mode::Hang,
        2 => Mode::Answer(503),
        3 => Mode::Answer(429),
        4 => Mode::Reset,
        5 => Mode::Slow(Duration::from_millis(300)),
        _ => Mode::Cut,
    }
}

async fn mixed(run: Run) -> Page {
    let (rate, length, longest) = run.size(
        (300, Duration::from_mins(30), Duration::from_secs(8)),
        (200, Duration::from_secs(20), Duration::from_millis(1_500)),
    );
    let disk = match SmallDisk::mount("256m") {
        Ok(disk) => disk,
        Err(why) => return Page::Skipped(why),
    };
    let mut stage = Stage::set(three_sinks().await, run.seed, |config| {
        config["journal"]["path"] = json!(disk.folder());
        config["journal"]["retention"] = json!({"size": "200MiB"});
        for sink in ["audit", "pager", "spare"] {
            // A receiver that hangs is not waited for as long as it is to hang.
            config["sinks"][sink]["timeout"] = json!("2s");
        }
    });
    disk.carries(&mut stage.bridge);
    stage.open().await;
    let mut random = Rng::with_seed(run.seed);
    let (writing, started) = (stage.write(rate), Instant::now());
    let (mut harms, mut last_life, mut tasks) = (0, None, 0.0);
    while started.elapsed() < length {
        let ends = started.elapsed() < length / 2;
        if !ends && last_life.is_none() {
            last_life = Some(Sampler::start(stage.bridge.id()));
            tasks = tasks_of(&stage).await;
        }
        let first = Harm::any(&mut random, ends, true);
        let second = (random.u8(..3) == 0).then(|| Harm::any(&mut random, ends, true));
        let mut full = Vec::new();
        for harm in [Some(first), second].into_iter().flatten() {
            let seconds = started.elapsed().as_secs_f64();
            eprintln!("  mixed: {seconds:6.1} s: {harm:?}");
            harms += 1;
            if let Harm::DiskFull = harm {
                full.push(disk.fill());
            }
            do_harm(&mut stage, &harm, longest.mul_f64(random.f64())).await;
        }
        sleep(longest.mul_f64(random.f64())).await;
        drop(full);
        heal(&mut stage).await;
        sleep(longest.mul_f64(random.f64()) / 2).await;
    }
    let last_life = last_life.expect("half of the time has passed").finish().await;
    writing.stop().await;
    stage.settle().await;
    let retried = retry_dead_letters(&stage.bridge).await;
    let held = flat(&last_life);
    let tasks_now = tasks_of(&stage).await;
    assert!(tasks_now <= tasks + SLACK, "tasks that never end: {tasks} then, {tasks_now} now");
    let held = format!("{held}, tasks {tasks} then {tasks_now}");
    let letters = format!("{retried} dead letters of all sinks, taken when they were retried");
    let fault = format!("{harms} faults in {length:?} at {rate}/s, seed {}", run.seed);
    let verdicts = stage.finish().await;
    let skipped = skipped(&stage.bridge.log());
    let rows = verdicts.into_iter().map(|(sink, verdict)| {
        // A list that closes a gap shows the newest version for all before it.
        let row = sink.has_all_increments(&verdict, &fault);
        if sink.suppress {
            return row.note(&held);
        }
        // Each write is one increment, so what is missing is what was skipped.
        assert_eq!(verdict.missing, skipped, "{}: stated as skipped: {verdict}", sink.name);
        row.note(&format!("{skipped} increments stated as skipped")).note(&letters)
    });
    Page::Rows(rows.collect())
}

/// A gap, as the log of the bridge states it.
struct Stated {
    /// Which life of the bridge says so.
    life: usize,
    from: Timestamp,
    to: Timestamp,
    replayed: u64,
    skipped: u64,
}

impl Stated {
    fn of(line: &Value, life: usize) -> Option<Self> {
        let time = |name: &str| line[name].as_str()?.parse().ok();
        Some(Self {
            life,
            from: time("from")?,
            to: time("to")?,
            replayed: line["replayed"].as_u64()?,
            skipped: line["skipped_increments"].as_u64()?,
        })
    }

    /// Whether this is that, which an earlier life has stated, once more.
    fn repeats(&self, that: &Self) -> bool {
        let facts = |one: &Self| (one.replayed, one.skipped);
        // Two gaps do not overlap.
        self.life > that.life && facts(self) == facts(that) && self.from < that.to
    }
}

/// How many increments the bridge has stated as skipped, over all its lives.
///
/// No kill takes a gap away: it is stated when the end of its list is in the log, and saved as
/// stated after that; what a bridge finds to be in the log and not saved it states when it starts.
/// So a kill between a statement and the save makes it come again. It is counted once.
fn skipped(log: &[Value]) -> u64 {
    let (mut life, mut stated) = (0, Vec::<Stated>::new());
    for line in log {
        life += usize::from(line["message"] == "starting");
        let news = Stated::of(line, life);
        stated.extend(news.filter(|one| !stated.iter().any(|before| one.repeats(before))));
    }
    stated.iter().map(|one| one.skipped).sum()
}

/// Does it; what lasts ends with [`heal`].
async fn do_harm(stage: &mut Stage, harm: &Harm, absence: Duration) {
    match harm {
        Harm::Kill(again) => {
            stage.bridge.kill9();
            if let Some(soon) = again {
                kill_start(&mut stage.bridge, *soon).await;
            }
            stage.bridge.launch().await;
        }
        Harm::Absence => {
            stage.bridge.kill9();
            sleep(absence).await;
            stage.bridge.launch().await;
        }
        Harm::Stop => {
            stage.bridge.stop_in_order().await;
            stage.bridge.launch().await;
        }
        Harm::Sink(sink, mode) => stage.sinks[*sink].receiver.set(mode.clone()).await,
        Harm::Poison(sink) => {
            stage.sinks[*sink].receiver.set(Mode::Refuse(400, POISON)).await;
            stage.writer().write_alone("Poison", POISON);
        }
        Harm::ApiServerAway => stage.server.stop_listening().await,
        Harm::Compaction => {
            stage.server.stop_listening().await;
            sleep(absence).await;
            stage.server.compact(stage.server.revision());
            stage.server.listen_again().expect("the port as before");
        }
        Harm::Connections => stage.server.cut_connections(),
        Harm::Answers(on, fault) => {
            stage.server.set_fault(*on, None, fault.clone());
            stage.server.cut_connections();
        }
        // Full as long as the caller keeps it so.
        Harm::DiskFull => {}
    }
}

async fn heal(stage: &mut Stage) {
    for sink in &stage.sinks {
        sink.receiver.set(Mode::Take).await;
    }
    stage.server.clear_faults();
    stage.server.listen_again().expect("the port as before");
    // What stalls or is slow goes on in a new stream.
    stage.server.cut_connections();
}

/// What a process that lived through the second half held in its first and its last minute, which
/// is the same but for connections that come and go.
fn flat(samples: &[Sample]) -> String {
    let minute = samples.len().min(60);
    let (first, last) = (&samples[..minute], &samples[samples.len() - minute..]);
    let line = |what: &str, value: fn(&Sample) -> f64, slack: f64| {
        let (first, last) = (median(first, value), median(last, value));
        assert!(last <= first + slack, "{what} at first {first:.0}, in the end {last:.0}");
        format!("{what} {first:.0} then {last:.0}")
    };
    [
        line("descriptors", |sample| sample.descriptors, SLACK),
        line("threads", |sample| sample.threads, SLACK),
        line("RSS MiB", |sample| sample.rss_mib, RSS_SLACK),
    ]
    .join(", ")
}

async fn tasks_of(stage: &Stage) -> f64 {
    let tasks = stage.bridge.metric("tidings_runtime_tasks").await;
    tasks.parse().expect("a number of tasks")
}
