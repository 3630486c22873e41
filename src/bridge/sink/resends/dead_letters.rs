//! Dead letters that a sink is to be sent: its own once more, and those of others that are
//! forwarded to it.
//!
//! They go one at a time: a receiver that rejects some of a batch without naming them would leave open which.
//! One that fails waits beside the others, and holds up none of another object; where too many wait, they go
//! to the end of the round. What became of a round of them is on the disk before they are read
//! again, so none is sent twice but after a crash.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{Notify, oneshot, watch},
    task::spawn_blocking,
    time::sleep,
};
use tracing::Level;

use super::{Ended, ResendHandle, Tally, UnderWay};
use crate::{
    bridge::{Reason, SinkProgress, now_ms, sink::delivery::GivenUp, tasks::answer_of},
    event::{DeadLetterInfo, EnvelopeParts, timestamp},
    journal::{DeadLetter, DeadLetterFate, DeadLetterOutcome, DeadLettersReader},
};

/// So many letters are read at once, and no more bytes of envelopes than these.
const PAGE: usize = 512;
const PAGE_BYTES: usize = 1 << 20;
/// So many wait at once.
const UNDER_WAY: usize = 32;
/// One that has failed so often gives its place to others, if these wait for it.
const GIVES_WAY_AFTER: u32 = 3;
/// Those that gave way are due again after that.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The pause after the state could not be read.
const READ_RETRY: Duration = Duration::from_secs(1);

const WAITS: &str = "a dead letter has to wait";
const DELIVERED: &str = "a dead letter is delivered";
const STAYS: &str = "a dead letter is refused once more: it stays";
const NOT_TAKEN: &str =
    "a dead letter that is forwarded here is refused: it is kept with its own sink only";

/// Sends a sink the dead letters that it is to be sent, round after round.
pub(crate) struct DeadLetterRetrier {
    pub(crate) sink: String,
    pub(crate) letters: DeadLettersReader,
    /// Says that some may be due.
    pub(crate) changed: watch::Receiver<()>,
    pub(crate) progress: Arc<SinkProgress>,
    pub(crate) resends: ResendHandle,
}

/// The letters of a round that are under way.
struct Round<'a> {
    under_way: FuturesUnordered<BoxFuture<'a, (u64, Result<(), Ended>)>>,
    numbers: HashSet<u64>,
    /// Others wait for a place.
    crowded: watch::Sender<bool>,
    /// Those that have ended since that was saved last: the store may still have them as due.
    ended: HashSet<u64>,
}

impl Round<'_> {
    /// Waits until one has ended.
    async fn next(&mut self) -> Result<(), Ended> {
        if let Some((number, ended)) = self.under_way.next().await {
            self.numbers.remove(&number);
            self.ended.insert(number);
            ended?;
        }
        Ok(())
    }
}

/// A letter that delivery has.
struct Sent {
    letter: DeadLetter,
    under_way: UnderWay,
    /// Says that it may be due no more.
    changed: watch::Receiver<()>,
}

impl DeadLetterRetrier {
    /// Runs until delivery ends.
    pub(crate) async fn run(self) {
        let mut round = Round {
            under_way: FuturesUnordered::new(),
            numbers: HashSet::new(),
            crowded: watch::channel(false).0,
            ended: HashSet::new(),
        };
        // Delivery has ended, and this with it, but for answers that came before.
        let _ = self.go_round(&mut round).await;
        while !round.numbers.is_empty() {
            let _ = round.next().await;
        }
    }

    async fn go_round<'a>(&'a self, round: &mut Round<'a>) -> Result<(), Ended> {
        let mut changed = self.changed.clone();
        loop {
            changed.borrow_and_update();
            if self.are_more_due(round) {
                self.send_all(round).await?;
            }
            tokio::select! {
                // The sender lives as long as the checkpointer, which outlives delivery.
                changed = changed.changed() => changed.map_err(|_| Ended)?,
                ended = round.next(), if !round.numbers.is_empty() => ended?,
                () = sleep(AGAIN_AFTER), if self.are_more_due(round) => {}
                () = self.resends.ended() => return Err(Ended),
            }
        }
    }

    fn are_more_due(&self, round: &Round<'_>) -> bool {
        self.letters.due_count(&self.sink) > round.numbers.len() as u64
    }

    async fn send_all<'a>(&'a self, round: &mut Round<'a>) -> Result<(), Ended> {
        if !round.ended.is_empty() {
            tokio::select! {
                _ = self.progress.when_saved() => {}
                () = self.resends.ended() => return Err(Ended),
            }
            round.ended.clear();
        }
        let mut from = 0;
        loop {
            let (letters, sink) = (self.letters.clone(), self.sink.clone());
            let page = spawn_blocking(move || letters.due(&sink, from, PAGE, PAGE_BYTES));
            let page = match answer_of(page).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::error!(sink = self.sink, %error, "dead letters cannot be read: trying again");
                    self.resends.sleep(READ_RETRY).await?;
                    continue;
                }
            };
            let Some(last) = page.last() else { return Ok(()) };
            from = last.number + 1;
            for letter in page {
                let number = letter.number;
                if round.numbers.contains(&number) || round.ended.contains(&number) {
                    continue;
                }
                while round.numbers.len() >= UNDER_WAY {
                    round.crowded.send_replace(true);
                    round.next().await?;
                }
                round.crowded.send_replace(false);
                let Some(sent) = self.begin(letter).await? else { continue };
                let (fails, mut failed) = oneshot::channel();
                let sending = self.send(sent, fails, round.crowded.subscribe());
                round.numbers.insert(number);
                round.under_way.push(sending.map(move |ended| (number, ended)).boxed());
                // The next one does not wait for one that waits.
                loop {
                    tokio::select! {
                        _ = &mut failed => break,
                        ended = round.next() => ended?,
                    }
                }
            }
        }
    }

    /// Hands a letter to delivery, if it is still due.
    async fn begin(&self, letter: DeadLetter) -> Result<Option<Sent>, Ended> {
        let again = letter.sink == self.sink;
        let envelope = if again { letter.envelope.clone() } else { forwarded(&letter) };
        // A page of them takes its time, and so does a receiver that is away.
        let mut changed = self.changed.clone();
        changed.borrow_and_update();
        if !self.is_due(letter.number).await {
            return Ok(None);
        }
        let under_way = self.resends.send(vec![envelope]).await?;
        Ok(Some(Sent { letter, under_way, changed }))
    }

    /// Waits until a letter is answered, due no more, or gives way. That it `fails` is told by dropping that.
    async fn send(
        &self,
        sent: Sent,
        fails: oneshot::Sender<()>,
        crowded: watch::Receiver<bool>,
    ) -> Result<(), Ended> {
        let Sent { letter, mut under_way, mut changed } = sent;
        let (failures, failed, mut before) = (AtomicU32::new(0), Notify::new(), None);
        let mut fails = Some(fails);
        let tally = loop {
            // Between two attempts: one that is under way may be taken.
            let gives_way = async {
                loop {
                    failed.notified().await;
                    if failures.load(Ordering::Relaxed) >= GIVES_WAY_AFTER && *crowded.borrow() {
                        break;
                    }
                }
            };
            let waits = |why: Option<&Reason>| {
                if why.is_some() {
                    drop(fails.take());
                    failures.fetch_add(1, Ordering::Relaxed);
                    failed.notify_one();
                }
                self.tell_waits(letter.number, why, &mut before);
            };
            tokio::select! {
                tally = under_way.done(waits) => break tally?,
                // The sender lives as long as the checkpointer, which outlives delivery.
                Ok(()) = changed.changed() => {}
                () = gives_way => return Ok(()),
            }
            if !self.is_due(letter.number).await {
                return Ok(());
            }
        };
        self.settle(&letter, tally);
        Ok(())
    }

    /// Notes what became of a letter.
    fn settle(&self, letter: &DeadLetter, tally: Tally) {
        let again = letter.sink == self.sink;
        let outcome = match tally.refusal {
            None if again => {
                if self.progress.lines.admit(Level::INFO, DELIVERED, "", 1) {
                    let (letter, id) = (letter.number, &letter.id);
                    tracing::info!(sink = self.sink, letter, id, "{DELIVERED}");
                }
                DeadLetterOutcome::Delivered
            }
            None => {
                self.progress.update(|sink| sink.resends.forwarded += 1);
                DeadLetterOutcome::Forwarded
            }
            Some(GivenUp { class, reason, attempts, .. }) if again => {
                let class = class.as_str();
                if self.progress.lines.admit(Level::WARN, STAYS, class, 1) {
                    let (letter, id) = (letter.number, &letter.id);
                    tracing::warn!(sink = self.sink, letter, id, reason = &*reason, "{STAYS}");
                }
                let (class, reason) = (class.to_owned(), reason.into());
                DeadLetterOutcome::Refused { class, reason, attempts, time_ms: now_ms() }
            }
            Some(GivenUp { class, reason, .. }) => {
                let class = class.as_str();
                if self.progress.lines.admit(Level::ERROR, NOT_TAKEN, class, 1) {
                    tracing::error!(
                        sink = self.sink,
                        letter = letter.number,
                        of = letter.sink,
                        id = letter.id,
                        reason = &*reason,
                        "{NOT_TAKEN}"
                    );
                }
                self.progress.update(|sink| sink.resends.forwards_refused += 1);
                DeadLetterOutcome::Forwarded
            }
        };
        self.progress.settle_letter(DeadLetterFate { number: letter.number, outcome });
    }

    /// Tells that a letter waits for as long as the receiver is away: once, and when the reason is another
    /// one.
    fn tell_waits(&self, letter: u64, why: Option<&Reason>, before: &mut Option<Reason>) {
        let (sink, Some(reason)) = (&self.sink, why) else { return };
        let same = before.as_ref() == Some(reason);
        if same || !self.progress.lines.admit(Level::WARN, WAITS, "", 1) {
            tracing::debug!(sink, letter, reason = &**reason, "still waiting");
        } else {
            tracing::warn!(sink, letter, reason = &**reason, "{WAITS}");
        }
        *before = Some(reason.clone());
    }

    /// Whether a letter has not been dropped, nor answered in another way, since it was read.
    async fn is_due(&self, number: u64) -> bool {
        let (letters, sink) = (self.letters.clone(), self.sink.clone());
        let due = answer_of(spawn_blocking(move || letters.due(&sink, number, 1, 1))).await;
        // What cannot be read is as it was.
        !matches!(due, Ok(page) if page.first().is_none_or(|letter| letter.number != number))
    }
}

/// The envelope with what became of it at its own sink.
fn forwarded(letter: &DeadLetter) -> Bytes {
    let time = |ms: u64| format!("{:.3}", timestamp(ms));
    let info = DeadLetterInfo {
        sink: letter.sink.clone(),
        class: letter.class.clone(),
        reason: letter.reason.clone(),
        attempts: letter.attempts,
        first_time: time(letter.first_ms),
        time: time(letter.time_ms),
    };
    // What is no envelope was refused for that.
    let parts = EnvelopeParts::of(&letter.envelope);
    parts.map_or_else(|| letter.envelope.clone(), |parts| parts.dead_lettered(&info))
}
