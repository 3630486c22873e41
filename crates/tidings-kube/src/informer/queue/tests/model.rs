//! Whatever the order of calls: what a consumer makes of its pops is what the queue was told at
//! last, and no object changes into a later one of its name unless its end was seen.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const KEYS: [&str; 5] = ["a", "b", "shop/a", "shop/b", "c"];

#[derive(Clone, Debug)]
enum Call {
    Add(usize),
    Update(usize),
    Delete(usize),
    DeleteUnseen(usize),
    /// For each key whether it is listed, and whether it changed since it was told.
    Replace([(bool, bool); KEYS.len()]),
    Resync,
    Pop,
    /// Popped, but the consumer does not manage.
    PopInVain,
}

fn call() -> impl Strategy<Value = Call> {
    let key = 0..KEYS.len();
    prop_oneof![
        3 => key.clone().prop_map(Call::Add),
        3 => key.clone().prop_map(Call::Update),
        3 => key.clone().prop_map(Call::Delete),
        1 => key.prop_map(Call::DeleteUnseen),
        2 => any::<[(bool, bool); KEYS.len()]>().prop_map(Call::Replace),
        1 => Just(Call::Resync),
        6 => Just(Call::Pop),
        2 => Just(Call::PopInVain),
    ]
}

/// What was told of one key.
#[derive(Default)]
struct Told {
    /// The version that exists.
    version: Option<u64>,
    /// The versions told of the object that exists, and of those before it.
    lives: Vec<BTreeSet<u64>>,
}

impl Told {
    fn exists(&mut self, version: u64) {
        if self.version.replace(version).is_none() {
            self.lives.push(BTreeSet::new());
        }
        self.lives.last_mut().unwrap().insert(version);
    }

    fn life_of(&self, version: u64) -> usize {
        self.lives.iter().position(|life| life.contains(&version)).unwrap()
    }
}

/// The consumer: a store, and what it saw of each key; `None` is an end.
#[derive(Default)]
struct Consumer {
    store: Known,
    seen: BTreeMap<String, Vec<Option<u64>>>,
}

impl Consumer {
    /// Whether there was something.
    fn pop(&mut self, queue: &impl Queue<ConfigMap>) -> bool {
        let process = |deltas: &[Delta<ConfigMap>], _: bool| {
            self.apply(deltas);
            Ok::<_, Infallible>(())
        };
        queue.pop(process).now_or_never().is_some()
    }

    fn apply(&mut self, deltas: &[Delta<ConfigMap>]) {
        for delta in deltas {
            let key = delta.object.key();
            let seen = self.seen.entry(key.clone()).or_default();
            match (delta.kind, &delta.object) {
                (DeltaType::Deleted, _) => {
                    self.store.delete(&key);
                    seen.push(None);
                }
                (_, DeltaObject::Object(object)) => {
                    seen.push(Some(version(object)));
                    self.store.add(Arc::clone(object));
                }
                (kind, DeltaObject::Tombstone(_)) => panic!("{kind:?} with a tombstone"),
            }
        }
    }
}

fn play<Q: Queue<ConfigMap>>(new: fn(&Known, Transformer) -> Q, calls: Vec<Call>) {
    let mut consumer = Consumer::default();
    let queue = new(&consumer.store, None);
    let mut told: BTreeMap<&str, Told> = KEYS.map(|key| (key, Told::default())).into();
    let mut versions = 1..;
    for call in calls {
        match call {
            Call::Add(at) | Call::Update(at) => {
                let (key, version) = (KEYS[at], versions.next().unwrap());
                told.get_mut(key).unwrap().exists(version);
                let tell = if matches!(call, Call::Add(_)) { Q::add } else { Q::update };
                tell(&queue, config_map(key, version)).unwrap();
            }
            Call::Delete(at) => {
                let key = KEYS[at];
                let last = told.get_mut(key).unwrap().version.take().unwrap_or(0);
                queue.delete(config_map(key, last)).unwrap();
            }
            Call::DeleteUnseen(at) => {
                told.get_mut(KEYS[at]).unwrap().version = None;
                let key = KEYS[at].to_owned();
                queue.delete_tombstone(DeletedFinalStateUnknown { key, object: None });
            }
            Call::Replace(listed) => {
                let mut list = Vec::new();
                for ((listed, changed), key) in listed.into_iter().zip(KEYS) {
                    let told = told.get_mut(key).unwrap();
                    if !listed {
                        told.version = None;
                        continue;
                    }
                    let known = told.version.filter(|_| !changed);
                    let version = known.unwrap_or_else(|| versions.next().unwrap());
                    told.exists(version);
                    list.push(config_map(key, version));
                }
                queue.replace(list).unwrap();
            }
            Call::Resync => queue.resync(),
            Call::Pop => {
                consumer.pop(&queue);
            }
            Call::PopInVain => {
                let vain = queue.pop_or_requeue(|_, _| Err::<(), _>("not now")).now_or_never();
                assert!(matches!(vain, None | Some(Err(PopError::Process("not now")))));
            }
        }
    }
    while consumer.pop(&queue) {}

    for (key, told) in told {
        let stored = consumer.store.get_by_key(key).map(|object| version(&object));
        assert_eq!(stored, told.version, "{key} at the end");
        let mut last = None;
        for &seen in consumer.seen.get(key).into_iter().flatten() {
            if let (Some(before), Some(now)) = (last, seen) {
                assert!(before <= now, "{key}: {before} came before {now}");
                assert_eq!(told.life_of(before), told.life_of(now), "{key}: an end was missed");
            }
            last = seen;
        }
    }
}

proptest! {
    #[test]
    fn in_order_ends_in_what_was_told(calls in prop::collection::vec(call(), 0..60)) {
        play(in_order, calls);
    }

    #[test]
    fn delta_ends_in_what_was_told(calls in prop::collection::vec(call(), 0..60)) {
        play(delta, calls);
    }
}
