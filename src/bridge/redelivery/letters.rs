//! Dead letters that a sink is to be sent: its own once more, and those of others that are
//! forwarded to it.
//!
//! They go one at a time: a receiver that rejects some of a batch without naming them would leave
//! open which. What became of a page of them is on the disk before the next one is read, so none is
//! sent twice but after a crash.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::{sync::watch, task::spawn_blocking, time::sleep};
use tracing::Level;

use super::{Redelivery, Refusal};
use crate::{
    bridge::{Reason, now_ms, tasks::answer_of},
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
pub(in crate::bridge) struct DeadLetters {
    pub(in crate::bridge) letters: DeadLettersReader,
    /// Says that some may be due.
    pub(in crate::bridge) changed: watch::Receiver<()>,
    pub(in crate::bridge) redelivery: Redelivery,
}

impl DeadLetters {
    /// Runs until delivery ends.
    pub(in crate::bridge) async fn run(mut self) {
        let redelivery = self.redelivery.clone();
        tokio::select! {
            () = self.send_when_due() => {}
            () = redelivery.ended() => {}
        }
    }

    async fn send_when_due(&mut self) {
        loop {
            self.changed.borrow_and_update();
            if self.letters.due_count(&self.redelivery.sink) > 0 {
                self.send_all().await;
            }
            // The sender lives as long as the keeper, which outlives delivery.
            if self.changed.changed().await.is_err() {
                return;
            }
        }
    }

    async fn send_all(&self) {
        let mut from = 0;
        loop {
            let (letters, sink) = (self.letters.clone(), self.redelivery.sink.clone());
            let page = spawn_blocking(move || letters.due(&sink, from, PAGE, PAGE_BYTES));
            let page = match answer_of(page).await {
                Ok(page) => page,
                Err(error) => {
                    let sink = &self.redelivery.sink;
                    tracing::error!(sink, %error, "dead letters cannot be read: trying again");
                    sleep(READ_RETRY).await;
                    continue;
                }
            };
            let Some(last) = page.last() else { return };
            from = last.number + 1;
            for letter in &page {
                self.send(letter).await;
            }
            // What cannot be saved is read, and sent, once more.
            let _ = self.redelivery.progress.when_saved().await;
        }
    }

    async fn send(&self, letter: &DeadLetter) {
        let Redelivery { sink, progress, .. } = &self.redelivery;
        let again = letter.sink == *sink;
        let envelope = if again { letter.envelope.clone() } else { forwarded(letter) };
        let mut before = None;
        let waits = |why: Option<&Reason>| self.tell_waits(letter.number, why, &mut before);
        // A page of them takes its time, and so does a receiver that is away.
        let wanted = || self.is_due(letter.number).boxed();
        let Some(tally) = self.redelivery.send(vec![envelope], wanted, waits).await else { return };
        let outcome = match tally.refusal {
            None if again => {
                if progress.lines.admit(Level::INFO, DELIVERED, "", 1) {
                    let (letter, id) = (letter.number, &letter.id);
                    tracing::info!(sink, letter, id, "{DELIVERED}");
                }
                LetterOutcome::Delivered
            }
            None => {
                progress.update(|sink| sink.errands.forwarded += 1);
                LetterOutcome::Forwarded
            }
            Some(Refusal { class, reason, attempts }) if again => {
                let class = class.as_str();
                if progress.lines.admit(Level::WARN, STAYS, class, 1) {
                    let (letter, id) = (letter.number, &letter.id);
                    tracing::warn!(sink, letter, id, reason = &*reason, "{STAYS}");
                }
                let (class, reason) = (class.to_owned(), reason.into());
                LetterOutcome::Refused { class, reason, attempts, time_ms: now_ms() }
            }
            Some(Refusal { class, reason, .. }) => {
                if progress.lines.admit(Level::ERROR, NOT_TAKEN, class.as_str(), 1) {
                    let DeadLetter { number: letter, sink: of, id, .. } = letter;
                    tracing::error!(sink, letter, of, id, reason = &*reason, "{NOT_TAKEN}");
                }
                progress.update(|sink| sink.errands.forwards_refused += 1);
                LetterOutcome::Forwarded
            }
        };
        progress.settle_letter(LetterFate { number: letter.number, outcome });
    }

    /// Tells that a letter waits for as long as the receiver is away: once, and when the reason is another
    /// one.
    fn tell_waits(&self, letter: u64, why: Option<&Reason>, before: &mut Option<Reason>) {
        let (Redelivery { sink, progress, .. }, Some(reason)) = (&self.redelivery, why) else {
            return;
        };
        let same = before.as_ref() == Some(reason);
        if same || !progress.lines.admit(Level::WARN, WAITS, "", 1) {
            tracing::debug!(sink, letter, reason = &**reason, "still waiting");
        } else {
            tracing::warn!(sink, letter, reason = &**reason, "{WAITS}");
        }
        *before = Some(reason.clone());
    }

    /// Whether a letter has not been dropped, nor answered in another way, since it was read.
    fn is_due(&self, number: u64) -> impl Future<Output = bool> + Send + use<> {
        let (letters, sink) = (self.letters.clone(), self.redelivery.sink.clone());
        async move {
            let due = answer_of(spawn_blocking(move || letters.due(&sink, number, 1, 1))).await;
            // What cannot be read is as it was.
            !matches!(due, Ok(page) if page.first().is_none_or(|letter| letter.number != number))
        }
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
