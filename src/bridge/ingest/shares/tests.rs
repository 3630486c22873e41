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
        let shares = Shares::new(&sinks, log.handle(), SIZE);
        Self { dir, log, sinks, shares, uid: 0 }
    }

    fn one() -> Self {
        Self::new(&[Overflow::DropOldest])
    }

    /// One frame with records of these namespaces, each of so many bytes or more; or shed.
    fn append(&mut self, records: &[(&str, usize, bool)]) {
        let (mut builder, mut tally) =
            (FrameBuilder::new("*".into(), Resume::default()), Tally::new());
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
                    Incoming::decode(event.as_bytes()).unwrap().write_shed(0, out);
                } else {
                    let text = format!(r#"{{"id":"u{uid}-{uid}","delta":1,"event":{event}}}"#);
                    out.extend_from_slice(text.as_bytes());
                }
            });
            if *shed {
                builder.sheds();
            }
            self.shares.note(&mut tally, namespace, builder.bytes() - before);
        }
        let frame = self.log.append(&mut builder, 1000).unwrap();
        self.shares.appended(&tally, self.log.segment_first(), frame.bytes());
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
        self.shares = Shares::new(&self.sinks, self.log.handle(), SIZE);
    }

    /// What is counted by namespace and of frames, and what reading the same part of the log finds.
    fn counted_and_found(&self) -> [BTreeMap<String, u64>; 2] {
        let mut all = [BTreeMap::<String, u64>::new(), BTreeMap::new()];
        for part in &self.shares.parts {
            for (namespace, bytes) in part.namespaces().filter(|(_, bytes)| *bytes > 0) {
                *all[0].entry(namespace.to_owned()).or_default() += bytes;
            }
            *all[0].entry("all frames".to_owned()).or_default() += part.on_disk;
        }
        let from = self.shares.known_from;
        all[1].insert("all frames".to_owned(), 0);
        let mut reader = self.log.handle().reader(from);
        loop {
            let frames = reader.read(1 << 20).unwrap();
            if frames.is_empty() {
                return all;
            }
            let frames: Vec<_> =
                frames.iter().filter(|frame| frame.count() > 0 && frame.next() > from).collect();
            for frame in &frames {
                *all[1].get_mut("all frames").unwrap() += frame.bytes() as u64;
            }
            for record in frames.iter().flat_map(|frame| frame.records()) {
                if record.seq >= from {
                    let found = &mut all[1];
                    with_namespace(&record, |namespace| {
                        *found.entry(namespace.to_owned()).or_default() += in_frame(&record);
                    });
                }
            }
        }
    }

    fn rooms<const N: usize>(&self, namespaces: [&str; N]) -> [Room; N] {
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
fn a_namespace_is_over_its_share_while_the_backlog_takes_half_of_the_journal() {
    let mut bench = Bench::one();
    bench.fill("loud", SIZE / 2 - (256 << 10));
    bench.fill("other", 128 << 10);
    assert_eq!(bench.rooms(["loud", "other"]), [Room::Whole; 2], "half of the journal is nobody's");
    let half = bench.log.tail().next;
    bench.fill("other", 256 << 10);
    let rooms = bench.rooms(["loud", "other", "a third"]);
    assert_eq!(rooms, [Room::LittleOrNothing, Room::Whole, Room::Whole]);
    bench.fill("third", SIZE / 2);
    assert_eq!(bench.rooms(["loud", "third", "other"])[..2], [Room::Little; 2]);
    assert_eq!(bench.shares.room("other"), Room::Whole);
    bench.settle(0, half);
    assert_eq!(bench.shares.room("loud"), Room::Whole, "sinks have had it");
    assert_eq!(bench.shares.room("third"), Room::LittleOrNothing);
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
fn records_of_any_size_are_shed_only_where_no_sink_moves_and_others_need_the_room() {
    let mut bench = Bench::one();
    bench.fill("other", 64 << 10);
    bench.fill("loud", SIZE / 4 * 3);
    bench.shares.stands_still = true;
    assert_eq!(bench.shares.room("loud"), Room::LittleOrNothing, "there is room");
    bench.fill("loud", SIZE / 8);
    bench.shares.stands_still = true;
    assert_eq!(bench.shares.room("loud"), Room::Nothing);
    bench.shares.stands_still = false;
    assert_eq!(bench.shares.room("loud"), Room::LittleOrNothing);
    let mut bench = Bench::one();
    bench.fill("other", SIZE / 16 * 5);
    bench.fill("loud", SIZE / 16 * 6);
    bench.shares.stands_still = true;
    assert_eq!(bench.shares.room("loud"), Room::Nothing, "as much as they have is kept free");
}

#[test]
fn a_namespace_that_is_alone_has_all_after_a_start_too() {
    let mut bench = Bench::one();
    bench.fill("alone", SIZE - (256 << 10));
    assert_eq!(bench.shares.room("alone"), Room::Whole);
    bench.reopen();
    for _ in 0..20 {
        bench.append(&[("alone", 100, false)]);
        bench.shares.stands_still = true;
        assert_eq!(bench.shares.room("alone"), Room::Whole);
    }
    assert!(bench.shares.earlier.is_none() && bench.shares.known_from == 1);
    bench.append(&[("other", 1, false)]);
    assert_ne!(bench.shares.room("alone"), Room::Whole);
}

#[test]
fn what_was_in_the_log_is_counted_when_it_matters_and_nobody_is_taken_for_more_before() {
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
    assert_eq!(bench.rooms(["loud", "quiet"]), [Room::LittleOrNothing, Room::Whole]);
    let [counted, found] = bench.counted_and_found();
    assert_eq!(counted, found);
    assert_eq!(found["all frames"], bench.shares.bytes);
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
    fn what_is_counted_is_what_the_log_has(ops in proptest::collection::vec(op(), 1..150)) {
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
            prop_assert_eq!(&counted, &found);
            prop_assert!(counted["all frames"] <= bench.shares.bytes);
            prop_assert!(counted.values().sum::<u64>() - counted["all frames"] <= bench.shares.counted);
            // All that a sink has not had is counted, or taken to be there.
            let from = bench.sinks.iter().map(|sink| sink.next()).min().unwrap();
            let known = bench.shares.known_from <= from.max(bench.log.handle().oldest().next);
            prop_assert!(known || bench.shares.earlier.is_some() || bench.shares.bytes <= SIZE / 2);
        }
    }
}
