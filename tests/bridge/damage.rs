//! A journal that is damaged at random between two runs. Whatever was hit:
//!
//! - the bridge starts, and goes on;
//! - nothing is delivered that was not produced;
//! - what a sink has not had in the end is in the statement of damage: it is no more than the records
//!   stated, and each lies within an interval stated; and unless the state with its totals was set
//!   aside, it was counted as lost for that sink;
//! - no more is stated than can be true: not more records than there were, no time before the journal
//!   was made or after the trial, and not more lost for a sink than it had not had;
//! - the fates of each sink sum up to what it has seen.
//!
//! A few journals are damaged in each run of the tests; `DAMAGE_TRIALS=1000` damages more,
//! `DAMAGE_SEED=n` begins with another one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use fastrand::Rng;
use tidings::{
    bridge::{BridgeView, FailureClass},
    event::Record,
};
use tidings_log::DamageKind;
use tidings_testkit::api_server::{ApiServer, EventObject};

use crate::support::{MemorySink, Setup, create, retry, server, settled, sink_status, stop, until};

/// So many are damaged when nobody asks for more.
const TRIALS: u64 = 24;
/// So many in a row are copies of two journals.
const COPIES: usize = 100;
/// Small, so that the log has several segments.
const RETENTION: u64 = 1 << 20;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// A journal of one sink that has had everything, and of one that has had half.
struct Sample {
    server: ApiServer,
    dir: tempfile::TempDir,
    /// Before the journal was made.
    began_ms: u64,
    /// By id, when it was journalled.
    journalled: BTreeMap<String, u64>,
    had: [(&'static str, BTreeSet<String>); 2],
}

fn ids(sink: &MemorySink) -> BTreeSet<String> {
    sink.ids().into_iter().collect()
}

fn now_ms() -> u64 {
    jiff::Timestamp::now().as_millisecond().try_into().unwrap()
}

async fn sample(compacted: bool) -> Sample {
    let began_ms = now_ms();
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (behind, ahead) = (MemorySink::default(), MemorySink::default());
    let mut setup = Setup::new(&server, dir.path()).sink("behind", &behind).sink("ahead", &ahead);
    setup.retention = RETENTION;
    let bridge = setup.start().await;
    let view = bridge.view();
    until("a watch", || server.open_watches() == 1).await;
    let mut written = 0;
    let mut first = None;
    for round in 0..40 {
        if round == 20 {
            settled(&view, "behind", written).await;
            behind.refuse(|_| Some(retry(FailureClass::Unavailable)));
        }
        for n in 0..6 {
            let message = "x".repeat(100 + 300 * n);
            let name = format!("web-{round}-{n}");
            let event = server.create(EventObject::about_pod("shop", &name, "A", &message));
            first.get_or_insert(event.unwrap());
            written += 1;
        }
        // After a compaction only the newest versions can be had again.
        if let Some(first) = first.as_ref().filter(|_| !compacted) {
            server.patch_count("shop", &first.name, round + 2, jiff::Timestamp::now()).unwrap();
            written += 1;
        }
        until("it is journalled", || view.log.tail().ordinal() == written).await;
    }
    settled(&view, "ahead", written).await;
    let mut journalled = BTreeMap::new();
    let mut reader = view.log.reader(1);
    for frame in reader.read(usize::MAX).unwrap() {
        for record in frame.records().map(Record::from) {
            journalled.insert(record.id().to_owned(), frame.time_ms);
        }
    }
    assert_eq!(journalled.len() as u64, written, "nothing was retired");
    // One that drains for long would wait for the sink that refuses.
    let _ = bridge.stop(Duration::from_millis(200)).await;
    if compacted {
        server.compact(server.revision());
    }
    let had = [("behind", ids(&behind)), ("ahead", ids(&ahead))];
    Sample { server, dir, began_ms, journalled, had }
}

fn copy(from: &Path, to: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            files.extend(copy(&entry.path(), &target));
        } else {
            fs::copy(entry.path(), &target).unwrap();
            files.push(target);
        }
    }
    files.sort();
    files
}

/// Damages one file, and says how.
fn harm(files: &[PathBuf], random: &mut Rng) -> String {
    let of = |suffix: &str| -> Vec<&PathBuf> {
        files.iter().filter(|file| file.to_string_lossy().contains(suffix)).collect()
    };
    let kinds =
        [".log", ".log", ".log", "state.redb", "state.redb", "positions.json", "delivered/"];
    let files = of(kinds[random.usize(..kinds.len())]);
    let path = files[random.usize(..files.len())];
    let Ok(mut bytes) = fs::read(path) else { return String::new() };
    let at = random.usize(..bytes.len().max(1));
    let how = match random.u8(..10) {
        0..5 if !bytes.is_empty() => {
            bytes[at] ^= 1 << random.u8(..8);
            format!("a bit at {at}")
        }
        5..8 => {
            bytes.truncate(at);
            format!("cut at {at}")
        }
        8 => {
            let end = bytes.len().min(at + random.usize(1..9000));
            bytes[at..end].fill(0);
            format!("zeros from {at} to {end}")
        }
        // That the oldest segment is gone is not to be told from retention, but for the count.
        _ if Some(path) == of(".log").first().copied() => String::new(),
        _ => {
            fs::remove_file(path).unwrap();
            if random.bool() {
                fs::create_dir(path).unwrap();
                return format!("{} is a directory", path.display());
            }
            return format!("{} is gone", path.display());
        }
    };
    fs::write(path, bytes).unwrap();
    format!("{}: {how}", path.display())
}

/// What came of the trials, to be printed.
#[derive(Debug, Default)]
struct Outcome {
    damaged: u64,
    missing: u64,
    stated: u64,
    again: u64,
}

fn check(
    sample: &Sample,
    view: &BridgeView,
    name: &str,
    had: &BTreeSet<String>,
    markers: &BTreeSet<String>,
    kept_state: bool,
    outcome: &mut Outcome,
) {
    let made_up: Vec<_> = had
        .iter()
        .filter(|id| !sample.journalled.contains_key(*id) && !markers.contains(*id))
        .collect();
    assert!(made_up.is_empty(), "never produced: {made_up:?}");
    let before = &sample.had.iter().find(|(own, _)| *own == name).unwrap().1;
    outcome.again += had.intersection(before).count() as u64;
    let missing: Vec<_> = sample
        .journalled
        .iter()
        .filter(|(id, _)| !had.contains(*id) && !before.contains(*id))
        .collect();
    outcome.missing += missing.len() as u64;
    let damages = view.log.damages();
    let stated = damages.newest();
    let journalled = sample.journalled.len() as u64;
    let first_ms = *sample.journalled.values().min().unwrap();
    let (began_ms, now_ms) = (sample.began_ms, now_ms());
    assert!(damages.records() <= journalled, "of {journalled}: {stated:?}");
    for damage in &stated {
        let from_ms = damage.from_ms.unwrap_or(began_ms);
        let in_order = began_ms <= from_ms && from_ms <= damage.to_ms && damage.to_ms <= now_ms;
        assert!(in_order, "between {began_ms} and {now_ms}: {damage:?}");
    }
    assert!(missing.len() as u64 <= damages.records(), "{name}: {missing:?}, {stated:?}");
    for (id, time_ms) in &missing {
        let covered = stated
            .iter()
            .any(|damage| (damage.from_ms.unwrap_or(first_ms)..=damage.to_ms).contains(time_ms));
        assert!(covered, "{name}: {id} at {time_ms} is in none of {stated:?}");
    }
    let new_state =
        stated.iter().any(|damage| damage.kind == DamageKind::File && damage.file == "state.redb");
    let status = sink_status(view, name);
    if !new_state && kept_state {
        assert!(missing.len() as u64 <= status.lost, "{name}: {missing:?}, {status:?}");
        let not_had = journalled - before.len() as u64;
        assert!(status.lost <= not_had, "{name} had not had {not_had}: {status:?}");
    }
    assert!(status.lost <= damages.records(), "{name}: {stated:?}, {status:?}");
    // The totals that were restored may be those of a while ago, or none.
    assert!(had.len() as u64 <= status.delivered + status.redelivered, "{name}: {status:?}");
}

/// Starts a bridge on a damaged copy, and holds it to what the module promises.
async fn trial(sample: &Sample, markers: &mut BTreeSet<String>, seed: u64, outcome: &mut Outcome) {
    let (dir, mut random) = (tempfile::tempdir().unwrap(), Rng::with_seed(seed));
    let files = copy(sample.dir.path(), dir.path());
    let harms: Vec<_> = (0..random.usize(1..4)).map(|_| harm(&files, &mut random)).collect();
    let kept_state = dir.path().join("state.redb").is_file();
    let (behind, ahead) = (MemorySink::default(), MemorySink::default());
    let mut setup =
        Setup::new(&sample.server, dir.path()).sink("behind", &behind).sink("ahead", &ahead);
    setup.retention = RETENTION;
    let said = format!("DAMAGE_SEED={seed}: {harms:?}");
    let bridge = match setup.try_start().await {
        Ok(bridge) => bridge,
        Err(error) => panic!("{said}: {error}"),
    };
    let marker = create(&sample.server, &format!("marker-{seed}")).id();
    markers.insert(marker.clone());
    let view = bridge.view();
    for (name, sink) in [("behind", &behind), ("ahead", &ahead)] {
        until(&format!("{said}: the marker at {name}"), || {
            sink.ids().contains(&marker) && sink_status(&view, name).pending == 0
        })
        .await;
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(sample, &view, name, &ids(sink), markers, kept_state, outcome);
        }));
        assert!(checked.is_ok(), "{said}");
    }
    outcome.damaged += u64::from(view.log.damages().count() > 0);
    outcome.stated += view.log.damages().records();
    stop(bridge).await;
}

/// What a command says of a journal on stdout, and its exit code.
fn tidings(arguments: &[&str], journal: &Path) -> (String, Option<i32>) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidings"));
    let output = command.arg("journal").args(arguments).arg("--path").arg(journal).output();
    let output = output.unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_is_inspected_and_verified_beside_its_bridge_and_without_it() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let journal = dir.path();
    let bridge = Setup::new(&server, journal).sink("audit", &sink).start().await;
    for n in 0..3 {
        create(&server, &format!("web-{n}"));
    }
    settled(&bridge.view(), "audit", 3).await;
    let (text, code) = tidings(&["verify"], journal);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("no damage in 1 segment,") && text.contains("a bridge has it"), "{text}");
    stop(bridge).await;
    let (text, code) = tidings(&["verify"], journal);
    assert_eq!((code, text.contains("3 records and the state")), (Some(0), true), "{text}");
    let (text, code) = tidings(&["inspect"], journal);
    assert_eq!(code, Some(0));
    for part in ["00000000000000000001.log", "  *  resourceVersion ", "audit  next sequence 4"] {
        assert!(text.contains(part), "{text}");
    }
    let (text, _) = tidings(&["inspect", "--output", "json"], journal);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["state"]["sinks"]["audit"]["totals"]["delivered"], 3);
    let path = journal.join("00000000000000000001.log");
    let mut bytes = fs::read(&path).unwrap();
    bytes[2] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (text, code) = tidings(&["verify"], journal);
    assert_eq!(code, Some(1));
    assert!(text.contains("00000000000000000001.log at 0: its header cannot be read"), "{text}");
    assert_eq!(tidings(&["verify"], &journal.join("nowhere")).1, Some(1));
    assert_eq!(tidings(&["verify", "--config", "x"], journal).1, Some(2), "one or the other");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_damaged_the_bridge_starts_and_states_what_it_cost() {
    let trials = number("DAMAGE_TRIALS", TRIALS);
    let first = number("DAMAGE_SEED", 1);
    let mut outcome = Outcome::default();
    let seeds: Vec<_> = (first..first + trials).collect();
    for seeds in seeds.chunks(COPIES) {
        // By turns with and without the history that could be watched again.
        for compacted in [false, true] {
            let sample = sample(compacted).await;
            let mut markers = BTreeSet::new();
            for seed in seeds.iter().filter(|seed| (*seed % 2 == 1) == compacted) {
                trial(&sample, &mut markers, *seed, &mut outcome).await;
            }
        }
    }
    println!("{trials} journals: {outcome:?}");
}
