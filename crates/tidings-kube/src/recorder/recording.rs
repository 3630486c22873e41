//! From a sink's queue to the sink: correlate, write, try again. client-go's `recordToSink` and
//! `recordEvent`.

use std::{any::type_name, sync::Arc};

use k8s_openapi::api::core::v1::Event;

use super::{
    given_up,
    options::BroadcasterOptions,
    report::{Fate, Tally},
    sink::EventSink,
    sink_error::SinkError,
    stage::{CutShort, Stage},
};
use crate::{
    broadcaster::Watcher,
    correlator::{Correlated, EventCorrelator, Patch},
    foreign::caught_future,
};

/// The one who writes to a sink, one event after the other.
pub(super) struct Recording<S> {
    pub(super) sink: S,
    pub(super) correlator: EventCorrelator,
    pub(super) options: Arc<BroadcasterOptions>,
    pub(super) stage: Stage,
    pub(super) tally: Arc<Tally>,
}

impl<S: EventSink> Recording<S> {
    /// Writes until the queue ends, or the time of a shutdown is up; what is queued then is counted.
    pub(super) async fn run(mut self, mut events: Watcher<Arc<Event>>) {
        let mut stage = self.stage.clone();
        let tally = Arc::clone(&self.tally);
        loop {
            let event = tokio::select! {
                biased;
                () = stage.time_is_up() => break,
                event = events.next() => event,
            };
            tally.set_dropped(events.dropped());
            let Some(event) = event else { return };
            let fate = tokio::select! {
                biased;
                () = stage.time_is_up() => Fate::NotWritten,
                recorded = caught_future(self.record(&event)) => recorded.unwrap_or_else(|panic| {
                    let event = given_up::name_of(&event);
                    tracing::error!(
                        sink = type_name::<S>(), event, panic,
                        "A sink, or an option of its recording, panicked: this event is lost, the next one is written"
                    );
                    Fate::Panicked
                }),
            };
            tally.add(fate);
        }
        // Who sets a time closes the queue, so this ends.
        while events.next().await.is_some() {
            tally.add(Fate::NotWritten);
        }
        tally.set_dropped(events.dropped());
        let left = tally.counts().not_written;
        tracing::error!(
            left,
            hint = "give the shutdown more time, or see above why the API server did not take them",
            "Events were not written: the time of the shutdown is up"
        );
    }

    async fn record(&mut self, event: &Event) -> Fate {
        let now = (self.options.clock)();
        let correlated = self.correlator.correlate(event, now);
        if correlated.skip {
            return Fate::Skipped;
        }
        let update = correlated.is_update();
        let Correlated { mut event, patch, .. } = correlated;
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match write(&self.sink, &mut event, update, patch.as_ref()).await {
                Ok(stored) => {
                    self.correlator.update_state(&stored);
                    return Fate::Written;
                }
                Err(error) => error,
            };
            if !self.options.retry.is_worth_another_try(&error) {
                given_up::log_refused(&event, &error);
                // The name has the nanosecond in it, so what a later try finds is what an earlier
                // one has written, whose answer was lost.
                let ours = !update && tries > 1 && error.is_already_exists();
                return if ours { Fate::Written } else { Fate::GivenUp };
            }
            if tries >= self.options.max_tries {
                given_up::log_tried_too_often(&event, &error, tries);
                return Fate::GivenUp;
            }
            let wait = self.options.retry.wait(tries, &error, (self.options.random)());
            tracing::warn!(
                event = given_up::name_of(&event), %error, tries, ?wait,
                "Unable to write event, will try again"
            );
            if let Err(CutShort) = self.stage.pause(wait).await {
                given_up::log_shut_down(&event, &error);
                return Fate::NotWritten;
            }
            self.tally.add_retry();
        }
    }
}

/// One try: a patch if it was counted before, a create if it was not, or if the API server has
/// forgotten it meanwhile.
async fn write(
    sink: &impl EventSink,
    event: &mut Event,
    update: bool,
    patch: Option<&Patch>,
) -> Result<Event, SinkError> {
    if update {
        match sink.patch(event, patch).await {
            Err(error) if error.is_not_found() => {}
            other => return other,
        }
    }
    // A create must not name a version.
    event.metadata.resource_version = None;
    sink.create(event).await
}
