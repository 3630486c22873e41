//! The series that are being counted: event and time in, what to write out. No I/O, no clock.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::events::v1::{Event, EventSeries},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use lru::LruCache;

use super::{
    key::SeriesKey,
    lane::Lane,
    tally::{Ledger, SeriesId, Tally},
};
use crate::recorder::SinkError;

/// Why something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The first occurrence (a create), or the second (the patch that makes it a series).
    Occurrence,
    /// So that the API server does not let a live series expire.
    Refresh,
    /// The final count of a series that has been silent.
    Finish,
    /// The final count of a series that has to make room, or that recording ends for.
    Farewell,
}

/// Something to write, to be given back by [`SeriesCache::settle`].
#[derive(Debug)]
pub(super) struct Write {
    /// As it is to be sent; with a series it is patched, without it is created.
    pub(super) event: Event,
    pub(super) purpose: Purpose,
    /// Where the write has to queue, under the same lock under which it was decided.
    pub(super) lane: Lane,
    key: Arc<SeriesKey>,
    series: SeriesId,
    /// The occurrences that it announces.
    covers: u64,
}

/// How a write ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// The API server has it; its answer.
    Written(Box<Event>),
    /// A create found the event there. Its name has the nanosecond in it, so this was an earlier
    /// try, whose answer was lost.
    Exists,
    /// Not written, and not to be tried again.
    Refused,
    /// Not written now.
    Failed(SinkError),
}

#[derive(Debug)]
struct Entry {
    series: SeriesId,
    event: Event,
    lane: Lane,
}

/// The event cache of client-go's `eventBroadcasterImpl`, with a bound: past it, the series that
/// was observed least recently makes room.
#[derive(Debug)]
pub(super) struct SeriesCache {
    entries: LruCache<Arc<SeriesKey>, Entry>,
    /// Kept here, because a bounded `LruCache` takes all its memory at once.
    max_series: NonZeroUsize,
    ledger: Ledger,
    /// A series that was silent for longer than this has ended.
    finish_after: Duration,
}

impl SeriesCache {
    pub(super) fn new(max_series: NonZeroUsize, finish_after: Duration) -> Self {
        Self { entries: LruCache::unbounded(), max_series, ledger: Ledger::default(), finish_after }
    }

    /// Takes one occurrence. The first of its key is created, the second makes it a series of two,
    /// the later ones only count. Answers the final count of a series that had to make room, if
    /// there is something to say about it, and what is to be written of this one.
    pub(super) fn observe(&mut self, event: &Event, now: Timestamp) -> [Option<Write>; 2] {
        let key = Arc::new(SeriesKey::of(event));
        if let Some(entry) = self.entries.get_mut(&key) {
            self.ledger.occurred(entry.series);
            let last_observed_time = MicroTime(now);
            if let Some(series) = &mut entry.event.series {
                // As an int32 of Go does it; nobody has seen two billion occurrences.
                series.count = series.count.wrapping_add(1);
                series.last_observed_time = last_observed_time;
                return [None, None];
            }
            entry.event.series = Some(EventSeries { count: 2, last_observed_time });
            let write = self.write(&key, Purpose::Occurrence);
            return [None, write];
        }
        let farewell = self.make_room();
        let series = self.ledger.open();
        self.ledger.occurred(series);
        let entry = Entry { series, event: event.clone(), lane: Lane::default() };
        self.entries.push(Arc::clone(&key), entry);
        [farewell, self.write(&key, Purpose::Occurrence)]
    }

    /// The series to be refreshed, oldest first: those that are one, not the single events.
    pub(super) fn to_refresh(&self) -> Vec<Arc<SeriesKey>> {
        self.keys(|entry| entry.event.series.is_some())
    }

    /// Writes a series as it stands. Its answer will take the place of the cached event.
    pub(super) fn refresh(&mut self, key: &Arc<SeriesKey>) -> Option<Write> {
        let entry = self.entries.peek(key)?;
        entry.event.series.as_ref()?;
        self.write(key, Purpose::Refresh)
    }

    /// What has been silent for too long, oldest first.
    pub(super) fn to_finish(&self, now: Timestamp) -> Vec<Arc<SeriesKey>> {
        self.keys(|entry| self.is_over(&entry.event, now))
    }

    /// Writes the final count of a series that is over; forgets a single event at once.
    pub(super) fn finish(&mut self, key: &Arc<SeriesKey>, now: Timestamp) -> Option<Write> {
        let entry = self.entries.peek(key)?;
        if !self.is_over(&entry.event, now) {
            return None;
        }
        if entry.event.series.is_some() {
            return self.write(key, Purpose::Finish);
        }
        self.forget(key);
        None
    }

    /// Everything cached, for when recording ends.
    pub(super) fn to_dismiss(&self) -> Vec<Arc<SeriesKey>> {
        self.keys(|_| true)
    }

    /// Forgets a series, and writes its count if the API server does not know it.
    pub(super) fn dismiss(&mut self, key: &Arc<SeriesKey>) -> Option<Write> {
        let entry = self.entries.peek(key)?;
        let owes = entry.event.series.is_some() && self.ledger.owes(entry.series);
        let write = if owes { self.write(key, Purpose::Farewell) } else { None };
        self.forget(key);
        write
    }

    /// Takes back a write that has ended.
    pub(super) fn settle(&mut self, write: Write, ending: Ending) {
        let Write { event, purpose, key, series, covers, .. } = write;
        let announced = match ending {
            Ending::Written(_) => Some(covers),
            // The API server may have been patched since.
            Ending::Exists => Some(covers.max(self.ledger.announced(series))),
            Ending::Refused | Ending::Failed(_) => None,
        };
        let more = self.ledger.occurrences(series).saturating_sub(covers);
        self.ledger.settle(series, announced);
        let Some(entry) = self.entries.peek_mut(&key).filter(|entry| entry.series == series) else {
            return;
        };
        match (purpose, ending) {
            (Purpose::Refresh, Ending::Written(answer)) => {
                let counted = std::mem::replace(&mut entry.event, *answer).series;
                if more > 0 {
                    entry.event.series = counted_on(entry.event.series.as_ref(), counted, more);
                }
            }
            (Purpose::Finish, Ending::Written(_) | Ending::Refused) if more == 0 => {
                self.forget(&key);
            }
            // A create in place of a patch cleared the resourceVersion; client-go does that to the
            // cached event itself.
            (Purpose::Refresh | Purpose::Finish, _) => {
                entry.event.metadata.resource_version = event.metadata.resource_version;
            }
            (Purpose::Occurrence | Purpose::Farewell, _) => {}
        }
    }

    pub(super) fn tally(&self) -> Tally {
        self.ledger.tally()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn is_over(&self, event: &Event, now: Timestamp) -> bool {
        let last = match &event.series {
            Some(series) => Some(&series.last_observed_time),
            None => event.event_time.as_ref(),
        };
        let finish_after = self.finish_after.as_nanos().cast_signed();
        last.is_none_or(|last| now.duration_since(last.0).as_nanos() > finish_after)
    }

    fn keys(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<Arc<SeriesKey>> {
        let wanted = self.entries.iter().filter(|(_, entry)| wanted(entry));
        let mut keys: Vec<_> = wanted.map(|(key, entry)| (entry.series, key)).collect();
        keys.sort_unstable_by_key(|(series, _)| *series);
        keys.into_iter().map(|(_, key)| Arc::clone(key)).collect()
    }

    fn make_room(&mut self) -> Option<Write> {
        if self.entries.len() < self.max_series.get() {
            return None;
        }
        let oldest = self.entries.peek_lru().map(|(key, _)| Arc::clone(key))?;
        self.dismiss(&oldest)
    }

    fn write(&mut self, key: &Arc<SeriesKey>, purpose: Purpose) -> Option<Write> {
        let entry = self.entries.peek(key)?;
        Some(Write {
            event: entry.event.clone(),
            purpose,
            lane: entry.lane.clone(),
            key: Arc::clone(key),
            series: entry.series,
            covers: self.ledger.write(entry.series),
        })
    }

    fn forget(&mut self, key: &Arc<SeriesKey>) {
        if let Some(entry) = self.entries.pop(key) {
            self.ledger.forget(entry.series);
        }
    }
}

/// The answer's series and what was counted since the request was made; the same as if those
/// occurrences had waited for the answer, which is what client-go's lock makes them do.
fn counted_on(
    answered: Option<&EventSeries>,
    counted: Option<EventSeries>,
    more: u64,
) -> Option<EventSeries> {
    let base = answered.map_or(1, |series| series.count);
    let count = base.wrapping_add(more as i32);
    counted.map(|series| EventSeries { count, ..series })
}
