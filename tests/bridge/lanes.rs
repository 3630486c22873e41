//! Several attempts under way at once: the order of each object, and the identity against what arrived.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use proptest::prelude::*;
use tidings::{
    bridge::{
        BatchOptions, Bridge, CorrelateMode, EventFate, FailureClass, Outcome, Sink, SinkCondition,
    },
    event::{Batch, Envelope},
};
use tidings_testkit::api_server::{ApiServer, EventObject};
use tokio::runtime::Runtime;

use crate::support::{
    MemorySink, Received, Setup, Tuning, bridge_cases, failure, retry, server, settled,
    sink_status, stop, until,
};

fn lanes(concurrency: usize, events: usize) -> Tuning {
    let linger = Duration::from_millis(2);
    let batch = BatchOptions { events, bytes: 1 << 20, linger };
    Tuning { batch, concurrency, ..Tuning::default() }
}

/// A change as it arrived: the object, the id, and the version.
#[derive(Clone, Debug)]
struct Arrival {
    object: String,
    id: String,
    version: u64,
}

/// The events that a receiver has had.
#[derive(Debug, Default)]
struct Arrived {
    all: Vec<Arrival>,
    /// Attempts under way, and the most there were.
    under_way: usize,
    most: usize,
}

/// A receiver that takes its time, different for each attempt, and answers at random; clones are the same
/// one.
#[derive(Clone)]
struct Receiver {
    arrived: Arc<Mutex<Arrived>>,
    random: Arc<Mutex<fastrand::Rng>>,
    /// Of ten attempts, so many fail.
    fail: Arc<AtomicU8>,
}

impl Receiver {
    fn new(seed: u64, fail: u8) -> Self {
        let random = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        Self { arrived: Arc::default(), random, fail: Arc::new(fail.into()) }
    }

    fn arrived(&self) -> Vec<Arrival> {
        self.arrived.lock().unwrap().all.clone()
    }

    /// How many changes arrived.
    fn changes(&self) -> u64 {
        let ids: BTreeSet<_> = self.arrived().into_iter().map(|arrival| arrival.id).collect();
        ids.len() as u64
    }

    /// The same, where each of the objects has its changes in order if the first arrival of each counts.
    fn assert_in_order(&self) -> u64 {
        let mut seen = BTreeSet::new();
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        for Arrival { object, id, version } in self.arrived() {
            if !seen.insert(id) {
                continue;
            }
            let before = last.insert(object.clone(), version).unwrap_or_default();
            assert!(before < version, "{version} of {object} after {before}");
        }
        seen.len() as u64
    }

    /// How many changes arrived again.
    fn repeats(&self) -> u64 {
        self.arrived().len() as u64 - self.changes()
    }
}

fn arrival(envelope: &[u8]) -> Arrival {
    let envelope = Envelope::parse(envelope).unwrap();
    let event = envelope.event().unwrap();
    Arrival {
        object: event.involved_object.name.to_string(),
        id: envelope.id.to_string(),
        version: event.metadata.resource_version.parse().unwrap(),
    }
}

impl Sink for Receiver {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let (wait, answer, taken) = {
                let mut random = self.random.lock().unwrap();
                let taken: Vec<_> = batch.records.iter().map(|_| random.u8(..3) > 0).collect();
                (random.u64(0..12), random.u8(..10), taken)
            };
            {
                let mut arrived = self.arrived.lock().unwrap();
                arrived.under_way += 1;
                arrived.most = arrived.most.max(arrived.under_way);
            }
            let _ended = Ended(self);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let fails = answer < self.fail.load(Ordering::Relaxed);
            if fails && answer % 2 == 0 {
                return retry(FailureClass::Unavailable);
            }
            let mut arrived = self.arrived.lock().unwrap();
            // One that answers for each takes no later change of an object than one that it does not take.
            let mut not_taken = BTreeSet::new();
            let mut fates = Vec::new();
            for (record, taken) in batch.records.iter().zip(taken) {
                let arrival = arrival(&record.envelope);
                if fails && (!taken || not_taken.contains(&arrival.object)) {
                    not_taken.insert(arrival.object);
                    fates.push(EventFate::Failed(failure(FailureClass::Unavailable)));
                } else {
                    arrived.all.push(arrival);
                    fates.push(EventFate::Delivered);
                }
            }
            if fails { Outcome::PerEvent(fates) } else { Outcome::Delivered }
        })
    }
}

/// An attempt that ends, or is dropped.
struct Ended<'a>(&'a Receiver);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.arrived.lock().unwrap().under_way -= 1;
    }
}

/// Changes of objects: so many of each, in turn at random.
fn create(server: &ApiServer, random: &mut fastrand::Rng, changes: usize, objects: usize) {
    for n in 0..changes {
        let object = format!("web-{}", random.usize(0..objects));
        let event = EventObject::about_pod("shop", &object, &format!("R{n}"), "m");
        server.create(event).unwrap();
    }
}

fn start(
    runtime: &Runtime,
    server: &ApiServer,
    dir: &std::path::Path,
    sink: &Receiver,
    tuning: Tuning,
) -> Bridge {
    let mut setup = Setup::new(server, dir);
    setup.sinks.push(("a", Arc::new(sink.clone()), tuning));
    runtime.block_on(setup.start())
}

#[test]
fn each_object_is_in_order_whatever_an_attempt_takes_or_answers() {
    for (concurrency, events, most) in [(1, 1, 1), (8, 1, 8), (8, 20, 8), (32, 3, 32)] {
        let (outer, dir) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let server = outer.block_on(async { server() });
        let mut random = fastrand::Rng::with_seed(7);
        create(&server, &mut random, 1500, 60);
        let receiver = Receiver::new(concurrency as u64, 3);
        let tuning = lanes(concurrency, events);
        let bridge = start(&outer, &server, dir.path(), &receiver, tuning);
        let status = outer.block_on(settled(&bridge.view(), "a", 1500));
        assert_eq!((status.delivered, status.dead_lettered, status.redelivered), (1500, 0, 0));
        outer.block_on(stop(bridge));
        assert_eq!(receiver.assert_in_order(), 1500);
        assert_eq!(receiver.repeats(), 0);
        let found = receiver.arrived.lock().unwrap().most;
        assert!(found <= most && (events > 3 || found > most / 2), "{found} of {most} at once");
    }
}

#[derive(Clone, Debug)]
enum Happening {
    Create(usize),
    Wait(u64),
    Stop,
    /// Everything ends where it is: nothing is drained, nothing is saved.
    Kill,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        5 => (1usize..120).prop_map(Happening::Create),
        4 => (1u64..60).prop_map(Happening::Wait),
        1 => Just(Happening::Stop),
        2 => Just(Happening::Kill),
    ]
}

proptest! {
    #![proptest_config(bridge_cases())]

    #[test]
    fn what_is_redelivered_after_kills_is_what_the_receiver_had_twice(
        seed in any::<u64>(),
        concurrency in prop_oneof![Just(2usize), Just(8), Just(32)],
        events in 1usize..12,
        suppress in any::<bool>(),
        happenings in prop::collection::vec(happening(), 1..14),
    ) {
        let (outer, dir) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let server = outer.block_on(async { server() });
        let receiver = Receiver::new(seed, 2);
        let mut random = fastrand::Rng::with_seed(seed);
        let correlate = if suppress { CorrelateMode::Suppress } else { CorrelateMode::Annotate };
        let begin = || {
            let runtime = Runtime::new().unwrap();
            let tuning = Tuning { correlate, ..lanes(concurrency, events) };
            let bridge = start(&runtime, &server, dir.path(), &receiver, tuning);
            (runtime, bridge)
        };
        let (mut runtime, mut bridge) = begin();
        runtime.block_on(until("a watch", || server.open_watches() == 1));
        let mut created = 0;
        for happening in happenings {
            match happening {
                Happening::Create(changes) => {
                    let _entered = outer.enter();
                    create(&server, &mut random, changes, 20);
                    created += changes as u64;
                }
                Happening::Wait(ms) => std::thread::sleep(Duration::from_millis(ms)),
                Happening::Stop => {
                    runtime.block_on(stop(bridge));
                    (runtime, bridge) = begin();
                }
                Happening::Kill => {
                    runtime.shutdown_timeout(Duration::from_secs(10));
                    drop(bridge);
                    (runtime, bridge) = begin();
                }
            }
        }
        runtime.block_on(until("all seen", || sink_status(&bridge.view(), "a").seen == created));
        let all = || {
            let sink = sink_status(&bridge.view(), "a");
            let end = bridge.view().log.tail().next;
            sink.pending == sink.held && sink.next_sequence >= end
        };
        runtime.block_on(until("what is not held is settled", all));
        // What is held goes out at the end, and a receiver that fails is not waited for then.
        receiver.fail.store(0, Ordering::Relaxed);
        runtime.block_on(stop(bridge));
        let (runtime, bridge) = begin();
        let status = sink_status(&bridge.view(), "a");
        runtime.block_on(stop(bridge));
        prop_assert_eq!((status.dead_lettered, status.lost, status.pending), (0, 0, 0));
        // What is held comes out behind what was sent meanwhile.
        let changes = if suppress { receiver.changes() } else { receiver.assert_in_order() };
        prop_assert_eq!(changes, status.delivered);
        prop_assert_eq!(status.delivered + status.correlated_away + status.pending, created);
        prop_assert_eq!(status.redelivered, receiver.repeats());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_fails_holds_up_its_own_objects_only() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let of_poison = |event: &Received| event.envelope.contains("\"name\":\"poison\"");
    sink.refuse(move |event| of_poison(event).then(|| retry(FailureClass::Misconfigured)));
    let bridge = Setup::new(&server, dir.path()).tuned("a", &sink, lanes(4, 1)).start().await;
    until("a watch", || server.open_watches() == 1).await;
    for n in 0..600 {
        let object = if n % 100 == 0 { "poison".to_owned() } else { format!("web-{}", n % 50) };
        let event = EventObject::about_pod("shop", &object, &format!("R{n}"), "m");
        server.create(event).unwrap();
    }
    until("the others", || sink_status(&bridge.view(), "a").delivered >= 594).await;
    let status = sink_status(&bridge.view(), "a");
    assert_eq!((status.seen, status.delivered, status.pending), (600, 594, 6));
    assert_eq!(status.next_sequence, 1, "the first is not taken");
    sink.accept_everything();
    let status = settled(&bridge.view(), "a", 600).await;
    assert_eq!((status.delivered, status.redelivered), (600, 0));
    assert_eq!(sink_status(&bridge.view(), "a").state, SinkCondition::Healthy);
    stop(bridge).await;
    let received = sink.received();
    let poison: Vec<u64> = received.iter().filter(|e| of_poison(e)).map(|e| e.seq).collect();
    assert_eq!(poison, [1, 101, 201, 301, 401, 501]);
}
