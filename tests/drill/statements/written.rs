//! What is written to the API server, with what a `match` and a source ask of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tidings_testkit::api_server::{ApiServer, EventObject, Written};

use crate::judge::{Key, Produced};

/// So many Events there are at a time; then they occur again.
const LIVE: usize = 400;
const PODS: usize = 24;
pub(super) const NAMESPACES: [&str; 4] = ["team-0", "team-1", "team-2", "team-3"];
/// The reason of what is large.
pub(super) const BULK: &str = "Bulk";
/// The reason of what is written to see it arrive.
const PROBE: &str = "Probe";
/// What one receiver refuses.
pub(super) const POISON: &str = "poison";

const STORIES: [(&str, bool); 4] =
    [("Pulled", false), ("Started", false), ("BackOff", true), ("Unhealthy", true)];

/// One version of an Event.
#[derive(Clone)]
pub(super) struct Version {
    pub(super) produced: Produced,
    pub(super) namespace: &'static str,
    pub(super) reason: &'static str,
    pub(super) warning: bool,
    pub(super) poison: bool,
    /// In which life of the bridge, or before the next, it was written.
    pub(super) life: usize,
}

/// All of them, in the order of the API server.
#[derive(Clone, Default)]
pub(super) struct History(Arc<Mutex<Vec<Version>>>);

impl History {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Version>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An Event that can occur again.
struct Live {
    name: String,
    count: i32,
    version: Version,
}

/// Who writes.
pub(super) struct Writer {
    server: Arc<ApiServer>,
    history: History,
    random: fastrand::Rng,
    live: Vec<Live>,
    numbers: u64,
    /// So much is added to each message.
    padding: usize,
    /// Of the bridge.
    pub(super) life: usize,
}

impl Writer {
    pub(super) fn new(server: &Arc<ApiServer>, padding: usize, seed: u64) -> Self {
        Self {
            server: Arc::clone(server),
            history: History::default(),
            random: fastrand::Rng::with_seed(seed),
            live: Vec::new(),
            numbers: 0,
            padding,
            life: 0,
        }
    }

    pub(super) fn history(&self) -> History {
        self.history.clone()
    }

    /// Writes so many a second for so long.
    pub(super) async fn write_for(mut self, rate: f64, length: Duration) -> Self {
        let (started, mut written) = (Instant::now(), 0.0);
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        while started.elapsed() < length {
            ticks.tick().await;
            let due = started.elapsed().as_secs_f64() * rate;
            while written < due {
                self.write();
                written += 1.0;
            }
        }
        self
    }

    /// Writes so many bytes in large messages about what is in these namespaces, and some others.
    pub(super) async fn bulk(mut self, bytes: usize, namespaces: &[&'static str]) -> Self {
        const EACH: usize = 64 << 10;
        let pods = (0..PODS).filter(|pod| namespaces.contains(&namespace_of(*pod)));
        let pods: Vec<usize> = pods.collect();
        let written = tokio::task::spawn_blocking(move || {
            for _ in 0..bytes.div_ceil(EACH) {
                let pod = pods[self.random.usize(..pods.len())];
                self.create(pod, BULK, false, &"x".repeat(EACH));
                self.live.pop();
                self.write();
            }
            self
        });
        written.await.expect("a writer that does not panic")
    }

    /// Writes an Event in each of these namespaces, to see it arrive. Answers the ids.
    pub(super) fn probe(&mut self, namespaces: &[&'static str]) -> Vec<Key> {
        let ids = namespaces.iter().map(|namespace| {
            let pod = NAMESPACES.iter().position(|one| one == namespace).expect("one of them");
            self.create(pod, PROBE, false, "");
            self.live.pop().expect("it was made just now").version.produced.id
        });
        ids.collect()
    }

    fn write(&mut self) {
        let full = self.live.len() >= LIVE;
        if !self.live.is_empty() && (full || self.random.u8(..3) > 0) {
            let at = self.random.usize(..self.live.len());
            let live = &mut self.live[at];
            live.count += 1;
            let (namespace, now) = (live.version.namespace, Timestamp::now());
            let patched = self.server.patch_count(namespace, &live.name, live.count, now);
            note(&self.history, live, &patched.expect("the Event is there"), self.life);
            // Some of them come to an end, but in the API server.
            if self.random.u8(..20) == 0 {
                self.live.swap_remove(at);
            }
            return;
        }
        let pod = self.random.usize(..PODS);
        let (reason, warning) = STORIES[self.random.usize(..STORIES.len())];
        let poison = self.random.u8(..100) == 0;
        let message = format!("{}{}", if poison { POISON } else { "" }, "y".repeat(self.padding));
        self.create(pod, reason, warning, &message);
    }

    fn create(&mut self, pod: usize, reason: &'static str, warning: bool, message: &str) {
        self.numbers += 1;
        let namespace = namespace_of(pod);
        let mut event = EventObject::about_pod(namespace, &format!("api-{pod}"), reason, message);
        if warning {
            event = event.warning();
        }
        event.metadata.name = format!("api-{pod}.{:x}", self.numbers);
        let (name, object) = (event.metadata.name.clone(), Key::of(&event.involved_object.uid));
        let created = self.server.create(event).expect("a new Event");
        let event = Key::of(&created.uid);
        let (id, at) = (event, Instant::now());
        let produced = Produced { id, event, object, version: 0, occurrences: 0, at };
        let poison = message.starts_with(POISON);
        let version = Version { produced, namespace, reason, warning, poison, life: 0 };
        self.live.push(Live { name, count: 1, version });
        let live = self.live.last_mut().expect("it was made just now");
        note(&self.history, live, &created, self.life);
    }
}

fn namespace_of(pod: usize) -> &'static str {
    NAMESPACES[pod % NAMESPACES.len()]
}

fn note(history: &History, live: &mut Live, written: &Written, life: usize) {
    let version = &mut live.version;
    version.produced.id = Key::of(&written.id());
    version.produced.version = written.resource_version;
    version.produced.occurrences = u64::from(live.count.unsigned_abs());
    version.produced.at = Instant::now();
    version.life = life;
    history.lock().push(version.clone());
}
