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
//! waits to be tried again or stands in a queue, its key keeps to that line, and later records of the
//! key queue up behind it; so the order of each key is the journal's. A lane whose batch fails waits
//! for its next attempt and holds up its own keys; the others go on. With one lane the order is the
//! journal's altogether.
//!
//! **Answers.** A batch that is refused is halved until the culprit stands alone. Records that are
//! answered one by one have their fates, and the others of their batch are sent again. A request for
//! less, or for time, slows all lanes.
//!
//! **Whose fault it is.** The text of an Event is its writer's, and a receiver may stumble over it. So
//! who fails steps aside with its namespace, and the others go on; if they are taken, it is judged in
//! turns with them; if they fail, too, it is the sink, and nothing is given up:
//!
//! ```text
//!          fails again                others are taken        fails in three turns
//! lane ───────────────▶ parting ──────────────▶ queue ─────────────▶ verdict ─▶ dead letter
//!   ▲                   │      │               │  ▲                     │
//!   └───────────────────┘      │               │  └─────────────────────┴─▶ shelf: set aside
//!     nobody is taken          │               └▶ back, when a failure has passed
//!                              └▶ destination: nothing is taken there, while it is elsewhere
//! ```
//!
//! [Parting](self::parting) sends a batch by namespaces; a [witness](self::witness) is a record of
//! another one, drawn at random; a [queue](self::queue) is sent beside the lanes, so that nobody waits
//! for it; the [verdict](self::verdict) is a dead letter where the answer is about content, and else
//! the record is [set aside](self::set_aside), and tried now and then. In a destination that has but
//! one namespace all of this goes by objects. What is queued stays in the log; what is set aside is saved
//! as a copy, up to a bound. A fault that cannot be a record's (no connection, credentials, a request
//! for less) decides nothing.

mod answers;
mod backoff;
mod fates;
mod fill;
mod keys;
mod leaving;
mod left;
mod line;
mod parting;
mod places;
mod queue;
mod relief;
mod relocation;
mod resend;
mod returned;
mod set_aside;
mod shelf;
#[cfg(test)]
mod tests;
mod ticket;
mod turns;
mod verdict;
mod window;
mod witness;

use std::collections::{HashMap, HashSet};

use rustc_hash::FxBuildHasher;

use crate::bridge::{Failure, FailureClass, Fault, Outcome, RetryOptions};

use self::{
    backoff::SharedBackoff,
    fates::Tally,
    keys::Keys,
    left::MOST_WAITING,
    line::{Kind, Line, Piece},
    places::{Places, Unit},
    relief::Relief,
    returned::Returned,
    set_aside::Shares,
    ticket::Moment,
    verdict::Past,
    window::Window,
    witness::Sought,
};

pub(crate) use self::{
    fates::{DeadLetterClass, Fate, Fated, GivenUp, Notice},
    relief::Held,
    ticket::{FIRST_RESEND, Millis, Number, Ticket},
};

/// So many batches in a row go before a resend that waits.
const LIVE_FIRST: u32 = 7;
/// So many batches are in hand, beside one for each lane.
const BATCHES_AHEAD: usize = 2;
/// So many records are in hand at least, if they are small: what is taken past one that fails is found
/// among them.
const LEAST_IN_HAND: usize = 1024;
/// So many are in hand, without their bytes, where a witness is looked for further on; beyond them, those that
/// cannot be one are left in the log.
const MOST_IN_HAND: usize = 1 << 15;
/// The bounds of [patience](DeliveryOptions::patience).
const LEAST_PATIENCE: Millis = 6;
const MOST_PATIENCE: Millis = 30_000;
/// An answer that takes longer is slow: who waits for one beside the lanes takes no lane's place.
const SLOW: Millis = 1000;

/// The bounds of delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryOptions {
    /// How many attempts are under way at once; at least 1.
    pub(crate) lanes: usize,
    /// The most records of a batch,
    pub(crate) batch_events: usize,
    /// and its most bytes; a larger record goes alone.
    pub(crate) batch_bytes: u64,
    pub(crate) retry: RetryOptions,
    /// The most bytes of records that are set aside as copies: an eighth of the journal. A namespace
    /// has a quarter of it.
    pub(crate) copied_bytes: u64,
}

impl DeliveryOptions {
    /// The time after which something that fails is looked into: as long as the longest wait, within bounds.
    fn patience(&self) -> Millis {
        let most = self.retry.max.as_millis().try_into().unwrap_or(Millis::MAX);
        most.clamp(LEAST_PATIENCE, MOST_PATIENCE)
    }
}

/// Delivery of one sink. See the [module](self).
#[derive(Debug)]
pub(crate) struct Delivery {
    options: DeliveryOptions,
    random: fastrand::Rng,
    live: Window,
    resends: Window,
    /// The first live ticket that no line has.
    fresh: Number,
    /// Tickets before that which no line has any more.
    returned: Returned,
    /// The first resend that no line has.
    fresh_resend: Number,
    /// Batches of live records since the last resend.
    live_in_a_row: u32,
    /// The lanes, and behind them what stands beside them.
    lines: Vec<Line>,
    keys: Keys,
    /// The lines of queues, destinations and shelves.
    queues: HashMap<Unit, usize, FxBuildHasher>,
    destinations: HashMap<u64, usize, FxBuildHasher>,
    shelves: HashMap<Unit, usize, FxBuildHasher>,
    resend_line: Option<usize>,
    /// Resends under way beside the lanes whose keys have another line.
    uncounted: HashSet<Number, FxBuildHasher>,
    /// Resends that nobody waits for any more, which are not sent again.
    cancelled: Vec<Number>,
    places: Places,
    sought: Option<Sought>,
    /// Keys whose records are for another destination than their tickets say, while any live one is open.
    kept_destinations: HashMap<u64, u64, FxBuildHasher>,
    /// See [`MOST_WAITING`].
    most_waiting: u32,
    /// All that is in hand fails: one of each namespace that was left in the log is read to be tried.
    recalls: bool,
    past: HashMap<Unit, Past, FxBuildHasher>,
    /// Its records are no more to blame, by the answer that is taken in.
    acquitted: Option<Unit>,
    shares: Shares,
    backoff: SharedBackoff,
    /// The past of records that failed, beside that of their pieces.
    tallies: HashMap<Number, Tally, FxBuildHasher>,
    relief: Relief,
    /// The program ends: nothing more starts beside the lanes.
    ending: bool,
    /// Something fails that may be a record's fault: who is taken is looked at.
    watching: bool,
    moment: Moment,
    /// Nothing is sent before that, because the receiver asked for less.
    paused_until: Millis,
    /// Requests for less in a row, and the moment of the last one.
    throttled: u32,
    throttled_at: Moment,
    /// How many attempts had something taken.
    taken: u64,
    /// Attempts of lanes, and of others.
    under_way: usize,
    beside: usize,
    fates: Vec<Fated>,
    notices: Vec<Notice>,
    /// Vectors for other batches.
    spare: Vec<Vec<Number>>,
}

/// How the attempts do, all lanes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble<'a> {
    /// No lane fails.
    None,
    /// Attempts fail, and are made again.
    Retrying(&'a Failure),
    /// Only a person can mend what the receiver complains of, and no lane is taken.
    Misconfigured(&'a Failure),
}

impl Delivery {
    /// The first live ticket has the number `first`; as many may have been [set aside](Self::push_set_aside) in
    /// earlier runs. The seed is that of waits and draws.
    pub(crate) fn new(options: DeliveryOptions, first: Number, seed: u64) -> Self {
        let options = DeliveryOptions { lanes: options.lanes.max(1), ..options };
        let lane = || Line::new(Kind::Lane, options.batch_events);
        Self {
            options,
            random: fastrand::Rng::with_seed(seed),
            live: Window::new(first),
            resends: Window::new(FIRST_RESEND),
            fresh: first,
            returned: Returned::default(),
            fresh_resend: FIRST_RESEND,
            live_in_a_row: 0,
            lines: std::iter::repeat_with(lane).take(options.lanes).collect(),
            keys: Keys::new(options.lanes),
            queues: HashMap::default(),
            destinations: HashMap::default(),
            shelves: HashMap::default(),
            resend_line: None,
            uncounted: HashSet::default(),
            cancelled: Vec::new(),
            places: Places::default(),
            sought: None,
            kept_destinations: HashMap::default(),
            most_waiting: MOST_WAITING,
            recalls: false,
            past: HashMap::default(),
            acquitted: None,
            shares: Shares::default(),
            backoff: SharedBackoff::default(),
            tallies: HashMap::default(),
            relief: Relief::default(),
            ending: false,
            watching: false,
            moment: 1,
            paused_until: 0,
            throttled: 0,
            throttled_at: 0,
            taken: 0,
            under_way: 0,
            beside: 0,
            fates: Vec::new(),
            notices: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Whether it takes more live records. One that does not still takes some: the bound keeps records
    /// in the log instead of in memory.
    pub(crate) fn has_room(&self) -> bool {
        let batches = self.options.lanes + BATCHES_AHEAD;
        let most = (batches * self.options.batch_events).max(LEAST_IN_HAND);
        self.looks_further()
            || self.live.open() < most
                && self.live.open_bytes() < batches as u64 * self.options.batch_bytes
    }

    /// Whether a live record has no fate and no copy.
    pub(crate) fn has_live(&self) -> bool {
        self.live.first_open() < self.live.next()
    }

    /// Takes the next live record, and answers its number.
    pub(crate) fn push(&mut self, ticket: Ticket) -> Number {
        let ticket = self.with_kept_destination(ticket);
        self.places.see(&ticket);
        let is_left = self.is_to_be_left(&ticket);
        let number = self.live.push(ticket, self.fresh);
        if is_left {
            self.leave_in_log(number, &ticket);
        } else {
            self.look_at(number, &ticket);
        }
        number
    }

    /// Takes the number of the next live record, which had its fate, or was set aside, in an earlier run.
    pub(crate) fn push_passed(&mut self) -> Number {
        let nothing = Ticket { key: 0, namespace: 0, destination: 0, bytes: 0 };
        let number = self.live.push(nothing, self.fresh);
        self.live.close(number);
        number
    }

    /// Whether live tickets are to have their keys. A single lane that does not fail needs none: they may be
    /// 0 then, and are to be [known](Self::know) once it [fails](Self::announce), while their records are in
    /// memory: those of large batches may not be.
    pub(crate) fn wants_keys(&self) -> bool {
        self.options.lanes > 1 || self.watching || self.options.batch_events > LEAST_IN_HAND
    }

    /// The live records whose keys are not known, if they are wanted.
    pub(crate) fn unknown(&self) -> Vec<Number> {
        if self.wants_keys() { self.live.unknown() } else { Vec::new() }
    }

    /// Takes the ticket of a record whose keys were not known.
    pub(crate) fn know(&mut self, number: Number, ticket: Ticket) {
        self.places.see(&ticket);
        self.live.know(number, ticket);
    }

    /// Looks at an outcome before it is [taken in](Self::answered): where something fails, keys are wanted, and
    /// are to be known by then.
    pub(crate) fn announce(&mut self, line: usize, outcome: &Outcome) {
        let sent = self.tickets(line).len();
        let rejected = matches!(outcome, Outcome::Partial { rejected: 1.., .. });
        self.watching |= rejected || outcome.failure(sent).is_some();
    }

    /// Takes a record that is sent beside the journal's order, and answers its number; its keys are known.
    /// Resends that are pushed one after the other may share a batch.
    pub(crate) fn push_resend(&mut self, ticket: Ticket) -> Number {
        self.places.see(&ticket);
        self.resends.push(ticket, self.fresh_resend)
    }

    /// Starts nothing beside the lanes any more: the program ends, and does not wait for what fails.
    pub(crate) fn end_beside(&mut self) {
        self.ending = true;
    }

    /// The line that sends its [tickets](Self::tickets) now, if one does. To be asked until none does,
    /// after anything was pushed or answered and when the time has [come](Self::wake_at).
    pub(crate) fn next_send(&mut self, now: Millis) -> Option<usize> {
        if now < self.paused_until {
            return None;
        }
        let lanes = 0..self.options.lanes;
        let at = lanes.into_iter().find(|at| self.is_ready(*at, now));
        let at = at.or_else(|| self.next_beside(now))?;
        let moment = self.tick();
        *(if at < self.options.lanes { &mut self.under_way } else { &mut self.beside }) += 1;
        let line = &mut self.lines[at];
        line.sending = true;
        line.sent = now;
        if let Some(witness) = &mut line.witness {
            witness.sent_at = moment;
        } else if let Some(piece) = line.pieces.front_mut() {
            piece.first.get_or_insert(now);
            piece.attempts += 1;
            piece.taken_before = self.taken;
            piece.sent_at = moment;
            if let Kind::Shelf(_, shelf) | Kind::Resends(shelf) = &line.kind {
                let first = ticket_of(&self.live, &self.resends, piece.tickets[0]);
                if shelf.shares_backoff(first.key) {
                    self.backoff.begin(at);
                }
            }
        }
        Some(at)
    }

    /// The tickets that a line sends, in order.
    pub(crate) fn tickets(&self, line: usize) -> &[Number] {
        let Line { witness, pieces, .. } = &self.lines[line];
        match (witness, pieces.front()) {
            (Some(witness), _) => &witness.ticket,
            (_, Some(piece)) => &piece.tickets,
            _ => &[],
        }
    }

    /// How many attempts are under way.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        self.under_way + self.beside
    }

    /// Whether a lane waits before it sends again.
    pub(crate) fn lanes_wait(&self, now: Millis) -> bool {
        let due = (0..self.options.lanes).filter_map(|at| self.due_of(at));
        due.min().is_some_and(|due| due.max(self.paused_until) > now)
    }

    /// When there is something to send although nothing is pushed or answered until then.
    pub(crate) fn wake_at(&self) -> Option<Millis> {
        let due = (0..self.lines.len()).filter(|at| self.may_start(*at));
        Some(due.filter_map(|at| self.due_of(at)).min()?.max(self.paused_until))
    }

    /// The fates since the last call: those of one answer at least, in the order of its records.
    pub(crate) fn take_fates(&mut self) -> std::vec::Drain<'_, Fated> {
        self.fates.drain(..)
    }

    /// Changes that the caller has to know beside the fates.
    pub(crate) fn take_notices(&mut self) -> std::vec::Drain<'_, Notice> {
        self.notices.drain(..)
    }

    /// How often a record was sent that waits beside the lanes, and when first.
    pub(crate) fn been_through(&self, number: Number) -> (u32, Millis) {
        let tally = self.tallies.get(&number).copied().unwrap_or_default();
        (tally.attempts, tally.first)
    }

    /// The first live ticket without a fate or a copy.
    pub(crate) fn settled(&self) -> Number {
        self.live.first_open()
    }

    /// The tickets with a fate or a copy behind that, in order.
    #[cfg(test)]
    pub(crate) fn settled_behind(&self) -> impl Iterator<Item = std::ops::Range<Number>> {
        self.live.closed_behind()
    }

    /// How the attempts do. What only a person can mend is no more than a lane's while others are
    /// taken.
    pub(crate) fn trouble(&self) -> Trouble<'_> {
        let mut trouble = Trouble::None;
        let lanes = &self.lines[..self.options.lanes];
        for piece in lanes.iter().filter_map(|lane| lane.pieces.front()) {
            let Some(failure) = &piece.failure else { continue };
            // What may pass is no more than tried again, though it is the answer to all.
            let refuses_all = piece.all_fail && failure.fault == Fault::RecordForGood;
            // Once, it may be about one record.
            let again = failure.fault == Fault::Sink || piece.in_a_row > 1;
            let misconfigured = failure.class == FailureClass::Misconfigured && again;
            let to_be_mended = refuses_all || misconfigured;
            if to_be_mended && piece.taken_before == self.taken {
                return Trouble::Misconfigured(failure);
            }
            trouble = Trouble::Retrying(failure);
        }
        trouble
    }

    /// Watches what is taken from now on, by keys: something fails that may be a record's fault, or waits
    /// beside the lanes.
    pub(crate) fn watch(&mut self) {
        self.watching = true;
        self.keep_keys();
    }

    /// Whether a line may send: one beside the lanes takes a lane's place only if it gives that back
    /// soon.
    fn may_start(&self, at: usize) -> bool {
        let Self { under_way, beside, options: DeliveryOptions { lanes, .. }, .. } = *self;
        let more = (lanes / 4).max(1);
        let line = &self.lines[at];
        if line.sending || matches!(line.kind, Kind::Closed) {
            return false;
        }
        let beside_may = !self.ending && (beside < more || !line.slow);
        under_way + beside < lanes + more && (at < lanes || beside_may)
    }

    /// When a line has something to send.
    fn due_of(&self, at: usize) -> Option<Millis> {
        let line = &self.lines[at];
        if let Kind::Shelf(_, shelf) | Kind::Resends(shelf) = &line.kind {
            return Some(shelf.due(self.backoff.until())?.max(line.due));
        }
        let fresh = at < self.options.lanes && self.has_fresh();
        let fresh = fresh || matches!(line.kind, Kind::Queue(_));
        (fresh || !line.is_empty()).then_some(line.due)
    }

    fn has_fresh(&self) -> bool {
        self.fresh < self.live.next()
            || self.returned.next().is_some()
            || self.fresh_resend < self.resends.next()
    }
}

/// The ticket of a number that has no fate.
fn ticket_of(live: &Window, resends: &Window, number: Number) -> Ticket {
    if number < FIRST_RESEND { live.get(number) } else { resends.get(number) }
}
