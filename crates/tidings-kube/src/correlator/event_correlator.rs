//! client-go's `EventCorrelator`: the way of an Event through the three stages.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Event,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use super::{
    Aggregator, CorrelatorOptions, Key, Patch, SpamFilter, bounded::Bounded, defaults,
    names::Names, observation::Observation,
};

#[cfg(test)]
mod tests;

/// Says of each Event what is to be written of it.
///
/// See the [module](super) for what it does. It has no clock and does no I/O; it keeps three
/// caches of [`lru_cache_size`](CorrelatorOptions::lru_cache_size) entries, in which messages are
/// fingerprints, so that their length does not matter.
pub struct EventCorrelator {
    options: CorrelatorOptions,
    names: Names,
    aggregator: Aggregator,
    observations: Bounded<Observation>,
    spam: SpamFilter,
}

/// What [`EventCorrelator::correlate`] made of an Event.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Correlated {
    /// The Event to be written: the one that came, its repeat under the name of the first, or the
    /// one that stands for its group.
    pub event: Event,
    /// What tells the server of a repeat; `None` if it was not seen before.
    pub patch: Option<Patch>,
    /// The spam filter holds it back: it is not to be written.
    pub skip: bool,
    /// What it was counted under, for [`EventCorrelator::update_state_of`].
    pub key: Key,
    create: bool,
}

impl Correlated {
    /// Whether the Event is to be patched; else it is to be created. In client-go's rule that is
    /// when its count is above 1, even where there is no [`patch`](Self::patch).
    pub fn is_update(&self) -> bool {
        !self.create && self.event.count.is_some_and(|count| count > 1)
    }
}

impl Default for EventCorrelator {
    fn default() -> Self {
        Self::new(CorrelatorOptions::default())
    }
}

impl EventCorrelator {
    /// With nothing seen so far.
    pub fn new(options: CorrelatorOptions) -> Self {
        let size = match options.lru_cache_size {
            0 => defaults::LRU_CACHE_SIZE,
            size => usize::try_from(size).unwrap_or(0),
        };
        let max_events = match options.max_events {
            0 => defaults::MAX_EVENTS,
            // client-go makes an unsigned number of it, which no set reaches.
            max_events => usize::try_from(max_events).unwrap_or(usize::MAX),
        };
        let max_interval_ns = match options.max_interval_in_seconds {
            0 => defaults::MAX_INTERVAL,
            seconds => seconds.wrapping_mul(1_000_000_000),
        };
        let burst = if options.burst_size == 0 { defaults::BURST } else { options.burst_size };
        let qps = if options.qps == 0.0 { defaults::QPS } else { options.qps };
        Self {
            names: Names::new(options.separated_keys),
            aggregator: Aggregator::new(size, max_events, max_interval_ns),
            observations: Bounded::new(size),
            spam: SpamFilter::new(size, burst, qps),
            options,
        }
    }

    /// Aggregates, counts and filters an Event that happens at `now`; client-go's
    /// `EventCorrelate`. What is skipped was aggregated and counted all the same.
    pub fn correlate(&mut self, event: &Event, now: Timestamp) -> Correlated {
        let now_ns = nanoseconds(now);
        let (group, local) = self.names.group(event, &self.options);
        let aggregate = self.aggregator.observe(group, local, now_ns).is_aggregate();
        let (mut event, key) = if aggregate {
            (self.combined(event, now), group)
        } else {
            (event.clone(), self.names.event(event))
        };
        let last = self.observations.get_mut(key);
        let repeat = last.as_ref().is_some_and(|last| last.is_repeatable());
        let passed = last.as_ref().is_some_and(|last| last.passed);
        if let Some(last) = last.filter(|_| repeat) {
            last.continue_in(&mut event, self.options.saturating_counts);
        }
        let skip = !self.spam.allow(self.names.spam(&event, &self.options), now_ns);
        self.observations.put(key, Observation::of(&event, passed || !skip));
        let create = self.options.create_unwritten && !(repeat && passed);
        let patch = (repeat && !create && !skip).then(|| Patch::of(&event));
        Correlated { event, patch, skip, key, create }
    }

    /// Takes note of what the server has now; client-go's `UpdateState`. It is noted under the key
    /// of the server's Event itself. So the server's state of a combined Event, or of one whose
    /// message, reason or source it has changed, is not found again:
    /// [`update_state_of`](Self::update_state_of) is for those.
    pub fn update_state(&mut self, server: &Event) {
        self.update_state_of(self.names.event(server), server);
    }

    /// Takes note of what the server has now of something that was [counted](Correlated::key).
    /// client-go has no such door.
    pub fn update_state_of(&mut self, key: Key, server: &Event) {
        self.observations.put(key, Observation::of(server, true));
    }

    /// The Event that stands for a group: about the same object, but of its own name and time.
    fn combined(&self, event: &Event, now: Timestamp) -> Event {
        let message = event.message.as_deref().unwrap_or_default();
        let message = match &self.options.message_func {
            Some(message_func) => message_func(event),
            None => format!("(combined from similar events): {message}"),
        };
        let object = event.involved_object.name.as_deref().unwrap_or_default();
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{object}.{}", hexadecimal(now))),
                namespace: event.metadata.namespace.clone(),
                ..ObjectMeta::default()
            },
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            involved_object: event.involved_object.clone(),
            message: Some(message),
            type_: event.type_.clone(),
            reason: event.reason.clone(),
            source: event.source.clone(),
            ..Event::default()
        }
    }
}

/// Beyond the years 1677 and 2262 the end of them.
fn nanoseconds(time: Timestamp) -> i64 {
    let ns = time.as_nanosecond();
    i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
}

/// The nanoseconds in Go's `%x`: a number with a sign.
fn hexadecimal(time: Timestamp) -> String {
    let ns = nanoseconds(time);
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{:x}", ns.unsigned_abs())
}
