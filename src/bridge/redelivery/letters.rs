//! Dead letters that a sink is to be sent: its own once more, those that are parked among them, and those of others that
//! are forwarded to it.
//!
//! Each namespace is sent its letters in a round: first those that were never sent, then the others, both in order. One
//! goes at first, then twice as many after each batch that was taken. A letter that fails is passed over until the next
//! round, which begins a minute later; after rounds in which nothing was taken the wait doubles, up to an hour. A round
//! pauses for a minute after [so many](FAILURES) failures. Letters that are new, and those that a command has sent again,
//! wait for none of that.

use std::{collections::BTreeMap, future::pending, ops::Range, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Instant, sleep, sleep_until},
};
use tracing::Level;

use super::{Redelivery, Retries, fates_of};
use crate::{
    bridge::{
        BatchOptions, EventFate, Failure, FailureClass, Fault, Reason, Status, now_ms,
        tasks::answer_of,
    },
    event::{DeadLetterInfo, EnvelopeParts, timestamp},
    journal::{DeadLetter, DeadLettersReader, LetterFate, LetterOutcome, ReadError},
};

/// A round pauses after so many failures.
const FAILURES: u32 = 100;
/// A letter that was not answered in time counts as so many.
const SILENCE: u32 = 20;
/// The next round begins after so long at first,
const FIRST_WAIT: Duration = Duration::from_mins(1);
/// and at last.
const LAST_WAIT: Duration = Duration::from_hours(1);
/// After so many failures in a row, of any namespace,
const AT_ONCE: u32 = 8;
/// up to so long passes before the next attempt.
const PAUSE: Duration = Duration::from_secs(1);
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
    pub(in crate::bridge) changed: watch::Receiver<Retries>,
    pub(in crate::bridge) redelivery: Redelivery,
    pub(in crate::bridge) batch: BatchOptions,
}

/// The letters of one namespace.
#[derive(Debug)]
struct Round {
    /// The [places](DeadLetter::place) of the letters that are still to be tried.
    places: Range<u64>,
    /// So many are sent together.
    most: usize,
    failed: u32,
    has_taken: bool,
    /// Rounds in a row with nothing taken.
    in_vain: u32,
    /// Set if it paused before all letters had their turn.
    is_part: bool,
    /// Set at its end or pause: when it goes on.
    next_at: Option<Instant>,
    /// Set while letters that are new have their turn: the `next_at` that they came before.
    then_at: Option<Instant>,
    /// The place after the last letter that was known then and was never sent.
    last: u64,
    /// Letters that were tried since, in milliseconds since the epoch, are left for the next.
    began_ms: u64,
    /// When it had its last turn.
    turn: Instant,
}

impl Round {
    fn new(last: u64) -> Self {
        Self {
            places: 0..u64::MAX,
            most: 1,
            failed: 0,
            has_taken: false,
            in_vain: 0,
            is_part: false,
            next_at: None,
            then_at: None,
            last,
            began_ms: now_ms(),
            turn: Instant::now(),
        }
    }

    /// Goes on when it is time, or with letters that are new.
    fn go_on(&mut self, last: u64) {
        let in_vain = self.in_vain;
        match self.next_at {
            Some(at) if at <= Instant::now() => {
                let places = if self.is_part { self.places.clone() } else { 0..u64::MAX };
                *self = Self { places, in_vain, ..Self::new(last) };
            }
            Some(_) if last > self.last => {
                let (places, then_at) = (self.last..DeadLetter::TRIED, self.next_at);
                *self = Self { places, in_vain, then_at, ..Self::new(last) };
            }
            _ => self.last = last,
        }
    }

    /// Ends it, or has it pause before all letters had their turn.
    fn end(&mut self, is_part: bool) {
        self.is_part = is_part;
        let then_at = self.then_at.take().filter(|_| !self.has_taken);
        self.next_at = then_at.or_else(|| {
            self.in_vain = if self.has_taken { 0 } else { self.in_vain + u32::from(!is_part) };
            let doubled = if is_part { 1 } else { 1 << self.in_vain.saturating_sub(1).min(6) };
            let wait = FIRST_WAIT.saturating_mul(doubled).min(LAST_WAIT);
            Some(Instant::now() + wait.mul_f64(0.5 + fastrand::f64() / 2.0))
        });
    }
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
        let mut rounds = BTreeMap::<String, Round>::new();
        let (mut asked, mut failures) = (0, 0);
        loop {
            let asks = self.changed.borrow_and_update().of(&self.redelivery.sink);
            if std::mem::replace(&mut asked, asks) != asks {
                // Fates must be on the disk before the letters are read again.
                let _ = self.redelivery.progress.when_saved().await;
                rounds.clear();
            }
            let due = match self.letters.due_count(&self.redelivery.sink) {
                0 => Vec::new(),
                _ => self.read(DeadLettersReader::due_namespaces).await,
            };
            rounds
                .retain(|namespace, _| due.binary_search_by(|(due, _)| due.cmp(namespace)).is_ok());
            for (namespace, last) in due {
                rounds.entry(namespace).or_insert_with(|| Round::new(last)).go_on(last);
            }
            let ready = rounds.iter_mut().filter(|(_, round)| round.next_at.is_none());
            if let Some((namespace, round)) = ready.min_by_key(|(_, round)| round.turn) {
                self.step(namespace, round, &mut failures).await;
                continue;
            }
            let next_at = rounds.values().filter_map(|round| round.next_at).min();
            let woken = async {
                match next_at {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = woken => {}
                // The sender lives as long as the keeper, which outlives delivery.
                changed = self.changed.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Sends the next letters of a namespace. Counts the failures in a row.
    async fn step(&self, namespace: &str, round: &mut Round, failures: &mut u32) {
        round.turn = Instant::now();
        let page = self.page(namespace, &round.places, round.most).await;
        let sink = &self.redelivery.sink;
        if let Some(last) = page.last()
            && page.iter().all(|letter| {
                letter.time_ms >= round.began_ms && letter.place(sink) >= DeadLetter::TRIED
            })
        {
            round.places.start = last.place(sink) + 1;
            return;
        }
        if page.is_empty() || round.failed >= FAILURES {
            // Fates must be on the disk before the letters are read again.
            let _ = self.redelivery.progress.when_saved().await;
            round.end(!page.is_empty());
            return;
        }
        let envelopes = page.iter().map(|letter| self.envelope(letter)).collect();
        let records = self.redelivery.number(envelopes).await;
        let is_there = async {
            // The letters may have been dropped while the attempt waited.
            let now = self.page(namespace, &round.places, page.len()).await;
            let number = |letter: &DeadLetter| letter.number;
            now.iter().map(number).eq(page.iter().map(number))
        };
        let outcome = self.redelivery.attempt(records, is_there).await;
        let Some(fates) = outcome.and_then(|outcome| fates_of(outcome, page.len())) else {
            // Those that were taken come again, under their ids.
            round.most = 1;
            return;
        };
        let mut of_sink = None;
        for (letter, fate) in page.iter().zip(fates) {
            match fate {
                EventFate::Delivered | EventFate::Duplicate => {
                    self.taken(letter);
                    round.most = (2 * round.most).min(self.batch.events);
                    (round.has_taken, *failures) = (true, 0);
                }
                EventFate::Failed(failure) if failure.fault == Fault::Sink => {
                    of_sink.get_or_insert((letter, failure));
                }
                EventFate::Failed(failure) => {
                    let is_silent = failure.status == Status::Silence;
                    round.failed += if is_silent { SILENCE } else { 1 };
                    *failures += 1;
                    self.failed(letter, &failure);
                }
            }
            round.places.start = letter.place(sink) + 1;
        }
        if let Some((letter, failure)) = of_sink {
            *failures += 1;
            self.tell_waits(letter.number, &failure.reason);
            let _ = self.redelivery.progress.when_saved().await;
            round.places.start = letter.place(sink);
            self.redelivery.wait_after(&failure, *failures).await;
        } else if *failures > AT_ONCE {
            sleep(PAUSE.mul_f64(fastrand::f64())).await;
        }
    }

    fn envelope(&self, letter: &DeadLetter) -> Bytes {
        let is_own = letter.sink == self.redelivery.sink;
        if is_own { letter.envelope.clone() } else { forwarded(letter) }
    }

    fn taken(&self, letter: &DeadLetter) {
        let Redelivery { sink, progress, .. } = &self.redelivery;
        if letter.sink != *sink {
            progress.update(|sink| sink.errands.forwarded += 1);
            self.settle(letter, LetterOutcome::Forwarded);
            return;
        }
        if progress.lines.admit(Level::INFO, DELIVERED, "", 1) {
            let (letter, id) = (letter.number, &letter.id);
            tracing::info!(sink, letter, id, "{DELIVERED}");
        }
        self.settle(letter, LetterOutcome::Delivered);
    }

    /// Takes in that a letter failed by itself: it is refused, or sent again.
    fn failed(&self, letter: &DeadLetter, failure: &Failure) {
        let Redelivery { sink, progress, .. } = &self.redelivery;
        let (is_own, time_ms) = (letter.sink == *sink, now_ms());
        let reason = &*failure.reason;
        match failure.class {
            FailureClass::Refused(class) if is_own => {
                let class = class.as_str();
                if progress.lines.admit(Level::WARN, STAYS, class, 1) {
                    let (letter, id) = (letter.number, &letter.id);
                    tracing::warn!(sink, letter, id, reason, "{STAYS}");
                }
                let (class, reason) = (class.to_owned(), reason.to_owned());
                self.settle(letter, LetterOutcome::Refused { class, reason, time_ms });
            }
            FailureClass::Refused(class) => {
                if progress.lines.admit(Level::ERROR, NOT_TAKEN, class.as_str(), 1) {
                    let DeadLetter { number: letter, sink: of, id, .. } = letter;
                    tracing::error!(sink, letter, of, id, reason, "{NOT_TAKEN}");
                }
                progress.update(|sink| sink.errands.forwards_refused += 1);
                self.settle(letter, LetterOutcome::Forwarded);
            }
            _ => {
                // A parked one was logged when it was parked.
                if !letter.is_parked() {
                    self.tell_waits(letter.number, &failure.reason);
                }
                if is_own {
                    let reason = reason.to_owned();
                    self.settle(letter, LetterOutcome::Failed { reason, time_ms });
                }
            }
        }
    }

    fn settle(&self, letter: &DeadLetter, outcome: LetterOutcome) {
        let number = letter.number;
        self.redelivery.progress.settle_letter(LetterFate { number, outcome });
    }

    /// Tells that a letter has to wait, because the receiver fails for it or is away.
    fn tell_waits(&self, letter: u64, reason: &Reason) {
        let Redelivery { sink, progress, .. } = &self.redelivery;
        if progress.lines.admit(Level::WARN, WAITS, "", 1) {
            tracing::warn!(sink, letter, reason = &**reason, "{WAITS}");
        }
    }

    async fn page(&self, namespace: &str, places: &Range<u64>, most: usize) -> Vec<DeadLetter> {
        let (namespace, places) = (namespace.to_owned(), places.clone());
        let bytes = self.batch.bytes;
        self.read(move |letters, sink| letters.due(sink, &namespace, places.clone(), most, bytes))
            .await
    }

    /// Reads, until it can be read.
    async fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&DeadLettersReader, &str) -> Result<T, ReadError> + Clone + Send + 'static,
    ) -> T {
        loop {
            let (letters, sink) = (self.letters.clone(), self.redelivery.sink.clone());
            let read = read.clone();
            match answer_of(spawn_blocking(move || read(&letters, &sink))).await {
                Ok(answer) => return answer,
                Err(error) => {
                    let sink = &self.redelivery.sink;
                    tracing::error!(sink, %error, "dead letters cannot be read: trying again");
                    sleep(READ_RETRY).await;
                }
            }
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
    // Bytes that are no envelope were refused for that.
    let parts = EnvelopeParts::of(&letter.envelope);
    parts.map_or_else(|| letter.envelope.clone(), |parts| parts.dead_lettered(&info))
}
