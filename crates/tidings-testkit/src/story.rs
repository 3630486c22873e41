//! The Events of an ordinary cluster: Pods that start, crash, fail their probes and fit nowhere, told at a given rate.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::api_server::{ApiServer, ApiStatus, EventObject, Written, micros};

/// How many stories go on at once.
const AT_ONCE: usize = 6;

/// How often [`tell`] looks at the time; writes that are due come together.
const TICK: Duration = Duration::from_millis(2);

const NAMESPACES: [&str; 3] = ["shop", "payments", "search"];
const WORKLOADS: [&str; 4] = ["web", "cart", "indexer", "ledger"];

/// An Event of a story: its component, type, reason and message, and after how many occurrences the next one follows.
type Beat = (&'static str, &'static str, &'static str, &'static str, u32);

const KUBELET: &str = "kubelet";
const SCHEDULER: &str = "default-scheduler";

/// The stories. The messages resemble those of Kubernetes.
const PLOTS: [&[Beat]; 4] = [
    &[
        (SCHEDULER, "Normal", "Scheduled", "Successfully assigned the Pod to worker-1", 1),
        (KUBELET, "Normal", "Pulling", "Pulling image \"registry.example.com/app:1.4.2\"", 1),
        (
            KUBELET,
            "Normal",
            "Pulled",
            "Successfully pulled image in 1.203s (1.203s including waiting)",
            1,
        ),
        (KUBELET, "Normal", "Created", "Created container: app", 1),
        (KUBELET, "Normal", "Started", "Started container app", 1),
    ],
    &[
        (KUBELET, "Normal", "Pulled", "Container image already present on machine", 3),
        (KUBELET, "Warning", "BackOff", "Back-off restarting failed container app", 12),
    ],
    &[
        (
            KUBELET,
            "Warning",
            "Unhealthy",
            "Readiness probe failed: HTTP probe failed with statuscode: 503",
            8,
        ),
        (KUBELET, "Normal", "Killing", "Stopping container app", 1),
    ],
    &[(
        SCHEDULER,
        "Warning",
        "FailedScheduling",
        "0/5 nodes are available: 5 Insufficient cpu.",
        6,
    )],
];

/// One write.
struct Step {
    /// The Event when it was new.
    event: EventObject,
    /// How often it has occurred now.
    count: i32,
    /// By how much that rose; an Event of a count so large is new.
    delta: i32,
}

struct Story {
    pod: String,
    namespace: &'static str,
    beats: &'static [Beat],
    /// The Event of the first beat, and its count.
    event: Option<(EventObject, i32)>,
}

/// Tells stories, a write at a time.
struct Narrator {
    random: fastrand::Rng,
    stories: Vec<Story>,
}

impl Narrator {
    fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), stories: Vec::new() }
    }

    /// The next write.
    fn step(&mut self) -> Step {
        let Self { random, stories } = self;
        while stories.len() < AT_ONCE {
            let workload = WORKLOADS[random.usize(..WORKLOADS.len())];
            stories.push(Story {
                pod: format!("{workload}-{:08x}", random.u32(..)),
                namespace: NAMESPACES[random.usize(..NAMESPACES.len())],
                beats: PLOTS[random.usize(..PLOTS.len())],
                event: None,
            });
        }
        let chosen = random.usize(..stories.len());
        let story = &mut stories[chosen];
        let (_, _, _, _, most) = story.beats[0];
        let step = match &mut story.event {
            Some((event, count)) => {
                let delta = random.i32(1..=3);
                *count += delta;
                Step { event: event.clone(), count: *count, delta }
            }
            none => {
                let event = first(story.namespace, &story.pod, story.beats[0]);
                *none = Some((event.clone(), 1));
                Step { event, count: 1, delta: 1 }
            }
        };
        if step.count.unsigned_abs() >= most {
            story.beats = &story.beats[1..];
            story.event = None;
            if story.beats.is_empty() {
                stories.swap_remove(chosen);
            }
        }
        step
    }
}

/// A new Event. The scheduler records by events.k8s.io, which sets `eventTime` and counts nothing.
fn first(namespace: &str, pod: &str, beat: Beat) -> EventObject {
    let (component, kind, reason, message, _) = beat;
    let mut event = EventObject::about_pod(namespace, pod, reason, message);
    kind.clone_into(&mut event.type_);
    if component == SCHEDULER {
        event.event_time = Some(micros(Timestamp::now()));
        "Scheduling".clone_into(&mut event.action);
        (event.first_timestamp, event.last_timestamp, event.count) = (None, None, 0);
        component.clone_into(&mut event.reporting_component);
        component.clone_into(&mut event.reporting_instance);
        event.source = crate::api_server::Source::default();
    }
    event
}

fn write(server: &ApiServer, step: &Step) -> Result<Written, ApiStatus> {
    let metadata = &step.event.metadata;
    if step.count == step.delta {
        return server.create(step.event.clone());
    }
    server.patch_count(&metadata.namespace, &metadata.name, step.count, Timestamp::now())
}

/// Tells stories into a server, at `rate` writes a second, until it is dropped. The same seed tells the same stories.
/// `heard` learns of each write that the server took, and by how much the occurrences rose.
pub async fn tell(server: &ApiServer, seed: u64, rate: f64, mut heard: impl FnMut(&Written, u64)) {
    let mut narrator = Narrator::new(seed);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let start = Instant::now();
    let mut written = 0.0;
    loop {
        ticks.tick().await;
        while written < rate * start.elapsed().as_secs_f64() {
            written += 1.0;
            let step = narrator.step();
            match write(server, &step) {
                Ok(done) => heard(&done, step.delta.unsigned_abs().into()),
                Err(error) => tracing::warn!(%error, "a story's event was not written"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use super::*;
    use crate::api_server::Options;

    #[test]
    fn a_seed_tells_the_same_stories() {
        let tell = |seed| {
            let mut narrator = Narrator::new(seed);
            let said =
                |Step { event, count, .. }: Step| (event.involved_object, event.reason, count);
            (0..500).map(|_| said(narrator.step())).collect::<Vec<_>>()
        };
        assert_eq!(tell(7), tell(7));
        assert_ne!(tell(7), tell(8));
    }

    #[test]
    fn every_event_is_told_and_its_count_rises() {
        let mut narrator = Narrator::new(3);
        let (mut reasons, mut counts) = (BTreeSet::new(), HashMap::new());
        for _ in 0..2000 {
            let Step { event, count, delta } = narrator.step();
            let before = counts.insert(event.metadata.name, count).unwrap_or_default();
            assert_eq!(count - before, delta);
            reasons.insert(event.reason);
        }
        let all: BTreeSet<_> = PLOTS.concat().into_iter().map(|beat| beat.2.to_owned()).collect();
        assert_eq!(reasons, all);
    }

    #[tokio::test]
    async fn stories_are_written_at_their_rate() {
        let server = ApiServer::start(Options::default()).unwrap();
        let (mut writes, mut deltas) = (0, 0);
        let told = tell(&server, 1, 500.0, |written, delta| {
            writes += 1;
            deltas += delta;
            assert_eq!(written.resource_version, 1000 + writes);
        });
        assert!(tokio::time::timeout(Duration::from_millis(400), told).await.is_err());
        assert!(writes > 0);
        assert!(deltas >= writes);
        assert_eq!(server.revision(), 1000 + writes);
    }
}
