//! The watcher of one sink: gathering, delivery, and what is sent beside the journal's order.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    bridge::{
        SinkOptions, SinkProgress, Watchdog,
        control::SinkRequests,
        objects::Enricher,
        own_writes::OwnWrites,
        published::Published,
        sink::{
            batcher::Batcher,
            dispatcher::{Dispatcher, DispatcherParts, Source},
            feed::{Feed, LIVE},
            resends::{DeadLetterRetrier, Replays, ResendHandle},
            smaller::Smaller,
            stage::CorrelateStage,
        },
        state::restore::{Restored, RestoredSink},
        stop::Stop,
        tasks::Tasks,
        watchdog::Pulse,
    },
    correlate::Keys,
    journal::{DeadLettersReader, LogHandle, SetAsideReader},
    watch::Broadcaster,
};

/// Batches between gathering and delivery, which has the next ones in hand.
const BATCHES_AHEAD: usize = 1;
/// The same where a batch is one event.
const EVENTS_AHEAD: usize = 16;

/// Frames between ingest and the broadcaster's loop.
const BROADCAST_QUEUE: usize = 8;

/// The parts that the tasks of a bridge share.
pub(super) struct Shared {
    pub(super) watchdog: Watchdog,
    pub(super) broadcaster: Broadcaster<Published>,
    pub(super) stop: Stop,
    /// Nothing where the bridge writes no Events.
    pub(super) own_writes: Option<OwnWrites>,
    /// Says that dead letters may be due.
    pub(super) letters_changed: watch::Sender<()>,
}

impl Shared {
    /// Starts what goes on by itself.
    pub(super) fn new(own_writes: Option<OwnWrites>, stop: Stop, aside: &mut Tasks) -> Self {
        let watchdog = Watchdog::default();
        let (broadcaster, handing_out) = Broadcaster::with_loop(BROADCAST_QUEUE, LIVE);
        aside.spawn("the broadcaster", handing_out);
        aside.spawn("the watchdog", watchdog.clone().run());
        Self { watchdog, broadcaster, stop, own_writes, letters_changed: watch::channel(()).0 }
    }
}

/// The parts that all runs of a sink have in common.
pub(super) struct SinkParts {
    pub(super) log: LogHandle,
    pub(super) set_aside: SetAsideReader,
    pub(super) broadcaster: Broadcaster<Published>,
    /// The maker of the keys of correlators.
    pub(super) keys: Keys,
    /// Nothing where the sink is told of no objects.
    pub(super) enricher: Option<Enricher>,
    pub(super) letters: DeadLettersReader,
    pub(super) letters_changed: watch::Receiver<()>,
    pub(super) asked: Arc<SinkRequests>,
    pub(super) own_writes: Option<OwnWrites>,
    pub(super) progress: Arc<SinkProgress>,
    /// Of reading the log.
    pub(super) gathering: Pulse,
    /// Of an attempt.
    pub(super) delivery: Pulse,
    /// The bridge's.
    pub(super) stop: Stop,
}

pub(super) struct Run {
    pub(super) tasks: Tasks,
    pub(super) stop: Stop,
    /// Gathering ends with the next batch.
    pub(super) handing_over: CancellationToken,
}

impl SinkParts {
    pub(super) fn new(
        progress: Arc<SinkProgress>,
        sink: &SinkOptions,
        enricher: Option<Enricher>,
        restored: &Restored,
        shared: &Shared,
    ) -> Self {
        let (name, watchdog) = (&sink.name, &shared.watchdog);
        Self {
            log: restored.log.handle(),
            set_aside: restored.state.set_aside(),
            broadcaster: shared.broadcaster.clone(),
            keys: restored.sinks.keys.clone(),
            enricher,
            letters: restored.state.dead_letters(),
            letters_changed: shared.letters_changed.subscribe(),
            asked: Arc::new(SinkRequests::new(sink.enrich.is_some())),
            own_writes: shared.own_writes.clone(),
            progress,
            gathering: watchdog.pulse(format!("gathering for sink {name}")),
            delivery: watchdog.pulse(format!("delivery to sink {name}")),
            stop: shared.stop.clone(),
        }
    }

    /// Tasks of their own, so that the next batch is made while one is on its way. None of them
    /// outlives delivery, but for what it knows by then and is still to be saved.
    pub(super) fn spawn(&self, mut sink: SinkOptions, from: RestoredSink) -> Run {
        let Self { log, broadcaster, progress, enricher, .. } = self;
        let RestoredSink { state, correlator, fits, had, has_past } = from;
        let (name, batch, filter) = (sink.name.clone(), sink.send.batch, sink.filter.clone());
        let mut tasks = Tasks::default();
        let (stop, handing_over) = (self.stop.part(), CancellationToken::new());

        let position = state.standing.position;
        let feed = Feed::new(log.clone(), broadcaster.clone(), position, self.gathering.clone());
        let stage =
            CorrelateStage::new(correlator, enricher.clone(), &self.keys, log.clone(), progress);
        let ahead = if batch.events == 1 { EVENTS_AHEAD } else { BATCHES_AHEAD };
        let (out, works) = mpsc::channel(ahead);
        let notes_inputs = stage.holds_back();
        let batcher = Batcher::new(batch, filter.clone(), stage, Arc::clone(progress), out)
            .delivered_before(had.earlier())
            .passed(state.passed.clone())
            .fits(fits)
            .handing_over(handing_over.clone());
        tasks.spawn(format!("gathering for sink {name}"), batcher.run(feed));

        let (resends, to_resend) = ResendHandle::new();
        let letters = DeadLetterRetrier {
            sink: name.clone(),
            letters: self.letters.clone(),
            changed: self.letters_changed.clone(),
            progress: Arc::clone(progress),
            resends: resends.clone(),
        };
        tasks.spawn(format!("sending dead letters to sink {name}"), letters.run());
        let (orders, put_aways) = self.asked.open();
        let replays = Replays {
            sink: name.clone(),
            orders,
            log: log.clone(),
            progress: Arc::clone(progress),
            resends,
            batch,
            filter,
            enricher: enricher.clone(),
        };
        tasks.spawn(format!("replays to sink {name}"), replays.run());

        let task = format!("delivery to sink {name}");
        if let Some(most) = sink.max_event {
            let progress = Arc::clone(progress);
            sink.sink = Arc::new(Smaller { sink: sink.sink, most, progress });
        }
        sink.sink.begin(has_past);
        let parts = DispatcherParts {
            options: sink,
            progress: Arc::clone(progress),
            had,
            notes_inputs,
            stop: stop.clone(),
            own_writes: self.own_writes.clone(),
            pulse: self.delivery.clone(),
        };
        let source = Source { sink: name, log: log.clone(), set_aside: self.set_aside.clone() };
        let dispatcher = Dispatcher::new(parts, source);
        tasks.spawn(task, dispatcher.run(works, to_resend, put_aways));
        Run { tasks, stop, handing_over }
    }
}
