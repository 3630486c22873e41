//! Records that are put away by hand.

use super::{Dispatcher, PutAway};

/// Requests that are not answered: what they mean is under way.
pub(super) type PutAways = Vec<PutAway>;

impl Dispatcher {
    /// Puts away what holds others up, for each that asks for it, unless that is under way.
    pub(super) fn put_away(&mut self) {
        let now = self.now();
        for asks in std::mem::take(&mut self.put_aways) {
            if asks.is_closed() {
                continue;
            }
            let Some(held) = self.delivery.head(now) else {
                // Who waits no longer does not hear it.
                let _ = asks.send(None);
                continue;
            };
            let (number, named) = (held.head, self.name(&held));
            let Some(named) = named else {
                self.read_head(number);
                self.put_aways.push(asks);
                continue;
            };
            if self.delivery.put_away(number, now) {
                self.take_fates(&[], &[]);
                self.settle(false);
                let _ = asks.send(Some(named));
            } else {
                self.put_aways.push(asks);
            }
        }
    }
}
