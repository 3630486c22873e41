//! What may be asked of a running bridge: its dead letters, and to send again what it has.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use serde::{Deserialize, Serialize};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
};

use super::{
    Filter,
    shared::lock,
    sinks::{KnownSink, Sinks},
};
use crate::{
    journal::{DeadLetter, DeadLettersReader, LetterError, LetterQuery, Letters, ReadError},
    suggest::nearest,
};

/// Asks a running bridge. Clones are cheap; see [`Bridge::control`](super::Bridge::control).
#[derive(Clone, Debug)]
pub struct Control {
    letters: DeadLettersReader,
    keeper: mpsc::Sender<LetterRequest>,
    sinks: Sinks,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The bridge has ended, or is about to.
    #[error("the bridge is stopping")]
    Stopping,
    /// The state cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Nothing was done with the letters.
    #[error(transparent)]
    Letters(#[from] LetterError),
    /// There is no such sink.
    #[error("there is no sink `{sink}`\nhint: {hint}")]
    NoSuchSink {
        /// The name asked for.
        sink: String,
        /// The one that was meant, or all of them.
        hint: String,
    },
    /// The filter speaks of objects, and the sink is told of none.
    #[error(
        "`match`: `object` is known only to a sink that has `enrich`\n\
         hint: add `enrich` to the sink `{0}`, for instance `enrich: {{labels: [\"*\"]}}`"
    )]
    NoObjects(String),
    /// The sink is sent nothing now.
    #[error("the sink `{0}` is stopped\nhint: start it, then replay")]
    SinkStopped(String),
    /// Another replay is under way.
    #[error("a replay to `{0}` is under way\nhint: wait for its end, or end it")]
    ReplayRuns(String),
}

/// What is to be sent to a sink once more, from what the journal holds.
#[derive(Clone, Debug)]
pub struct Replay {
    /// To which sink.
    pub sink: String,
    /// From where on.
    pub from: ReplayFrom,
    /// Which events, of those that the sink's own `match` wants; `None` for all.
    pub filter: Option<Filter>,
}

/// Where a replay begins. What the journal does not hold any more is not replayed; from a position
/// on, it is counted as [`gone`](ReplayProgress::gone).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplayFrom {
    /// With what was journalled at this time, in milliseconds since the epoch, or later.
    Time(u64),
    /// With the record of this sequence.
    Position(u64),
}

/// How far a replay is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayProgress {
    /// The sequence of the next record.
    pub position: u64,
    /// The sequence at which it ends: what the sink had been through when it was asked for, up to
    /// the first event that `suppress` held then.
    pub until: u64,
    /// The sequence that the sink had been through by then. It is beyond [`until`](Self::until)
    /// where the correlator holds something, and what lies between is not sent again.
    #[serde(default)]
    pub reached: u64,
    /// Records read.
    pub read: u64,
    /// Records that are wanted.
    pub matched: u64,
    /// Events that the receiver has.
    pub delivered: u64,
    /// Events that the receiver refused; these become no dead letters.
    pub refused: u64,
    /// Records that were gone before they were read, dropped by retention or damaged, at most; of
    /// those older than the [time](ReplayFrom::Time) asked for, none.
    pub gone: u64,
    /// When the first record that it read was journalled, or passed over, in milliseconds since the
    /// epoch; nothing before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
    /// What it does.
    #[serde(flatten)]
    pub state: ReplayState,
}

/// What a replay does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "why")]
pub enum ReplayState {
    /// It goes on.
    #[default]
    Running,
    /// It waits, and why.
    Waiting(String),
    /// It is at its end.
    Done,
    /// The bridge, or the sink, has stopped before its end.
    Stopped,
}

/// A replay under way. Dropping it ends the replay.
#[derive(Debug)]
pub struct ReplayRun {
    progress: watch::Receiver<ReplayProgress>,
}

impl ReplayRun {
    /// How far it is, each time that this has changed since the last call; `None` after its end,
    /// which is told before.
    pub async fn next(&mut self) -> Option<ReplayProgress> {
        self.progress.changed().await.ok()?;
        Some(self.progress.borrow_and_update().clone())
    }
}

/// What the keeper is asked to do with letters: it alone writes the state.
#[derive(Debug)]
pub(super) struct LetterRequest {
    pub(super) letters: Letters,
    pub(super) what: LetterChange,
    pub(super) answer: oneshot::Sender<Result<u64, LetterError>>,
}

/// See [`LetterRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LetterChange {
    Retry,
    Drop,
}

/// Where a sink takes replays.
#[derive(Debug)]
pub(super) struct ReplayDesk {
    /// Nothing while the sink is stopped.
    orders: Mutex<Option<mpsc::Sender<ReplayOrder>>>,
    /// Whether the sink is told of the objects of its events.
    enriches: bool,
    busy: Arc<AtomicBool>,
}

impl ReplayDesk {
    /// One that takes no orders yet.
    pub(super) fn new(enriches: bool) -> Self {
        Self { orders: Mutex::default(), enriches, busy: Arc::default() }
    }

    /// Takes orders, which come out there.
    pub(super) fn open(&self) -> mpsc::Receiver<ReplayOrder> {
        let (orders, taken) = mpsc::channel(1);
        *lock(&self.orders) = Some(orders);
        taken
    }

    /// Takes no more orders.
    pub(super) fn close(&self) {
        *lock(&self.orders) = None;
    }
}

/// A replay that a sink's errands are asked for.
#[derive(Debug)]
pub(super) struct ReplayOrder {
    pub(super) from: ReplayFrom,
    pub(super) filter: Option<Filter>,
    /// Until this is dropped no other replay to the sink is taken: before its listener is told of the
    /// end.
    _busy: Busy,
    pub(super) progress: watch::Sender<ReplayProgress>,
}

#[derive(Debug)]
struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Control {
    pub(super) fn new(
        letters: DeadLettersReader,
        keeper: mpsc::Sender<LetterRequest>,
        sinks: Sinks,
    ) -> Self {
        Self { letters, keeper, sinks }
    }

    /// The dead letters, the newest first. One that was refused within the last second may not be
    /// among them yet.
    ///
    /// # Errors
    ///
    /// The state cannot be read.
    pub async fn dead_letters(&self, query: LetterQuery) -> Result<Vec<DeadLetter>, ControlError> {
        self.read(move |letters| letters.list(&query)).await
    }

    /// One dead letter; nothing if it is not kept, or not any more.
    ///
    /// # Errors
    ///
    /// The state cannot be read.
    pub async fn dead_letter(&self, number: u64) -> Result<Option<DeadLetter>, ControlError> {
        self.read(move |letters| letters.get(number)).await
    }

    /// Has dead letters sent again, and answers how many. That they are to be is on the disk when
    /// this returns: it survives the end of the bridge.
    ///
    /// # Errors
    ///
    /// One of the letters named cannot be sent, or none of the others can; or the state cannot be
    /// written. Nothing is done then.
    pub async fn retry(&self, letters: Letters) -> Result<u64, ControlError> {
        self.change(letters, LetterChange::Retry).await
    }

    /// Drops dead letters, and answers how many. They are gone from the disk when this returns. One
    /// that is on its way to its sink just then may arrive all the same, and counts as delivered.
    ///
    /// # Errors
    ///
    /// There is no letter of a number; or the state cannot be written. Nothing is done then.
    pub async fn drop_letters(&self, letters: Letters) -> Result<u64, ControlError> {
        self.change(letters, LetterChange::Drop).await
    }

    /// Sends to a sink once more what the journal holds, up to what the sink has been through by
    /// now, and to the first event that `suppress` holds: beyond that, live delivery is under way,
    /// and must not be overtaken. It neither moves the
    /// sink's position nor its totals, and gives way to live delivery.
    ///
    /// # Errors
    ///
    /// There is no such sink, it is stopped, it is not told of the objects that the filter speaks of, or
    /// a replay to it is under way.
    pub fn replay(&self, replay: Replay) -> Result<ReplayRun, ControlError> {
        let Replay { sink, from, filter } = replay;
        let known = self.sinks.known();
        let Some(KnownSink { replays: desk, .. }) =
            known.iter().find(|known| known.progress.name() == sink)
        else {
            let names: Vec<_> = known.iter().map(|known| known.progress.name()).collect();
            let hint = match nearest(&sink, names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the sinks are {}", names.join(", ")),
            };
            return Err(ControlError::NoSuchSink { sink, hint });
        };
        if !desk.enriches && filter.as_ref().is_some_and(Filter::names_object) {
            return Err(ControlError::NoObjects(sink));
        }
        let Some(orders) = lock(&desk.orders).clone() else {
            return Err(ControlError::SinkStopped(sink));
        };
        if desk.busy.swap(true, Ordering::Acquire) {
            return Err(ControlError::ReplayRuns(sink));
        }
        let (progress, seen) = watch::channel(ReplayProgress::default());
        let busy = Busy(Arc::clone(&desk.busy));
        let order = ReplayOrder { from, filter, _busy: busy, progress };
        orders.try_send(order).map_err(|_| ControlError::Stopping)?;
        Ok(ReplayRun { progress: seen })
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&DeadLettersReader) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let letters = self.letters.clone();
        let read = spawn_blocking(move || read(&letters)).await;
        Ok(read.map_err(|_| ControlError::Stopping)??)
    }

    async fn change(&self, letters: Letters, what: LetterChange) -> Result<u64, ControlError> {
        let (answer, answered) = oneshot::channel();
        let request = LetterRequest { letters, what, answer };
        self.keeper.send(request).await.map_err(|_| ControlError::Stopping)?;
        Ok(answered.await.map_err(|_| ControlError::Stopping)??)
    }
}
