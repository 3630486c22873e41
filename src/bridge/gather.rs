//! The first half of a sink's watcher: from frames to batches.
//!
//! A batch commits its fates, the new position and the held count as one unit. A summary belongs to the record that brought it about, so a work that
//! ends between the two [does not settle](Work::settles) by itself: after a crash there, both come
//! again.

mod covered;
mod work;

use std::{pin::pin, sync::Arc, time::Duration};

use tidings_log::Position;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Level;

use super::{
    BatchOptions, Enrichments, Filter, SinkProgress,
    correlation::{Decision, HOLD, Input, Passed, Stage, Summary},
    feed::{Fed, Feed},
    objects::Told,
    progress::Settled,
    shared::now_ms,
};
use crate::{event::Record, journal::Noted};
use covered::Covered;
pub(super) use work::Work;

/// The correlator's state is saved so often, and what it decides by until then with each position.
const SAVE_EVERY: Duration = Duration::from_secs(10);
/// It is saved sooner when it has decided so often since, which takes about as much room; but no sooner
/// than this.
const SAVE_AFTER: u64 = 1 << 11;
const SAVE_AT_MOST_EVERY: Duration = Duration::from_millis(250);
/// How long after its time a summary is sent that no record brings about: by then every frame of
/// an earlier time has come.
const GRACE: Duration = Duration::from_secs(1);

const LOST: &str = "records were lost: the journal dropped them before this sink had them";
const LOST_HELD: &str = "what was held back was lost: the journal dropped the record that stands for it \
                         before its summary was due";
const NOT_FITTED: &str = "the journal has another size than before, and the state is not saved yet: after a kill \
                          within the next seconds, increments that were held back may come out twice";

/// The end of the program, and a journal of another size, wait so long for the disk.
const SAVED_WITHIN: Duration = Duration::from_secs(3);

/// See the [module](self).
pub(super) struct Gather {
    options: BatchOptions,
    filter: Option<Filter>,
    stage: Stage,
    progress: Arc<SinkProgress>,
    out: mpsc::Sender<Work>,
    work: Work,
    bytes: usize,
    covered: Covered,
    /// When the batch in hand leaves at the latest.
    due: Option<Instant>,
    /// The time of the next summary, and when it is sent if no record brings it about.
    summary: Option<(u64, Instant)>,
    last_save: Instant,
    /// How often the correlator has decided since.
    unsaved: u64,
    /// What earlier runs have delivered, whatever they saved.
    delivered_before: Arc<Noted>,
    /// Of the frame in hand.
    enrichments: Enrichments,
    /// Another run goes on after the next batch.
    handing_over: CancellationToken,
    /// From this sequence on the journal is of this size for what is held back.
    fits: Option<(u64, u64)>,
}

/// Delivery has ended.
struct Closed;

impl Gather {
    /// Gathers what comes after the sink's position.
    pub(super) fn new(
        options: BatchOptions,
        filter: Option<Filter>,
        stage: Stage,
        progress: Arc<SinkProgress>,
        out: mpsc::Sender<Work>,
    ) -> Self {
        let work = Work::standing_at(progress.snapshot().standing, stage.read_bytes());
        Self {
            options,
            filter,
            stage,
            progress,
            out,
            work,
            bytes: 0,
            covered: Covered::default(),
            due: None,
            summary: None,
            last_save: Instant::now(),
            unsaved: 0,
            delivered_before: Arc::default(),
            enrichments: Enrichments::default(),
            handing_over: CancellationToken::new(),
            fits: None,
        }
    }

    /// Earlier runs have delivered these, whatever they saved.
    pub(super) fn delivered_before(self, delivered: Arc<Noted>) -> Self {
        Self { delivered_before: delivered, ..self }
    }

    /// Ends with the next batch once this is cancelled, where another run can go on.
    pub(super) fn handing_over(self, handing_over: CancellationToken) -> Self {
        Self { handing_over, ..self }
    }

    /// From this sequence on no run before has decided, and the journal is of this size.
    pub(super) fn fits(self, fits: (u64, u64)) -> Self {
        Self { fits: Some(fits), ..self }
    }

    /// Runs until the feed or the delivery ends, or it hands over.
    pub(super) async fn run(mut self, mut feed: Feed) {
        let out = self.out.clone();
        tokio::select! {
            // What is left of it then is nobody's.
            _ = self.gather(&mut feed) => {}
            () = out.closed() => {}
        }
    }

    async fn gather(&mut self, feed: &mut Feed) -> Result<(), Closed> {
        if self.stage.lets_go() {
            self.announce(u64::MAX).await?;
        }
        loop {
            self.fit().await?;
            self.plan_summary();
            let later = Instant::now() + Duration::from_hours(1);
            let (due, summary) = (self.due, self.summary);
            tokio::select! {
                // A full batch is worth more than a punctual one.
                biased;
                () = self.handing_over.cancelled() => return self.hand_over().await,
                fed = feed.next() => match fed {
                    Some(fed) => self.take(&fed).await?,
                    None => return self.finish().await,
                },
                () = sleep_until(due.unwrap_or(later)), if due.is_some() => self.flush(true).await?,
                () = sleep_until(summary.map_or(later, |(_, at)| at)), if summary.is_some() => {
                    self.summary = None;
                    // Behind the end of the log, a record may still come that is older.
                    if let Some((time_ms, _)) = summary.filter(|_| feed.is_live()) {
                        self.announce(time_ms).await?;
                    }
                }
            }
        }
    }

    async fn take(&mut self, fed: &Fed) -> Result<(), Closed> {
        if fed.lost > 0 {
            self.lose(fed).await?;
        }
        let time_ms = fed.frame().time_ms;
        for record in fed.records() {
            let position = Position { next: record.seq + 1, skipped: fed.frame().skipped };
            let (wanted, told) = self.judge(&record, time_ms).await?;
            self.stage.read(&record);
            let any_due = self.stage.is_due(time_ms);
            let (seq, read_bytes) = (record.seq, self.stage.read_bytes());
            let mut counted = None;
            if any_due {
                // Before what comes of it: that may be delivered by itself.
                self.decided_by(Input { seq, time_ms, read_bytes, counted: None });
                self.put_due(time_ms, time_ms).await?;
            }
            if wanted {
                let names = fed.names(seq);
                let passed = self.stage.pass(record, told, names, time_ms).await;
                counted = passed.counted;
                self.put(passed, time_ms, !any_due).await?;
            } else if self.delivered_before.delivered.contains(seq) {
                // The run before had another `match`, and the receiver has taken it.
                self.work.settled.totals.delivered += 1;
            } else {
                self.work.settled.totals.filtered += 1;
            }
            if counted.is_some() && self.stage.holds_back() {
                self.decided_by(Input { seq, time_ms, read_bytes, counted });
            }
            self.come_to(position);
            if self.is_full() {
                self.flush(true).await?;
                if self.handing_over.is_cancelled() {
                    self.count_enrichments();
                    return Ok(());
                }
            }
        }
        self.count_enrichments();
        self.come_to(Position { next: fed.frame().next(), skipped: fed.frame().skipped });
        self.covered.push(fed.frame().next(), Arc::clone(&fed.frame().source), fed.frame().resume);
        self.cover();
        if self.is_save_due() {
            self.save();
        }
        if self.work.batch.records.is_empty() || self.due.is_some_and(|due| due <= Instant::now()) {
            self.flush(true).await?;
        }
        Ok(())
    }

    /// Goes by the size of the journal from where no run before has decided.
    async fn fit(&mut self) -> Result<(), Closed> {
        let next = self.work.settled.standing.position.next;
        let Some((_, size)) = self.fits.take_if(|(from, _)| *from <= next) else { return Ok(()) };
        if self.stage.fit(size) {
            // After a crash the same has to be decided again: so nothing is decided by that size before
            // the disk has it. But no event that is not taken, and no disk, holds up all others.
            self.save();
            let (saved, done) = oneshot::channel();
            self.work.settled.waiting.push(saved);
            self.flush(true).await?;
            tokio::select! {
                saved = timeout(SAVED_WITHIN, done) => if saved.is_err() {
                    let sink = self.progress.name();
                    tracing::warn!(sink, "{NOT_FITTED}");
                },
                () = self.handing_over.cancelled() => return Ok(()),
            }
        }
        if self.stage.is_due(0) {
            // The journal has become smaller, and no record may come before there is room for it.
            self.announce(0).await?;
        }
        Ok(())
    }

    /// Takes what is gone between the last frame and this one. What earlier runs decided on it is
    /// decided again: then what they held is held, and no more is lost than they did not deliver.
    async fn lose(&mut self, fed: &Fed) -> Result<(), Closed> {
        let gone = fed.from()..fed.frame().first;
        let before = Arc::clone(&self.delivered_before);
        let mut delivered = before.delivered.count_in(gone.clone()).min(fed.lost);
        let mut lost = fed.lost - delivered;
        for (seq, input) in before.inputs.of(gone) {
            let input = Input::of(seq, input);
            self.decided_by(input);
            self.stage.read_to(input.read_bytes);
            self.put_due(input.time_ms, fed.frame().time_ms).await?;
            let has_it = before.delivered.contains(seq);
            match self.stage.decide_again(&input) {
                Some(Decision::Hold { evicted }) => {
                    // It may be a summary that was delivered; it is when that comes out again.
                    let fate = if has_it { &mut delivered } else { &mut lost };
                    *fate = fate.saturating_sub(1);
                    if let Some(evicted) = evicted {
                        let passed = self.stage.evicted(evicted).await;
                        self.put(passed, fed.frame().time_ms, false).await?;
                    }
                }
                Some(Decision::Send { released, .. }) if has_it => {
                    self.work.settled.totals.correlated_away += released;
                }
                Some(Decision::Send { released, .. }) => lost += released,
                None => {}
            }
        }
        if lost > 0 && self.progress.lines.admit(Level::ERROR, LOST, "", lost) {
            tracing::error!(sink = self.progress.name(), lost, "{LOST}");
        }
        // The loss is settled with the place behind it: or it would be found, and counted, once more after a crash.
        self.work.settled.totals.lost += lost;
        self.work.settled.totals.delivered += delivered;
        self.work.settled.standing.held = self.stage.holding();
        self.come_to(Position { next: fed.frame().first, skipped: fed.frame().skipped });
        Ok(())
    }

    fn decided_by(&mut self, input: Input) {
        self.unsaved += 1;
        input.add_to(&mut self.work.settled.inputs);
    }

    fn come_to(&mut self, position: Position) {
        self.work.settled.standing.position = position;
        let holds_back = self.stage.holds_back();
        self.work.settled.read_bytes = if holds_back { self.stage.read_bytes() } else { 0 };
    }

    /// Takes a summary of what was held that cannot be sent any more.
    fn lose_held(&mut self, gone: &Summary) {
        if self.delivered_before.delivered.contains(gone.seq) {
            self.work.settled.totals.delivered += 1;
            self.work.settled.totals.correlated_away += gone.pending.saturating_sub(1);
            return;
        }
        self.work.settled.totals.lost += gone.pending;
        if self.progress.lines.admit(Level::ERROR, LOST_HELD, "", gone.pending) {
            tracing::error!(
                sink = self.progress.name(),
                versions = gone.pending,
                increments = gone.delta,
                "{LOST_HELD}"
            );
        }
    }

    /// Whether a record is wanted, and what the sink is told of its object. What can be said without
    /// the object is said without it. What an earlier run may have delivered is wanted as it was then: its
    /// sum stays the same.
    async fn judge(
        &mut self,
        record: &Record,
        time_ms: u64,
    ) -> Result<(bool, Option<Told>), Closed> {
        match self.was_wanted(record.seq) {
            Some(false) => return Ok((false, None)),
            Some(true) => return Ok((true, self.enrich(record, time_ms).await?)),
            None => {}
        }
        if self.stage.enricher().is_none() {
            return Ok((self.wants(record).await, None));
        }
        let of_object = self.filter.as_ref().is_some_and(Filter::names_object);
        if !of_object && !self.wants(record).await {
            return Ok((false, None));
        }
        let told = self.enrich(record, time_ms).await?;
        let wanted = match &told {
            Some(told) if of_object => {
                let enriched = self.stage.enriched(record, told);
                self.wants(&enriched).await
            }
            _ => true,
        };
        Ok((wanted, told))
    }

    /// Whether an earlier run wanted a record; nothing if that is not known.
    fn was_wanted(&self, seq: u64) -> Option<bool> {
        let before = &self.delivered_before;
        if !before.is_decided(seq) {
            return None;
        }
        let input = before.inputs.of(seq..seq + 1).next().map(|(seq, input)| Input::of(seq, input));
        let wanted = input.is_some_and(|input| input.counted.is_some());
        // Of the last one there may be no more than what it brought about.
        (wanted || seq + 1 < before.inputs.end()).then_some(wanted)
    }

    /// What the sink is told of the object of a record. While that is waited for, a batch in hand
    /// leaves when its time has come.
    async fn enrich(&mut self, record: &Record, time_ms: u64) -> Result<Option<Told>, Closed> {
        let Some(enricher) = self.stage.enricher().cloned() else { return Ok(None) };
        let mut telling = pin!(enricher.tell(record, time_ms));
        let told = loop {
            let due = self.due.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                told = &mut telling => break told,
                () = sleep_until(due), if self.due.is_some() => self.flush(true).await?,
            }
        };
        self.enrichments.count(told.missing);
        Ok(Some(told))
    }

    fn count_enrichments(&mut self) {
        if self.stage.enricher().is_some() {
            let new = std::mem::take(&mut self.enrichments);
            self.progress.update(|sink| *sink.enrichments.get_or_insert_default() += new);
        }
    }

    /// Takes what is due at a time. As with [`put`](Self::put), none of it is settled by itself.
    async fn put_due(&mut self, due_ms: u64, time_ms: u64) -> Result<(), Closed> {
        while let Some(passed) = self.stage.due(due_ms).await {
            self.put(passed, time_ms, false).await?;
        }
        Ok(())
    }

    /// Takes what came of a record. The position is the caller's to move: until then nothing that
    /// belongs to the record is settled, and that it is `alone` says that nothing does so far.
    async fn put(&mut self, passed: Passed, time_ms: u64, alone: bool) -> Result<(), Closed> {
        let alone = alone && passed.summary.is_none();
        if let Some(summary) = passed.summary {
            if !self.has_room_for(&summary) {
                self.flush(false).await?;
            }
            self.push(summary, time_ms);
        }
        if let Some(record) = passed.record {
            if !self.has_room_for(&record) {
                self.flush(alone).await?;
            }
            self.push(record, time_ms);
        }
        self.work.settled.totals.correlated_away += passed.correlated_away;
        if let Some(gone) = passed.gone {
            self.lose_held(&gone);
        }
        self.work.settled.standing.held = self.stage.holding();
        Ok(())
    }

    /// Whether the batch takes a record; if it does not, what is in it goes first.
    fn has_room_for(&self, record: &Record) -> bool {
        let empty = self.work.batch.records.is_empty();
        empty || !self.is_full() && self.bytes + record.envelope.len() <= self.max_bytes()
    }

    fn push(&mut self, record: Record, time_ms: u64) {
        if self.work.batch.records.is_empty() {
            self.work.oldest_ms = time_ms;
            self.due = Some(Instant::now() + self.options.linger);
        }
        self.bytes += record.envelope.len();
        self.work.batch.records.push(record);
    }

    fn is_full(&self) -> bool {
        self.work.batch.records.len() >= self.options.events || self.bytes >= self.max_bytes()
    }

    fn max_bytes(&self) -> usize {
        usize::try_from(self.options.bytes).unwrap_or(usize::MAX)
    }

    /// Sends the summaries that are due at a time, without a record.
    async fn announce(&mut self, time_ms: u64) -> Result<(), Closed> {
        self.put_due(time_ms, now_ms()).await?;
        // The position stays, so the state has to know that they are gone from it.
        self.save();
        self.cover();
        self.flush(true).await
    }

    /// Another run goes on from here: what is in hand goes, and what is held stays held.
    async fn hand_over(&mut self) -> Result<(), Closed> {
        self.save();
        self.cover();
        self.flush(true).await
    }

    /// The feed has ended: what is held comes out, and what is in hand goes. Whether it arrives
    /// before the end is delivery's matter.
    async fn finish(&mut self) -> Result<(), Closed> {
        if self.stage.holding().versions > 0 {
            // After a crash in the midst of it the same summaries have to come again, and nothing
            // may be added to them before: so it is decided on the disk first.
            self.stage.let_go();
            self.save();
            let (saved, done) = oneshot::channel();
            self.work.settled.waiting.push(saved);
            self.flush(true).await?;
            if !matches!(timeout(SAVED_WITHIN, done).await, Ok(Ok(()))) {
                return Ok(());
            }
        }
        self.announce(u64::MAX).await
    }

    /// Sets the time of the next summary.
    fn plan_summary(&mut self) {
        let due = self.stage.next_due_ms();
        if due != self.summary.map(|(time_ms, _)| time_ms) {
            self.summary = due.map(|time_ms| {
                let left = Duration::from_millis(time_ms.saturating_sub(now_ms()));
                // The clock may have been set back since.
                let left = left.min(HOLD);
                (time_ms, Instant::now() + left + GRACE)
            });
        }
    }

    fn is_save_due(&self) -> bool {
        let since = self.last_save.elapsed();
        since >= SAVE_EVERY || self.unsaved >= SAVE_AFTER && since >= SAVE_AT_MOST_EVERY
    }

    /// Has the correlator's state saved with the work in hand.
    fn save(&mut self) {
        self.last_save = Instant::now();
        self.unsaved = 0;
        self.work.settled.correlator = Some(self.stage.save(self.work.settled.standing.position));
    }

    /// Notes which resume points have nothing held before them.
    fn cover(&mut self) {
        self.work.settled.resumes.extend(self.covered.take_before(self.stage.holding().first));
    }

    async fn wants(&mut self, record: &Record) -> bool {
        let Some(filter) = &self.filter else { return true };
        match filter.decide(record).await {
            Ok(wanted) => wanted,
            Err(error) => {
                let mut before = 0;
                self.progress.update(|sink| {
                    before = sink.match_errors;
                    sink.match_errors += 1;
                });
                if before == 0 {
                    tracing::warn!(id = record.id(), %error, "match cannot be evaluated for this event: it is let through, and counted");
                }
                true
            }
        }
    }

    async fn flush(&mut self, settles: bool) -> Result<(), Closed> {
        self.due = None;
        self.bytes = 0;
        let Settled { standing, read_bytes, .. } = self.work.settled;
        let next = Work::standing_at(standing, read_bytes);
        let work = Work { settles, ..std::mem::replace(&mut self.work, next) };
        self.out.send(work).await.map_err(|_| Closed)
    }
}

#[cfg(test)]
mod tests;
