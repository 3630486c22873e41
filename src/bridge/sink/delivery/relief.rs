//! Events that are held up, and how they are given up: by hand, or where there is no room for them.

use std::{cmp::Reverse, collections::VecDeque};

use rustc_hash::FxHashMap;

use super::{
    DeadLetterClass, Delivery, FIRST_RESEND, Fate, GivenUp, Kind, Line, Millis, Moment, Number,
    Piece, Tally, Unit, returned::RETURNED,
};
use crate::bridge::{Failure, HeldBy, Secrets};

/// Records that wait for one that fails.
#[derive(Clone, Debug)]
pub(crate) struct Held<'a> {
    pub(crate) by: HeldBy,
    /// The first of them: its record tells whose they are.
    pub(crate) head: Number,
    pub(crate) records: usize,
    /// Why they wait, if any of them was tried.
    pub(crate) failure: Option<&'a Failure>,
}

/// The records that go where there is no room: chosen anew after a while.
#[derive(Debug, Default)]
pub(super) struct Relief {
    /// The namespace, or object, that holds most: what fails by itself in its queue goes,
    of: Option<(bool, u64)>,
    /// and of what it has set aside these, in order.
    next: VecDeque<Number>,
    until: Millis,
    /// There was no room at this time.
    asked: Option<Millis>,
}

impl Relief {
    /// How long a record that has failed waits for it, if there is no room now.
    pub(super) fn wait(&self, now: Millis) -> Option<Millis> {
        self.asked.filter(|at| now <= at + LOOKED_WITHIN).map(|_| LOOKED_WITHIN)
    }
}

/// Records that a namespace, or object, holds by reference,
#[derive(Debug, Default)]
struct Holding {
    records: u64,
    bytes: u64,
    /// those that are left in the log,
    left: u64,
    /// and those of what is set aside that have failed.
    failed: Vec<Number>,
}

/// After so many failures in a row a queue waits for the sink.
const WAITS: u32 = 3;
/// So many that are silent by themselves while there is no room, and those behind them go without being tried,
const SILENT: u32 = 3;
/// so many at once.
const AT_ONCE: u32 = 64;
/// So many are chosen at most,
const CHOSEN: usize = 1024;
/// for so long.
const CHOSEN_FOR: Millis = 500;
/// While there is no room, who can make some is looked for within so long.
const LOOKED_WITHIN: Millis = 2 * CHOSEN_FOR;

impl Delivery {
    /// The records that are held up, for the log, the status and the metrics: by a lane, if its batch has failed
    /// for as long as the patience lasts.
    pub(crate) fn held(&self, now: Millis) -> impl Iterator<Item = Held<'_>> {
        self.holding(now).filter_map(|(by, line)| {
            let head = held_by(line).filter(|number| *number < FIRST_RESEND).min()?;
            let left = match &line.kind {
                Kind::Queue(unit) => self.live.left().count(unit),
                Kind::Shelf(unit, _) if !self.queues.contains_key(unit) => {
                    self.live.left().count(unit)
                }
                Kind::Destination(destination) => {
                    let left = self.live.left();
                    let there = left.units().filter(|unit| unit.destination == *destination);
                    there.map(|unit| left.count(unit)).sum()
                }
                _ => 0,
            };
            let records = held_by(line).count() + left;
            Some(Held { by, head, records, failure: failure_of(line) })
        })
    }

    /// Whether anything is held up.
    pub(crate) fn holds(&self, now: Millis) -> bool {
        self.holding(now).next().is_some()
    }

    fn holding(&self, now: Millis) -> impl Iterator<Item = (HeldBy, &Line)> {
        let since = now.saturating_sub(self.options.patience());
        let watched = if self.watching { &self.lines[..] } else { &[] };
        watched.iter().filter(|line| !line.is_empty()).filter_map(move |line| {
            let by = match line.kind {
                Kind::Lane if line.has_failed_since(since) => HeldBy::Lane,
                Kind::Queue(_) => HeldBy::Queue,
                Kind::Destination(_) => HeldBy::Destination,
                Kind::Shelf(..) => HeldBy::SetAside,
                Kind::Lane | Kind::Resends(_) | Kind::Closed => return None,
            };
            Some((by, line))
        })
    }

    /// The record that is put away by hand: the first one that the position waits at, or else the first that
    /// is set aside.
    pub(crate) fn head(&self, now: Millis) -> Option<Held<'_>> {
        self.held(now).min_by_key(|held| (self.live.is_copied(held.head), held.head))
    }

    /// Makes room in the log: of what queues and shelves hold by reference, the oldest record of the namespace that
    /// holds most is given up that has failed by itself; the others are tried first, unless several were silent while
    /// there was no room. Where nobody is taken it may be the sink, and nothing is given up. Answers whether there was
    /// one.
    /// To be called while retention would take what is held, or intake would stop for it; so many behind the first
    /// one without a fate are `passed`.
    pub(crate) fn relieve(&mut self, passed: u64, now: Millis) -> bool {
        self.relief.asked = Some(now);
        let first = self.settled();
        if !self.is_held(first) {
            // Where a lane, or a destination, is before all of them, that frees nothing.
            self.make_way(first, passed, now);
            return false;
        }
        if now >= self.relief.until {
            self.relief = Relief { until: now + CHOSEN_FOR, asked: Some(now), ..self.choose() };
        }
        let queue = (self.options.lanes..self.lines.len()).find(|at| {
            self.is_chosen(&self.lines[*at]) && self.failed_in_queue(*at, passed).is_some()
        });
        if let Some(at) = queue {
            let has_given_up = self.relieve_queue(at, passed, now);
            self.hurry(passed, now);
            return has_given_up;
        }
        while let Some(number) = self.relief.next.pop_front() {
            if self.has_failed(number, passed) && self.give_way(number, now) {
                return true;
            }
        }
        self.hurry(passed, now);
        // Lanes that stand still keep what is held from being judged.
        self.make_way(first, passed, now);
        false
    }

    /// Whether a line is a queue with records of whoever holds most.
    fn is_chosen(&self, line: &Line) -> bool {
        matches!(line.kind, Kind::Queue(_))
            && held_by(line).next().is_some_and(|first| self.relief.of == Some(self.holder(first)))
    }

    /// Has queues of whoever holds most try their next record, unless it may be the sink that failed there: it goes
    /// only once it has failed, and the journal is full until then.
    fn hurry(&mut self, passed: u64, now: Millis) {
        for at in self.options.lanes..self.lines.len() {
            let line = &self.lines[at];
            let Kind::Queue(unit) = &line.kind else { continue };
            if line.silent == 0
                && line.in_a_row < WAITS
                && self.is_chosen(line)
                && (self.places.others_taken(unit, line.failed_at)
                    || line.was_apart
                        && self.is_passed_by_most(passed)
                        && self.is_not_the_sink(unit, line.failed_at, passed))
            {
                let line = &mut self.lines[at];
                line.due = line.due.min(now);
            }
        }
    }

    /// Gives up the first record of a queue: those behind it, too, where all before them were silent.
    fn relieve_queue(&mut self, at: usize, passed: u64, now: Millis) -> bool {
        let line = &mut self.lines[at];
        if let Some(Piece { trial, sent_at, .. }) = line.pieces.front() {
            line.silent = if trial.is_silent() { line.silent + 1 } else { 0 };
            line.silent_at = *sent_at;
        }
        let most = if line.silent >= SILENT { AT_ONCE } else { 1 };
        let mut given_up = 0;
        while given_up < most
            && let Some(number) = self.failed_in_queue(at, passed)
            && self.give_way(number, now)
        {
            given_up += 1;
        }
        let is_passed_by_most = self.is_passed_by_most(passed);
        let line = self.lines.get_mut(at).filter(|line| matches!(line.kind, Kind::Queue(_)));
        if let Some(line) = line.filter(|_| given_up > 0) {
            if is_passed_by_most {
                line.in_a_row = 0;
            }
            if most > 1 {
                // Each attempt there keeps the journal full for as long as an answer is waited for.
                line.due = line.due.max(now + CHOSEN_FOR);
            }
        }
        given_up > 0
    }

    /// The namespace, or object, that holds a record.
    fn holder(&self, number: Number) -> (bool, u64) {
        let Unit { by_object, of, .. } = self.places.unit(&self.live.get(number), false);
        (by_object, of)
    }

    /// The first record of a queue, if it has failed by itself, stands behind several that were silent, or waits
    /// for the sink: while others are taken.
    fn failed_in_queue(&self, at: usize, passed: u64) -> Option<Number> {
        let line = self.lines.get(at)?;
        let Kind::Queue(unit) = &line.kind else { return None };
        if line.sending {
            return None;
        }
        let Some(piece) = line.pieces.front() else {
            let silent =
                line.silent >= SILENT && self.is_not_the_sink(unit, line.silent_at, passed);
            return line.backlog.front().copied().filter(|_| silent);
        };
        let alone = piece.tickets.len() == 1
            && piece.trial.failure.is_some()
            && self.is_not_the_sink(unit, piece.sent_at, passed);
        let waits = line.in_a_row >= WAITS && self.places.others_taken(unit, piece.sent_at);
        (alone || waits).then(|| piece.tickets[0])
    }

    /// Whether it is not the sink that fails: others have been taken since a moment, or there are none. Those that
    /// fail in lanes count for none where the journal is full of what was `passed` and nobody else comes.
    fn is_not_the_sink(&self, unit: &Unit, moment: Moment, passed: u64) -> bool {
        self.places.others_taken(unit, moment)
            || self.nobody_waits(unit)
                && self.returned.next().is_none()
                && !self.may_recall_others(unit)
                && (self.is_the_last(unit) || self.is_passed_by_most(passed) && self.has_room())
    }

    /// Whether no lane has anything, and no other queue that may be there for the sink's fault, unless that of a
    /// namespace, or object, is not.
    fn is_the_last(&self, unit: &Unit) -> bool {
        let queue = self.queues.get(unit).map(|at| &self.lines[*at]);
        let was_apart = queue.is_none_or(|queue| queue.was_apart);
        self.lines.iter().all(|line| match &line.kind {
            Kind::Lane => line.is_empty(),
            Kind::Queue(other) => was_apart || other == unit || line.is_empty(),
            _ => true,
        })
    }

    /// Whether more is `passed` behind the first record without a fate than is left.
    pub(super) fn is_passed_by_most(&self, passed: u64) -> bool {
        passed > self.live.open() as u64 + u64::from(self.live.waiting_in_all())
    }

    /// Whether a record that is set aside, the first of its object, has failed by itself while others are taken.
    fn has_failed(&self, number: Number, passed: u64) -> bool {
        if !self.live.is_open(number) {
            return false;
        }
        let ticket = self.live.get(number);
        let line = self.keys.line(ticket.key).and_then(|at| self.lines.get(at));
        let Some(Line { kind: Kind::Shelf(unit, shelf), .. }) = line else { return false };
        let failed_at = shelf.failed_at(ticket.key).filter(|_| shelf.is_first(ticket.key, number));
        let unit = self.places.unit(&ticket, unit.by_object);
        failed_at.is_some_and(|moment| self.is_not_the_sink(&unit, moment, passed))
    }

    /// Whether a line has a record under way.
    pub(super) fn sends(&self, at: usize, number: Number) -> bool {
        self.lines[at].sending && self.tickets(at).contains(&number)
    }

    /// Whether a queue or a shelf holds a record by reference, which is not under way.
    fn is_held(&self, number: Number) -> bool {
        if !self.live.is_open(number) || self.live.is_copied(number) {
            return false;
        }
        let at = self.keys.line(self.live.get(number).key);
        at.and_then(|at| Some((at, self.lines.get(at)?))).is_some_and(|(at, line)| {
            matches!(line.kind, Kind::Queue(_) | Kind::Shelf(..)) && !self.sends(at, number)
        })
    }

    /// Chooses whom to give up: of the namespace, or object, that holds most, what has failed by itself and holds
    /// some, the oldest first, for as long as it does.
    fn choose(&self) -> Relief {
        let mut held: FxHashMap<(bool, u64), Holding> = FxHashMap::default();
        for line in &self.lines[self.options.lanes..] {
            let (Kind::Queue(_) | Kind::Shelf(..)) = &line.kind else { continue };
            let by_reference = |number: &Number| !self.live.is_copied(*number);
            let Some(first) = held_by(line).find(by_reference) else { continue };
            let Holding { records, bytes, failed, .. } =
                held.entry(self.holder(first)).or_default();
            for number in held_by(line).filter(by_reference) {
                *records += 1;
                *bytes += u64::from(self.live.get(number).bytes);
            }
            if let Kind::Shelf(_, shelf) = &line.kind {
                let failed_there = shelf.objects().filter(|(_, aside)| {
                    aside.trial.failure.is_some() && aside.tickets.iter().any(by_reference)
                });
                failed.extend(failed_there.filter_map(|(_, aside)| aside.tickets.front()));
            }
        }
        for unit in self.live.left().units() {
            if let Some(Holding { left, .. }) = held.get_mut(&(unit.by_object, unit.of)) {
                *left += self.live.left().count(unit) as u64;
            }
        }
        let mut held: Vec<_> = held.into_iter().collect();
        for (_, Holding { records, bytes, left, .. }) in &mut held {
            // Those that are left in the log are as large as those that wait.
            *bytes += *bytes / *records * *left;
        }
        held.sort_unstable_by_key(|(_, holding)| Reverse(holding.bytes));
        let next_most = held.get(1).map_or(0, |(_, holding)| holding.bytes);
        let Some((of, Holding { mut bytes, mut failed, .. })) = held.into_iter().next() else {
            return Relief::default();
        };
        failed.sort_unstable();
        let holds_most = |number: &Number| {
            let before = bytes;
            bytes = bytes.saturating_sub(u64::from(self.live.get(*number).bytes));
            before >= next_most
        };
        let next = failed.into_iter().take(CHOSEN).take_while(holds_most).collect();
        Relief { of: Some(of), next, ..Relief::default() }
    }

    /// Gives up a record by hand, or because it is gone. Answers whether it could be: not while it is under way.
    pub(crate) fn put_away(&mut self, number: Number, now: Millis) -> bool {
        self.put_away_until(number, Some(now), now)
    }

    /// Gives up a record because there is no room for it. What is left of its line waits as long as before.
    fn give_way(&mut self, number: Number, now: Millis) -> bool {
        self.put_away_until(number, None, now)
    }

    /// Gives up a record. What is left of its line is tried at the time that is `due`, if that is new.
    fn put_away_until(&mut self, number: Number, due: Option<Millis>, now: Millis) -> bool {
        let window = if number < FIRST_RESEND { &self.live } else { &self.resends };
        if !window.is_open(number) {
            return false;
        }
        let key = window.get(number).key;
        // A single lane needs no keys.
        let at = if self.keys.are_kept() { self.keys.line(key) } else { Some(0) };
        let has = |line: &Line| {
            line.witness.is_some_and(|witness| witness.ticket == [number])
                || held_by(line).any(|held| held == number)
        };
        let at = match at {
            // One that came back is in the lane that has taken it.
            Some(RETURNED) => self.lines[..self.options.lanes].iter().position(has),
            at => at.filter(|at| self.lines.get(*at).is_some_and(has)),
        };
        let Some(at) = at else { return false };
        if self.sends(at, number) {
            return false;
        }
        let untried = match due {
            Some(_) => "put away before it failed",
            None => "no room for it behind others that failed",
        };
        let reason = failure_of(&self.lines[at])
            .map_or_else(|| Secrets::none().reason(untried), |failure| failure.reason.clone());
        let piece = self.take_out(at, number);
        let line = &mut self.lines[at];
        let witness = line.witness.take_if(|witness| witness.ticket == [number]);
        line.due = due.unwrap_or(line.due);
        let Tally { attempts, first, .. } = self.tally(number, &piece);
        let (class, by_hand) = (DeadLetterClass::Blocked, due.is_some());
        let letter = GivenUp { class, reason, attempts, first, by_hand };
        self.finish(number, Fate::DeadLetter(letter));
        self.drop_from_shelf(at, key, number);
        if witness.is_some_and(|witness| !witness.from_line) {
            self.return_followers(at, key);
        }
        match self.lines[at].kind {
            Kind::Lane | Kind::Destination(_) => self.end_round_if_over(at, now),
            _ => self.close_if_done(at, now),
        }
        true
    }
}

fn failure_of(line: &Line) -> Option<&Failure> {
    let pieces = line.pieces.iter().chain(&line.failed_parts);
    let mut failures =
        pieces.filter_map(|piece| piece.failure.as_ref().or(piece.trial.failure.as_ref()));
    failures.next().or_else(|| match &line.kind {
        Kind::Shelf(_, shelf) => {
            shelf.objects().find_map(|(_, aside)| aside.trial.failure.as_ref())
        }
        _ => None,
    })
}

/// The records that a line beside the lanes holds.
fn held_by(line: &Line) -> impl Iterator<Item = Number> {
    let (shelf, pieces) = match &line.kind {
        // What a shelf sends stays there until it is taken.
        Kind::Shelf(_, shelf) => (Some(shelf.objects()), None),
        _ => (None, Some(line.pieces.iter().chain(&line.failed_parts))),
    };
    let pieces = pieces.into_iter().flatten().flat_map(|piece| &piece.tickets);
    let aside = shelf.into_iter().flatten().flat_map(|(_, aside)| &aside.tickets);
    pieces.chain(&line.backlog).chain(aside).copied()
}
