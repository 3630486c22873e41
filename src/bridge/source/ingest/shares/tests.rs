use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    bridge::progress::Settled,
    event::Incoming,
    journal::{
        Directory, FrameBuilder, Log, LogOptions, Position, Resume, SinkState, Standing, Sync,
    },
};

const SIZE: u64 = 4 << 20;

/// A log with sinks, and what is counted of it.
struct Bench {
    dir: tempfile::TempDir,
    log: Log,
    sinks: Vec<Arc<SinkProgress>>,
    shares: Shares,
    uid: u64,
}

impl Bench {
    fn new(overflows: &[Overflow]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = open(&dir);
        let sinks: Vec<_> = overflows
            .iter()
            .map(|overflow| {
                let state = SinkState::default();
                Arc::new(SinkProgress::new("a", "memory", *overflow, state, None))
            })
            .collect();
        let shares = Shares::new(&sinks, log.handle());
        Self { dir, log, sinks, shares, uid: 0 }
    }

    fn one() -> Self {
        Self::new(&[Overflow::DropOldest])
    }

    /// One frame with records of these namespaces, each of so many bytes or more; or shed.
    fn append(&mut self, records: &[(&str, usize, bool)]) {
        let mut builder = FrameBuilder::new("*".into(), Resume::default());
        for (namespace, bytes, shed) in records {
            self.uid += 1;
            let uid = self.uid;
            let event = format!(
                r#"{{"metadata":{{"namespace":"{namespace}","uid":"u{uid}","resourceVersion":"{uid}"}},"message":"{}"}}"#,
                "x".repeat(*bytes)
            );
            let before = builder.bytes();
            builder.record(|out| {
                if *shed {
                    Incoming::decode(event.as_bytes()).unwrap().write_shed(0, 1, false, out);
                } else {
                    let text = format!(r#"{{"id":"u{uid}-{uid}","delta":1,"event":{event}}}"#);
                    out.extend_from_slice(text.as_bytes());
                }
            });
            if *shed {
                builder.sheds();
            }
            self.shares.count(namespace, builder.bytes() - before);
        }
        let frame = self.log.append(&mut builder, 1000).unwrap();
        self.shares.appended(&frame);
    }

    fn fill(&mut self, namespace: &str, bytes: u64) {
        for _ in 0..bytes / (16 << 10) {
            self.append(&[(namespace, 16 << 10, false)]);
        }
    }

    /// A sink has had what is before a sequence.
    fn settle(&mut self, sink: usize, next: u64) {
        let position = Position { next, skipped: 0 };
        let standing = Standing { position, ..Standing::default() };
        self.sinks[sink].settle(Settled { standing, ..Settled::default() });
        self.shares.look();
    }

    fn reopen(&mut self) {
        // The directory's lock goes with the log.
        let empty = tempfile::tempdir().unwrap();
        drop(std::mem::replace(&mut self.log, open(&empty)));
        self.log = open(&self.dir);
        self.shares = Shares::new(&self.sinks, self.log.handle());
    }

    /// The bytes that are counted by namespace and of frames, and those that reading the same part of the log finds.
    fn counted_and_found(&self) -> [BTreeMap<String, u64>; 2] {
        let mut all = [(); 2].map(|()| BTreeMap::from([("all frames".to_owned(), 0)]));
        let [counted, found] = &mut all;
        for part in &self.shares.parts {
            for (namespace, bytes) in &part.of {
                *counted.entry(namespace.to_string()).or_default() += bytes;
            }
            *counted.get_mut("all frames").unwrap() += part.on_disk;
        }
        let from = self.shares.parts[0].first;
        let mut reader = self.log.handle().reader(from);
        loop {
            let frames = reader.read(1 << 20).unwrap();
            if frames.is_empty() {
                return all;
            }
            for frame in frames.iter().filter(|frame| frame.count() > 0) {
                *found.get_mut("all frames").unwrap() += frame.bytes() as u64;
                for record in frame.records() {
                    let namespace = namespace_of(&record).to_string();
                    *found.entry(namespace).or_default() += in_frame(&record);
                }
            }
        }
    }

    fn rooms<const N: usize>(&mut self, namespaces: [&str; N]) -> [Room; N] {
        namespaces.map(|namespace| self.shares.room(namespace))
    }
}

fn open(dir: &tempfile::TempDir) -> Log {
    let options = LogOptions {
        retention_size: SIZE,
        retention_age: Duration::from_secs(3600),
        sync: Sync::Never,
    };
    Log::open(&Directory::open(dir.path()).unwrap(), options, 0, 1000).unwrap().0
}

#[test]
fn a_namespace_with_more_than_a_quarter_of_a_backlog_is_cut_and_with_more_than_half_shed() {
    let mut bench = Bench::one();
    bench.fill("loud", SIZE / 16);
    let tail = bench.log.tail().next;
    assert!(bench.shares.parts[0].first == tail && bench.shares.parts[0].of.is_empty());
    bench.fill("loud", SIZE / 16 * 7 - (256 << 10));
    bench.fill("other", 128 << 10);
    assert_eq!(bench.rooms(["loud", "other"]), [Room::Whole; 2], "half of the journal is nobody's");
    let half = bench.log.tail().next;
    bench.fill("other", 256 << 10);
    let rooms = bench.rooms(["loud", "other", "a third"]);
    assert_eq!(rooms, [Room::Nothing, Room::Whole, Room::Whole]);
    bench.fill("third", SIZE / 2);
    assert_eq!(bench.rooms(["loud", "third", "other"]), [Room::Little, Room::Little, Room::Whole]);
    bench.settle(0, half);
    assert_eq!(bench.shares.room("loud"), Room::Whole, "sinks have had it");
    assert_eq!(bench.shares.room("third"), Room::Nothing);
    bench.settle(0, bench.log.tail().next);
    assert_eq!(bench.shares.room("third"), Room::Whole, "nobody is behind");
}

#[test]
fn nothing_is_shed_where_a_sink_is_to_lose_nothing() {
    let mut bench = Bench::new(&[Overflow::DropOldest, Overflow::Block]);
    bench.fill("other", 64 << 10);
    bench.fill("loud", SIZE - (256 << 10));
    assert_eq!(bench.shares.room("loud"), Room::Little);
}

#[test]
fn a_namespace_that_is_alone_has_all_after_a_start_too() {
    let mut bench = Bench::one();
    bench.fill("alone", SIZE - (256 << 10));
    assert_eq!(bench.shares.room("alone"), Room::Whole);
    bench.reopen();
    for _ in 0..20 {
        bench.append(&[("alone", 100, false)]);
        assert_eq!(bench.shares.room("alone"), Room::Whole);
    }
    assert!(bench.shares.earlier.is_none() && bench.shares.parts[0].first == 1);
    bench.append(&[("other", 1, false)]);
    assert_eq!(bench.shares.room("alone"), Room::Nothing);
}

#[test]
fn records_in_the_log_are_counted_when_they_matter_and_no_namespace_for_more_before() {
    let mut bench = Bench::one();
    for _ in 0..80 {
        bench.fill("loud", 32 << 10);
        bench.append(&[("quiet", 100, false), ("quiet", 100, true)]);
    }
    bench.reopen();
    assert!(bench.shares.bytes > SIZE / 2);
    assert_eq!(bench.rooms(["loud", "quiet"]), [Room::Whole; 2]);
    for _ in 0..4 {
        bench.append(&[("quiet", 100, false)]);
    }
    assert_eq!(bench.rooms(["loud", "quiet"]), [Room::Nothing, Room::Whole]);
    let [counted, found] = bench.counted_and_found();
    assert_eq!(counted, found);
    assert_eq!(found["all frames"], bench.shares.bytes);
}

#[test]
fn records_that_cannot_be_read_are_counted_once_they_can() {
    let mut bench = Bench::one();
    bench.fill("loud", SIZE / 4 * 3);
    bench.append(&[("quiet", 100, false)]);
    bench.reopen();
    let first = bench.dir.path().join("00000000000000000001.log");
    let aside = first.with_extension("aside");
    std::fs::rename(&first, &aside).unwrap();
    std::fs::create_dir(&first).unwrap();
    for _ in 0..8 {
        bench.append(&[("quiet", 100, false)]);
        bench.shares.tick();
    }
    assert!(bench.shares.earlier.is_some(), "it is tried again");
    assert_eq!(bench.rooms(["loud", "quiet"]), [Room::Whole; 2]);
    std::fs::remove_dir(&first).unwrap();
    std::fs::rename(&aside, &first).unwrap();
    bench.shares.tick();
    for _ in 0..8 {
        bench.append(&[("quiet", 100, false)]);
    }
    assert!(bench.shares.earlier.is_none());
    assert_eq!(bench.rooms(["loud", "quiet"]), [Room::Nothing, Room::Whole]);
}

#[test]
fn ten_thousand_namespaces_are_known_in_little_memory_and_none_is_taken_for_more_than_it_has() {
    let mut part = Part::default();
    let mut real = BTreeMap::<String, u64>::new();
    let mut random = fastrand::Rng::with_seed(7);
    for n in 0..200_000_u64 {
        let namespace = match n % 10 {
            0..3 => "loud".to_owned(),
            3 => format!("busy-{}", random.u8(..4)),
            _ => format!("quiet-{}", random.u16(..10_000)),
        };
        let bytes = random.u64(100..2_000);
        part.count(&namespace, bytes);
        *real.entry(namespace).or_default() += bytes;
        assert!(part.of.len() <= 2 * KNOWN);
    }
    assert_eq!(part.bytes, real.values().sum::<u64>());
    assert!(part.of.iter().all(|(namespace, bytes)| *bytes <= real[&**namespace]));
    let off = part.bytes / (KNOWN as u64 + 1);
    assert!(part.of["loud"] >= real["loud"] - off);
    // And of parts there are no more than the log has room for.
    let mut bench = Bench::one();
    for n in 0..2_000 {
        bench.append(&[(&format!("n{n}"), 4 << 10, false)]);
        bench.log.retain(2000, None).unwrap();
    }
    assert!(bench.shares.parts.len() as u64 <= 2 * PARTS + 2, "{}", bench.shares.parts.len());
}

#[derive(Clone, Debug)]
enum Op {
    Append(Vec<(usize, usize, bool)>),
    Settle(usize, u64),
    Retain,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let record = (0usize..6, prop_oneof![0usize..300, 20_000usize..60_000], any::<bool>());
    prop_oneof![
        40 => proptest::collection::vec(record, 0..8).prop_map(Op::Append),
        4 => (0usize..2, 0u64..100).prop_map(|(sink, part)| Op::Settle(sink, part)),
        4 => Just(Op::Retain),
        1 => Just(Op::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_counts_are_those_of_the_log(ops in proptest::collection::vec(op(), 1..150)) {
        let mut bench = Bench::new(&[Overflow::DropOldest; 2]);
        let last = ops.len() - 1;
        for (at, op) in ops.into_iter().enumerate() {
            match op {
                Op::Append(records) => {
                    let named = ["a", "b", "c", "d", "e", ""];
                    let records: Vec<_> =
                        records.into_iter().map(|(name, n, shed)| (named[name], n, shed)).collect();
                    bench.append(&records);
                }
                Op::Settle(sink, part) => {
                    let (from, tail) = (bench.sinks[sink].next(), bench.log.tail().next);
                    bench.settle(sink, from + (tail - from) * part / 99);
                }
                Op::Retain => {
                    bench.log.retain(2000, None).unwrap();
                    bench.shares.look();
                }
                Op::Reopen => bench.reopen(),
            }
            // To read the log each time takes long.
            if at % 8 != 0 && at != last {
                continue;
            }
            bench.shares.look();
            let [counted, found] = bench.counted_and_found();
            // Retention may have taken some of the first part.
            let (parts, oldest) = (&bench.shares.parts, bench.log.handle().oldest().next);
            if oldest <= parts[0].first {
                prop_assert_eq!(&counted, &found);
            }
            for (namespace, bytes) in &counted {
                let own = parts[0].of.get(&**namespace).copied().unwrap_or(parts[0].on_disk);
                let rest = found.get(namespace).copied().unwrap_or(0);
                prop_assert!((bytes.saturating_sub(own)..=*bytes).contains(&rest), "{namespace}");
            }
            prop_assert!(counted["all frames"] <= bench.shares.bytes);
            // All that a sink has not had is counted, or taken to be there.
            let from = bench.sinks.iter().map(|sink| sink.next()).min().unwrap();
            let known = parts[0].first <= from.max(oldest);
            let empty = from >= bench.log.tail().next;
            prop_assert!(known || empty || bench.shares.earlier.is_some() || !bench.shares.is_full());
        }
    }
}
