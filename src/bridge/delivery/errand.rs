//! Errands that failed: they wait apart from the lanes, so that no live record waits for them.

use super::{
    Delivery, FIRST_ERRAND,
    lane::Piece,
    ticket::{Millis, Number},
};

/// An errand whose key is under way is asked for again after that.
const BUSY: Millis = 50;

impl Delivery {
    /// Sends an errand no more. Where an attempt is under way, that may still give it a fate.
    pub(in crate::bridge) fn cancel_errand(&mut self, number: Number) {
        let remove = |piece: &mut Piece| {
            let at = piece.tickets.iter().position(|ticket| *ticket == number)?;
            Some(piece.tickets.remove(at))
        };
        if self.waiting.iter_mut().any(|(_, piece)| remove(piece).is_some()) {
            self.errands.close(number);
            self.waiting.retain(|(_, piece)| !piece.tickets.is_empty());
            return;
        }
        for lane in &mut self.lanes {
            let queued = lane.backlog.iter().position(|ticket| *ticket == number);
            let queued = queued.and_then(|at| lane.backlog.remove(at));
            let mut pieces = lane.pieces.iter_mut().skip(usize::from(lane.sending));
            if queued.is_some() || pieces.any(|piece| remove(piece).is_some()) {
                lane.pieces.retain(|piece| !piece.tickets.is_empty());
                self.keys.release(self.errands.close(number).key);
                return;
            }
        }
        self.cancelled.push(number);
    }

    /// Passes over errands that were cancelled before a lane had them.
    pub(super) fn skip_cancelled(&mut self) {
        while let Some(at) = self.cancelled.iter().position(|number| *number == self.fresh_errand) {
            self.cancelled.swap_remove(at);
            self.errands.close(self.fresh_errand);
            self.fresh_errand += 1;
        }
    }

    /// Takes out of a piece what is not sent again.
    pub(super) fn drop_cancelled(&mut self, piece: &mut Piece) {
        if self.cancelled.is_empty() {
            return;
        }
        let Self { cancelled, errands, keys, .. } = self;
        piece.tickets.retain(|number| {
            let Some(at) = cancelled.iter().position(|cancelled| cancelled == number) else {
                return true;
            };
            cancelled.swap_remove(at);
            keys.release(errands.close(*number).key);
            false
        });
    }

    /// Lets an errand that failed wait, and its lane go on.
    pub(super) fn wait_apart(&mut self, piece: Piece, due: Millis) {
        for number in &piece.tickets {
            self.keys.release(self.errands.get(*number).key);
        }
        self.waiting.push((due, piece));
    }

    /// Gives an idle lane an errand that has waited, if there is one whose keys are free.
    pub(super) fn fill_with_waiting(&mut self, at: usize, now: Millis) -> bool {
        let Self { waiting, errands, keys, .. } = self;
        let mut found = None;
        for (place, (due, piece)) in waiting.iter_mut().enumerate() {
            if *due > now {
                continue;
            }
            if piece.tickets.iter().all(|number| keys.is_free(errands.get(*number).key, at)) {
                found = Some(place);
                break;
            }
            *due = now + BUSY;
        }
        let Some(place) = found else { return false };
        let (_, piece) = waiting.remove(place);
        for number in &piece.tickets {
            debug_assert!(*number >= FIRST_ERRAND);
            keys.claim(errands.get(*number).key, at);
        }
        self.live_in_a_row = 0;
        self.lanes[at].pieces.push_back(piece);
        true
    }
}
