//! How far a shutdown has come, as those see it who still work.

use std::{future::pending, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

/// What a shutdown asks of those who work. It can only become stricter.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// No wait between two tries any more.
    no_waits: bool,
    /// Nothing any more from then on.
    until: Option<Instant>,
}

/// Who shuts down.
#[derive(Debug)]
pub(super) struct Director(watch::Sender<Asked>);

impl Director {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(Asked::default()))
    }

    pub(super) fn stage(&self) -> Stage {
        Stage(self.0.subscribe())
    }

    /// From now on no wait between two tries.
    pub(super) fn end_waits(&self) {
        self.0.send_modify(|asked| asked.no_waits = true);
    }

    /// From `until` on no work at all. Of two such times the earlier counts.
    pub(super) fn end_work(&self, until: Instant) {
        self.0.send_modify(|asked| {
            asked.until = Some(asked.until.map_or(until, |earlier| earlier.min(until)));
        });
    }
}

/// A wait was ended by shutdown.
#[derive(Debug)]
pub(super) struct CutShort;

/// Who works.
#[derive(Clone, Debug)]
pub(super) struct Stage(watch::Receiver<Asked>);

impl Stage {
    /// Ends when there is no time left to work; never, if no shutdown sets a time.
    pub(super) async fn time_is_up(&mut self) {
        let mut until = self.0.borrow_and_update().until;
        // An earlier time may be set meanwhile, unless the director is gone.
        while self.0.has_changed().is_ok() {
            tokio::select! {
                biased;
                _ = self.0.changed() => until = self.0.borrow_and_update().until,
                () = at(until) => return,
            }
        }
        at(until).await;
    }

    /// Waits between two tries.
    pub(super) async fn pause(&mut self, wait: Duration) -> Result<(), CutShort> {
        tokio::select! {
            biased;
            Ok(_) = self.0.wait_for(|asked| asked.no_waits) => Err(CutShort),
            () = sleep(wait) => Ok(()),
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
