//! The log's one writer, and its patience: with the disk, with the state, and with sinks that block.
//!
//! While it waits for any of them intake stands still, and so do the reflectors, because nobody
//! takes what they send; the API server keeps what comes. What does not depend on intake goes on
//! from here: old segments are dropped and the keeper has the log synced, so that what sinks are
//! delivered meanwhile is saved.

use std::{
    fmt::Display,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use tidings_log::{Directory, Frame, FrameBuilder, Log};

use super::{
    IngestShared,
    backlog::Backlog,
    desk::{Desk, Left},
};
use crate::{
    bridge::{
        seen::Seen,
        shared::{IngestCounters, now_ms},
        stop::Stop,
        watchdog::Pulse,
    },
    event::{SeenEntry, UidKey},
    journal::{append_failed, not_in_place},
};

/// Waits between attempts while the disk does not take, or give, anything.
const RETRY: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(5);
/// While it waits it looks so often whether it has to.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Retention is looked after so often.
const RETAIN_EVERY: Duration = Duration::from_secs(1);
/// That a sink has stopped intake is said aloud once in this time, however often it does.
const LOUD_ONCE_IN: Duration = Duration::from_secs(60);

/// What was needed did not come before the program had to end.
pub(super) struct GaveUp;

/// See the [module](self).
pub(super) struct Writer {
    log: Log,
    seen: Arc<Seen>,
    counters: Arc<IngestCounters>,
    desk: Arc<Desk>,
    stop: Stop,
    /// It rests while the disk, the state or a sink is known to be waited for.
    pulse: Pulse,
    backlog: Backlog,
    last_retained: Option<Instant>,
    last_loud: Option<Instant>,
    /// Old segments could not be dropped when it was last tried.
    stuck: bool,
    /// Why the log could not be synced when the keeper last asked.
    unsynced: Option<String>,
    /// Why what was appended is not where it would be found again.
    misplaced: Option<String>,
}

impl Writer {
    pub(super) fn new(log: Log, shared: &IngestShared) -> Self {
        let IngestShared { counters, seen, sinks, desk, stop, pulse, .. } = shared;
        Self {
            backlog: Backlog::new(sinks.clone(), &log),
            log,
            seen: Arc::clone(seen),
            counters: Arc::clone(counters),
            desk: Arc::clone(desk),
            stop: stop.clone(),
            pulse: pulse.clone(),
            last_retained: None,
            last_loud: None,
            stuck: false,
            unsynced: None,
            misplaced: None,
        }
    }

    pub(super) fn directory(&self) -> &Directory {
        self.log.directory()
    }

    /// What lists may take on disk while they are staged, in bytes: what the log leaves of the size of
    /// the journal, which is half of it, less what else is beside it; but at least a quarter.
    pub(super) fn room_for_lists(&self) -> u64 {
        let size = self.log.options().retention_size;
        let besides = self.directory().other_bytes().unwrap_or(0);
        (size / 2).saturating_sub(besides).max(size / 4)
    }

    pub(super) fn set_cluster_uid(&mut self, uid: &str) {
        self.log.set_cluster_uid(uid);
    }

    /// Appends a frame that makes so many changes to the view, when there is room for both.
    pub(super) fn append(
        &mut self,
        builder: &mut FrameBuilder,
        changes: usize,
    ) -> Result<Arc<Frame>, GaveUp> {
        self.append_of(builder, changes, now_ms)
    }

    /// The same, for a frame of another time.
    pub(super) fn append_of(
        &mut self,
        builder: &mut FrameBuilder,
        changes: usize,
        time_ms: impl Fn() -> u64,
    ) -> Result<Arc<Frame>, GaveUp> {
        self.make_room(changes)?;
        self.wait_for_sinks()?;
        let written = self
            .insist(|log| log.append(builder, time_ms()).map_err(|error| append_failed(&error)))?;
        self.backlog.grown(written.bytes());
        Ok(written)
    }

    /// What is known of an Event after all frames that were appended.
    pub(super) fn known(&mut self, uid: UidKey) -> Result<Option<SeenEntry>, GaveUp> {
        let seen = Arc::clone(&self.seen);
        seen.get(uid).or_else(|_| self.insist(|_| seen.get(uid)))
    }

    /// Tries until the disk takes it, or gives it.
    pub(super) fn insist<T, E: Display>(
        &mut self,
        mut attempt: impl FnMut(&mut Log) -> Result<T, E>,
    ) -> Result<T, GaveUp> {
        let mut wait = *RETRY.start();
        loop {
            self.pulse.works("using the disk");
            match attempt(&mut self.log) {
                Ok(done) => {
                    if self.counters.set_journal_error(None) {
                        tracing::info!("the journal can be used again: intake goes on");
                    }
                    return Ok(done);
                }
                Err(error) => {
                    if !self.counters.set_journal_error(Some(error.to_string())) {
                        tracing::error!(%error, "the journal cannot be used: intake stands still, delivery goes on");
                    }
                    let until = Instant::now() + wait;
                    while let Some(left) = until.checked_duration_since(Instant::now()) {
                        self.unless_draining()?;
                        self.pause(left);
                    }
                    wait = (wait * 2).min(*RETRY.end());
                }
            }
        }
    }

    /// Waits until the view can take so many changes. Nothing may be saved of it that a power cut
    /// could still take from the log, so what there is is synced first.
    fn make_room(&mut self, changes: usize) -> Result<(), GaveUp> {
        if self.seen.has_room(changes) {
            return Ok(());
        }
        self.insist(|log| log.sync(now_ms()))?;
        self.pulse.rests();
        while !self.seen.wait_for_room(changes, LOOK_EVERY) {
            if self.stop.is_over() {
                return Err(GaveUp);
            }
            self.counters.stands_still();
            self.look_after();
        }
        Ok(())
    }

    /// Waits until no sink that blocks has too much outstanding.
    fn wait_for_sinks(&mut self) -> Result<(), GaveUp> {
        let mut blocked = self.backlog.full();
        if blocked.is_empty() {
            return Ok(());
        }
        let loud = self.last_loud.is_none_or(|last| last.elapsed() >= LOUD_ONCE_IN);
        for sink in &blocked {
            if loud {
                self.last_loud = Some(Instant::now());
                tracing::error!(
                    sink = sink.sink,
                    bytes = sink.bytes,
                    "journal full: a sink with overflow: block has undelivered events; ingestion is \
                     paused for all sinks, delivery goes on. Repair the sink, raise \
                     journal.retention.size, or set its overflow to dropOldest; Events that the API \
                     server deletes meanwhile, after an hour by default, are not seen"
                );
            } else {
                tracing::debug!(sink = sink.sink, bytes = sink.bytes, "intake stands still again");
            }
        }
        while !blocked.is_empty() {
            self.counters.set_blocked(blocked);
            self.unless_draining()?;
            self.pause(LOOK_EVERY);
            blocked = self.backlog.not_free_again();
        }
        self.counters.set_blocked(Vec::new());
        if loud {
            tracing::info!(
                "the sinks have made room in the journal: intake goes on; as long as they take \
                 less than comes it stands still again and again, which is told once a minute"
            );
        }
        Ok(())
    }

    /// A disk that takes nothing and a sink that blocks are waited for until the program stops. What is
    /// not in the journal then is with the API server.
    fn unless_draining(&self) -> Result<(), GaveUp> {
        if self.stop.is_draining() { Err(GaveUp) } else { Ok(()) }
    }

    /// Waits for a moment in which intake stands still.
    fn pause(&mut self, most: Duration) {
        self.meanwhile();
        std::thread::sleep(most.min(LOOK_EVERY));
    }

    /// Intake stands still for what does not depend on the log.
    pub(super) fn stand_still(&mut self) -> Result<(), GaveUp> {
        self.unless_draining()?;
        self.meanwhile();
        Ok(())
    }

    fn meanwhile(&mut self) {
        self.counters.stands_still();
        self.pulse.works("looking after the log");
        self.look_after();
        self.pulse.rests();
    }

    /// Does what is due beside the messages.
    pub(super) fn look_after(&mut self) {
        let Left { wanted, done } = self.desk.take();
        if let Some(done) = done {
            let ended = self.log.end_sync(done, now_ms());
            self.note_sync(ended);
        }
        if let Some(job) = wanted {
            let begun = self.log.begin_sync(now_ms());
            // Without an answer the keeper knows that it cannot be synced, and asks again.
            if let Some(begun) = self.note_sync(begun) {
                let _ = job.send(begun);
            }
        }
        if self.last_retained.is_none_or(|last| last.elapsed() >= RETAIN_EVERY) {
            self.last_retained = Some(Instant::now());
            self.keep_in_place();
            self.retain();
        }
    }

    /// Says once that the log cannot be synced, until it can.
    fn note_sync<T>(&mut self, synced: io::Result<T>) -> Option<T> {
        let (done, error) = match synced {
            Ok(done) => (Some(done), None),
            Err(error) => (None, Some(error.to_string())),
        };
        if let (Some(error), None) = (&error, &self.unsynced) {
            tracing::error!(%error, "the journal cannot be synced: what was not is written again elsewhere, and nothing else before");
        }
        self.unsynced = error;
        self.tell_unsafe();
        done
    }

    /// Says once that files of the log are gone and cannot be put back, until they can.
    fn keep_in_place(&mut self) {
        let error = self.log.keep_in_place(now_ms()).err().map(|error| not_in_place(&error));
        if let (Some(error), None) = (&error, &self.misplaced) {
            tracing::error!(%error, "files of the journal were taken away and cannot be put back: intake stands still until they can; restore the directory");
        }
        self.misplaced = error;
        self.tell_unsafe();
    }

    fn tell_unsafe(&self) {
        let unsynced = self.unsynced.as_ref().map(|error| format!("it cannot be synced: {error}"));
        let misplaced = self.misplaced.as_ref();
        let misplaced = misplaced.map(|error| format!("its files were taken away: {error}"));
        self.counters.set_unsafe(misplaced.or(unsynced));
    }

    fn retain(&mut self) {
        // What is beside the log counts, too, and has been measured.
        self.backlog.count_anew();
        let unsaved = self.seen.keep_from();
        let hold = self.backlog.hold(now_ms()).into_iter().chain(unsaved).min();
        match self.log.retain(now_ms(), hold) {
            Ok(retained) => {
                self.stuck = false;
                if retained.disk_bytes > self.log.options().retention_size {
                    self.seen.save_soon();
                }
                if retained.segments > 0 {
                    tracing::debug!(
                        segments = retained.segments,
                        bytes = retained.bytes,
                        "old segments were dropped"
                    );
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.stuck, true) {
                    tracing::warn!(%error, "old segments of the journal cannot be dropped");
                }
            }
        }
    }

    /// The last sync is worth waiting for, and at the end nobody else waits for it.
    pub(super) fn finish(mut self) {
        self.look_after();
        let in_place = self.log.keep_in_place(now_ms());
        let synced = in_place.and_then(|()| self.log.sync(now_ms()));
        self.desk.end(synced.is_ok());
        if let Err(error) = synced {
            tracing::error!(%error, "the journal could not be synced at the end");
        }
    }
}
