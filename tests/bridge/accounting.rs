//! Each record has one fate at each sink, whatever that answers and however the bridge ends.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use tidings::bridge::{
    BatchOptions, Bridge, EventFate, Failure, FailureClass, Outcome, RefusedClass, Secrets,
};
use tidings_testkit::api_server::{ApiServer, EventObject, Written};
use tokio::runtime::Runtime;

use crate::support::{
    MemorySink, Received, Setup, Tuning, bridge_cases, dead_letters, failure, invalid, retry,
    server, settled, sink_status, stop, until,
};

/// What happens to the bridge and to the cluster.
#[derive(Clone, Debug)]
enum Step {
    /// Events of these reasons are created.
    Create(Vec<Kind>),
    /// The oldest Event occurs once more.
    Again,
    Wait(u64),
    Stop,
    /// Everything ends where it is: nothing is drained, nothing is saved.
    Crash,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    /// `match` does not want it.
    Dull,
    /// The sink refuses it.
    Poison,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![6 => Just(Kind::Plain), 2 => Just(Kind::Dull), 1 => Just(Kind::Poison)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(kind(), 1..40).prop_map(Step::Create),
        2 => Just(Step::Again),
        4 => (1u64..40).prop_map(Step::Wait),
        1 => Just(Step::Stop),
        2 => Just(Step::Crash),
    ]
}

/// A sink that answers at random, but for what it refuses.
fn moody(seed: u64) -> MemorySink {
    let sink = MemorySink::default();
    let mut random = fastrand::Rng::with_seed(seed);
    sink.respond(move |events: &[Received]| {
        let poison = |event: &Received| event.envelope.contains("\"reason\":\"Poison\"");
        match random.u8(..10) {
            0 | 1 => return Some(retry(FailureClass::Unavailable)),
            2..5 => {
                let fate = |event: &Received| match random.u8(..4) {
                    _ if poison(event) => {
                        let reason = Secrets::none().reason("poison");
                        EventFate::Failed(Failure::refused(RefusedClass::Invalid, reason))
                    }
                    0 => EventFate::Failed(failure(FailureClass::Unavailable)),
                    _ => EventFate::Delivered,
                };
                let fates = events.iter().map(fate).collect();
                return Some(Outcome::PerEvent(fates));
            }
            _ => {}
        }
        events.iter().any(poison).then(|| invalid("poison"))
    });
    sink
}

/// What was written, by its fate.
#[derive(Default)]
struct Truth {
    wanted: BTreeSet<String>,
    dull: BTreeSet<String>,
    poison: BTreeSet<String>,
}

impl Truth {
    fn all(&self) -> u64 {
        (self.wanted.len() + self.dull.len() + self.poison.len()) as u64
    }

    fn of(&mut self, kind: Kind) -> &mut BTreeSet<String> {
        match kind {
            Kind::Plain => &mut self.wanted,
            Kind::Dull => &mut self.dull,
            Kind::Poison => &mut self.poison,
        }
    }
}

/// A cluster, a journal and a sink, over which bridges come and go, each in a runtime of its own.
struct World {
    outer: Runtime,
    server: ApiServer,
    dir: tempfile::TempDir,
    sink: MemorySink,
    truth: Truth,
    first: Option<(Written, Kind)>,
}

impl World {
    fn new(sink: MemorySink) -> Self {
        let outer = Runtime::new().unwrap();
        let server = outer.block_on(async { server() });
        let dir = tempfile::tempdir().unwrap();
        Self { outer, server, dir, sink, truth: Truth::default(), first: None }
    }

    fn start(&self) -> (Runtime, Bridge) {
        let runtime = Runtime::new().unwrap();
        let tuning = Tuning {
            batch: BatchOptions { events: 7, bytes: 1 << 20, linger: Duration::from_millis(2) },
            filter: Some("event.reason != \"Dull\""),
            ..Tuning::default()
        };
        let setup = Setup::new(&self.server, self.dir.path()).tuned("a", &self.sink, tuning);
        let bridge = runtime.block_on(setup.start());
        (runtime, bridge)
    }

    fn create(&mut self, kinds: &[Kind]) {
        let _entered = self.outer.enter();
        for kind in kinds {
            let pod = format!("web-{}", self.truth.all());
            let event = EventObject::about_pod("shop", &pod, &format!("{kind:?}"), "m");
            let written = self.server.create(event).unwrap();
            self.truth.of(*kind).insert(written.id());
            self.first.get_or_insert((written, *kind));
        }
    }

    fn again(&mut self) {
        let Some((first, kind)) = self.first.clone() else { return };
        let count = i32::try_from(self.truth.all()).unwrap() + 1;
        let at = jiff::Timestamp::now();
        let written = self.server.patch_count("shop", &first.name, count, at).unwrap();
        self.truth.of(kind).insert(written.id());
    }
}

fn conserves(world: &mut World, steps: Vec<Step>) {
    let (mut runtime, mut bridge) = world.start();
    // From here on each version is seen; a first list shows the newest ones only.
    runtime.block_on(until("a watch", || world.server.open_watches() == 1));
    let mut delivered = 0;
    for step in steps {
        match step {
            Step::Create(kinds) => world.create(&kinds),
            Step::Again => world.again(),
            Step::Wait(ms) => {
                let (end, mut seen) = (Instant::now() + Duration::from_millis(ms), 0);
                while Instant::now() < end {
                    // Held to the identity within.
                    let status = sink_status(&bridge.view(), "a");
                    let all = world.truth.all();
                    assert!((seen..=all).contains(&status.seen), "{seen}, {all}: {status:?}");
                    seen = status.seen;
                    // Not even a crash takes back that the receiver has an event.
                    assert!(status.delivered >= delivered, "{delivered}: {status:?}");
                    delivered = status.delivered;
                }
            }
            Step::Stop => {
                runtime.block_on(stop(bridge));
                drop(runtime);
                (runtime, bridge) = world.start();
            }
            Step::Crash => {
                runtime.shutdown_timeout(Duration::from_secs(10));
                drop(bridge);
                (runtime, bridge) = world.start();
            }
        }
    }
    let all = world.truth.all();
    let status = runtime.block_on(settled(&bridge.view(), "a", all));
    let Truth { wanted, dull, poison } = &world.truth;
    let counts = (status.delivered, status.filtered, status.dead_lettered, status.lost);
    let expected = (wanted.len() as u64, dull.len() as u64, poison.len() as u64, 0);
    assert_eq!(counts, expected);
    runtime.block_on(stop(bridge));
    assert_eq!(world.sink.ids().into_iter().collect::<BTreeSet<_>>(), *wanted);
    let letters: Vec<_> =
        dead_letters(world.dir.path()).into_iter().map(|letter| letter.id).collect();
    assert_eq!(letters.len(), poison.len(), "each of them once");
    assert_eq!(letters.into_iter().collect::<BTreeSet<_>>(), *poison);
}

proptest! {
    #![proptest_config(bridge_cases())]

    #[test]
    fn nothing_is_lost_or_counted_twice(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..20),
    ) {
        conserves(&mut World::new(moody(seed)), steps);
    }
}

#[test]
fn what_a_crash_makes_come_again_is_counted_beside_the_fates() {
    let mut world = World::new(MemorySink::default());
    let (runtime, bridge) = world.start();
    world.create(&[Kind::Plain; 100]);
    runtime.block_on(settled(&bridge.view(), "a", 100));
    // At most a second of it has been saved.
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop(bridge);
    let (runtime, bridge) = world.start();
    assert_eq!(sink_status(&bridge.view(), "a").delivered, 100);
    world.create(&[Kind::Plain]);
    let status = runtime.block_on(settled(&bridge.view(), "a", 101));
    assert_eq!(status.delivered, 101);
    let received = world.sink.received();
    assert_eq!(status.redelivered, received.len() as u64 - 101);
    assert_eq!(world.sink.ids().into_iter().collect::<BTreeSet<_>>(), world.truth.wanted);
    runtime.block_on(stop(bridge));
}
