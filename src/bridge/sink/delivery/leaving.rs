//! Records that leave a lane for a line of their own, in order, with all behind it that stands or falls with it.

use rustc_hash::FxHashSet;

use super::{Delivery, FIRST_RESEND, Kind, Line, Millis, Number, Piece, Ticket, Unit, line::Stuck};
use crate::bridge::Fault;

impl Delivery {
    /// Records of namespaces, or objects, that have a queue leave the lane. Answers whether the others
    /// are to be waited for: they are sent again at once, if there were any that left.
    pub(super) fn leave_known(&mut self, at: usize, piece: &mut Piece, now: Millis) -> bool {
        if self.queues.is_empty() {
            return true;
        }
        let mut known: Vec<Unit> = Vec::new();
        for number in &piece.tickets {
            let unit = self.queue_of(&self.ticket(*number));
            known.extend(unit.filter(|unit| !known.contains(unit)));
        }
        if known.is_empty() {
            return true;
        }
        for unit in known {
            let part = self.split(piece, |ticket| unit.has(ticket));
            self.leave(at, part, Kind::Queue(unit), now);
        }
        if !piece.tickets.is_empty() {
            let left = std::mem::take(&mut piece.tickets);
            let mut again = piece.with(left);
            again.in_a_row = piece.in_a_row;
            (again.suspect, again.suspect_since) = (piece.suspect, piece.suspect_since);
            (again.alike, again.status) = (piece.alike, piece.status);
            self.lines[at].pieces.push_front(again);
        }
        false
    }

    /// Records of destinations that take nothing for as long as the patience lasts, while others do, leave the
    /// lane. Answers whether any are left.
    pub(super) fn stand_aside(&mut self, at: usize, piece: &mut Piece, now: Millis) -> bool {
        let Some(Stuck { since, sent_at, .. }) = piece.stuck else { return true };
        if !matches!(self.lines[at].kind, Kind::Lane) {
            return true;
        }
        let long = now - since >= self.options.patience();
        if !long && self.destinations.is_empty() {
            return true;
        }
        let mut stands: Vec<u64> =
            piece.tickets.iter().map(|number| self.ticket(*number).destination).collect();
        stands.sort_unstable();
        stands.dedup();
        for destination in stands {
            let stands = self.destinations.contains_key(&destination)
                || long
                    && !self.places.takes(destination, sent_at)
                    && self.places.other_takes(destination, sent_at);
            if !stands {
                continue;
            }
            let part = self.split(piece, |ticket| ticket.destination == destination);
            self.leave(at, part, Kind::Destination(destination), now);
        }
        !piece.tickets.is_empty()
    }

    /// Has what fails leave its lane, or the line of its destination, for a queue: what the position waits at, else
    /// what fails before it, or of its namespace. Others have been taken since it failed first, or more behind the
    /// position is `passed` than is left, and nobody else waits: intake that stands still brings no witness, so that
    /// nothing would be decided.
    pub(super) fn make_way(&mut self, first: Number, passed: u64, now: Millis) {
        let mut all = 0..self.lines.len();
        if !self.has_room() || !self.live.is_open(first) || all.any(|at| self.sends(at, first)) {
            return;
        }
        let is_passed_by_most = self.is_passed_by_most(passed);
        let lines = self.lines.iter().enumerate();
        let fails =
            |(at, line)| Some((at, self.fails_before(first, line, is_passed_by_most, now)?));
        let mut failing: Vec<_> = lines.filter_map(fails).collect();
        failing.sort_by_key(|(_, number)| *number != first);
        let nobody_waits = |(at, number): (usize, Number)| {
            let ticket = self.ticket(number);
            // A start knows no namespaces but those that are left; those that were passed may have been of others.
            let units = [self.places.unit(&ticket, false), Unit::of_namespace(&ticket)];
            let mut units = units.into_iter().take(1 + usize::from(is_passed_by_most));
            let in_lane = matches!(self.lines[at].kind, Kind::Lane);
            let alone =
                |unit: &Unit| self.nobody_waits(unit) && (in_lane || self.is_alone(at, *unit));
            Some((at, units.find(alone)?))
        };
        let Some((at, unit)) = failing.into_iter().find_map(nobody_waits) else { return };
        let Some(mut piece) = self.lines[at].pieces.pop_front() else { return };
        let part = self.split(&mut piece, |ticket| unit.has(ticket));
        if piece.tickets.is_empty() {
            self.lines[at].due = now;
        } else {
            self.lines[at].pieces.push_front(piece);
        }
        self.leave(at, part, Kind::Queue(unit), now);
        self.close_if_done(at, now);
    }

    /// The record of a line that makes way for the first one without a fate, if the line fails.
    fn fails_before(
        &self,
        first: Number,
        line: &Line,
        is_passed_by_most: bool,
        now: Millis,
    ) -> Option<Number> {
        let piece = line.pieces.front()?;
        let Stuck { answered_at, .. } = piece.stuck?;
        let has_first = piece.tickets.contains(&first);
        let number = if has_first { first } else { piece.tickets[0] };
        let ticket = self.ticket(number);
        let is_before = || {
            // The first may be in a queue, or where no lane takes it.
            ticket.namespace == self.ticket(first).namespace
                || line.pieces.iter().any(|piece| piece.tickets.contains(&first))
                || line.backlog.contains(&first)
        };
        let others_taken = match line.kind {
            Kind::Lane => {
                piece.taken_before < self.taken
                    || self.places.others_taken(&self.places.unit(&ticket, false), answered_at)
            }
            Kind::Destination(destination) => self.places.other_takes(destination, answered_at),
            _ => return None,
        };
        let since = now.saturating_sub(self.options.patience());
        let fails = piece.failure.as_ref()?.fault != Fault::Sink
            && (is_passed_by_most || others_taken)
            && !line.sending
            && line.witness.is_none()
            && line.has_failed_since(since)
            && is_before();
        fails.then_some(number)
    }

    /// Takes the records that leave out of a piece, as one that has been through the same.
    fn split(&self, piece: &mut Piece, leaves: impl Fn(&Ticket) -> bool) -> Piece {
        let tickets = std::mem::take(&mut piece.tickets);
        let of = |number: &Number| leaves(&self.ticket(*number));
        let (leave, stay) = tickets.into_iter().partition(of);
        piece.tickets = stay;
        piece.with(leave)
    }

    /// Draws a witness for another destination, where a lane has taken nothing for long: that may be its
    /// own destination's fault, and nobody else sends.
    pub(super) fn look_elsewhere(&mut self, at: usize, now: Millis) {
        let line = &self.lines[at];
        let Some(piece) = line.pieces.front().filter(|piece| !piece.is_part) else { return };
        let long = piece.stuck.is_some_and(|stuck| now - stuck.since >= self.options.patience());
        if long && self.places.are_several() && matches!(line.kind, Kind::Lane) {
            let unit = self.places.unit(&self.ticket(piece.tickets[0]), false);
            if self.draw_witness(at, &[unit], true) {
                self.lines[at].due = now;
            }
        }
    }

    /// Moves a part, and all behind it that stands or falls with it, to a line of its own.
    pub(super) fn leave(&mut self, at: usize, piece: Piece, kind: Kind, now: Millis) {
        let known = match &kind {
            Kind::Queue(unit) => self.queues.get(unit),
            Kind::Destination(destination) => self.destinations.get(destination),
            _ => None,
        };
        let line = known.copied();
        let (unit, destination) = match kind {
            Kind::Queue(unit) => (Some(unit), unit.destination),
            Kind::Destination(destination) => (None, destination),
            _ => return,
        };
        let line = line.unwrap_or_else(|| {
            let line = self.open_line(kind);
            match unit {
                Some(unit) => self.queues.insert(unit, line),
                None => self.destinations.insert(destination, line),
            };
            line
        });
        let leaves = |ticket: &Ticket| match &unit {
            Some(unit) => unit.has(ticket),
            None => ticket.destination == destination,
        };
        self.keep_tally(&piece);
        let failed = piece.tickets.len();
        let mut moved = piece.tickets;
        let mut failed_parts = std::mem::take(&mut self.lines[at].failed_parts);
        let mut pieces = std::mem::take(&mut self.lines[at].pieces);
        let backlog = std::mem::take(&mut self.lines[at].backlog);
        let in_pieces = failed_parts.iter().chain(&pieces).flat_map(|piece| &piece.tickets);
        let all = moved.iter().chain(in_pieces).chain(&backlog);
        let live = all.filter(|number| **number < FIRST_RESEND).map(|number| self.ticket(*number));
        // An object goes as a whole, with its resends, though some of it may be for another destination.
        let keys: FxHashSet<u64> = live.filter(leaves).map(|ticket| ticket.key).collect();
        for piece in failed_parts.iter_mut().chain(&mut pieces) {
            let part = self.split(piece, |ticket| keys.contains(&ticket.key));
            self.keep_tally(&part);
            moved.extend(part.tickets);
        }
        failed_parts.retain(|piece| !piece.tickets.is_empty());
        pieces.retain(|piece| !piece.tickets.is_empty());
        self.lines[at].failed_parts = failed_parts;
        self.lines[at].pieces = pieces;
        let of = |number: &Number| keys.contains(&self.ticket(*number).key);
        let (left, stay): (Vec<_>, Vec<_>) = backlog.into_iter().partition(of);
        moved.extend(left);
        self.lines[at].backlog = stay.into();
        let no_room = self.relief.wait(now).is_some();
        let was_apart = unit
            .zip(piece.stuck)
            .is_some_and(|(unit, stuck)| self.places.others_taken(&unit, stuck.answered_at));
        let to = &mut self.lines[line];
        to.was_apart |= was_apart;
        if to.is_empty() && !to.sending {
            to.due = now;
            to.failed_before = failed;
            to.failed_at = piece.failed_at;
            to.waits_for = moved.first().copied().filter(|_| failed == 1);
            if unit.is_some() {
                // All of them have failed together, so half goes first. A full journal is not kept waiting for one
                // timeout after another.
                to.size = if no_room { 1 } else { (failed / 2).max(1) };
            }
        }
        let mut keys = Vec::new();
        for number in moved {
            let ticket = self.ticket(number);
            if number >= FIRST_RESEND {
                // No order holds between it and live records.
                self.keys.release(ticket.key);
                self.postpone(number);
            } else {
                self.keys.move_to(ticket.key, line);
                self.queue_up(line, number, &ticket);
                keys.push(ticket.key);
            }
        }
        for key in keys {
            for number in self.returned.take(key) {
                let ticket = self.ticket(number);
                self.queue_up(line, number, &ticket);
            }
        }
    }

    /// Closes a line beside the lanes that is not needed any more.
    pub(super) fn close_if_done(&mut self, at: usize, now: Millis) {
        let Some(line) = self.lines.get(at) else { return };
        if at < self.options.lanes || line.sending || !line.is_empty() {
            return;
        }
        if let Kind::Queue(unit) = &line.kind
            && let Some(past) = self.past.get(unit)
            && now < past.until
        {
            self.lines[at].due = past.until;
            return;
        }
        self.close_line(at);
    }
}
