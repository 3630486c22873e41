//! Delivery without I/O: which records are sent next, and what the answer to an attempt makes of them.
//! Live batches, dead letters and replays go by it alike.
//!
//! Delivery sends nothing, sleeps nowhere and asks no clock. Its caller pushes [tickets](Ticket), sends what
//! [`Delivery::next_send`] says, brings the outcomes, and takes the [fates](Fated) out:
//!
//! ```text
//! push ─▶ window ─▶ lanes ─▶ next_send ─▶ (the sink) ─▶ answered ─▶ take_fates
//! ```
//!
//! **Lanes.** Several attempts are under way at once, one for each lane. While a record is under way,
//! waits to be tried again or stands in a queue, its key keeps to that lane, and later records of the
//! key queue up behind it; so the order of each key is the journal's. A lane whose batch fails waits
//! for its next attempt and holds up its own keys; the others go on. With one lane the order is the
//! journal's altogether.
//!
//! **Answers.** A batch that is refused is halved until the culprit stands alone. Records that are
//! answered one by one have their fates, and the others of their batch are sent again. A request for
//! less, or for time, slows all lanes.

mod answers;
mod backoff;
mod errand;
mod fates;
mod keys;
mod lane;
#[cfg(test)]
mod tests;
mod ticket;
mod window;

use super::{Failure, FailureClass, RetryOptions};

use self::{
    keys::Keys,
    lane::{Lane, Piece},
    window::Window,
};

pub(super) use self::{
    fates::{Fate, Fated, Letter, LetterClass},
    ticket::{FIRST_ERRAND, Millis, Number, Ticket},
};

/// So many batches in a row go before an errand that waits.
const LIVE_FIRST: u32 = 7;
/// So many batches are in hand, beside one for each lane.
const BATCHES_AHEAD: usize = 2;
/// So many records are in hand at least for each lane, if they are small: those of keys that no other
/// lane has are found among them.
const LEAST_IN_HAND: usize = 32;

/// The bounds of delivery.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeliveryOptions {
    /// How many attempts are under way at once; at least 1.
    pub(super) lanes: usize,
    /// The most records of a batch,
    pub(super) batch_events: usize,
    /// and its most bytes; a larger record goes alone.
    pub(super) batch_bytes: u64,
    pub(super) retry: RetryOptions,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Delivery {
    options: DeliveryOptions,
    random: fastrand::Rng,
    live: Window,
    errands: Window,
    /// The first live ticket that no lane has.
    fresh: Number,
    /// The first errand that no lane has.
    fresh_errand: Number,
    /// Batches of live records since the last errand.
    live_in_a_row: u32,
    lanes: Vec<Lane>,
    keys: Keys,
    /// Errands that failed, and when they are sent again.
    waiting: Vec<(Millis, Piece)>,
    /// Errands that nobody waits for any more, which are not sent again.
    cancelled: Vec<Number>,
    /// Nothing is sent before that, because the receiver asked for less.
    paused_until: Millis,
    /// How many attempts had something taken.
    taken: u64,
    under_way: usize,
    fates: Vec<Fated>,
    /// Vectors for other batches.
    spare: Vec<Vec<Number>>,
}

/// How the attempts do, all lanes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble<'a> {
    /// No lane fails.
    None,
    /// Attempts fail, and are made again.
    Retrying(&'a Failure),
    /// Only a person can mend what the receiver complains of, and no lane is taken.
    Misconfigured(&'a Failure),
}

impl Delivery {
    /// The first live ticket has the number `first`. The seed is that of the waits.
    pub(super) fn new(options: DeliveryOptions, first: Number, seed: u64) -> Self {
        Self {
            options,
            random: fastrand::Rng::with_seed(seed),
            live: Window::new(first),
            errands: Window::new(FIRST_ERRAND),
            fresh: first,
            fresh_errand: FIRST_ERRAND,
            live_in_a_row: 0,
            lanes: (0..options.lanes.max(1)).map(|_| Lane::default()).collect(),
            keys: Keys::new(options.lanes),
            waiting: Vec::new(),
            cancelled: Vec::new(),
            paused_until: 0,
            taken: 0,
            under_way: 0,
            fates: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Whether it takes more live records. One that does not still takes some: the bound keeps records
    /// in the log instead of in memory.
    pub(super) fn has_room(&self) -> bool {
        let batches = self.lanes.len() + BATCHES_AHEAD;
        self.live.open()
            < (batches * self.options.batch_events).max(self.lanes.len() * LEAST_IN_HAND)
            && self.live.open_bytes() < batches as u64 * self.options.batch_bytes
    }

    /// Takes the next live record, and answers its number.
    pub(super) fn push(&mut self, ticket: Ticket) -> Number {
        self.live.push(ticket)
    }

    /// Takes a record that is sent beside the journal's order, and answers its number. Errands that are
    /// pushed one after the other may share a batch.
    pub(super) fn push_errand(&mut self, ticket: Ticket) -> Number {
        self.errands.push(ticket)
    }

    /// The lane that sends its [tickets](Self::tickets) now, if one does. To be asked until none does,
    /// after anything was pushed or answered and when the time has [come](Self::wake_at).
    pub(super) fn next_send(&mut self, now: Millis) -> Option<usize> {
        if now < self.paused_until || self.under_way == self.lanes.len() {
            return None;
        }
        let lane = (0..self.lanes.len()).find(|at| {
            let lane = &self.lanes[*at];
            !lane.sending && lane.due <= now && (!lane.pieces.is_empty() || self.fill(*at, now))
        })?;
        let sent = &mut self.lanes[lane];
        sent.sending = true;
        self.under_way += 1;
        if let Some(piece) = sent.pieces.front_mut() {
            piece.first.get_or_insert(now);
            piece.attempts += 1;
            piece.taken_before = self.taken;
        }
        Some(lane)
    }

    /// The tickets that a lane sends, in order.
    pub(super) fn tickets(&self, lane: usize) -> &[Number] {
        self.lanes[lane].pieces.front().map_or(&[], |piece| &piece.tickets)
    }

    /// When there is something to send although nothing is pushed or answered until then.
    pub(super) fn wake_at(&self) -> Option<Millis> {
        let fresh = self.has_fresh();
        let due = |lane: &Lane| match (lane.pieces.is_empty(), lane.backlog.is_empty()) {
            _ if lane.sending => None,
            (true, true) => fresh.then_some(0),
            _ => Some(lane.due),
        };
        let lanes = self.lanes.iter().filter_map(due).min();
        let is_idle = |lane: &Lane| !lane.sending && lane.pieces.is_empty();
        let waiting = self.waiting.iter().map(|(due, _)| *due).min();
        let waiting = waiting.filter(|_| self.lanes.iter().any(is_idle));
        Some(lanes.into_iter().chain(waiting).min()?.max(self.paused_until))
    }

    /// The fates since the last call: those of one answer at least, in the order of its records.
    pub(super) fn take_fates(&mut self) -> std::vec::Drain<'_, Fated> {
        self.fates.drain(..)
    }

    /// How the attempts do. What only a person can mend is no more than a lane's while others are
    /// taken.
    pub(super) fn trouble(&self) -> Trouble<'_> {
        let mut trouble = Trouble::None;
        for piece in self.lanes.iter().filter_map(|lane| lane.pieces.front()) {
            let Some(failure) = &piece.failure else { continue };
            if failure.class == FailureClass::Misconfigured && piece.taken_before == self.taken {
                return Trouble::Misconfigured(failure);
            }
            trouble = Trouble::Retrying(failure);
        }
        trouble
    }

    fn has_fresh(&self) -> bool {
        self.fresh < self.live.next() || self.fresh_errand < self.errands.next()
    }

    /// Makes the next batch of an idle lane: what queues up there goes first.
    fn fill(&mut self, at: usize, now: Millis) -> bool {
        self.skip_cancelled();
        let Self { fresh, fresh_errand, .. } = *self;
        if self.lanes[at].backlog.is_empty() {
            let turn = fresh == self.live.next() || self.live_in_a_row >= LIVE_FIRST;
            if turn && self.fill_with_waiting(at, now) {
                return true;
            }
            if !self.has_fresh() {
                return false;
            }
        }
        let mut tickets = self.spare.pop().unwrap_or_default();
        let mut bytes = 0;
        let backlog = self.lanes[at].backlog.front().copied();
        let errands = match backlog {
            Some(first) => first >= FIRST_ERRAND,
            None if fresh == self.live.next() => true,
            None => fresh_errand < self.errands.next() && self.live_in_a_row >= LIVE_FIRST,
        };
        let window = if errands { &self.errands } else { &self.live };
        let DeliveryOptions { batch_events, batch_bytes, .. } = self.options;
        let fits = |tickets: &[Number], bytes: u64, more: u32| {
            tickets.is_empty()
                || (tickets.len() < batch_events && bytes + u64::from(more) <= batch_bytes)
        };
        let backlog = &mut self.lanes[at].backlog;
        while let Some(next) = backlog.front().filter(|next| (**next >= FIRST_ERRAND) == errands) {
            let size = window.get(*next).bytes;
            if !fits(&tickets, bytes, size) {
                break;
            }
            bytes += u64::from(size);
            tickets.extend(backlog.pop_front());
        }
        // Behind what queues up there may be more of the same keys.
        let free = backlog.is_empty();
        let fresh = if errands { &mut self.fresh_errand } else { &mut self.fresh };
        while free && *fresh < window.next() {
            let ticket = window.get(*fresh);
            if !fits(&tickets, bytes, ticket.bytes) || self.cancelled.contains(fresh) {
                break;
            }
            let lane = self.keys.claim(ticket.key, at);
            if lane == at {
                bytes += u64::from(ticket.bytes);
                tickets.push(*fresh);
            } else {
                self.lanes[lane].backlog.push_back(*fresh);
            }
            *fresh += 1;
        }
        if tickets.is_empty() {
            self.spare.push(tickets);
            // All of them keep to other lanes. An errand may not.
            return self.fill(at, now);
        }
        self.live_in_a_row = if errands { 0 } else { self.live_in_a_row.saturating_add(1) };
        self.lanes[at].pieces.push_back(Piece::new(tickets));
        true
    }
}
