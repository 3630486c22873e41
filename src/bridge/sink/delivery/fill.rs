//! The next batch of a line.

use super::{
    Delivery, DeliveryOptions, FIRST_RESEND, Kind, LIVE_FIRST, Line, Millis, Notice, Number, Piece,
    Ticket, Unit, Window, returned::RETURNED, ticket_of,
};

/// Of so many batches, records that came back go first in one.
const RETURNED_EACH: u32 = 4;

impl Delivery {
    /// Whether a line has something to send now, which is its witness or its first piece then.
    pub(super) fn is_ready(&mut self, at: usize, now: Millis) -> bool {
        let lane = at < self.options.lanes;
        let Some(line) = self.lines.get(at) else { return false };
        if line.due > now || !self.may_start(at) {
            return false;
        }
        if line.witness.is_some() {
            return true;
        }
        if !line.pieces.is_empty() {
            return lane || self.is_witnessed(at);
        }
        match &self.lines[at].kind {
            Kind::Lane => self.fill_lane(at),
            Kind::Shelf(_, shelf) => {
                let most = line.size;
                let mut batch = Filling::new(Vec::new(), most, self.options.batch_bytes);
                for number in shelf.next(most, self.backoff.until()) {
                    let ticket = self.live.get(number);
                    if !batch.has_room_for(&ticket) {
                        break;
                    }
                    batch.add(number, &ticket);
                }
                self.lines[at].pieces.push_back(Piece::new(batch.tickets));
                self.is_witnessed(at)
            }
            Kind::Resends(_) => self.fill_resends(at, now),
            Kind::Destination(_) | Kind::Queue(_) => {
                if !self.fill_from_backlog(at) {
                    self.close_if_done(at, now);
                    return false;
                }
                self.is_witnessed(at)
            }
            Kind::Closed => false,
        }
    }

    /// Makes the next batch of an idle lane: what queues up there goes first.
    fn fill_lane(&mut self, at: usize) -> bool {
        if self.lines[at].backlog.is_empty() && !self.has_fresh() {
            return false;
        }
        let DeliveryOptions { batch_events, batch_bytes, .. } = self.options;
        let resends = match self.lines[at].backlog.front() {
            Some(first) => *first >= FIRST_RESEND,
            None if self.fresh >= self.live.next() && self.returned.next().is_none() => true,
            None => self.fresh_resend < self.resends.next() && self.live_in_a_row >= LIVE_FIRST,
        };
        let mut batch =
            Filling::new(self.spare.pop().unwrap_or_default(), batch_events, batch_bytes);
        let window = if resends { &self.resends } else { &self.live };
        batch.fill(&mut self.lines[at], window, resends);
        // Behind what queues up there may be more of the same keys.
        while self.lines[at].backlog.is_empty() {
            let more = match (resends, self.returned.turn == 0) {
                (true, _) => self.take_resend(at, &mut batch),
                (_, true) => self.take_returned(&mut batch) || self.take_fresh(at, &mut batch),
                _ => self.take_fresh(at, &mut batch) || self.take_returned(&mut batch),
            };
            if !more {
                break;
            }
        }
        self.returned.turn = (self.returned.turn + 1) % RETURNED_EACH;
        let tickets = batch.tickets;
        if tickets.is_empty() {
            self.spare.push(tickets);
            // All of them keep to other lines. A resend may not.
            return self.lines[at].backlog.is_empty() && self.has_fresh() && self.fill_lane(at);
        }
        self.live_in_a_row = if resends { 0 } else { self.live_in_a_row.saturating_add(1) };
        self.lines[at].pieces.push_back(Piece::new(tickets));
        true
    }

    /// Takes the next record into a lane's batch, or to where its key is. Answers whether there was one
    /// that fits.
    fn take_fresh(&mut self, at: usize, batch: &mut Filling) -> bool {
        let Some((number, ticket)) = self.live.waiting(self.fresh).next() else {
            self.fresh = self.live.next();
            return false;
        };
        let ticket = *ticket;
        if !batch.has_room_for(&ticket) {
            self.fresh = number;
            return false;
        }
        self.fresh = number + 1;
        let offered = self.route(&ticket).unwrap_or(at);
        match self.keys.claim(&ticket, offered) {
            line if line == at => batch.add(number, &ticket),
            RETURNED => {
                self.move_away(number);
                self.returned.push(ticket.key, number);
            }
            line => self.queue_up(line, number, &ticket),
        }
        true
    }

    /// Takes all records of the next key that came back.
    fn take_returned(&mut self, batch: &mut Filling) -> bool {
        let Some((key, first)) = self.returned.next() else { return false };
        let ticket = self.live.get(first);
        if !batch.has_room_for(&ticket) {
            return false;
        }
        if let Some(line) = self.route(&ticket) {
            self.keys.move_to(key, line);
            for number in self.returned.take(key) {
                self.queue_up(line, number, &ticket);
            }
            return true;
        }
        while let Some(number) = self.returned.next_of(key) {
            let ticket = self.live.get(number);
            if !batch.has_room_for(&ticket) {
                break;
            }
            self.returned.take_next(key);
            batch.add(number, &ticket);
        }
        true
    }

    fn take_resend(&mut self, at: usize, batch: &mut Filling) -> bool {
        self.skip_cancelled();
        let number = self.fresh_resend;
        if number >= self.resends.next() {
            return false;
        }
        let ticket = self.resends.get(number);
        if !batch.has_room_for(&ticket) {
            return false;
        }
        self.fresh_resend += 1;
        let beside = self.keys.line(ticket.key).is_some_and(|line| line >= self.options.lanes);
        if beside || self.has_waiting(ticket.key) {
            self.postpone(number);
            return true;
        }
        match self.keys.claim(&ticket, at) {
            line if line == at => batch.add(number, &ticket),
            line => self.queue_up(line, number, &ticket),
        }
        true
    }

    /// Makes the next batch of a queue.
    fn fill_from_backlog(&mut self, at: usize) -> bool {
        let most = self.lines[at].size;
        let tickets = self.spare.pop().unwrap_or_default();
        let mut batch = Filling::new(tickets, most, self.options.batch_bytes);
        batch.fill(&mut self.lines[at], &self.live, false);
        if batch.tickets.is_empty() {
            self.spare.push(batch.tickets);
            return false;
        }
        let line = &mut self.lines[at];
        let mut piece = Piece::new(batch.tickets);
        piece.failed_before = line.failed_before > 0;
        line.failed_before = line.failed_before.saturating_sub(piece.tickets.len());
        line.pieces.push_back(piece);
        true
    }

    /// The line beside the lanes that records like this one go to.
    pub(super) fn route(&self, ticket: &Ticket) -> Option<usize> {
        if self.queues.is_empty() && self.destinations.is_empty() {
            return None;
        }
        let queue = self.queue_of(ticket).map(|unit| &self.queues[&unit]);
        queue.or_else(|| self.destinations.get(&ticket.destination)).copied()
    }

    /// The namespace, or object, of a record, if that has a queue.
    pub(super) fn queue_of(&self, ticket: &Ticket) -> Option<Unit> {
        Unit::both(ticket).into_iter().find(|unit| self.queues.contains_key(unit))
    }

    /// Puts a record behind those of a line.
    pub(super) fn queue_up(&mut self, at: usize, number: Number, ticket: &Ticket) {
        if at >= self.options.lanes && number < FIRST_RESEND {
            self.move_away(number);
            if let Kind::Shelf(_, shelf) = &mut self.lines[at].kind {
                let before = shelf.last(ticket.key);
                shelf.push(ticket.key, number);
                return self.keep_aside(number, before);
            }
        }
        let line = &mut self.lines[at];
        if line.is_empty() && !line.sending {
            line.due = 0;
        }
        line.backlog.push_back(number);
    }

    /// Lets go of a record, which is not sent soon.
    fn move_away(&mut self, number: Number) {
        if self.live.move_away(number) {
            self.notices.push(Notice::Queued(number));
        }
    }

    /// Opens a line beside the lanes.
    pub(super) fn open_line(&mut self, kind: Kind) -> usize {
        self.watch();
        let line = Line::new(kind, self.options.batch_events);
        let lanes = self.options.lanes;
        let closed = self.lines[lanes..].iter().position(|line| matches!(line.kind, Kind::Closed));
        match closed {
            Some(at) => {
                self.lines[lanes + at] = line;
                lanes + at
            }
            None => {
                self.lines.push(line);
                self.lines.len() - 1
            }
        }
    }

    /// Closes a line that is empty.
    pub(super) fn close_line(&mut self, at: usize) {
        match &self.lines[at].kind {
            Kind::Queue(unit) if self.queues.get(unit) == Some(&at) => _ = self.queues.remove(unit),
            Kind::Shelf(unit, _) => _ = self.shelves.remove(unit),
            Kind::Destination(to) if self.destinations.get(to) == Some(&at) => {
                self.destinations.remove(to);
            }
            Kind::Queue(_) | Kind::Destination(_) => {}
            Kind::Resends(_) => self.resend_line = None,
            Kind::Lane | Kind::Closed => return,
        }
        self.lines[at].kind = Kind::Closed;
        let lanes = self.options.lanes;
        while self.lines.len() > lanes
            && self.lines.last().is_some_and(|line| matches!(line.kind, Kind::Closed))
        {
            self.lines.pop();
        }
    }

    /// Keeps keys from now on, where one lane had no need of them.
    pub(super) fn keep_keys(&mut self) {
        if self.keys.are_kept() {
            return;
        }
        self.keys.keep();
        let line = &self.lines[0];
        let pieces = line.pieces.iter().chain(&line.failed_parts);
        let numbers = pieces.flat_map(|piece| &piece.tickets).chain(&line.backlog);
        for number in numbers {
            self.keys.claim(&ticket_of(&self.live, &self.resends, *number), 0);
        }
    }
}

/// A batch that is made.
pub(super) struct Filling {
    pub(super) tickets: Vec<Number>,
    bytes: u64,
    most: usize,
    most_bytes: u64,
}

impl Filling {
    pub(super) fn new(tickets: Vec<Number>, most: usize, most_bytes: u64) -> Self {
        Self { tickets, bytes: 0, most, most_bytes }
    }

    pub(super) fn has_room_for(&self, ticket: &Ticket) -> bool {
        self.tickets.is_empty()
            || (self.tickets.len() < self.most
                && self.bytes + u64::from(ticket.bytes) <= self.most_bytes)
    }

    pub(super) fn add(&mut self, number: Number, ticket: &Ticket) {
        self.bytes += u64::from(ticket.bytes);
        self.tickets.push(number);
    }

    /// Takes what queues up in a line, live records or resends.
    fn fill(&mut self, line: &mut Line, window: &Window, resends: bool) {
        while let Some(next) = line.backlog.front().copied() {
            if (next >= FIRST_RESEND) != resends {
                break;
            }
            let ticket = window.get(next);
            if !self.has_room_for(&ticket) {
                break;
            }
            line.backlog.pop_front();
            self.add(next, &ticket);
        }
    }
}
