//! What leaves a lane for a line of its own, in order, with all behind it that stands or falls with it.

use super::{Delivery, FIRST_ERRAND, Kind, Millis, Number, Piece, Ticket, Unit};

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
            let tickets = std::mem::take(&mut piece.tickets);
            let (leave, stay) =
                tickets.into_iter().partition(|number| unit.has(&self.ticket(*number)));
            piece.tickets = stay;
            let part = piece.with(leave);
            self.leave(at, part, Kind::Queue(unit), now);
        }
        if !piece.tickets.is_empty() {
            let left = std::mem::take(&mut piece.tickets);
            let mut again = piece.with(left);
            again.in_a_row = piece.in_a_row;
            (again.alike, again.alike_since) = (piece.alike, piece.alike_since);
            again.status = piece.status;
            self.lines[at].pieces.push_front(again);
        }
        false
    }

    /// Records of destinations that take nothing for as long as the patience lasts, while others do, leave the
    /// lane. Answers whether any are left.
    pub(super) fn stand_aside(&mut self, at: usize, piece: &mut Piece, now: Millis) -> bool {
        let Some((since, moment)) = piece.stuck else { return true };
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
                    && !self.places.takes(destination, moment)
                    && self.places.other_takes(destination, moment);
            if !stands {
                continue;
            }
            let tickets = std::mem::take(&mut piece.tickets);
            let of = |number: &Number| self.ticket(*number).destination == destination;
            let (leave, stay): (Vec<_>, Vec<_>) = tickets.into_iter().partition(of);
            piece.tickets = stay;
            let mut part = piece.with(leave);
            part.failure.clone_from(&piece.failure);
            self.leave(at, part, Kind::Destination(destination), now);
        }
        !piece.tickets.is_empty()
    }

    /// Draws a witness for another destination, where a lane has taken nothing for long: that may be its
    /// own destination's fault, and nobody else sends.
    pub(super) fn look_elsewhere(&mut self, at: usize, now: Millis) {
        let line = &self.lines[at];
        let Some(piece) = line.pieces.front().filter(|piece| !piece.is_part) else { return };
        let long = piece.stuck.is_some_and(|(since, _)| now - since >= self.options.patience());
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
        for piece in failed_parts.iter_mut().chain(&mut pieces) {
            let tickets = std::mem::take(&mut piece.tickets);
            let of = |number: &Number| leaves(&self.ticket(*number));
            let (left, stay): (Vec<_>, Vec<_>) = tickets.into_iter().partition(of);
            if !left.is_empty() {
                self.keep_tally(&piece.with(left.clone()));
            }
            moved.extend(left);
            piece.tickets = stay;
        }
        failed_parts.retain(|piece| !piece.tickets.is_empty());
        pieces.retain(|piece| !piece.tickets.is_empty());
        self.lines[at].failed_parts = failed_parts;
        self.lines[at].pieces = pieces;
        let backlog = std::mem::take(&mut self.lines[at].backlog);
        let of = |number: &Number| leaves(&self.ticket(*number));
        let (left, stay): (Vec<_>, Vec<_>) = backlog.into_iter().partition(of);
        moved.extend(left);
        self.lines[at].backlog = stay.into();
        let to = &mut self.lines[line];
        if to.is_empty() && !to.sending {
            to.due = now;
            to.failed_before = failed;
            to.failed_at = piece.failed_at;
        }
        let mut keys = Vec::new();
        for number in moved {
            let ticket = self.ticket(number);
            if number >= FIRST_ERRAND {
                // No order holds for it.
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
