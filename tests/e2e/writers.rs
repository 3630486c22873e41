//! Those who write Events: several at once, as components of a cluster do it. Each creates its own
//! and patches a part of them again and again, with a count that rises.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::truth::Truth;

/// How long a write is tried again when the API server is away.
const GIVE_UP_AFTER: Duration = Duration::from_mins(2);
/// Fewer than writers, so that several of them write about the same objects.
const NAMESPACES: usize = 3;
/// Objects in a namespace that Events are about.
const OBJECTS: usize = 20;

/// A kind of write.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// The start of the Events' names; the same in a later load means the same Events.
    pub(crate) prefix: &'static str,
    pub(crate) events: usize,
    /// How many of the Events are patched.
    pub(crate) repeated: usize,
    /// The occurrences that this load takes the Events to: from 1 they are created, and those that
    /// are patched end at the last.
    pub(crate) occurrences: std::ops::RangeInclusive<usize>,
    /// Writes a second, of all writers together, at most.
    pub(crate) rate: usize,
    pub(crate) writers: usize,
}

impl Default for Load {
    /// 4 Events created and 1 of them patched three times, at a rate that the parts, a bridge built
    /// for debugging and the test can share two cores at.
    fn default() -> Self {
        Self {
            prefix: "event",
            events: 1_500,
            repeated: 300,
            occurrences: 1..=4,
            rate: 200,
            writers: 6,
        }
    }
}

/// One write: the Event of this number reaches these occurrences.
#[derive(Clone, Copy, Debug)]
struct Write {
    event: usize,
    occurrences: usize,
}

impl Load {
    /// How many writes it is.
    pub(crate) fn writes(&self) -> usize {
        self.plan().len()
    }

    /// The writes in their order: an Event is patched when some others have been created, at once
    /// or much later.
    fn plan(&self) -> Vec<Write> {
        let mut plan = Vec::new();
        for event in 0..self.events {
            // One in so many, all over the load.
            let nth = self.events.checked_div(self.repeated).filter(|every| event % every == 0);
            let last = if nth.is_some() { *self.occurrences.end() } else { 1 };
            for occurrences in *self.occurrences.start()..=last {
                let after = (occurrences - 1) * (event / nth.unwrap_or(1) % 40);
                plan.push((event + after, Write { event, occurrences }));
            }
        }
        // Stable: an Event's own order stays.
        plan.sort_by_key(|(when, _)| *when);
        plan.into_iter().map(|(_, write)| write).collect()
    }

    /// Makes the namespaces and starts to write.
    pub(crate) async fn start(&self, client: &kube::Client) -> Writing {
        make_namespaces(client).await;
        let written = Arc::<Written>::default();
        let mut plans = vec![Vec::new(); self.writers];
        for write in self.plan() {
            plans[write.event % self.writers].push(write);
        }
        let mut writers = JoinSet::new();
        for (number, plan) in plans.into_iter().enumerate() {
            let namespace = namespaces()[number % NAMESPACES].clone();
            let writer = Writer {
                events: Api::namespaced(client.clone(), &namespace),
                prefix: self.prefix,
                namespace,
                written: Arc::clone(&written),
            };
            let period = Duration::from_secs_f64(self.writers as f64 / self.rate as f64);
            writers.spawn(writer.run(plan, period));
        }
        Writing { writers, written, started: Instant::now() }
    }

    /// Writes all of it.
    pub(crate) async fn write(&self, client: &kube::Client, truth: &Truth) {
        self.start(client).await.finish(truth).await;
    }
}

/// The namespaces that are written to.
pub(crate) fn namespaces() -> [String; NAMESPACES] {
    std::array::from_fn(|number| format!("team-{number}"))
}

/// Makes those that are not there yet.
pub(crate) async fn make_namespaces(client: &kube::Client) {
    for namespace in namespaces() {
        let object: Namespace =
            serde_json::from_value(json!({"metadata": {"name": namespace}})).expect("a namespace");
        let made = Api::all(client.clone()).create(&PostParams::default(), &object).await;
        assert!(made.is_ok() || has_code(&made, 409), "{made:?}");
    }
}

pub(crate) fn has_code<T>(result: &kube::Result<T>, code: u16) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == code)
}

/// The writes that the API server has taken.
#[derive(Default)]
struct Written {
    writes: AtomicUsize,
    newest: AtomicU64,
}

/// Writers at work.
pub(crate) struct Writing {
    writers: JoinSet<()>,
    written: Arc<Written>,
    started: Instant,
}

impl Writing {
    /// How many writes the API server has taken.
    pub(crate) fn written(&self) -> usize {
        self.written.writes.load(Ordering::Relaxed)
    }

    /// Waits until all is written, and known to the truth; says how fast it went.
    pub(crate) async fn finish(mut self, truth: &Truth) {
        while let Some(ended) = self.writers.join_next().await {
            ended.expect("a writer that does not panic");
        }
        let (written, seconds) = (self.written(), self.started.elapsed().as_secs_f64());
        eprintln!("  {written} writes in {seconds:.1} s, {:.0}/s", written as f64 / seconds);
        truth.has_seen(self.written.newest.load(Ordering::Relaxed)).await;
    }
}

/// One of them.
struct Writer {
    events: Api<Event>,
    prefix: &'static str,
    namespace: String,
    written: Arc<Written>,
}

impl Writer {
    async fn run(self, plan: Vec<Write>, period: Duration) {
        let mut ticks = tokio::time::interval(period);
        // What an outage held up is not made up for by a burst.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for write in plan {
            ticks.tick().await;
            let started = Instant::now();
            let event = loop {
                match self.write(write).await {
                    Ok(event) => break event,
                    Err(error) => {
                        assert!(started.elapsed() < GIVE_UP_AFTER, "{write:?}: {error}");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            };
            self.written.newest.fetch_max(resource_version(&event), Ordering::Relaxed);
            self.written.writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes once. What an API server that went away half way has taken is not written twice.
    async fn write(&self, Write { event, occurrences }: Write) -> kube::Result<Event> {
        let name = format!("{}-{event}", self.prefix);
        if occurrences == 1 {
            let event = serde_json::from_value(event_of(event, &self.namespace, &name));
            let event: Event = event.expect("an Event");
            let created = self.events.create(&PostParams::default(), &event).await;
            if has_code(&created, 409) { self.events.get(&name).await } else { created }
        } else {
            let patch = Patch::Merge(repeat_of(event, occurrences));
            self.events.patch(&name, &PatchParams::default(), &patch).await
        }
    }
}

fn resource_version(event: &Event) -> u64 {
    let version = event.metadata.resource_version.as_ref();
    version.and_then(|version| version.parse().ok()).expect("every object has one")
}

/// Whether an Event is written as the recorder of events.k8s.io does it: with a series.
fn has_series(event: usize) -> bool {
    event % 10 == 5 || event.is_multiple_of(50)
}

fn event_of(number: usize, namespace: &str, name: &str) -> Value {
    let now = Timestamp::now();
    let mut event = json!({
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": involved_object(number, namespace),
        "reason": (if number.is_multiple_of(3) { "BackOff" } else { "Pulled" }),
        "message": format!("event {number} of \"{name}\", said\nover two lines"),
        "type": (if number.is_multiple_of(3) { "Warning" } else { "Normal" }),
    });
    let how = if has_series(number) {
        json!({
            "eventTime": micro_time(now),
            "action": "Binding",
            "reportingComponent": "e2e-scheduler",
            "reportingInstance": "e2e-scheduler-0",
        })
    } else {
        json!({
            "count": 1,
            "firstTimestamp": time(now),
            "lastTimestamp": time(now),
            "source": {"component": "kubelet", "host": "node-1"},
        })
    };
    let members = event.as_object_mut().expect("an object");
    members.extend(how.as_object().expect("an object").clone());
    event
}

/// Pods, of which some Events are about a container, and an object whose uid the writer left out.
fn involved_object(number: usize, namespace: &str) -> Value {
    let object = number / 7 % OBJECTS;
    if object == 0 {
        return json!({"kind": "ConfigMap", "namespace": namespace, "name": "settings"});
    }
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": namespace,
        "name": format!("web-{object}"),
        "uid": format!("{namespace}-uid-of-web-{object}"),
    });
    if number % 4 == 1 {
        pod["fieldPath"] = "spec.containers{app}".into();
    }
    pod
}

fn repeat_of(number: usize, occurrences: usize) -> Value {
    let now = Timestamp::now();
    if has_series(number) {
        json!({"series": {"count": occurrences, "lastObservedTime": micro_time(now)}})
    } else {
        json!({"count": occurrences, "lastTimestamp": time(now)})
    }
}

/// `metav1.Time`.
fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `metav1.MicroTime`.
fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
