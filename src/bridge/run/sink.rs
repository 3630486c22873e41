//! The tasks of one sink.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::bridge::{
    Sink, SinkOptions, SinkProgress, Watchdog,
    correlation::Stage,
    deliver::Deliver,
    errands::{Errand, LetterRound, Replays},
    feed::Feed,
    gather::Gather,
    own_writes::OwnWrites,
    smaller::Smaller,
    step::Refusals,
    stop::Stop,
    tasks::Tasks,
};
use crate::journal::Delivered;

/// Batches between gathering and delivery: the next one is ready when one has arrived.
const BATCHES_AHEAD: usize = 2;
/// The same where a batch is one event.
const EVENTS_AHEAD: usize = 16;

/// What a sink is sent beside the journal's order.
pub(super) struct Errands {
    pub(super) letters: LetterRound,
    pub(super) replays: Replays,
    /// Where delivery has them from.
    pub(super) to_deliver: mpsc::Receiver<Errand>,
}

/// What a sink's watcher is made of beside its options.
pub(super) struct SinkParts<'a> {
    pub(super) feed: Feed,
    pub(super) stage: Stage,
    pub(super) progress: Arc<SinkProgress>,
    pub(super) had: Delivered,
    pub(super) errands: Errands,
    pub(super) own_writes: Option<OwnWrites>,
    pub(super) stop: Stop,
    pub(super) watchdog: &'a Watchdog,
}

impl SinkParts<'_> {
    /// Tasks of their own, so that the next batch is made while one is on its way. None of them
    /// outlives delivery, but for what it knows by then and is still to be saved.
    pub(super) fn spawn(self, sink: SinkOptions, sinks: &mut Tasks) {
        let Self { feed, stage, progress, had, errands, own_writes, stop, watchdog } = self;
        let Errands { letters, replays, to_deliver } = errands;
        let ahead = if sink.batch.events == 1 { EVENTS_AHEAD } else { BATCHES_AHEAD };
        let (out, works) = mpsc::channel(ahead);
        let notes_inputs = stage.holds_back();
        let gather = Gather::new(sink.batch, sink.filter, stage, Arc::clone(&progress), out)
            .delivered_before(had.earlier());
        sinks.spawn(format!("gathering for sink {}", sink.name), gather.run(feed));
        sinks.spawn(format!("sending dead letters to sink {}", sink.name), letters.run());
        sinks.spawn(format!("replays to sink {}", sink.name), replays.run());
        let name = format!("delivery to sink {}", sink.name);
        let transport: Arc<dyn Sink> = match sink.max_event {
            Some(most) => {
                let progress = Arc::clone(&progress);
                Arc::new(Smaller { sink: sink.sink, most, progress })
            }
            None => sink.sink,
        };
        let deliver = Deliver {
            name: sink.name,
            sink: transport,
            retry: sink.retry,
            timeout: sink.timeout,
            progress,
            had,
            notes_inputs,
            stop,
            errands: to_deliver,
            live_in_a_row: 0,
            forward: sink.forward_dead_letters,
            refusals: Refusals::bounded(),
            own_writes,
            pulse: watchdog.pulse(&*name),
        };
        sinks.spawn(name, deliver.run(works));
    }
}
