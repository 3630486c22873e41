//! What is set aside: tried now and then, while its object waits and all others go on.
//!
//! It is saved as copies, which the position may pass, up to a bound. What is over is held by
//! reference: it stays in the log.

use std::collections::{HashMap, VecDeque};

use rustc_hash::FxBuildHasher;

use super::{
    super::{Failure, Fault},
    Delivery, FIRST_ERRAND, Fate, Kind, LetterClass, Millis, Notice, Number, Piece, Ticket, Unit,
    returned::RETURNED,
    shelf::{Aside, Trial},
    verdict::Verdict,
};

/// The bounds of the wait before what is set aside is tried again.
const LEAST_WAIT: Millis = 5_000;
const MOST_WAIT: Millis = 30_000;

/// The bytes of copies, by namespace.
#[derive(Debug, Default)]
pub(super) struct Shares {
    copied: u64,
    of: HashMap<u64, u64, FxBuildHasher>,
}

impl Shares {
    /// Adds a copy, if there is room for it.
    fn add(&mut self, ticket: &Ticket, most: u64) -> bool {
        let bytes = u64::from(ticket.bytes);
        let of = self.of.entry(ticket.namespace).or_default();
        let fits = self.copied + bytes <= most && *of + bytes <= most / 4;
        if fits {
            self.copied += bytes;
            *of += bytes;
        }
        fits
    }

    pub(super) fn drop(&mut self, ticket: &Ticket, copied: bool) {
        if !copied {
            return;
        }
        let bytes = u64::from(ticket.bytes);
        self.copied = self.copied.saturating_sub(bytes);
        if let Some(of) = self.of.get_mut(&ticket.namespace) {
            *of = of.saturating_sub(bytes);
            if *of == 0 {
                self.of.remove(&ticket.namespace);
            }
        }
    }
}

impl Delivery {
    /// Takes a record that was set aside in an earlier run, before any live one; those of one object in
    /// order. Answers its number.
    pub(in crate::bridge) fn push_set_aside(&mut self, ticket: Ticket) -> Number {
        let ticket = super::keyed(ticket);
        self.places.see(&ticket);
        self.watching = true;
        let number = self.live.push_copy(ticket);
        self.shares.add(&ticket, u64::MAX);
        let unit = Unit { destination: ticket.destination, by_object: false, of: ticket.namespace };
        let at = self.shelf(unit);
        self.keys.claim(ticket.key, at);
        if let Kind::Shelf(_, shelf) = &mut self.lines[at].kind {
            if shelf.get(ticket.key).is_some() {
                shelf.push(ticket.key, number);
            } else {
                let tickets = VecDeque::from([number]);
                shelf.add(ticket.key, Aside { tickets, due: 0, in_a_row: 0, trial: Trial::default() });
            }
        }
        number
    }

    /// Saves a record as a copy, or keeps it in the log.
    pub(super) fn keep_aside(&mut self, number: Number) {
        let ticket = self.live.get(number);
        if !self.live.is_copied(number) && self.shares.add(&ticket, self.options.copied_bytes) {
            self.live.copy(number);
            self.notices.push(Notice::SetAside(number));
        }
    }

    /// Sets a record of a queue aside, with those of its object behind it.
    pub(super) fn set_aside(&mut self, from: usize, unit: Unit, piece: Piece, now: Millis) {
        let at = self.shelf(unit);
        let number = piece.tickets[0];
        let key = self.live.get(number).key;
        let mut tickets = VecDeque::from([number]);
        if self.keys.records(key) > 1 {
            let backlog = std::mem::take(&mut self.lines[from].backlog);
            let failed_before = self.lines[from].failed_before;
            let mut stay = VecDeque::with_capacity(backlog.len());
            for (place, number) in backlog.into_iter().enumerate() {
                if number < FIRST_ERRAND && self.live.get(number).key == key {
                    tickets.push_back(number);
                    self.lines[from].failed_before -= usize::from(place < failed_before);
                } else {
                    stay.push_back(number);
                }
            }
            self.lines[from].backlog = stay;
        }
        self.keys.move_to(key, at);
        for number in &tickets {
            self.keep_aside(*number);
        }
        let due = now + self.aside_wait(1);
        if let Kind::Shelf(_, shelf) = &mut self.lines[at].kind {
            shelf.add(key, Aside { tickets, due, in_a_row: 1, trial: piece.trial });
        }
    }

    /// Takes in that a record which was set aside has its fate: those behind it are queued again.
    pub(super) fn leave_shelf(&mut self, at: usize, key: u64) {
        let Kind::Shelf(unit, shelf) = &mut self.lines[at].kind else { return };
        let unit = *unit;
        let Some(mut aside) = shelf.take(key) else { return };
        aside.tickets.pop_front();
        if aside.tickets.is_empty() {
            return;
        }
        if let Some(queue) = self.queues.get(&unit).copied() {
            self.keys.move_to(key, queue);
            let line = &mut self.lines[queue];
            if line.is_empty() && !line.sending {
                line.due = 0;
            }
            line.backlog.extend(aside.tickets);
        } else {
            self.keys.move_to(key, RETURNED);
            for number in aside.tickets {
                self.returned.push(key, number);
            }
        }
    }

    /// What is tried again of what is set aside, and when, or not.
    pub(super) fn shelf_failed(
        &mut self,
        at: usize,
        unit: Unit,
        mut piece: Piece,
        failure: &Failure,
        now: Millis,
    ) {
        let moment = self.tick();
        let tried: Vec<(Number, u64)> =
            piece.tickets.iter().map(|number| (*number, self.live.get(*number).key)).collect();
        self.count_failures(&mut piece, failure);
        for (number, key) in &tried {
            if !piece.tickets.contains(number) {
                self.leave_shelf(at, *key);
            }
        }
        if failure.fault == Fault::Sink {
            let wait = self.short_wait(at);
            self.lines[at].due = now + wait;
            return self.spare(piece.tickets);
        }
        let line = &mut self.lines[at];
        line.failed_at = moment;
        if let Kind::Shelf(_, shelf) = &mut line.kind {
            // One of several says nothing about the others.
            shelf.going = false;
        }
        if let (&[(number, key)], [_]) = (&tried[..], &piece.tickets[..]) {
            self.aside_failed(at, unit, (number, key), &piece, failure, now);
        }
        self.spare(piece.tickets);
        self.close_if_done(at, now);
    }

    fn aside_failed(
        &mut self,
        at: usize,
        unit: Unit,
        (number, key): (Number, u64),
        piece: &Piece,
        failure: &Failure,
        now: Millis,
    ) {
        let moment = self.moment;
        let Kind::Shelf(_, shelf) = &mut self.lines[at].kind else { return };
        let Some(mut aside) = shelf.take(key) else { return };
        aside.in_a_row += 1;
        aside.due = now + self.aside_wait(aside.in_a_row);
        aside.trial.failed(failure, piece.others_taken, moment);
        let verdict = self.judge(unit, &aside.trial, failure, now);
        if let Kind::Shelf(_, shelf) = &mut self.lines[at].kind {
            shelf.add(key, aside);
        }
        if let Verdict::GivenUp(class) = verdict {
            self.give_up(piece, &[number], class, &failure.reason);
            self.leave_shelf(at, key);
        }
    }

    fn aside_wait(&mut self, in_a_row: u32) -> Millis {
        let bound = LEAST_WAIT.saturating_mul(1 << in_a_row.min(8)).min(MOST_WAIT);
        self.random.u64(LEAST_WAIT..=bound)
    }

    /// Makes room in the log: the oldest record that is held by reference, of the namespace that holds
    /// most, is given up. Answers whether there was one. To be called while retention would take what is
    /// held, or intake would stop for it.
    pub(in crate::bridge) fn relieve(&mut self) -> bool {
        let mut held: HashMap<u64, (u64, Number), FxBuildHasher> = HashMap::default();
        for (at, line) in self.lines.iter().enumerate().skip(self.options.lanes) {
            let (Kind::Queue(_) | Kind::Shelf(..)) = &line.kind else { continue };
            let under_way = if line.sending { self.tickets(at) } else { &[] };
            for number in held_by(line).filter(|number| *number < FIRST_ERRAND) {
                if self.live.is_copied(number) || under_way.contains(&number) {
                    continue;
                }
                let ticket = self.live.get(number);
                let (bytes, first) = held.entry(ticket.namespace).or_insert((0, number));
                *bytes += u64::from(ticket.bytes);
                *first = number.min(*first);
            }
        }
        let fullest = held.into_values().max();
        let Some((_, number)) = fullest else { return false };
        self.put_away(number)
    }

    /// Gives up a record by hand, or because there is no room for it. Answers whether it could be: not
    /// while it is under way.
    pub(in crate::bridge) fn put_away(&mut self, number: Number) -> bool {
        let has = |line: &super::Line| {
            let mut pieces = line.pieces.iter().chain(&line.failed_parts);
            pieces.any(|piece| piece.tickets.contains(&number)) || held_by(line).any(|n| n == number)
        };
        let Some(at) = self.lines.iter().position(has) else { return false };
        if self.lines[at].sending && self.tickets(at).contains(&number) {
            return false;
        }
        let key = self.ticket(number).key;
        let reason = self.reason_at(at);
        let line = &mut self.lines[at];
        let mut tally = None;
        for piece in line.pieces.iter_mut().chain(&mut line.failed_parts) {
            if piece.tickets.contains(&number) {
                piece.tickets.retain(|other| *other != number);
                tally = Some(piece.with(Vec::new()));
            }
        }
        line.pieces.retain(|piece| !piece.tickets.is_empty());
        line.failed_parts.retain(|piece| !piece.tickets.is_empty());
        line.backlog.retain(|other| *other != number);
        if let Kind::Shelf(_, shelf) = &mut line.kind
            && let Some(mut aside) = shelf.take(key)
        {
            aside.tickets.retain(|other| *other != number);
            if !aside.tickets.is_empty() {
                shelf.add(key, aside);
            }
        }
        let piece = tally.unwrap_or_else(|| Piece::new(Vec::new()));
        let super::fates::Tally { attempts, first, .. } = self.tally(number, &piece);
        let letter = super::Letter { class: LetterClass::Blocked, reason, attempts, first };
        self.finish(number, Fate::DeadLetter(letter));
        true
    }

    fn reason_at(&self, at: usize) -> super::super::Reason {
        let line = &self.lines[at];
        let failure = line.pieces.iter().chain(&line.failed_parts).find_map(|piece| {
            piece.failure.as_ref().or(piece.trial.failure.as_ref())
        });
        let aside = match &line.kind {
            Kind::Shelf(_, shelf) => {
                shelf.objects().find_map(|(_, aside)| aside.trial.failure.as_ref())
            }
            _ => None,
        };
        failure.or(aside).map_or_else(
            || super::super::Secrets::none().reason("it was put away"),
            |failure| failure.reason.clone(),
        )
    }
}

/// What a line beside the lanes holds.
fn held_by(line: &super::Line) -> impl Iterator<Item = Number> {
    let pieces = line.pieces.iter().flat_map(|piece| &piece.tickets).chain(&line.backlog).copied();
    let aside = match &line.kind {
        Kind::Shelf(_, shelf) => Some(shelf.objects()),
        _ => None,
    };
    let aside = aside.into_iter().flatten().flat_map(|(_, aside)| aside.tickets.iter().copied());
    pieces.chain(aside)
}
