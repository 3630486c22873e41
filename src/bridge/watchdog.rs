//! The watchdog: which part of the bridge is at work on something that should long be done.
//!
//! Each loop shows a *pulse*: what it is doing, since when or since when it last made headway, and
//! how long that may take. A loop that waits for somebody else is idle, and may be so for ever: a sink
//! that does not answer, an API server that is away and a disk that says it is full are their
//! trouble, which readiness and status show, and which no restart mends. Stuck is what does not wait
//! and does not end. Then `/livez` fails, and whoever runs the program may start it anew: that is
//! safe at any point.
//!
//! ```text
//! ingest            a message; a frame into the log, and on to the broadcaster   10 s each
//! the keeper        the fsync of the log; the commit of the state               10 s each
//! gathering …       a read from the log                                         10 s
//! delivery …        an attempt                                                  its timeout, and 10 s
//! intake            its tick, once a second                                     10 s
//! ```
//!
//! The loop of the broadcaster never waits; if it stood still, ingest could not hand on a frame. A
//! reflector has limits of its own for all that it waits for but ingest. And where the runtime
//! itself does not get on, `/livez` does not answer at all.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior};

use super::shared::lock;

/// The longest that work may take which should be done at once.
const LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked, to log it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A part of the bridge that is stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Which.
    pub part: Arc<str>,
    /// With what.
    pub doing: &'static str,
    /// For how long it has been at it.
    pub since: Duration,
}

/// The pulses of a bridge; clones are the same ones.
#[derive(Clone, Debug, Default)]
pub struct Watchdog {
    pulses: Arc<Mutex<Vec<Pulse>>>,
}

impl Watchdog {
    /// The pulse of a part that is new.
    pub(super) fn pulse(&self, part: impl Into<Arc<str>>) -> Pulse {
        let pulse = Pulse { part: part.into(), work: Arc::default() };
        lock(&self.pulses).push(pulse.clone());
        pulse
    }

    /// Each part, and whether it is stuck now.
    pub fn parts(&self) -> Vec<(Arc<str>, Option<Stuck>)> {
        lock(&self.pulses).iter().map(|pulse| (Arc::clone(&pulse.part), pulse.stuck())).collect()
    }

    /// The parts that are stuck now.
    pub fn stuck(&self) -> Vec<Stuck> {
        lock(&self.pulses).iter().filter_map(Pulse::stuck).collect()
    }

    /// Logs what gets stuck, and what gets on again, until it is dropped.
    pub(super) async fn run(self) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before: Vec<Stuck> = Vec::new();
        loop {
            ticks.tick().await;
            let now = self.stuck();
            let lacks = |list: &[Stuck], part| !list.iter().any(|stuck| stuck.part == part);
            for Stuck { part, doing, since } in &now {
                if lacks(&before, Arc::clone(part)) {
                    tracing::error!(
                        part = &**part,
                        doing,
                        seconds = since.as_secs(),
                        "stuck: /livez fails until it gets on or the program is restarted"
                    );
                }
            }
            for Stuck { part, .. } in before {
                if lacks(&now, Arc::clone(&part)) {
                    tracing::info!(part = &*part, "no longer stuck");
                }
            }
            before = now;
        }
    }
}

/// The work that a part is at.
#[derive(Clone, Copy, Debug)]
struct Work {
    doing: &'static str,
    /// When it began or last made headway.
    since: Instant,
    limit: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct Pulse {
    part: Arc<str>,
    /// Nothing while it is idle.
    work: Arc<Mutex<Option<Work>>>,
}

impl Pulse {
    /// The part begins something that should soon be done, or gets on with it.
    pub(super) fn busy(&self, doing: &'static str) {
        self.busy_within(doing, LIMIT);
    }

    /// The same for something that has a limit of its own, which it should not exceed by much.
    pub(super) fn busy_within(&self, doing: &'static str, limit: Duration) {
        let limit = limit.max(LIMIT);
        *lock(&self.work) = Some(Work { doing, since: Instant::now(), limit });
    }

    /// The part waits for somebody else.
    pub(super) fn idle(&self) {
        *lock(&self.work) = None;
    }

    fn stuck(&self) -> Option<Stuck> {
        let Work { doing, since, limit } = (*lock(&self.work))?;
        let since = since.elapsed();
        (since > limit).then(|| Stuck { part: Arc::clone(&self.part), doing, since })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_part_that_neither_ends_nor_idles_is_stuck() {
        let watchdog = Watchdog::default();
        let (a, b) = (watchdog.pulse("a"), watchdog.pulse("b"));
        a.busy("writing");
        advance(LIMIT).await;
        assert_eq!(watchdog.stuck(), []);
        b.busy("reading");
        advance(Duration::from_secs(1)).await;
        let since = LIMIT + Duration::from_secs(1);
        assert_eq!(watchdog.stuck(), [Stuck { part: "a".into(), doing: "writing", since }]);
        let parts = watchdog.parts().into_iter().map(|(part, stuck)| (part, stuck.is_some()));
        assert_eq!(parts.collect::<Vec<_>>(), [("a".into(), true), ("b".into(), false)]);
        // Headway, and the end of it.
        a.busy("writing");
        assert_eq!(watchdog.stuck(), []);
        a.idle();
        b.idle();
        advance(LIMIT * 100).await;
        assert_eq!(watchdog.stuck(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_with_a_limit_of_its_own_may_take_that() {
        let watchdog = Watchdog::default();
        let pulse = watchdog.pulse("a");
        pulse.busy_within("sending", LIMIT * 6);
        advance(LIMIT * 6).await;
        assert_eq!(watchdog.stuck(), []);
        advance(Duration::from_millis(1)).await;
        assert_eq!(watchdog.stuck().len(), 1);
    }
}
