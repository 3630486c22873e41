//! Records that are set aside: tried now and then, while their objects wait and all others go on.
//!
//! They are saved as copies, which the position may pass, up to a bound. Those over it are held by
//! reference: they stay in the log.

use std::collections::{HashMap, VecDeque};

use rustc_hash::FxBuildHasher;

use super::{
    Delivery, Kind, Line, Millis, Notice, Number, Piece, Ticket, Unit, returned::RETURNED,
    shelf::Aside, verdict::Verdict,
};
use crate::bridge::{Failure, Fault};

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
        let of = self.of.get(&ticket.namespace).copied().unwrap_or_default();
        let fits = self.copied.saturating_add(bytes) <= most && of + bytes <= most / 4;
        if fits {
            self.copied += bytes;
            self.of.insert(ticket.namespace, of + bytes);
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
    pub(crate) fn push_set_aside(&mut self, ticket: Ticket) -> Number {
        self.places.see(&ticket);
        self.watch();
        let number = self.live.push_copy(ticket);
        self.shares.add(&ticket, u64::MAX);
        let at = self.shelf(Unit::of_namespace(&ticket));
        self.keys.claim(&ticket, at);
        if let Kind::Shelf(_, shelf) = &mut self.lines[at].kind {
            if shelf.get(ticket.key).is_some() {
                shelf.push(ticket.key, number);
            } else {
                let aside = Aside::new(VecDeque::from([number]), 0);
                shelf.add(ticket.key, Aside { silent: true, ..aside });
            }
        }
        number
    }

    /// Saves a record as a copy, or keeps it in the log; so are all behind one of its object that is kept there:
    /// a start takes what is copied first.
    pub(super) fn keep_aside(&mut self, number: Number, before: Option<Number>) {
        let ticket = self.live.get(number);
        let may_be = before.is_none_or(|before| self.live.is_copied(before));
        if may_be
            && !self.live.is_copied(number)
            && self.shares.add(&ticket, self.options.copied_bytes)
        {
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
        let Line { backlog, failed_before, .. } = &mut self.lines[from];
        let (mut place, failed) = (0, *failed_before);
        let all = self.keys.records(key) as usize;
        backlog.retain(|number| {
            place += 1;
            let stays = tickets.len() >= all || self.live.get(*number).key != key;
            if !stays {
                tickets.push_back(*number);
                *failed_before -= usize::from(place <= failed);
            }
            stays
        });
        self.keys.move_to(key, at);
        let mut before = None;
        for number in &tickets {
            self.keep_aside(*number, before.replace(*number));
        }
        let due = now + self.aside_wait(1);
        if let Kind::Shelf(_, shelf) = &mut self.lines[at].kind {
            let silent = piece.trial.is_silent();
            shelf.add(key, Aside { tickets, due, in_a_row: 1, trial: piece.trial, silent });
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

    /// Takes a record out that has its fate without being tried.
    pub(super) fn drop_from_shelf(&mut self, at: usize, key: u64, number: Number) {
        let Kind::Shelf(_, shelf) = &mut self.lines[at].kind else { return };
        let Some(aside) = shelf.get(key) else { return };
        if aside.tickets.front() == Some(&number) {
            self.leave_shelf(at, key);
        } else {
            aside.tickets.retain(|other| *other != number);
        }
    }

    /// Takes in that records which are set aside failed: tried again, and when, or not.
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
            shelf.stop();
        }
        self.was_silent(failure, now);
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
        aside.silent = aside.trial.is_silent();
        let verdict = self.judge(unit, &aside.trial, failure, now);
        if let Kind::Shelf(_, shelf) = &mut self.lines[at].kind {
            shelf.add(key, aside);
        }
        if let Verdict::GivenUp(class) = verdict {
            self.give_up(piece, &[number], class, &failure.reason);
            self.leave_shelf(at, key);
        }
    }

    /// Has all wait that share the back-off, where the receiver was silent.
    pub(super) fn was_silent(&mut self, failure: &Failure, now: Millis) {
        if failure.is_silent() {
            let in_a_row = self.backoff.failed();
            let wait = self.aside_wait(in_a_row);
            self.backoff.wait(now + wait);
        }
    }

    /// The wait before what is set aside is tried again: a sixth of the patience at least, and all of it at most.
    fn aside_wait(&mut self, in_a_row: u32) -> Millis {
        let most = self.options.patience();
        let least = most / 6;
        let bound = least.saturating_mul(1 << in_a_row.min(8)).min(most);
        self.random.u64(least..=bound)
    }
}
