//! Replays: what the log has, sent to one sink once more.
//!
//! Read as the sink's feed reads it, 1 MiB at a time, each when the one before has been sent. A
//! replay ends where the sink was when it was asked for, or before the first event that its correlator
//! holds: behind that live delivery is under way, and an event must not come a second time before it
//! has come once.

use std::{collections::VecDeque, io};

use bytes::Bytes;
use tidings_log::{LogHandle, Position};
use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::sleep,
};
use tracing::Level;

use super::{PATIENCE, Redelivery, fates_of, patiently};
use crate::{
    bridge::{
        BatchOptions, EventFate, Failure, FailureClass, Filter, Outcome, Reason, RefusedClass,
        ReplayFrom, ReplayProgress, ReplayState, control::ReplayOrder, objects::Enricher,
        tasks::answer_of,
    },
    event::{EnvelopeParts, Record},
};

/// How much of the log is read at once.
const READ_BYTES: usize = 1 << 20;
const REFUSED: &str = "a replayed event is refused or given up; it becomes no dead letter";

/// See the [module](self).
pub(in crate::bridge) struct Replays {
    pub(in crate::bridge) orders: mpsc::Receiver<ReplayOrder>,
    pub(in crate::bridge) log: LogHandle,
    pub(in crate::bridge) redelivery: Redelivery,
    pub(in crate::bridge) batch: BatchOptions,
    /// The sink's own `match`.
    pub(in crate::bridge) filter: Option<Filter>,
    pub(in crate::bridge) enricher: Option<Enricher>,
}

/// Which records of the log are wanted.
#[derive(Clone)]
struct Wanted {
    log: LogHandle,
    /// Where to read on; `skipped` is a guess until a frame has been read.
    at: Position,
    until: u64,
    /// Frames that were journalled before are passed over, until one was not.
    since_ms: Option<u64>,
    filters: Vec<Filter>,
    enricher: Option<Enricher>,
}

/// What one look into the log has given.
#[derive(Default)]
struct Stretch {
    envelopes: Vec<Bytes>,
    read: u64,
    gone: u64,
    /// When its first frame was journalled.
    first_ms: Option<u64>,
    ends: bool,
}

impl Replays {
    /// Runs until delivery ends.
    pub(in crate::bridge) async fn run(mut self) {
        loop {
            let order = tokio::select! {
                order = self.orders.recv() => order,
                () = self.redelivery.ended() => None,
            };
            let Some(order) = order else { return };
            let progress = &order.progress;
            let done = tokio::select! {
                () = self.replay(&order) => true,
                () = self.redelivery.ended() => false,
                () = progress.closed() => {
                    let ReplayProgress { position, delivered, .. } = *progress.borrow();
                    tracing::info!(sink = self.redelivery.sink, position, delivered, "the replay was ended");
                    continue;
                }
            };
            progress.send_modify(|replay| {
                replay.state = if done { ReplayState::Done } else { ReplayState::Stopped };
            });
            let ReplayProgress { position, delivered, refused, gone, .. } = *progress.borrow();
            tracing::info!(
                sink = self.redelivery.sink,
                position,
                delivered,
                refused,
                gone,
                done,
                "the replay has ended"
            );
        }
    }

    async fn replay(&self, order: &ReplayOrder) {
        let ReplayOrder { from, filter, progress, .. } = order;
        let (oldest, tail) = (self.log.oldest(), self.log.tail());
        let standing = self.redelivery.progress.snapshot().standing;
        let (until, reached) = (standing.unsettled_from().min(tail.next), standing.position.next);
        // What is gone before the oldest record is missing from where it was asked for; of a time it
        // is not known where that is. Not even what was skipped there is, but from the start on.
        let (at, since_ms) = match *from {
            ReplayFrom::Position(first) if first > Position::START.next => {
                (Position { next: first, ..oldest }, None)
            }
            ReplayFrom::Position(_) => (Position::START, None),
            ReplayFrom::Time(ms) => (oldest, Some(ms)),
        };
        let first = at.next;
        let mut wanted = Wanted {
            log: self.log.clone(),
            at,
            until,
            since_ms,
            filters: self.filter.iter().chain(filter).cloned().collect(),
            enricher: self.enricher.clone(),
        };
        tracing::info!(sink = self.redelivery.sink, from = first, until, "a replay begins");
        progress.send_modify(|replay| {
            (replay.position, replay.until, replay.reached) = (first, until, reached);
        });
        loop {
            let mut next = wanted.clone();
            let read = spawn_blocking(move || next.read().map(|stretch| (next, stretch)));
            let stretch = match answer_of(read).await {
                Ok((next, stretch)) => {
                    wanted = next;
                    stretch
                }
                Err(error) => {
                    let why = format!("the journal cannot be read: {error}");
                    progress.send_modify(|replay| replay.state = ReplayState::Waiting(why));
                    sleep(PATIENCE).await;
                    continue;
                }
            };
            progress.send_modify(|replay| {
                replay.read += stretch.read;
                replay.gone += stretch.gone;
                replay.oldest_ms = replay.oldest_ms.or(stretch.first_ms);
                replay.matched += stretch.envelopes.len() as u64;
            });
            self.send(stretch.envelopes, progress).await;
            progress.send_modify(|replay| replay.position = wanted.at.next.min(until).max(first));
            if stretch.ends {
                return;
            }
        }
    }

    /// Sends events until each has an answer: in batches as the sink is configured, or, where one may be at fault that
    /// is not named, one at first and twice as many after each batch that was answered.
    async fn send(&self, envelopes: Vec<Bytes>, progress: &watch::Sender<ReplayProgress>) {
        let records = self.redelivery.number(envelopes).await;
        // Each with its failures that count for `retry.maxAttempts`.
        let mut left: VecDeque<(Record, u32)> =
            records.into_iter().map(|record| (record, 0)).collect();
        let max_attempts = self.redelivery.retry.max_attempts.unwrap_or(u32::MAX);
        let (mut most, mut failures) = (self.batch.events, 0);
        let mut failed: Option<Reason> = None;
        while let Some((first, _)) = left.front() {
            let mut bytes = first.envelope.len();
            let fits = |(record, _): &&(Record, u32)| {
                bytes += record.envelope.len();
                bytes as u64 <= self.batch.bytes
            };
            let sent = 1 + left.range(1..).take(most - 1).take_while(fits).count();
            let records = left.range(..sent).map(|(record, _)| record.clone()).collect();
            let waits = || {
                let why = failed.clone().map_or_else(|| self.what_for(), String::from);
                progress.send_modify(|replay| replay.state = ReplayState::Waiting(why));
            };
            let attempt = self.redelivery.attempt(records, async { true });
            let fates = match patiently(attempt, waits).await {
                // Which were rejected does not matter here.
                Some(Outcome::Partial { rejected, reason }) if rejected < sent as u64 => {
                    let refused = Failure::refused(RefusedClass::Invalid, reason);
                    let mut fates = vec![EventFate::Delivered; sent - rejected as usize];
                    fates.resize(sent, EventFate::Failed(refused));
                    Some(fates)
                }
                outcome => outcome.and_then(|outcome| fates_of(outcome, sent)),
            };
            let Some(fates) = fates else {
                most = 1;
                continue;
            };
            let (mut delivered, mut refused, mut failure) = (0, 0, None);
            let batch: Vec<_> = left.drain(..sent).zip(fates).collect();
            for ((record, mut attempts), fate) in batch.into_iter().rev() {
                let EventFate::Failed(why) = fate else {
                    delivered += 1;
                    continue;
                };
                attempts += u32::from(why.class != FailureClass::Misconfigured);
                if matches!(why.class, FailureClass::Refused(_)) || attempts >= max_attempts {
                    refused += 1;
                    self.log_refusal(&why);
                } else {
                    left.push_front((record, attempts));
                    failure = Some(why);
                }
            }
            self.redelivery.progress.update(|sink| sink.errands.replayed += delivered);
            failed = failure.as_ref().map(|failure| failure.reason.clone());
            let state =
                failed.clone().map_or(ReplayState::Running, |why| ReplayState::Waiting(why.into()));
            progress.send_modify(|replay| {
                replay.delivered += delivered;
                replay.refused += refused;
                replay.state = state;
            });
            match failure {
                Some(failure) => {
                    failures += 1;
                    self.redelivery.wait_after(&failure, failures).await;
                }
                None => (most, failures) = ((2 * most).min(self.batch.events), 0),
            }
        }
    }

    fn log_refusal(&self, Failure { class, reason, .. }: &Failure) {
        let Redelivery { sink, progress, .. } = &self.redelivery;
        let class = class.as_str();
        if progress.lines.admit(Level::WARN, REFUSED, class, 1) {
            tracing::warn!(sink, class, reason = &**reason, "{REFUSED}");
        }
    }

    /// The reason for which a batch waits that is not taken at once.
    fn what_for(&self) -> String {
        match self.redelivery.progress.snapshot().last_error {
            Some(error) => format!("the sink does not take events: {error}"),
            None => "live events go first, and the sink takes its time".to_owned(),
        }
    }
}

impl Wanted {
    /// Reads on, up to 1 MiB. Blocks on the disk. The log is opened anew each time: a reader that
    /// rests would keep a segment on the disk that retention has dropped.
    fn read(&mut self) -> io::Result<Stretch> {
        let mut stretch = Stretch { ends: self.at.next >= self.until, ..Stretch::default() };
        if stretch.ends {
            return Ok(stretch);
        }
        let frames = self.log.reader(self.at.next).read(READ_BYTES)?;
        if frames.is_empty() {
            stretch.gone = self.missing(self.log.tail());
            stretch.ends = true;
            return Ok(stretch);
        }
        stretch.first_ms = frames.first().map(|frame| frame.time_ms);
        for frame in frames {
            // What is missing before a frame that is passed over is as old.
            let passed_over = self.since_ms.is_some_and(|since| frame.time_ms < since);
            if !passed_over {
                self.since_ms = None;
                let begin = Position { next: frame.first, skipped: frame.skipped };
                stretch.gone += self.missing(begin);
                let wanted = self.at.next..self.until;
                for record in
                    frame.records().map(Record::from).filter(|record| wanted.contains(&record.seq))
                {
                    stretch.read += 1;
                    stretch.envelopes.extend(self.take(record));
                }
            }
            self.at = Position { next: frame.next().max(self.at.next), skipped: frame.skipped };
            if self.at.next >= self.until {
                stretch.ends = true;
                break;
            }
        }
        Ok(stretch)
    }

    /// How many records are missing from where it is to where the log goes on.
    fn missing(&self, on: Position) -> u64 {
        let on = Position { next: on.next.min(self.until), ..on };
        let skipped = on.skipped.saturating_sub(self.at.skipped);
        on.next.saturating_sub(self.at.next).saturating_sub(skipped)
    }

    /// What is sent of a record; nothing if it is not wanted.
    fn take(&self, record: Record) -> Option<Bytes> {
        let record = match &self.enricher {
            Some(enricher) => enricher.stored(&record),
            None => record,
        };
        // What cannot be judged is let through, as in live delivery.
        let wanted = self.filters.iter().all(|filter| filter.wants(&record).unwrap_or(true));
        let replayed = || {
            let parts = EnvelopeParts::of(&record.envelope);
            parts.map_or_else(|| record.envelope.clone(), |parts| parts.replayed())
        };
        wanted.then(replayed)
    }
}
