//! A believable cluster: rollouts, crash loops, probes that fail, images that do not exist, pods
//! that fit nowhere, nodes that run full, and jobs by the clock, told as the Events that
//! kubelet, scheduler and controllers write of them.
//!
//! [`Narrator`] is pure: seed and times in, writes out. [`tell`] writes them into an
//! [`ApiServer`] at a given rate.

mod cast;
mod plots;

use std::{collections::VecDeque, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::cast::Cast;
use super::api_server::{
    ApiServer, ApiStatus, EventObject, EventSeries, Written, micros, recorder_name, seconds,
};

/// How many stories go on at once.
const AT_ONCE: usize = 6;

/// How often the driver looks at the time; writes that are due come together.
const TICK: Duration = Duration::from_millis(2);

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The Event as it is to be afterwards.
    pub event: EventObject,
    /// Whether it exists and is patched.
    pub repeat: bool,
    /// By how much its occurrences rise.
    pub delta: u64,
    /// What begins here, in a line for people.
    pub caption: Option<String>,
}

/// What one story consists of.
#[derive(Debug)]
enum Beat {
    /// A new Event; the narrator gives it its name and times.
    First(Box<EventObject>),
    /// The n-th Event of this story occurs again, so many times.
    Again(usize, i32),
}

#[derive(Debug)]
struct Story {
    caption: Option<String>,
    beats: VecDeque<Beat>,
    /// The Events so far, in the order of their first beats.
    told: Vec<EventObject>,
}

/// Tells stories, a write at a time.
#[derive(Debug)]
pub struct Narrator {
    cast: Cast,
    stories: Vec<Story>,
    /// Names are made of times, so that no two may be equal.
    last: Timestamp,
}

impl Narrator {
    /// The same seed tells the same stories.
    pub fn new(seed: u64) -> Self {
        Self { cast: Cast::new(seed), stories: Vec::new(), last: Timestamp::UNIX_EPOCH }
    }

    /// The next write, at a time that is not before the last one's.
    pub fn next(&mut self, now: Timestamp) -> Step {
        let least = self.last.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(now);
        let now = now.max(least);
        self.last = now;
        while self.stories.len() < AT_ONCE {
            let (caption, beats) = plots::any(&mut self.cast);
            let caption = Some(caption);
            self.stories.push(Story { caption, beats: beats.into(), told: Vec::new() });
        }
        let chosen = self.cast.below(self.stories.len());
        let story = &mut self.stories[chosen];
        let step = story.next(now);
        if story.beats.is_empty() {
            self.stories.swap_remove(chosen);
        }
        // No plot is empty; were one, the next story takes its turn.
        step.unwrap_or_else(|| self.next(now))
    }
}

impl Story {
    fn next(&mut self, now: Timestamp) -> Option<Step> {
        let caption = self.caption.take();
        let (event, repeat, delta) = match self.beats.pop_front()? {
            Beat::First(mut event) => {
                begin(&mut event, now);
                self.told.push((*event).clone());
                (*event, false, 1)
            }
            Beat::Again(which, by) => {
                let event = self.told.get_mut(which)?;
                repeat(event, by, now);
                (event.clone(), true, u64::from(by.unsigned_abs()))
            }
        };
        Some(Step { event, repeat, delta, caption })
    }
}

/// Gives a new Event the name and times that its recorder would. The recorder of events.k8s.io,
/// which is known by the action, sets `eventTime` and counts nothing.
fn begin(event: &mut EventObject, now: Timestamp) {
    event.metadata.name = recorder_name(&event.involved_object.name, now);
    if event.action.is_empty() {
        event.first_timestamp = Some(seconds(now));
        event.last_timestamp = Some(seconds(now));
        event.count = 1;
    } else {
        event.event_time = Some(micros(now));
    }
}

/// Lets an Event occur again as its recorder would note it.
fn repeat(event: &mut EventObject, by: i32, now: Timestamp) {
    if event.event_time.is_some() {
        let count = event.series.as_ref().map_or(1, |series| series.count) + by;
        event.series = Some(EventSeries { count, last_observed_time: Some(micros(now)) });
    } else {
        event.count += by;
        event.last_timestamp = Some(seconds(now));
    }
}

/// Writes a step. A repeat of an Event that the server has forgotten is created anew with its
/// count, as client-go's recorder does; so its delta is then the whole count.
///
/// # Errors
/// The server refuses the write.
pub fn write(server: &ApiServer, step: &mut Step, now: Timestamp) -> Result<Written, ApiStatus> {
    let event = &step.event;
    if step.repeat {
        let count = event.series.as_ref().map_or(event.count, |series| series.count);
        let (namespace, name) = (&event.metadata.namespace, &event.metadata.name);
        match server.patch_count(namespace, name, count, now) {
            Err(refused) if refused.code == 404 => step.delta = u64::from(count.unsigned_abs()),
            written => return written,
        }
    }
    server.create(event.clone())
}

/// Tells stories into a server, at `rate` writes a second, until it is dropped. `heard` learns of
/// each write that the server took.
pub async fn tell(
    server: &ApiServer,
    narrator: &mut Narrator,
    rate: f64,
    mut heard: impl FnMut(&Step, &Written),
) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let start = Instant::now();
    let mut written = 0.0;
    loop {
        ticks.tick().await;
        while written < rate * start.elapsed().as_secs_f64() {
            written += 1.0;
            let now = Timestamp::now();
            let mut step = narrator.next(now);
            match write(server, &mut step, now) {
                Ok(done) => heard(&step, &done),
                Err(error) => tracing::warn!(%error, "a story's event was not written"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet, HashSet};

    use super::*;
    use crate::api_server::Options;

    fn at(step: i64) -> Timestamp {
        Timestamp::from_millisecond(1_790_000_000_000 + step * 10).unwrap()
    }

    #[test]
    fn a_seed_tells_the_same_stories() {
        let tell = |seed| {
            let mut narrator = Narrator::new(seed);
            (0..500).map(|n| narrator.next(at(n))).collect::<Vec<_>>()
        };
        assert_eq!(tell(7), tell(7));
        assert_ne!(tell(7), tell(8));
    }

    #[test]
    fn every_kind_of_trouble_occurs_and_is_well_formed() {
        let mut narrator = Narrator::new(3);
        let mut reasons = BTreeSet::new();
        let mut names = HashSet::new();
        let mut counts: BTreeMap<String, i32> = BTreeMap::new();
        for n in 0..5000 {
            // Times that stand still or go back do not make names equal.
            let Step { event, repeat, delta, .. } = narrator.next(at(n / 3));
            reasons.insert(event.reason.clone());
            let key = format!("{}/{}", event.metadata.namespace, event.metadata.name);
            assert_eq!(names.insert(key.clone()), !repeat, "{key}");
            let count = event.series.as_ref().map_or(event.count.max(1), |series| series.count);
            let before = counts.insert(key.clone(), count).unwrap_or_default();
            assert_eq!(u64::from((count - before).unsigned_abs()), delta, "{key}");
            let object = &event.involved_object;
            assert!(!object.uid.is_empty() && !object.kind.is_empty(), "{event:?}");
            let place = if object.kind == "Node" { "default" } else { &object.namespace };
            assert_eq!(event.metadata.namespace, place);
            assert!(!event.message.is_empty() && !event.reporting_component.is_empty());
            assert_eq!(event.event_time.is_some(), event.first_timestamp.is_none());
            assert!(matches!(&*event.type_, "Normal" | "Warning"));
        }
        let expected = [
            "BackOff",
            "Completed",
            "Created",
            "Evicted",
            "EvictionThresholdMet",
            "Failed",
            "FailedScheduling",
            "Killing",
            "NodeHasDiskPressure",
            "NodeHasNoDiskPressure",
            "Pulled",
            "Pulling",
            "SawCompletedJob",
            "ScalingReplicaSet",
            "Scheduled",
            "Started",
            "SuccessfulCreate",
            "SuccessfulDelete",
            "Unhealthy",
        ];
        assert_eq!(reasons.iter().map(String::as_str).collect::<Vec<_>>(), expected);
        assert!(narrator.cast.pods() < 100, "pods that are gone are forgotten");
    }

    #[tokio::test]
    async fn stories_are_written_at_their_rate() {
        let server = ApiServer::start(Options::default()).unwrap();
        let mut narrator = Narrator::new(1);
        let (mut writes, mut deltas, mut captions) = (0, 0, Vec::new());
        let told = tell(&server, &mut narrator, 500.0, |step, written| {
            writes += 1;
            deltas += step.delta;
            captions.extend(step.caption.clone());
            assert_eq!(written.resource_version, 1000 + writes);
        });
        assert!(tokio::time::timeout(Duration::from_millis(400), told).await.is_err());
        assert!(writes > 0);
        assert!(deltas >= writes && !captions.is_empty());
        assert_eq!(server.revision(), 1000 + writes);
    }

    #[tokio::test]
    async fn a_repeat_of_what_expired_is_created_with_its_count() {
        let server = ApiServer::start(Options::default()).unwrap();
        let mut event = EventObject::about_pod("shop", "web-1", "BackOff", "m");
        event.count = 9;
        let mut step = Step { event, repeat: true, delta: 1, caption: None };
        write(&server, &mut step, Timestamp::now()).unwrap();
        assert_eq!((step.delta, server.live_events()), (9, 1));
    }
}
