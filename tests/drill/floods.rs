//! One namespace that writes all it can while a sink is away, and what becomes of the others' events.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use tidings::demo::api_server::{ApiServer, EventObject, Written};
use tokio::time::sleep;

use crate::accounts::{number, settle, sink_of};
use crate::frame::{Company, Drill, Page, Row, Run};
use crate::judge::{Arrival, Key, Produced, judge};
use crate::load::Record;
use crate::parts::Part as _;
use crate::receiver::Mode;
use crate::scripted::{Sink, Stage};
use crate::wait::until_within;

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "floods",
    what: "one namespace writes all it can while a sink is away; the others' events are all delivered",
    full: "60 patches of 1.4 MB; 450 events of 256 KiB a second for 10 min, 256 MiB of journal",
    short: Some("60 patches of 1.4 MB; 450 events of 256 KiB a second for 4 s, 32 MiB of journal"),
    company: Company::Never,
    long: true,
    run: |run| Box::pin(floods(run)),
}];

const LOUD: &str = "loud";
/// The rate at which others write meanwhile, in events a second.
const OTHERS: u32 = 50;
/// So many Events are patched in turn: what the API server has of them at once is bounded.
const LIVE: usize = 100;

/// The flood that the one namespace writes.
#[derive(Clone, Copy)]
struct Flood {
    what: &'static str,
    /// Bytes of each message.
    message: usize,
    live: usize,
    /// Patches a second.
    rate: u32,
    patches: usize,
    /// Another sink takes what comes.
    beside: bool,
    killed: bool,
}

async fn floods(run: Run) -> Page {
    let (seconds, size) = run.size((600, "256MiB"), (4, "32MiB"));
    let patches = Flood {
        what: "60 patches of one Event of 1.4 MB",
        message: 1_400_000,
        live: 1,
        rate: 20,
        patches: 60,
        beside: false,
        killed: false,
    };
    let flood = Flood {
        what: "450 events of 256 KiB a second",
        message: 255 << 10,
        live: LIVE,
        rate: 450,
        patches: 450 * seconds,
        ..patches
    };
    let mut rows = Vec::new();
    for (flood, size) in [
        (patches, "64MiB"),
        (flood, size),
        (Flood { beside: true, ..flood }, size),
        (Flood { killed: true, ..flood }, size),
    ] {
        rows.extend(one(flood, size, run.seed).await);
    }
    Page::Rows(rows)
}

async fn one(flood: Flood, size: &str, seed: u64) -> Vec<Row> {
    let mut sinks = vec![Sink::new("pager").await];
    if flood.beside {
        sinks.push(Sink::new("audit").await);
    }
    let mut stage = Stage::set(sinks, seed, |config| {
        config["journal"]["retention"] = json!({"size": size});
    });
    stage.open().await;
    stage.sinks[0].receiver.set(Mode::Down).await;
    let writing = stage.write(OTHERS);
    sleep(Duration::from_secs(1)).await;
    let loud = Record::default();
    let started = Instant::now();
    let writer = {
        let (server, loud) = (Arc::clone(&stage.server), loud.clone());
        tokio::task::spawn_blocking(move || write(&server, &loud, flood))
    };
    let mut killed = !flood.killed;
    while !writer.is_finished() {
        forget_what_was_read(&stage, &loud).await;
        if !killed && loud.len() > flood.patches / 16 {
            killed = true;
            stage.bridge.kill9();
            stage.open().await;
        }
    }
    writer.await.expect("a writer that does not panic");
    let rate = loud.len() as f64 / started.elapsed().as_secs_f64();
    sleep(Duration::from_secs(1)).await;
    writing.stop().await;
    let written = stage.record.len() + loud.len();
    until_within(Duration::from_mins(2), "everything is in the journal", async || {
        journalled(&stage.bridge.status().await) >= written
    })
    .await;
    let before = stage.bridge.status().await;
    let overrun = number(sink_of(&before, "pager"), "overrun");
    let back = Instant::now();
    stage.sinks[0].receiver.set(Mode::Take).await;
    settle(&stage.bridge, written as u64).await;
    let caught_up = back.elapsed();
    let status = stage.bridge.status().await;
    let told = counted(&status);
    let rows = stage.sinks.iter().map(|sink| {
        assert_eq!(overrun, 0, "the journal has all that the sink has not had: {before}");
        let of_sink = sink_of(&status, sink.name);
        let arrivals = sink.receiver.arrivals();
        let (cut_or_shed, row) =
            held_against(&stage.record.lock(), &loud.lock(), &arrivals, sink.name, of_sink);
        // What is counted since the start of the process begins anew with a kill.
        let shed = if flood.killed { told.1 <= cut_or_shed } else { told.1 == cut_or_shed };
        assert!(shed, "{} were shed: {}", told.1, status["ingest"]);
        let row = Row { fault: flood.what.to_owned(), caught_up: Some(caught_up), ..row };
        let row = row.note(&format!("{rate:.0}/s, {} cut and {} shed of {LOUD}", told.0, told.1));
        if flood.killed { row.note("a kill -9 amidst") } else { row }
    });
    let rows = rows.collect();
    stage.bridge.stop_in_order().await;
    rows
}

/// How many records the journal was given.
fn journalled(status: &Value) -> usize {
    usize::try_from(number(&status["journal"], "nextSequence")).expect("fits") - 1
}

/// The API server has room for what was not read, and for no more.
async fn forget_what_was_read(stage: &Stage, loud: &Record) {
    // What one of the two has written may not be in its record yet. Up to the older of what each noted last,
    // everything is.
    let newest = [&stage.record, loud].map(|of| of.lock().last().map(|one| one.version));
    let Some(revision) = newest.into_iter().min().flatten() else { return };
    let written = stage.record.len() + loud.len();
    until_within(Duration::from_mins(2), "what was written is journalled", async || {
        journalled(&stage.bridge.status().await) >= written
    })
    .await;
    stage.server.compact(revision);
}

/// Writes in [`LOUD`], at its rate or as fast as it goes. A machine that cannot come near the rate writes less.
fn write(server: &ApiServer, record: &Record, flood: Flood) {
    let text = "flood \u{e9} ".repeat(flood.message / 9);
    let note = |written: &Written, object: Key, occurrences: u64| {
        record.lock().push(Produced {
            id: Key::of(&written.id()),
            event: Key::of(&written.uid),
            object,
            version: written.resource_version,
            occurrences,
            at: Instant::now(),
        });
    };
    let live: Vec<_> = (0..flood.live)
        .map(|n| {
            let event = EventObject::about_pod(LOUD, &format!("pod-{n}"), "Flood", &text);
            let object = Key::of(&event.involved_object.uid);
            let written = server.create(event).expect("a new Event");
            note(&written, object, 1);
            (written.name, object)
        })
        .collect();
    let started = Instant::now();
    let most = Duration::from_secs_f64(2.0 * flood.patches as f64 / f64::from(flood.rate));
    for patch in 0..flood.patches {
        if started.elapsed() > most.max(Duration::from_mins(1)) {
            return;
        }
        let due = Duration::from_secs_f64(patch as f64 / f64::from(flood.rate));
        // Behind its rate, too, it leaves the API server's lock to others between two patches.
        let wait = due.saturating_sub(started.elapsed()).max(Duration::from_millis(1));
        std::thread::sleep(wait);
        let (name, object) = &live[patch % live.len()];
        let count = patch / live.len() + 2;
        let counted = i32::try_from(count).expect("a count");
        let patched = server.patch_count(LOUD, name, counted, Timestamp::now());
        note(&patched.expect("the Event is there"), *object, count as u64);
    }
}

/// How many Events were cut and shed, which all have to be of [`LOUD`].
fn counted(status: &Value) -> (u64, u64) {
    let ingest = &status["ingest"];
    let namespaces = ingest["namespaces"].as_array().map_or(&[][..], Vec::as_slice);
    let strangers = namespaces.iter().filter(|of| of["namespace"] != LOUD);
    assert_eq!(strangers.count(), 0, "{ingest}");
    let sums = (number(ingest, "truncated"), number(ingest, "shed"));
    let of_it = namespaces.first().map(|of| (number(of, "truncated"), number(of, "shed")));
    assert_eq!(of_it.unwrap_or_default(), sums, "{ingest}");
    sums
}

/// Others' events have all arrived; what did not is of the one, is what the bridge says to have lost,
/// and its increments came with what did. Answers how many did not.
fn held_against(
    others: &[Produced],
    loud: &[Produced],
    arrivals: &[Arrival],
    sink: &str,
    status: &Value,
) -> (u64, Row) {
    let ids: HashSet<Key> = loud.iter().map(|one| one.id).collect();
    let (of_loud, of_others): (Vec<Arrival>, Vec<Arrival>) =
        arrivals.iter().partition(|arrival| ids.contains(&arrival.id));
    let verdict = judge(others, &of_others);
    verdict.is_honest(sink);
    verdict.lost_nothing(sink);
    let flood = judge(loud, &of_loud);
    flood.is_honest(sink);
    assert_eq!(flood.missing, number(status, "lost"), "{sink}: {flood}; {status}");
    assert_eq!(number(status, "seen"), (others.len() + loud.len()) as u64, "{status}");
    let events: HashMap<Key, Key> = loud.iter().map(|one| (one.id, one.event)).collect();
    let mut told = HashMap::<Key, (u64, u64)>::new();
    let mut known = HashSet::new();
    for arrival in of_loud.iter().filter(|arrival| known.insert(arrival.id)) {
        let (sum, newest) = told.entry(events[&arrival.id]).or_default();
        *sum += arrival.delta;
        *newest = arrival.occurrences.max(*newest);
    }
    for (event, (sum, newest)) in told {
        assert_eq!(sum, newest, "{sink}: increments of {event:?} came with its next version");
    }
    let mut row = verdict.row("", sink);
    row.notes = format!("flood: {} of {} delivered", flood.delivered, flood.produced);
    (flood.missing, row)
}
