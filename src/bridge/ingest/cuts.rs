//! Events that are cut because the journal is not to hold them whole: how large is too large, and one
//! line of the log a second about them.

use std::time::{Duration, Instant};

use crate::event::Incoming;

/// A line is followed by another one after this time.
const EVERY: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Cuts {
    /// An envelope is no longer, in bytes.
    pub(super) most: usize,
    last_told: Option<Instant>,
    /// So many were cut since.
    left_out: u64,
}

impl Cuts {
    pub(super) fn new(most: usize) -> Self {
        Self { most, last_told: None, left_out: 0 }
    }

    /// One was cut. The first is told at once, and those of the next second with it or behind it.
    pub(super) fn tell(&mut self, source: &str, event: &Incoming<'_>) {
        if self.told_lately() {
            self.left_out += 1;
            return;
        }
        self.tell_left_out();
        self.last_told = Some(Instant::now());
        let (metadata, (before, after)) = (&event.fields.metadata, event.json());
        tracing::warn!(
            source,
            id = event.id(),
            object = %format!("{}/{}", &*metadata.namespace, &*metadata.name),
            bytes = before.len() + after.len(),
            most = self.most,
            "an Event is too large for the journal and was cut: `truncated` says by how much. What is \
             cut is not kept; journal.maxEvent bounds it"
        );
    }

    fn told_lately(&self) -> bool {
        self.last_told.is_some_and(|last| last.elapsed() < EVERY)
    }

    /// Tells how many were cut since the last line, if that is due.
    pub(super) fn tick(&mut self) {
        if !self.told_lately() {
            self.tell_left_out();
        }
    }

    fn tell_left_out(&mut self) {
        let events = std::mem::take(&mut self.left_out);
        if events > 0 {
            self.last_told = Some(Instant::now());
            tracing::warn!(events, "as many more in the last second: an Event was cut");
        }
    }
}

impl Drop for Cuts {
    fn drop(&mut self) {
        self.tell_left_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::heard::Levels;

    #[test]
    fn a_flood_of_large_events_is_told_in_a_line_a_second() {
        let json = br#"{"metadata":{"uid":"u","resourceVersion":"3"}}"#;
        let event = Incoming::decode(json).unwrap();
        let (levels, _guard) = Levels::heard();
        let mut cuts = Cuts::new(4096);
        for _ in 0..100 {
            cuts.tell("*", &event);
            cuts.tick();
        }
        assert_eq!((levels.take().len(), cuts.left_out), (1, 99));
        cuts.last_told = Instant::now().checked_sub(EVERY);
        cuts.tick();
        cuts.tick();
        assert_eq!((levels.take().len(), cuts.left_out), (1, 0));
        cuts.tell("*", &event);
        drop(cuts);
        assert_eq!(levels.take().len(), 1, "the last of them are told at the end");
    }
}
