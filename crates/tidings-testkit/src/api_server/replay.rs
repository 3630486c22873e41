//! Load for benchmarks: Events rendered ahead of time, and Events that say when they were sent.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{ApiServer, ApiStatus, EventObject, resource::EVENTS};

/// How many prepared Events are written under one hold of the lock: watches read between holds.
const SLICE: usize = 2048;

const STAMP: &str = " sent=";

/// Events rendered for the revisions that follow the one at which they were prepared.
#[derive(Debug)]
pub struct Prepared {
    base: u64,
    events: Vec<(Arc<str>, Bytes)>,
}

impl Prepared {
    /// How many.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// All their bytes.
    pub fn bytes(&self) -> usize {
        self.events.iter().map(|(_, json)| json.len()).sum()
    }
}

impl ApiServer {
    /// Renders Events so that [`release`](Self::release) only has to store and send them. One
    /// whose name exists by then replaces it; it must bring the uid.
    pub fn prepare(&self, events: impl IntoIterator<Item = EventObject>) -> Prepared {
        let mut state = self.shared.state();
        let base = state.revision();
        let events = (base + 1..)
            .zip(events)
            .map(|(revision, mut event)| {
                let json = state.complete(&mut event, revision);
                (key(&event), json)
            })
            .collect();
        Prepared { base, events }
    }

    /// Writes prepared Events as fast as it goes. Answers the revisions that they have.
    ///
    /// # Errors
    /// Something else was written since they were prepared; nothing of them is.
    pub fn release(&self, prepared: Prepared) -> Result<RangeInclusive<u64>, ApiStatus> {
        let conflict = || ApiStatus::new(409, "Conflict", "written to since it was prepared");
        let mut events = prepared.events.into_iter();
        let mut next = prepared.base;
        while events.len() > 0 {
            let slice = events.by_ref().take(SLICE);
            next = self.shared.write(EVENTS, |state| {
                if state.revision() != next {
                    return Err(conflict());
                }
                slice.for_each(|(key, json)| {
                    state.put_ready(EVENTS, key, json);
                });
                Ok(state.revision())
            })?;
        }
        Ok(prepared.base + 1..=next)
    }

    /// Writes Events at `rate` a second for `duration`, each [stamped](stamp) with the time at
    /// which it is written. `make` gets the number of the Event; one whose name exists replaces
    /// it, and must bring the uid. Answers how many were written.
    pub async fn drive(
        &self,
        rate: f64,
        duration: Duration,
        mut make: impl FnMut(u64) -> EventObject,
    ) -> u64 {
        paced(rate, duration, |number| {
            let mut event = make(number);
            stamp(&mut event, Timestamp::now());
            self.shared.write(EVENTS, |state| {
                let json = state.complete(&mut event, state.revision() + 1);
                state.put_ready(EVENTS, key(&event), json);
            });
        })
        .await
    }
}

/// Writes at `rate` a second for `duration`; `write` gets the number of the write. Answers how
/// many there were, which is `rate` times `duration` however late some of them came.
pub(super) async fn paced(rate: f64, duration: Duration, mut write: impl FnMut(u64)) -> u64 {
    let start = Instant::now();
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut written = 0;
    loop {
        ticks.tick().await;
        // Looked at once a tick: at a rate beyond what can be written others get their turn, too.
        let elapsed = start.elapsed().min(duration);
        let due = rate * elapsed.as_secs_f64();
        while (written as f64) < due {
            write(written);
            written += 1;
        }
        if elapsed == duration {
            return written;
        }
    }
}

fn key(event: &EventObject) -> Arc<str> {
    format!("{}/{}", event.metadata.namespace, event.metadata.name).into()
}

/// Writes a time into an Event's message, where every sink passes it on.
pub fn stamp(event: &mut EventObject, at: Timestamp) {
    event.message.push_str(STAMP);
    event.message.push_str(&at.as_microsecond().to_string());
}

/// The time in microseconds since 1970 that was stamped into a message, or into any text that
/// contains the message.
pub fn sent_at(text: &str) -> Option<i64> {
    let (_, after) = text.rsplit_once(STAMP)?;
    let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    after[..digits].parse().ok()
}
