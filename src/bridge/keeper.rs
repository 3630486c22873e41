//! The keeper: once a second it makes durable what has been reached.
//!
//! The order is what keeps it safe: sinks' progress is taken first, then the log is synced, then
//! the state is committed. So the state never knows of records that a power cut could still take
//! from the log. With a sync interval longer than a second, or without syncs, cursors may; then the
//! next start begins above every sequence that the state knows, and reads the records again.
//!
//! The view `seen` is saved more seldom, or sooner when ingest fills what it may hold of it, and
//! never ahead of the log, whatever the interval: a version that it knows is not read again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tidings_log::{Directory, LogHandle, Sync};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    SinkProgress, Sinks,
    control::{LetterChange, LetterRequest},
    ingest::{Desk, Message},
    marks::SourceMarks,
    objects::Objects,
    own_writes::OwnWrites,
    progress::{Changes, Unsaved},
    redelivery::Retries,
    restore::{log_damage, positions_of},
    seen::{Demand, Seen},
    shared::{lock, now_ms},
    tasks::answer_of,
    watchdog::Pulse,
};
use crate::{
    event::Cluster,
    journal::{DeadLetter, Positions, State, StateCommit},
};

#[cfg(test)]
mod tests;

/// Cursors and totals are saved so often.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// `positions.json` is written so often.
const POSITIONS_EVERY: Duration = Duration::from_secs(5);
/// The view `seen` is saved so often, or when many changes wait; it can be brought up from the log,
/// and an Event that is patched ten times in between costs one write.
const SEEN_EVERY: Duration = Duration::from_secs(10);

/// That dead letters go for want of room is said at most so often.
const OVERFLOW_TOLD_EVERY: Duration = Duration::from_mins(10);

/// See the [module](self). Its calls block on the disk.
pub(super) struct Keeper {
    pub(super) state: State,
    pub(super) directory: Directory,
    pub(super) sinks: Sinks,
    /// Those of which changes are being saved.
    pub(super) saving: Vec<Arc<SinkProgress>>,
    pub(super) seen: Arc<Seen>,
    /// Nothing where no sink is told of objects.
    pub(super) objects: Option<Arc<Objects>>,
    pub(super) log: LogHandle,
    pub(super) cluster: Arc<Mutex<Cluster>>,
    pub(super) sources: Vec<Arc<SourceMarks>>,
    pub(super) saved_cluster_uid: Option<String>,
    pub(super) saved_heartbeats: Vec<String>,
    /// Nothing where the bridge writes no Events.
    pub(super) own_writes: Option<OwnWrites>,
    /// Up to where the view `seen` is saved.
    pub(super) applied: u64,
    pub(super) last_positions: Instant,
    pub(super) last_seen: Instant,
    pub(super) state_error: Arc<Mutex<Option<String>>>,
    /// `positions.json` could not be written when it was last tried.
    pub(super) positions_failing: bool,
    /// When it was last said that dead letters go for want of room.
    pub(super) overflow_told: Option<Instant>,
    /// Of its work on the disk.
    pub(super) pulse: Pulse,
    /// Wakes redelivery.
    pub(super) letters_changed: watch::Sender<Retries>,
}

/// By sink, who is to be told that its changes are on the disk.
type Waiting = BTreeMap<String, Vec<oneshot::Sender<()>>>;

/// What the keeper is woken for.
enum Wake {
    /// To save: ahead of time, or for the last time.
    Save {
        early: bool,
        last: bool,
    },
    Letters(LetterRequest),
}

/// Saves once a second until it is told to stop, and then once more.
pub(super) async fn run(
    mut keeper: Keeper,
    to_ingest: mpsc::Sender<Message>,
    desk: Arc<Desk>,
    sync: Sync,
    mut requests: mpsc::Receiver<LetterRequest>,
    stop: CancellationToken,
) {
    let mut ticks = tokio::time::interval(SAVE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_sync = Instant::now();
    let mut demand = keeper.seen.demand();
    loop {
        let wake = tokio::select! {
            _ = ticks.tick() => Wake::Save { early: false, last: false },
            Some(request) = requests.recv() => Wake::Letters(request),
            // It lives as long as the keeper. What cannot be saved is tried once a second.
            _ = demand.wait_for(|demand| *demand > Demand::None), if !keeper.is_failing() => {
                Wake::Save { early: true, last: false }
            }
            () = stop.cancelled() => Wake::Save { early: false, last: true },
        };
        let (early, last) = match wake {
            Wake::Save { early, last } => (early, last),
            Wake::Letters(request) => {
                let changing = spawn_blocking(move || {
                    keeper.pulse.works("changing dead letters");
                    keeper.change_letters(request);
                    keeper.pulse.rests();
                    keeper
                });
                keeper = answer_of(changing).await;
                continue;
            }
        };
        let mut taken = keeper.take(last, early);
        // What the view `seen` knows has to be in the log for good: or what a power cut took from the
        // log would be read again and taken for a repeat.
        let due = match sync {
            Sync::Always => false,
            Sync::Interval(interval) => last_sync.elapsed() >= interval || !taken.0.seen.is_empty(),
            Sync::Never => !taken.0.seen.is_empty(),
        };
        if due {
            last_sync = Instant::now();
            if sync_log(&to_ingest, &desk, &mut demand, &keeper.pulse).await.is_err() {
                keeper.leave_out_seen(&mut taken.0);
            }
        }
        let saving = spawn_blocking(move || {
            keeper.pulse.works("saving the state");
            keeper.save(taken, last);
            keeper.pulse.rests();
            keeper
        });
        keeper = answer_of(saving).await;
        if last {
            return;
        }
    }
}

/// The log could not be synced, or not in time.
struct NotSynced;

/// Syncs the log beside ingest, not within it: a sync takes as long as the disk likes, and events
/// go on meanwhile.
async fn sync_log(
    to_ingest: &mpsc::Sender<Message>,
    desk: &Arc<Desk>,
    demand: &mut watch::Receiver<Demand>,
    pulse: &Pulse,
) -> Result<(), NotSynced> {
    if to_ingest.is_closed() {
        return if desk.ended() == Some(true) { Ok(()) } else { Err(NotSynced) };
    }
    let begun = desk.ask();
    wake(to_ingest);
    let job = tokio::select! {
        // The disk may keep ingest from answering.
        begun = timeout(SAVE_EVERY, begun) => begun.map_err(|_| NotSynced)?.map_err(|_| NotSynced)?,
        // It has done so itself.
        _ = demand.wait_for(|demand| *demand == Demand::Now) => return Ok(()),
    };
    let Some(job) = job else { return Ok(()) };
    pulse.works("syncing the log");
    let done = answer_of(spawn_blocking(move || job.run())).await;
    pulse.rests();
    let synced = if done.is_ok() { Ok(()) } else { Err(NotSynced) };
    desk.report(done);
    wake(to_ingest);
    synced
}

/// Has ingest look at the desk. If the channel is full it is awake.
fn wake(to_ingest: &mpsc::Sender<Message>) {
    let _ = to_ingest.try_send(Message::Tick);
}

impl Keeper {
    fn change_letters(&mut self, LetterRequest { letters, what, answer }: LetterRequest) {
        let changed = match what {
            LetterChange::Retry => {
                let configured: Vec<_> = self.sinks.now().iter().map(|s| s.name()).collect();
                self.state.retry_letters(&letters, &configured)
            }
            LetterChange::Drop => self.state.drop_letters(&letters),
        };
        self.letters_changed.send_modify(|retries| {
            if what == LetterChange::Retry {
                retries.ask(&letters);
            }
        });
        // Who does not wait any longer has no use for it.
        let _ = answer.send(changed);
    }

    /// What has changed since the last call, and who waits for it.
    fn take(&mut self, last: bool, early: bool) -> (StateCommit, Waiting) {
        let mut commit = StateCommit { applied: self.applied, ..StateCommit::default() };
        let mut waiting = Waiting::new();
        self.saving = self.sinks.now();
        for sink in &self.saving {
            if let Some(Changes { state, unsaved }) = sink.take_changes() {
                let name = sink.name();
                commit.dead_letters.extend(unsaved.dead_letters);
                if !unsaved.letter_fates.is_empty() {
                    commit.letter_fates.insert(name.clone(), unsaved.letter_fates);
                }
                if let Some(correlator) = unsaved.correlator {
                    commit.correlators.insert(name.clone(), correlator);
                }
                if let Some(inputs) = unsaved.inputs {
                    commit.inputs.insert(name.clone(), inputs);
                }
                waiting.insert(name.clone(), unsaved.waiting);
                commit.sinks.insert(name, state);
            }
        }
        let seen_is_due =
            last || early || self.is_failing() || self.last_seen.elapsed() >= SEEN_EVERY;
        // After the sinks: they have decided by nothing that is not in here.
        if let Some(objects) = &self.objects {
            commit.objects = objects.take_changes(seen_is_due, self.log.oldest().next);
        }
        if seen_is_due {
            self.last_seen = Instant::now();
            if let Some((changes, applied)) = self.seen.take() {
                commit.seen = changes;
                commit.applied = applied;
            }
        }
        // After the view `seen`, which is never ahead of what is saved of a source.
        let anyway = !commit.sinks.is_empty() || !commit.seen.is_empty();
        for source in &self.sources {
            if let Some(state) = source.take(anyway || last) {
                commit.sources.insert(source.key().to_string(), state);
            }
        }
        commit.cluster_uid = lock(&self.cluster)
            .uid
            .clone()
            .filter(|uid| Some(uid) != self.saved_cluster_uid.as_ref());
        let heartbeats = self.own_writes.as_ref().map(OwnWrites::heartbeats);
        commit.heartbeats = heartbeats.filter(|uids| *uids != self.saved_heartbeats);
        (commit, waiting)
    }

    /// The log could not be synced: the view `seen` waits for the next time.
    fn leave_out_seen(&self, commit: &mut StateCommit) {
        if !commit.seen.is_empty() || commit.applied > self.applied {
            self.seen.put_back(commit.applied);
            commit.seen = Arc::default();
            commit.applied = self.applied;
        }
    }

    fn save(&mut self, (commit, waiting): (StateCommit, Waiting), last: bool) {
        log_damage(self.log.damages());
        let nothing = commit.sinks.is_empty()
            && commit.seen.is_empty()
            && commit.sources.is_empty()
            && commit.objects.view.is_none()
            && commit.cluster_uid.is_none()
            && commit.heartbeats.is_none();
        // Only what is put away makes what is there go.
        let overflowed = (!commit.dead_letters.is_empty()).then(|| self.overflowed());
        // A command that failed on it leaves it closed, and nobody can read it until it is opened again.
        let in_place = self.state.keep_in_place(now_ms());
        let saved = in_place.and_then(|()| {
            if nothing && self.state.is_open() { Ok(()) } else { self.state.commit(&commit) }
        });
        match saved {
            Ok(()) => {
                if let Some(before) = overflowed {
                    self.tell_overflow(self.overflowed().saturating_sub(before));
                }
                self.seen.saved(commit.applied);
                for sink in &self.saving {
                    if commit.sinks.contains_key(&sink.name()) {
                        sink.saved();
                    }
                }
                let is_due = |letter: &DeadLetter| letter.is_parked() || letter.forward.is_some();
                if commit.dead_letters.iter().any(is_due) {
                    self.letters_changed.send_modify(|_| {});
                }
                for waits in waiting.into_values().flatten() {
                    // Who does not wait any longer has no use for it.
                    let _ = waits.send(());
                }
                if let Some(objects) = &self.objects {
                    objects.saved(&commit.objects);
                }
                self.applied = commit.applied;
                if commit.cluster_uid.is_some() {
                    self.saved_cluster_uid = commit.cluster_uid;
                }
                if let Some(heartbeats) = commit.heartbeats {
                    self.saved_heartbeats = heartbeats;
                }
                if lock(&self.state_error).take().is_some() {
                    tracing::info!("the state can be saved again");
                }
            }
            Err(error) => {
                self.put_back(commit, waiting);
                if lock(&self.state_error).replace(error.to_string()).is_none() {
                    tracing::error!(%error, "the state cannot be saved: after a crash now, more would be delivered again, and intake stops when too much waits");
                }
            }
        }
        if last || self.last_positions.elapsed() >= POSITIONS_EVERY {
            self.last_positions = Instant::now();
            self.store_positions();
        }
    }

    fn is_failing(&self) -> bool {
        lock(&self.state_error).is_some()
    }

    /// Events in dead letters that went for want of room, of all sinks.
    fn overflowed(&self) -> u64 {
        self.state.dead_letters().counts().values().map(|counts| counts.overflowed).sum()
    }

    /// Says that events are gone for good, once in a while.
    fn tell_overflow(&mut self, events: u64) {
        let silent = self.overflow_told.is_some_and(|told| told.elapsed() < OVERFLOW_TOLD_EVERY);
        if events == 0 || silent {
            return;
        }
        self.overflow_told = Some(Instant::now());
        tracing::error!(
            events,
            "the oldest dead letters were dropped to make room for new ones, and so it goes on: \
             mend the sink and retry them, drop what nobody needs, or raise journal.deadLetters; \
             tidings_dead_letters_dropped_total counts them"
        );
    }

    /// Says once that they cannot be written, and once that they can be again.
    fn store_positions(&mut self) {
        match self.positions().store(&self.directory) {
            Ok(()) => {
                if std::mem::take(&mut self.positions_failing) {
                    tracing::info!("positions.json can be written again");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.positions_failing, true) {
                    tracing::warn!(%error, "positions.json cannot be written: it serves only when the rest of the journal is gone, and is tried again every few seconds");
                }
            }
        }
    }

    fn put_back(&self, mut commit: StateCommit, mut waiting: Waiting) {
        self.leave_out_seen(&mut commit);
        let mut dead_letters = commit.dead_letters;
        for sink in &self.saving {
            let name = sink.name();
            if commit.sinks.contains_key(&name) {
                let (own, others) =
                    dead_letters.into_iter().partition(|letter| letter.sink == name);
                dead_letters = others;
                sink.put_back(Unsaved {
                    dead_letters: own,
                    letter_fates: commit.letter_fates.remove(&name).unwrap_or_default(),
                    correlator: commit.correlators.remove(&name),
                    inputs: commit.inputs.remove(&name),
                    waiting: waiting.remove(&name).unwrap_or_default(),
                });
            }
        }
        if let Some(objects) = &self.objects {
            objects.put_back(&commit.objects);
        }
        let taken = |source: &&Arc<SourceMarks>| commit.sources.contains_key(&**source.key());
        self.sources.iter().filter(taken).for_each(|source| source.put_back());
    }

    fn positions(&self) -> Positions {
        let states: Vec<_> = self.sinks.now().iter().map(|s| (s.name(), s.state())).collect();
        positions_of(states.iter().map(|(name, state)| (name.clone(), state)))
    }
}
