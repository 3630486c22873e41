//! What is written to the scripted API server, and the record of it.
//!
//! Events as kubelets make them: three of four are new, one is an earlier one that occurred again,
//! until there are [`LIVE`] of them; from then on all are repeats. So a list stays short, however
//! long the load is, and no Event ends: each increment is visible to whoever lists.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tidings_testkit::api_server::{ApiServer, EventObject, Written};
use tokio::task::JoinHandle;

use crate::judge::{Key, Produced};

const LIVE: usize = 4_000;
/// The namespace of what is written alone.
pub(crate) const ALONE: &str = "team-0";
const NAMESPACES: usize = 10;
/// Few enough that a correlator has something to hold back.
const PODS: usize = 60;

/// Reason and message of the stories that Pods tell.
const STORIES: [(&str, &str); 6] = [
    ("Scheduled", "Successfully assigned the Pod to node-1"),
    ("Pulled", "Container image \"registry.example.com/shop/api:v7\" already present on machine"),
    ("Created", "Created container: api"),
    ("Started", "Started container api"),
    ("BackOff", "Back-off restarting failed container api"),
    ("Unhealthy", "Readiness probe failed: context deadline exceeded\n(while awaiting headers)"),
];

/// All that was produced, in the order of the API server.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Vec<Produced>>>);

impl Record {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Produced>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many versions there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}

/// A load at work.
pub(crate) struct Writing {
    stop: Arc<AtomicBool>,
    writer: JoinHandle<Writer>,
}

impl Writing {
    /// Has so many written a second, until it is stopped.
    pub(crate) fn start(mut writer: Writer, rate: u32) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let writer = tokio::spawn(async move {
            let (started, mut written) = (Instant::now(), 0_u32);
            let mut ticks = tokio::time::interval(Duration::from_millis(2));
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                let due = started.elapsed().as_secs_f64() * f64::from(rate);
                while f64::from(written) < due {
                    writer.write();
                    written += 1;
                }
            }
            writer
        });
        Self { stop, writer }
    }

    /// Ends it, and answers who wrote. All that was written is in the record.
    pub(crate) async fn stop(self) -> Writer {
        self.stop.store(true, Ordering::Relaxed);
        self.writer.await.expect("a writer that does not panic")
    }
}

/// Who writes, one after the other.
pub(crate) struct Writer {
    server: Arc<ApiServer>,
    record: Record,
    random: fastrand::Rng,
    live: Vec<Live>,
    most: usize,
}

/// An Event that can occur again.
struct Live {
    namespace: String,
    name: String,
    object: Key,
    count: i32,
}

impl Writer {
    pub(crate) fn new(server: &Arc<ApiServer>, record: &Record, seed: u64) -> Self {
        Self {
            server: Arc::clone(server),
            record: record.clone(),
            random: fastrand::Rng::with_seed(seed),
            live: Vec::new(),
            most: LIVE,
        }
    }

    /// The same, but that new Events never end.
    pub(crate) fn without_end(self) -> Self {
        Self { most: usize::MAX, ..self }
    }

    /// Writes so many, as fast as it goes, and leaves the threads of the runtime to others.
    pub(crate) async fn burst(mut self, count: usize) -> Self {
        let written = tokio::task::spawn_blocking(move || {
            (0..count).for_each(|_| self.write());
            self
        });
        written.await.expect("a writer that does not panic")
    }

    /// Writes once: a new Event, or an earlier one again.
    pub(crate) fn write(&mut self) {
        let again = self.random.u8(..4) == 0 || self.live.len() >= self.most;
        if again && !self.live.is_empty() {
            let at = self.random.usize(..self.live.len());
            let live = &mut self.live[at];
            live.count += 1;
            let (now, live) = (Timestamp::now(), &*live);
            let patched = self.server.patch_count(&live.namespace, &live.name, live.count, now);
            self.note(&patched.expect("the Event is there"), at);
        } else {
            let (reason, message) = STORIES[self.random.usize(..STORIES.len())];
            self.create(reason, message);
        }
    }

    /// Writes an Event that says this, the only one of its object: it may come late, by itself.
    /// Answers its name in [`ALONE`].
    pub(crate) fn write_alone(&mut self, reason: &str, message: &str) -> String {
        let pod = format!("alone-{:x}", next_number());
        self.create_about(ALONE, &pod, reason, message);
        self.live.pop().expect("it was made just now").name
    }

    fn create(&mut self, reason: &str, message: &str) {
        let pod = self.random.usize(..PODS);
        let (namespace, name) = (format!("team-{}", pod % NAMESPACES), format!("api-{pod}"));
        self.create_about(&namespace, &name, reason, message);
    }

    fn create_about(&mut self, namespace: &str, pod: &str, reason: &str, message: &str) {
        let mut event = EventObject::about_pod(namespace, pod, reason, message);
        event.metadata.name = format!("{pod}.{:x}", next_number());
        let object = Key::of(&event.involved_object.uid);
        let name = event.metadata.name.clone();
        self.live.push(Live { namespace: namespace.to_owned(), name, object, count: 1 });
        let created = self.server.create(event).expect("a new Event");
        self.note(&created, self.live.len() - 1);
    }

    fn note(&self, written: &Written, live: usize) {
        let Live { object, count, .. } = self.live[live];
        self.record.lock().push(Produced {
            id: Key::of(&written.id()),
            event: Key::of(&written.uid),
            object,
            version: written.resource_version,
            occurrences: u64::from(count.unsigned_abs()),
            at: Instant::now(),
        });
    }
}

/// Writers may write at the same time, and their Events are not each other's.
fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}
