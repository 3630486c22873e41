//! The restore of what earlier runs left: the log, the state beside it, and every view brought up to the log.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::Arc,
};

use serde::Deserialize;

use self::track::Track;

use crate::{
    bridge::{
        BridgeError, CorrelateMode, Filter, JournalOptions, ObjectOptions, SinkOptions, SinkStart,
        correlation::Correlator,
        frames::{for_each_frame, read_again},
        gap::Gap,
        objects::{Enricher, Objects},
        shared::now_ms,
        source::seen::Seen,
    },
    correlate::Keys,
    event::{Record, SeenChanges, SeenEntry, Shed, UidKey},
    journal::{
        CorrelatorInputs, Damages, Delivered, Directory, Loaded, Log, LogHandle, ObjectsView,
        OpenError, Opened, POSITIONS, Position, Positions, Ranges, ReadError, Resume,
        SavedCorrelator, SetAsideReader, SinkState, SinksReader, SourceState, Standing, State,
        StateCommit,
    },
};

mod roll_back;
mod track;

#[cfg(test)]
mod tests;

pub(crate) use roll_back::positions_of;
use roll_back::resume_from;

/// The state of all parts as it was restored. See the [module](self).
pub(crate) struct Restored {
    pub(crate) directory: Directory,
    pub(crate) log: Log,
    pub(crate) state: State,
    /// The view `seen`, up to the end of the log.
    pub(crate) seen: Arc<Seen>,
    /// Up to where the state store has it.
    pub(crate) applied: u64,
    pub(crate) sources: BTreeMap<String, SourceState>,
    pub(crate) resume: BTreeMap<Arc<str>, Resume>,
    /// Gaps whose statement a crash may have taken.
    pub(crate) unstated: Vec<Gap>,
    pub(crate) cluster_uid: Option<String>,
    /// The uids of the bridge's own heartbeats.
    pub(crate) heartbeats: Vec<String>,
    /// Up to where the view `objects` is kept.
    pub(crate) objects: Option<ObjectsView>,
    pub(crate) sinks: Arc<SavedSinks>,
}

/// The state that a sink goes on with.
pub(crate) struct RestoredSink {
    pub(crate) state: SinkState,
    /// As it was at the position.
    pub(crate) correlator: Option<Correlator>,
    /// From which sequence on no run before has decided, and the size of the journal.
    pub(crate) fits: (u64, u64),
    /// The note of what it has had at the position, or behind it.
    pub(crate) had: Delivered,
    /// The journal was there before this run.
    pub(crate) has_past: bool,
}

/// The saved state of sinks, from which they go on.
pub(crate) struct SavedSinks {
    reader: SinksReader,
    set_aside: SetAsideReader,
    directory: Directory,
    log: LogHandle,
    sinks: BTreeMap<String, SinkState>,
    correlators: BTreeMap<String, SavedCorrelator>,
    /// The inputs that they have decided by since they were saved.
    inputs: BTreeMap<String, CorrelatorInputs>,
    /// The maker of keys for correlators that begin now: that of one that is there.
    pub(crate) keys: Keys,
    /// The positions to go by when the state was lost.
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
    /// The directory cannot be used, another process has it, or the disk does not give a file of it.
    /// Damage is no error.
    pub(crate) fn open(options: &JournalOptions) -> Result<Self, BridgeError> {
        let directory = Directory::open(&options.path)?;
        if let Some(remark) = directory.remark() {
            tracing::info!(directory = %options.path.display(), "permissions of the journal's directory: {remark}");
        }
        let now = now_ms();
        let (state, loaded) = read_again(|| State::open(&directory, options.dead_letters, now))?;
        let floor = loaded.highest_sequence();
        let (log, opened) = read_again(|| Log::open(&directory, options.log, floor, now))
            // What was set aside by then is not found again.
            .inspect_err(|_| _ = log_damage(directory.damages()))?;
        log_recovery(&opened);
        let positions = load_positions(&directory, now)?;
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
            set_aside: state.set_aside(),
            directory: directory.clone(),
            log: log.handle(),
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
            sinks: Arc::new(sinks),
            log,
        };
        let mut seen = Ok(());
        if loaded.applied > opened.survived.next {
            seen = restored.roll_back_seen()?;
        }
        let mut track = Track::new(restored.applied);
        if seen.is_ok() {
            seen = restored.bring_up_seen(&mut track)?;
        }
        if let Err(error) = seen {
            tracing::error!(%error, "the Events seen so far could not be brought up to date with the journal: some deltas may be too large");
            track.lose();
        }
        let Self { resume, sources, .. } = &mut restored;
        restored.unstated =
            track.end(opened.survived, opened.tail, resume, opened.newest_ms, sources);
        log_damage(restored.directory.damages());
        Ok(restored)
    }

    /// The view of objects, if a sink is told of them.
    pub(crate) fn objects(
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
    /// sources are saved with that, by the checkpointer. A start that ends before does all of it again.
    ///
    /// The inner error is one of saving.
    fn bring_up_seen(&mut self, track: &mut Track) -> Result<io::Result<()>, OpenError> {
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
            let shed_before = |record: &Record| {
                let (uid, _) = seen_entry(&record.envelope, source)?;
                self.seen.get(uid).ok().flatten().map(|entry| entry.shed.into())
            };
            track.frame(frame, state, shed_before);
            let mut changes = SeenChanges::default();
            for record in frame.records().filter(|record| record.seq >= applied) {
                if let Some((uid, entry)) = seen_entry(&record.envelope, source) {
                    changes.insert(uid, Some(entry));
                }
            }
            changes.extend(frame.forgotten.iter().map(|uid| (*uid, None)));
            failed = self.add_seen(changes, frame.next()).err();
            failed.is_none()
        })?;
        Ok(failed.map_or(Ok(()), Err))
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

/// Says what was cut off the log, and stepped over in it.
fn log_recovery(opened: &Opened) {
    if opened.cut_bytes > 0 {
        tracing::info!(
            bytes = opened.cut_bytes,
            "the last write was torn by a crash and is cut off: it will be read again"
        );
    }
    if opened.damaged > 0 {
        tracing::error!(
            regions = opened.damaged,
            "the journal is damaged: its losses are stated when it is read"
        );
    }
}

/// The positions to go by when the state was lost. A damaged file of them is set aside.
fn load_positions(directory: &Directory, now_ms: u64) -> Result<Option<Positions>, OpenError> {
    match read_again(|| Positions::load(directory)) {
        Err(OpenError::Damaged { reason, .. }) => {
            let said = format!("{reason}; it serves only when the rest of the journal is gone");
            if let Err(error) = directory.set_aside(POSITIONS, &said, now_ms) {
                tracing::warn!(%error, "{POSITIONS} is damaged, and cannot be set aside: {said}");
            }
            Ok(None)
        }
        loaded => loaded,
    }
}

impl SavedSinks {
    /// Nothing yet: to be [read](Self::reload) while the bridge runs.
    pub(crate) fn emptied(&self) -> Self {
        self.with(Loaded::default())
    }

    /// Reads what is saved by now. Blocks on the disk.
    pub(crate) fn reload(&self) -> Result<Self, ReadError> {
        Ok(self.with(self.reader.load()?))
    }

    fn with(&self, loaded: Loaded) -> Self {
        Self {
            reader: self.reader.clone(),
            set_aside: self.set_aside.clone(),
            directory: self.directory.clone(),
            log: self.log.clone(),
            sinks: loaded.sinks,
            correlators: loaded.correlators,
            inputs: loaded.inputs,
            keys: self.keys.clone(),
            positions: None,
            has_past: true,
            survived: self.log.tail(),
        }
    }

    /// The count that each sink had lost when the runs before saved it last.
    pub(crate) fn lost_before(&self) -> HashMap<String, u64> {
        self.sinks.iter().map(|(name, saved)| (name.clone(), saved.totals.lost)).collect()
    }

    /// The state that a sink goes on with. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// The file of what it has had cannot be opened, or the disk does not give a file.
    pub(crate) fn sink(
        &self,
        sink: &SinkOptions,
        enricher: Option<&Enricher>,
    ) -> Result<RestoredSink, OpenError> {
        let (mut state, correlator) = self.standing(sink, enricher)?;
        let (next, tail) = (state.standing.position.next, self.log.tail().next);
        let open = || Delivered::open(&self.directory, &sink.name, next, tail, now_ms());
        let mut had = read_again(open)?;
        if !self.sinks.contains_key(&sink.name) {
            had.forget_inputs();
        }
        had.redelivered_at_least(state.totals.redelivered);
        state.totals.redelivered = had.redelivered();
        let fits = (tail, self.log.retention_size);
        state.set_aside = self.set_aside.count(&sink.name)?;
        Ok(RestoredSink { state, correlator, fits, had, has_past: self.has_past })
    }

    /// Where a sink goes on, its totals so far, and its correlator there.
    fn standing(
        &self,
        sink: &SinkOptions,
        enricher: Option<&Enricher>,
    ) -> Result<(SinkState, Option<Correlator>), OpenError> {
        let mut state = self.sink_state(&sink.name, sink.start)?;
        let saved = self.correlators.get(&sink.name).filter(|saved| !saved.bytes.is_empty());
        let anew = || Correlator::new(sink.correlate, &self.keys, self.log.retention_size);
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
            Some(saved) => {
                let mut loaded = load(saved);
                if let Some(correlator) = &mut loaded {
                    let range = [saved.position, state.standing.position];
                    self.bring_up(correlator, sink, enricher, range)?;
                }
                loaded
            }
            None => anew(),
        };
        let held = correlator.as_ref().map(Correlator::holding).unwrap_or_default();
        if held.fits(&state.standing.held) {
            return Ok((state, correlator.or_else(anew).map(switched)));
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
            "the versions that the correlator held back at its position are not known, only those that \
             it held when it was saved: these are sent, some perhaps for the second time, and others \
             count as lost"
        );
        state.totals.lost += lost;
        state.standing.held = held;
        Ok((state, correlator.map(switched)))
    }

    /// Brings a sink's correlator up from where it was saved to the sink's position.
    fn bring_up(
        &self,
        correlator: &mut Correlator,
        sink: &SinkOptions,
        enricher: Option<&Enricher>,
        [from, position]: [Position; 2],
    ) -> Result<(), OpenError> {
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
        for_each_frame(log, known, |frame| {
            let between = known..position.next;
            for record in frame.records().filter(|record| between.contains(&record.seq)) {
                let wanted =
                    sink.filter.as_ref().is_none_or(|filter| wanted(filter, enricher, &record));
                correlator.bring_up(&record, frame.time_ms, wanted);
            }
            frame.next() < position.next
        })
    }

    /// Where a sink goes on, and its totals so far.
    fn sink_state(&self, name: &str, start: SinkStart) -> Result<SinkState, OpenError> {
        if let Some(saved) = self.sinks.get(name) {
            let mut saved = saved.clone();
            if saved.standing.position.next > self.survived.next {
                // What it had had from there on is read again, under numbers above all of these.
                saved.standing.position = self.log.tail();
                saved.passed = Ranges::default();
            }
            saved.passed.drop_from(self.survived.next);
            return Ok(saved);
        }
        let log = &self.log;
        let position = match self.positions.as_ref().and_then(|all| all.sinks.get(name)) {
            Some(own) => {
                let epoch = self.positions.as_ref().map_or(0, |all| all.epoch);
                let up_to = |source: &str| {
                    let version = own.get(source).map_or(0, |version| version.0);
                    Resume { epoch, resource_version: version }
                };
                first_unsettled(log, up_to)?
            }
            // Nothing is known of a sink that the state knew: rather again than not at all.
            None if self.positions.is_some() => log.oldest(),
            None => match start {
                SinkStart::Now if self.has_past => log.tail(),
                SinkStart::Now | SinkStart::Oldest => log.oldest(),
            },
        };
        let standing = Standing { position, ..Standing::default() };
        Ok(SinkState { standing, ..SinkState::default() })
    }
}

/// Whether a sink's `match` wanted a record in the runs before.
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
fn first_unsettled(log: &LogHandle, up_to: impl Fn(&str) -> Resume) -> Result<Position, OpenError> {
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

/// Says what damage was found since the last time; answers whether there is any.
pub(crate) fn log_damage(damages: &Damages) -> bool {
    let unreported = damages.take_unreported();
    for damage in &unreported {
        tracing::error!("the journal is damaged: {damage}");
    }
    !unreported.is_empty()
}

/// The entry that the view holds after a record.
fn seen_entry(envelope: &[u8], source: u16) -> Option<(UidKey, SeenEntry)> {
    #[derive(Deserialize)]
    struct Known<'a> {
        id: &'a str,
        occurrences: u64,
    }
    if let Some(Shed { uid, resource_version, occurrences, delta, .. }) = Shed::parse(envelope) {
        let entry = SeenEntry::new(resource_version, occurrences, source).with_shed(delta);
        return Some((UidKey::of(&uid), entry));
    }
    let Known { id, occurrences } = serde_json::from_slice(envelope).ok()?;
    let (uid, version) = id.rsplit_once('-')?;
    let entry = SeenEntry::new(version.parse().ok()?, occurrences, source);
    Some((UidKey::of(uid), entry))
}
