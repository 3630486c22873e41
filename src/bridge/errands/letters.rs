//! Dead letters that a sink is to be sent: its own once more, and those of others that are
//! forwarded to it.
//!
//! They go one at a time: a receiver that rejects some of a batch without naming them would leave
//! open which. What became of a page of them is on the disk before the next one is read, so none is
//! sent twice but after a crash.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{sync::watch, task::spawn_blocking};
use tracing::Level;

use super::{Courier, Ended};
use crate::{
    bridge::{Reason, SinkProgress, delivery::Letter, now_ms, tasks::answer_of},
    event::{DeadLetterInfo, EnvelopeParts, timestamp},
    journal::{DeadLetter, DeadLettersReader, LetterFate, LetterOutcome},
};

/// So many letters are read at once, and no more bytes of envelopes than these.
const PAGE: usize = 512;
const PAGE_BYTES: usize = 1 << 20;
/// The pause after the state could not be read.
const READ_RETRY: Duration = Duration::from_secs(1);

const WAITS: &str = "a dead letter has to wait";
const DELIVERED: &str = "a dead letter is delivered";
const STAYS: &str = "a dead letter is refused once more: it stays";
const NOT_TAKEN: &str =
    "a dead letter that is forwarded here is refused: it is kept with its own sink only";

/// See the [module](self).
pub(in crate::bridge) struct LetterRound {
    pub(in crate::bridge) sink: String,
    pub(in crate::bridge) letters: DeadLettersReader,
    /// Says that some may be due.
    pub(in crate::bridge) changed: watch::Receiver<()>,
    pub(in crate::bridge) progress: Arc<SinkProgress>,
    pub(in crate::bridge) courier: Courier,
}

impl LetterRound {
    /// Runs until delivery ends.
    pub(in crate::bridge) async fn run(mut self) {
        // Delivery has ended, and this with it.
        let _ = self.go_round().await;
    }

    async fn go_round(&mut self) -> Result<(), Ended> {
        loop {
            self.changed.borrow_and_update();
            if self.letters.due_count(&self.sink) > 0 {
                self.send_all().await?;
            }
            tokio::select! {
                // The sender lives as long as the keeper, which outlives delivery.
                changed = self.changed.changed() => changed.map_err(|_| Ended)?,
                () = self.courier.ended() => return Err(Ended),
            }
        }
    }

    async fn send_all(&self) -> Result<(), Ended> {
        let mut from = 0;
        loop {
            let (letters, sink) = (self.letters.clone(), self.sink.clone());
            let page = spawn_blocking(move || letters.due(&sink, from, PAGE, PAGE_BYTES));
            let page = match answer_of(page).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::error!(sink = self.sink, %error, "dead letters cannot be read: trying again");
                    self.courier.sleep(READ_RETRY).await?;
                    continue;
                }
            };
            let Some(last) = page.last() else { return Ok(()) };
            from = last.number + 1;
            for letter in &page {
                self.send(letter).await?;
            }
            tokio::select! {
                _ = self.progress.when_saved() => {}
                () = self.courier.ended() => return Err(Ended),
            }
        }
    }

    async fn send(&self, letter: &DeadLetter) -> Result<(), Ended> {
        let again = letter.sink == self.sink;
        let envelope = if again { letter.envelope.clone() } else { forwarded(letter) };
        // A page of them takes its time, and so does a receiver that is away.
        let mut changed = self.changed.clone();
        changed.borrow_and_update();
        if !self.is_due(letter.number).await {
            return Ok(());
        }
        let mut under_way = self.courier.send(vec![envelope]).await?;
        let mut before = None;
        let tally = loop {
            tokio::select! {
                tally = under_way.done(|why| self.tell_waits(letter.number, why, &mut before)) => {
                    break tally?;
                }
                // The sender lives as long as the keeper, which outlives delivery.
                Ok(()) = changed.changed() => {}
            }
            if !self.is_due(letter.number).await {
                return Ok(());
            }
        };
        let outcome = match tally.refusal {
            None if again => {
                if self.progress.lines.admit(Level::INFO, DELIVERED, "", 1) {
                    let (letter, id) = (letter.number, &letter.id);
                    tracing::info!(sink = self.sink, letter, id, "{DELIVERED}");
                }
                LetterOutcome::Delivered
            }
            None => {
                self.progress.update(|sink| sink.errands.forwarded += 1);
                LetterOutcome::Forwarded
            }
            Some(Letter { class, reason, attempts, .. }) if again => {
                let class = class.as_str();
                if self.progress.lines.admit(Level::WARN, STAYS, class, 1) {
                    let (letter, id) = (letter.number, &letter.id);
                    tracing::warn!(sink = self.sink, letter, id, reason = &*reason, "{STAYS}");
                }
                let (class, reason) = (class.to_owned(), reason.into());
                LetterOutcome::Refused { class, reason, attempts, time_ms: now_ms() }
            }
            Some(Letter { class, reason, .. }) => {
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
                self.progress.update(|sink| sink.errands.forwards_refused += 1);
                LetterOutcome::Forwarded
            }
        };
        self.progress.settle_letter(LetterFate { number: letter.number, outcome });
        Ok(())
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
