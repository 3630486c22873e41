//! What earlier runs left: the log, the state beside it, and every view brought up to the log.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::Arc,
};

use serde::Deserialize;
use tidings_kube::correlator::Keys;
use tidings_log::{Damages, Directory, Frame, Log, LogHandle, Position, Resume};

use self::track::Track;
use super::{
    BridgeError, CorrelateMode, Filter, JournalOptions, ObjectOptions, SinkOptions, SinkStart,
    correlation::Correlator,
    gap::Gap,
    objects::{Enricher, Objects},
    seen::Seen,
    shared::now_ms,
};
use crate::{
    event::{Record, SeenChanges, SeenEntry, UidKey},
    journal::{
        CorrelatorInputs, Delivered, Loaded, ObjectsView, OpenError, POSITIONS, Positions,
        ReadError, SavedCorrelator, SinkState, SinksReader, SourceState, Standing, State,
        StateCommit,
    },
};

mod roll_back;
mod track;

#[cfg(test)]
mod tests;

pub(super) use roll_back::positions_of;
use roll_back::resume_from;

/// How much of the log is read at once to bring a view up.
const READ_BYTES: usize = 1 << 20;

/// See the [module](self).
pub(super) struct Restored {
    pub(super) directory: Directory,
    pub(super) log: Log,
    pub(super) state: State,
    /// The view `seen`, up to the end of the log.
    pub(super) seen: Arc<Seen>,
    /// Up to where the state store has it.
    pub(super) applied: u64,
    pub(super) sources: BTreeMap<String, SourceState>,
    pub(super) resume: BTreeMap<Arc<str>, Resume>,
    /// Gaps whose statement a crash may have taken.
    pub(super) unstated: Vec<Gap>,
    pub(super) cluster_uid: Option<String>,
    /// The uids of the bridge's own heartbeats.
    pub(super) heartbeats: Vec<String>,
    /// Up to where the view `objects` is kept.
    pub(super) objects: Option<ObjectsView>,
    pub(super) sinks: SavedSinks,
}

/// What a sink goes on with.
pub(super) struct RestoredSink {
    pub(super) state: SinkState,
    /// As it was at the position.
    pub(super) correlator: Option<Correlator>,
    /// From which sequence on no run before has decided, and the size of the journal.
    pub(super) fits: (u64, u64),
    /// What it has had that is saved at the position, or behind it.
    pub(super) had: Delivered,
    /// The journal was there before this run.
    pub(super) has_past: bool,
}

/// What is saved of sinks, and what they go on with.
pub(super) struct SavedSinks {
    reader: SinksReader,
    directory: Directory,
    log: LogHandle,
    retention_size: u64,
    sinks: BTreeMap<String, SinkState>,
    correlators: BTreeMap<String, SavedCorrelator>,
    /// What they have decided by since they were saved.
    inputs: BTreeMap<String, CorrelatorInputs>,
    /// What correlators that begin now make their keys with: the same as one that is there.
    pub(super) keys: Keys,
    /// What to go by when the state was lost.
    positions: Option<Positions>,
    /// The log holds events of an earlier run, or held some.
    has_past: bool,
    /// After the last record that the log has of earlier runs.
    survived: Position,
}

impl Restored {
    /// Opens a journal and recovers what it holds.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or another process has it. Damage is no error.
    pub(super) fn open(options: &JournalOptions) -> Result<Self, BridgeError> {
        let directory = crate::journal::open(&options.path)?;
        if let Some(remark) = directory.remark() {
            tracing::info!(directory = %options.path.display(), "who may use the journal's directory: {remark}");
        }
        let now = now_ms();
        let (state, loaded) = State::open(&directory, options.dead_letters, now)?;
        let log = Log::open(&directory, options.log, loaded.highest_sequence(), now);
        let (log, opened) = log.map_err(OpenError::from)?;
        if opened.cut_bytes > 0 {
            tracing::info!(
                bytes = opened.cut_bytes,
                "the last write was torn by a crash and is cut off: it will be read again"
            );
        }
        if opened.damaged > 0 {
            tracing::error!(
                regions = opened.damaged,
                "the journal is damaged: what is lost of it is stated when it is read"
            );
        }
        let positions = Positions::load(&directory).unwrap_or_else(|error| {
            let reason = format!("{error}; it serves only when the rest of the journal is gone");
            if !error.is_damage() || directory.set_aside(POSITIONS, &reason, now).is_err() {
                tracing::warn!(%error);
            }
            None
        });
        let has_past = opened.tail != Position::START || loaded.lost;
        // A state that was ever saved knows its sources.
        let state_lost = loaded.lost || (has_past && loaded.sources.is_empty());
        let mut resume = opened.resume;
        if resume.is_empty() {
            let sinks = || positions_of(loaded.sinks.iter().map(|(name, s)| (name.clone(), s)));
            resume = resume_from(&positions.clone().unwrap_or_else(sinks));
        }
        let sinks = SavedSinks {
            reader: state.sinks(),
            directory: directory.clone(),
            log: log.handle(),
            retention_size: log.options().retention_size,
            sinks: loaded.sinks,
            keys: loaded
                .correlators
                .values()
                .find_map(|saved| Correlator::keys_of(&saved.bytes))
                .unwrap_or_else(Keys::random),
            correlators: loaded.correlators,
            inputs: loaded.inputs,
            positions: state_lost.then(|| positions.unwrap_or_default()),
            has_past,
            survived: opened.survived,
        };
        let mut restored = Self {
            directory,
            seen: Arc::new(Seen::new(state.seen(), loaded.applied)),
            state,
            applied: loaded.applied,
            sources: loaded.sources,
            resume,
            unstated: Vec::new(),
            cluster_uid: loaded.cluster_uid.or(opened.cluster_uid),
            heartbeats: loaded.heartbeats,
            objects: loaded.objects,
            sinks,
            log,
        };
        let mut seen = Ok(());
        if loaded.applied > opened.survived.next {
            seen = restored.roll_back_seen();
        }
        let mut track = Track::new(restored.applied);
        if let Err(error) = seen.and_then(|()| restored.bring_up_seen(&mut track)) {
            tracing::error!(%error, "what was seen could not be brought up to the journal: some deltas may be too large");
            track.lose();
        }
        let Self { resume, sources, .. } = &mut restored;
        restored.unstated =
            track.end(opened.survived, opened.tail, resume, opened.newest_ms, sources);
        log_damage(restored.directory.damages());
        Ok(restored)
    }

    /// What is known of objects, if a sink is told of it.
    pub(super) fn objects(
        &self,
        options: ObjectOptions,
        sinks: &[SinkOptions],
    ) -> Option<Arc<Objects>> {
        let enrich: Vec<_> = sinks.iter().filter_map(|sink| sink.enrich.clone()).collect();
        let tail = self.log.handle().tail().next;
        if enrich.is_empty() {
            return None;
        }
        let reader = self.state.objects();
        Some(Arc::new(Objects::new(options, enrich, self.objects, reader, tail)))
    }

    /// Applies to the view what the log has beyond it.
    ///
    /// Where that is much, some of it is saved on the way, but not how far it goes: sinks and
    /// sources are saved with that, by the keeper. A start that ends before does all of it again.
    fn bring_up_seen(&mut self, track: &mut Track) -> io::Result<()> {
        let log = self.log.handle();
        let applied = self.applied;
        let mut failed = None;
        for_each_frame(&log, applied, |frame| {
            let free = self.sources.values().map(|state| state.id + 1).max().unwrap_or(0);
            // The state was lost: its first frame is the best that is known of the first start.
            let state = self.sources.entry(frame.source.to_string()).or_insert_with(|| {
                SourceState { id: free, first_start_ms: frame.time_ms, ..SourceState::default() }
            });
            let source = state.id;
            track.frame(frame, state);
            let mut changes = SeenChanges::default();
            for record in frame.records().map(Record::from).filter(|record| record.seq >= applied) {
                if let Some((uid, entry)) = seen_entry(&record.envelope, source) {
                    changes.insert(uid, Some(entry));
                }
            }
            changes.extend(frame.forgotten.iter().map(|uid| (UidKey(*uid), None)));
            failed = self.add_seen(changes, frame.next()).err();
            failed.is_none()
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Adds to the view; where there is no room, some of it is saved first.
    fn add_seen(&mut self, changes: SeenChanges, applied: u64) -> io::Result<()> {
        if !self.seen.has_room(changes.len()) {
            self.save_seen()?;
        }
        self.seen.add(changes, applied);
        Ok(())
    }

    /// Saves what was added to the view, but not how far it goes.
    fn save_seen(&mut self) -> io::Result<()> {
        let Some((seen, applied)) = self.seen.take() else { return Ok(()) };
        let commit = StateCommit { seen, applied: self.applied, ..StateCommit::default() };
        let synced = self.log.sync(now_ms());
        let saved = synced.and_then(|()| self.state.commit(&commit).map_err(io::Error::other));
        saved.inspect_err(|_| self.seen.put_back(applied))
    }
}

impl SavedSinks {
    /// Nothing yet: to be [read](Self::reload) while the bridge runs.
    pub(super) fn emptied(&self) -> Self {
        self.with(Loaded::default())
    }

    /// What is saved by now. Blocks on the disk.
    pub(super) fn reload(&self) -> Result<Self, ReadError> {
        Ok(self.with(self.reader.load()?))
    }

    fn with(&self, loaded: Loaded) -> Self {
        Self {
            reader: self.reader.clone(),
            directory: self.directory.clone(),
            log: self.log.clone(),
            retention_size: self.retention_size,
            sinks: loaded.sinks,
            correlators: loaded.correlators,
            inputs: loaded.inputs,
            keys: self.keys.clone(),
            positions: None,
            has_past: true,
            survived: self.log.tail(),
        }
    }

    /// What each sink had lost when the runs before saved it last.
    pub(super) fn lost_before(&self) -> HashMap<String, u64> {
        self.sinks.iter().map(|(name, saved)| (name.clone(), saved.totals.lost)).collect()
    }

    /// What a sink goes on with. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// The file of what it has had cannot be opened or written.
    pub(super) fn sink(
        &self,
        sink: &SinkOptions,
        enricher: Option<&Enricher>,
    ) -> io::Result<RestoredSink> {
        let (mut state, correlator) = self.standing(sink, enricher);
        let (next, tail) = (state.standing.position.next, self.log.tail().next);
        let mut had = Delivered::open(&self.directory, &sink.name, next, tail, now_ms())?;
        if !self.sinks.contains_key(&sink.name) {
            had.forget_inputs();
        }
        had.redelivered_at_least(state.totals.redelivered);
        state.totals.redelivered = had.redelivered();
        let fits = (tail, self.retention_size);
        Ok(RestoredSink { state, correlator, fits, had, has_past: self.has_past })
    }

    /// Where a sink goes on, its totals so far, and its correlator there.
    fn standing(
        &self,
        sink: &SinkOptions,
        enricher: Option<&Enricher>,
    ) -> (SinkState, Option<Correlator>) {
        let mut state = self.sink_state(&sink.name, sink.start);
        let saved = self.correlators.get(&sink.name).filter(|saved| !saved.bytes.is_empty());
        let anew = || Correlator::new(sink.correlate, &self.keys, self.retention_size);
        let switched = |mut correlator: Correlator| {
            correlator.switch(sink.correlate);
            correlator
        };
        let load = |saved: &SavedCorrelator| {
            Correlator::load(&saved.bytes)
                .inspect_err(
                    |error| tracing::error!(sink = sink.name, %error, "a correlator's state"),
                )
                .ok()
        };
        let correlator = match saved {
            // Where nothing is held and nothing will be, nobody asks what was known.
            Some(_)
                if sink.correlate == CorrelateMode::None && state.standing.held.versions == 0 =>
            {
                None
            }
            Some(saved) => load(saved).and_then(|correlator| {
                self.bring_up(correlator, sink, enricher, saved.position, state.standing.position)
            }),
            None => anew(),
        };
        let held = correlator.as_ref().map(Correlator::holding).unwrap_or_default();
        if held.fits(&state.standing.held) {
            return (state, correlator.or_else(anew).map(switched));
        }
        // What keeps it from being brought up is damage; or an earlier build did not note what it had
        // decided by, and the log no longer has it, or this run's `match` chooses otherwise. So what
        // was held when it was saved is sent, and what was held since is lost.
        let mut correlator = saved.and_then(load).or_else(anew);
        if let Some(correlator) = &mut correlator {
            correlator.salvage(state.standing.held.versions);
        }
        let held = correlator.as_ref().map(Correlator::holding).unwrap_or_default();
        let lost = state.standing.held.versions - held.versions;
        tracing::error!(
            sink = sink.name,
            lost,
            sent = held.versions,
            saved_at = saved.map_or(0, |saved| saved.position.next),
            position = state.standing.position.next,
            "what the correlator held back at its position is not known, only what it held when it \
             was saved: that is sent, some of it perhaps for the second time, and versions beyond it \
             count as lost"
        );
        state.totals.lost += lost;
        state.standing.held = held;
        (state, correlator.map(switched))
    }

    /// A sink's correlator, brought up from where it was saved to the sink's position; nothing if that
    /// cannot be done.
    fn bring_up(
        &self,
        mut correlator: Correlator,
        sink: &SinkOptions,
        enricher: Option<&Enricher>,
        from: Position,
        position: Position,
    ) -> Option<Correlator> {
        let mut known = from.next;
        // What the log has lost of its end is read, and decided on, again.
        let holds = known + 1..=self.survived.next;
        if let Some(decided) = self.inputs.get(&sink.name).filter(|of| holds.contains(&of.next)) {
            correlator.catch_up(decided, known);
            known = decided.next;
        }
        // Of an earlier build, or where nothing is held back, there is but the log; and then it decides
        // on what this run's `match` chooses.
        let log = &self.log;
        let read = for_each_frame(log, known, |frame| {
            let between = known..position.next;
            for record in
                frame.records().map(Record::from).filter(|record| between.contains(&record.seq))
            {
                let wanted =
                    sink.filter.as_ref().is_none_or(|filter| wanted(filter, enricher, &record));
                correlator.bring_up(&record, frame.time_ms, wanted);
            }
            frame.next() < position.next
        });
        read.inspect_err(|error| {
            tracing::error!(sink = sink.name, %error, "a correlator cannot be brought up to its sink");
        })
        .ok()?;
        Some(correlator)
    }

    /// Where a sink goes on, and its totals so far.
    fn sink_state(&self, name: &str, start: SinkStart) -> SinkState {
        if let Some(saved) = self.sinks.get(name) {
            let mut saved = saved.clone();
            if saved.standing.position.next > self.survived.next {
                // What it had had from there on is read again, under numbers above all of these.
                saved.standing.position = self.log.tail();
            }
            return saved;
        }
        let log = &self.log;
        let position = match self.positions.as_ref().and_then(|all| all.sinks.get(name)) {
            Some(own) => {
                let epoch = self.positions.as_ref().map_or(0, |all| all.epoch);
                let up_to = |source: &str| {
                    let version = own.get(source).map_or(0, |version| version.0);
                    Resume { epoch, resource_version: version }
                };
                first_unsettled(log, up_to).unwrap_or_else(|_| log.oldest())
            }
            // Nothing is known of a sink that the state knew: rather again than not at all.
            None if self.positions.is_some() => log.oldest(),
            None => match start {
                SinkStart::Now if self.has_past => log.tail(),
                SinkStart::Now | SinkStart::Oldest => log.oldest(),
            },
        };
        let standing = Standing { position, ..Standing::default() };
        SinkState { standing, ..SinkState::default() }
    }
}

/// What a sink's `match` said of a record in the runs before.
fn wanted(filter: &Filter, enricher: Option<&Enricher>, record: &Record) -> bool {
    let wants = |record: &Record| filter.wants(record).unwrap_or(true);
    match enricher.filter(|_| filter.names_object()) {
        Some(enricher) => wants(&enricher.stored(record)),
        None => wants(record),
    }
}

/// The position of the first frame with records that a sink has not had, given up to where it has
/// had each source.
///
/// A list is journalled in frames of which only the last one moves the resume point. So records
/// are settled when the resume point that follows them is.
fn first_unsettled(log: &LogHandle, up_to: impl Fn(&str) -> Resume) -> io::Result<Position> {
    let mut uncovered = BTreeMap::<Arc<str>, Position>::new();
    let mut last = BTreeMap::<Arc<str>, Resume>::new();
    let whole = log.oldest() == Position::START;
    for_each_frame(log, 0, |frame| {
        let before = last.insert(Arc::clone(&frame.source), frame.resume);
        let start = Resume { resource_version: 0, ..frame.resume };
        let before = before.or_else(|| whole.then_some(start));
        let moved = before.is_some_and(|before| before != frame.resume);
        let settled = frame.resume <= up_to(&frame.source);
        if settled && moved {
            uncovered.remove(&frame.source);
        } else if frame.count() > 0 {
            let start = Position { next: frame.first, skipped: frame.skipped };
            uncovered.entry(Arc::clone(&frame.source)).or_insert(start);
        }
        settled
    })?;
    let first = uncovered.into_values().min_by_key(Position::ordinal);
    Ok(first.unwrap_or_else(|| log.tail()))
}

/// Says what damage was found since the last time.
pub(super) fn log_damage(damages: &Damages) {
    for damage in damages.take_unreported() {
        tracing::error!("the journal is damaged: {damage}");
    }
}

/// Reads the log from a sequence on, until the end or until `take` answers that it has enough.
pub(super) fn for_each_frame(
    log: &LogHandle,
    from: u64,
    mut take: impl FnMut(&Frame) -> bool,
) -> io::Result<()> {
    let mut reader = log.reader(from);
    loop {
        let frames = reader.read(READ_BYTES)?;
        if frames.is_empty() || !frames.iter().all(|frame| take(frame)) {
            return Ok(());
        }
    }
}

/// What the view holds after a record.
fn seen_entry(envelope: &[u8], source: u16) -> Option<(UidKey, SeenEntry)> {
    #[derive(Deserialize)]
    struct Known<'a> {
        id: &'a str,
        occurrences: u64,
    }
    let Known { id, occurrences } = serde_json::from_slice(envelope).ok()?;
    let (uid, version) = id.rsplit_once('-')?;
    let entry = SeenEntry::new(version.parse().ok()?, occurrences, source);
    Some((UidKey::of(uid), entry))
}
