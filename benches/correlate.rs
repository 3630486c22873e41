//! What it costs to correlate an event: `cargo bench --bench correlate`.
//!
//! Times are those that one thread has a processor, for events of as many objects as the caches have
//! room for, so that every cache is full and every event finds its entries. Memory is the process's
//! own, before and after a stream in which nothing repeats. The figures are in `docs/benchmarks.md`.

#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::{fs, hint::black_box, num::NonZeroUsize};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use lru::LruCache;
use tidings_kube::correlator::{
    Aggregator, CorrelatorOptions, EventCorrelator, Key, Keys, SpamFilter, defaults,
};

/// Measurements end with whatever went wrong first.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// As many as each cache keeps.
const LIVE: usize = defaults::LRU_CACHE_SIZE;
const ROUNDS: usize = 200;
/// Events of the stream in which nothing repeats, and the length of their messages in bytes.
const DIFFERENT: usize = 1_000_000;
const LONG: usize = 4096;

fn event(number: usize, message: String) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(format!("web-{number}.1878be0908941d15")),
            namespace: Some("shop".into()),
            ..ObjectMeta::default()
        },
        count: Some(1),
        first_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
        last_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
        involved_object: ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: Some("shop".into()),
            name: Some(format!("web-{number}")),
            uid: Some(format!("11111111-aaaa-4bbb-8ccc-{number:012}")),
            field_path: Some("spec.containers{web}".into()),
            ..ObjectReference::default()
        },
        message: Some(message),
        reason: Some("BackOff".into()),
        type_: Some("Warning".into()),
        reporting_component: Some("kubelet".into()),
        reporting_instance: Some("node-a".into()),
        source: Some(EventSource {
            component: Some("kubelet".into()),
            host: Some("node-a".into()),
        }),
        ..Event::default()
    }
}

/// Nanoseconds that this thread has had a processor, however busy the machine is.
fn processor_time() -> Result<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("no schedstat")?.parse()?)
}

/// Runs it for every number below [`LIVE`] a number of times, the first of which does not count:
/// nanoseconds each.
fn nanoseconds(mut run: impl FnMut(usize)) -> Result<f64> {
    (0..LIVE).for_each(&mut run);
    let start = processor_time()?;
    for _ in 0..ROUNDS {
        (0..LIVE).for_each(&mut run);
    }
    Ok((processor_time()? - start) / (ROUNDS * LIVE) as f64)
}

/// What the bridge does for a record: four keys, the group, the count, the bucket.
fn core() -> Result<f64> {
    const MESSAGE: &str = "Back-off restarting failed container web in pod web-0_shop";
    let keys = Keys::random();
    let mut aggregator = Aggregator::new(LIVE, defaults::MAX_EVENTS, defaults::MAX_INTERVAL);
    let mut counts = LruCache::<Key, u64>::new(NonZeroUsize::new(LIVE).ok_or("no keys")?);
    let mut spam = SpamFilter::new(LIVE, defaults::BURST, defaults::QPS);
    let objects: Vec<(String, String)> = (0..LIVE)
        .map(|n| (format!("web-{n}"), format!("11111111-aaaa-4bbb-8ccc-{n:012}")))
        .collect();
    nanoseconds(|number| {
        let (name, uid) = &objects[number];
        let group = keys.separated(&[
            "kubelet", "node-a", "Pod", "shop", name, uid, "v1", "Warning", "BackOff", "kubelet",
            "node-a",
        ]);
        let local = keys.separated(&[MESSAGE]);
        let event = keys.separated(&[
            "kubelet",
            "node-a",
            "Pod",
            "shop",
            name,
            "spec.containers{web}",
            uid,
            "v1",
            "Warning",
            "BackOff",
            MESSAGE,
        ]);
        let share =
            keys.separated(&["kubelet", "node-a", "Pod", "shop", name, uid, "v1", "Warning"]);
        let aggregate = aggregator.observe(group, local, 0).is_aggregate();
        let count = counts.get(&event).map_or(1, |before| before + 1);
        counts.put(event, count);
        black_box((aggregate, count, spam.allow(share, 0)));
    })
}

/// An [`EventCorrelator`] on repeats, which are patches, or skipped if there is no token left.
fn on_events(burst_size: i64) -> Result<f64> {
    let mut correlator =
        EventCorrelator::new(CorrelatorOptions { burst_size, ..CorrelatorOptions::default() });
    let events: Vec<Event> =
        (0..LIVE).map(|n| event(n, "Back-off restarting failed container".into())).collect();
    nanoseconds(|number| {
        let _ = black_box(correlator.correlate(&events[number], Timestamp::UNIX_EPOCH));
    })
}

/// Resident memory of this process in MiB.
fn resident() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = line.and_then(|l| l.split_whitespace().next()).ok_or("no VmRSS")?.parse()?;
    Ok(kib / 1024.0)
}

fn main() -> Result<()> {
    // What cargo says to every benchmark; without it this is a test run, which measures nothing.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let mut correlator = EventCorrelator::default();
    println!("{DIFFERENT} different events with messages of {LONG} bytes:");
    println!("| after | resident MiB |");
    println!("|---|---:|");
    println!("| none | {:.1} |", resident()?);
    for number in 0..DIFFERENT {
        // Ten of each object, so that its group fills up.
        let event = event(number / 10, format!("{number:0LONG$}"));
        let _ = black_box(correlator.correlate(&event, Timestamp::UNIX_EPOCH));
        if number + 1 == LIVE * 10 || number + 1 == DIFFERENT {
            println!("| {} | {:.1} |", number + 1, resident()?);
        }
    }
    println!("\none event, {LIVE} live keys:");
    println!("| path | processor time, ns an event |");
    println!("|---|---:|");
    println!("| core: keys, aggregate, count, spam filter | {:.0} |", core()?);
    println!("| EventCorrelator, a repeat is patched | {:.0} |", on_events(i64::MAX)?);
    println!("| EventCorrelator, a repeat is skipped | {:.0} |", on_events(1)?);
    Ok(())
}
