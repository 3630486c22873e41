//! What is held up, and how it is given up: by hand, or where there is no room for it.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::{
    super::{Failure, HeldBy, Secrets},
    Delivery, FIRST_ERRAND, Fate, Kind, Letter, LetterClass, Line, Millis, Number, Piece, Tally,
};

/// Records that wait for one that fails.
#[derive(Clone, Debug)]
pub(in crate::bridge) struct Held<'a> {
    pub(in crate::bridge) by: HeldBy,
    /// The first of them: its record tells whose they are.
    pub(in crate::bridge) head: Number,
    pub(in crate::bridge) records: usize,
    /// Why they wait, if any of them was tried.
    pub(in crate::bridge) failure: Option<&'a Failure>,
}

impl Delivery {
    /// What is held up, for the log, the status and the metrics: by a lane, if its batch has failed for as long
    /// as the patience lasts.
    pub(in crate::bridge) fn held(&self, now: Millis) -> impl Iterator<Item = Held<'_>> {
        let since = now.saturating_sub(self.options.patience());
        let watched = if self.watching { &self.lines[..] } else { &[] };
        watched.iter().filter_map(move |line| {
            let by = match line.kind {
                Kind::Lane if line.has_failed_since(since) => HeldBy::Lane,
                Kind::Queue(_) => HeldBy::Queue,
                Kind::Destination(_) => HeldBy::Destination,
                Kind::Shelf(..) => HeldBy::SetAside,
                Kind::Lane | Kind::Errands | Kind::Closed => return None,
            };
            let head = held_by(line).filter(|number| *number < FIRST_ERRAND).min()?;
            Some(Held { by, head, records: held_by(line).count(), failure: failure_of(line) })
        })
    }

    /// The record that is put away by hand: the first one that the position waits at, or else the first that
    /// is set aside.
    pub(in crate::bridge) fn head(&self, now: Millis) -> Option<Held<'_>> {
        self.held(now).min_by_key(|held| (self.live.is_copied(held.head), held.head))
    }

    /// Makes room in the log: of the records that are held by reference and have failed by themselves, the
    /// oldest of the namespace that holds most is given up. Answers whether there was one. To be called while
    /// retention would take what is held, or intake would stop for it.
    pub(in crate::bridge) fn relieve(&mut self, now: Millis) -> bool {
        // Where a lane is before all of them, that frees nothing.
        let first_open = self.settled();
        let mut is_held = false;
        let mut held: HashMap<u64, (u64, Option<Number>), FxBuildHasher> = HashMap::default();
        for (at, line) in self.lines.iter().enumerate().skip(self.options.lanes) {
            let (Kind::Queue(_) | Kind::Shelf(..)) = &line.kind else { continue };
            let under_way = if line.sending { self.tickets(at) } else { &[] };
            for number in held_by(line).filter(|number| *number < FIRST_ERRAND) {
                if self.live.is_copied(number) || under_way.contains(&number) {
                    continue;
                }
                is_held |= number == first_open;
                let ticket = self.live.get(number);
                let (bytes, first) = held.entry(ticket.namespace).or_default();
                *bytes += u64::from(ticket.bytes);
                if has_failed(line, number, ticket.key) {
                    *first = Some(first.map_or(number, |first| number.min(first)));
                }
            }
        }
        let failed = held.into_values().filter_map(|(bytes, first)| Some((bytes, first?)));
        let oldest = failed.max().filter(|_| is_held);
        oldest.is_some_and(|(_, number)| self.put_away(number, now))
    }

    /// Gives up a record by hand, or because there is no room for it. Answers whether it could be: not
    /// while it is under way.
    pub(in crate::bridge) fn put_away(&mut self, number: Number, now: Millis) -> bool {
        let has = |line: &Line| held_by(line).any(|held| held == number);
        let Some(at) = self.lines.iter().position(has) else { return false };
        if self.lines[at].sending && self.tickets(at).contains(&number) {
            return false;
        }
        let key = self.ticket(number).key;
        let reason = failure_of(&self.lines[at]).map_or_else(
            || Secrets::none().reason("put away before it failed"),
            |failure| failure.reason.clone(),
        );
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
        if let Some(place) = line.backlog.iter().position(|other| *other == number) {
            line.backlog.remove(place);
            line.failed_before -= usize::from(place < line.failed_before);
        }
        line.due = now;
        let piece = tally.unwrap_or_else(|| Piece::new(Vec::new()));
        let Tally { attempts, first, .. } = self.tally(number, &piece);
        let letter = Letter { class: LetterClass::Blocked, reason, attempts, first };
        self.finish(number, Fate::DeadLetter(letter));
        self.drop_from_shelf(at, key, number);
        match self.lines[at].kind {
            Kind::Lane | Kind::Destination(_) => self.end_round_if_over(at, now),
            _ => self.close_if_done(at, now),
        }
        true
    }
}

/// Whether a record has failed by itself.
fn has_failed(line: &Line, number: Number, key: u64) -> bool {
    match &line.kind {
        Kind::Shelf(_, shelf) => shelf.is_first(key, number) && shelf.has_failed(key),
        _ => line
            .pieces
            .iter()
            .any(|piece| piece.tickets == [number] && piece.trial.failure.is_some()),
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

/// What a line beside the lanes holds.
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
