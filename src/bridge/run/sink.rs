//! The watcher of one sink: gathering, delivery, and what is sent beside the journal's order.

use std::sync::Arc;

use tidings_kube::{broadcaster::Broadcaster, correlator::Keys};
use tidings_log::LogHandle;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    bridge::{
        Sink, SinkOptions, SinkProgress, Sinks,
        control::ReplayDesk,
        correlation::Stage,
        delivery::DeliveryOptions,
        destinations::Bounded,
        feed::Feed,
        gather::Gather,
        objects::Enricher,
        own_writes::OwnWrites,
        published::Published,
        redelivery::{DeadLetters, Redelivery, Replays, Retries},
        restore::RestoredSink,
        sender::{Sender, SenderParts, Traffic, Transport},
        smaller::Smaller,
        stop::Stop,
        tasks::Tasks,
        watchdog::Pulse,
    },
    journal::DeadLettersReader,
};

/// Batches between gathering and delivery, which has the next ones in hand.
const BATCHES_AHEAD: usize = 1;
/// The same where a batch is one event.
const EVENTS_AHEAD: usize = 16;

/// What all runs of a sink have in common.
pub(super) struct SinkParts {
    pub(super) log: LogHandle,
    pub(super) broadcaster: Broadcaster<Published>,
    /// What ingest makes the keys of correlators with.
    pub(super) keys: Keys,
    /// Nothing where the sink is told of no objects.
    pub(super) enricher: Option<Enricher>,
    pub(super) letters: DeadLettersReader,
    /// Says that letters may be due.
    pub(super) letters_changed: watch::Receiver<Retries>,
    pub(super) replays: Arc<ReplayDesk>,
    pub(super) own_writes: Option<OwnWrites>,
    pub(super) progress: Arc<SinkProgress>,
    /// All of them.
    pub(super) sinks: Sinks,
    /// Of reading the log.
    pub(super) gathering: Pulse,
    /// Of an attempt.
    pub(super) delivery: Pulse,
    /// The bridge's.
    pub(super) stop: Stop,
}

/// A sink at work.
pub(super) struct Run {
    pub(super) tasks: Tasks,
    pub(super) stop: Stop,
    /// Gathering ends with the next batch.
    pub(super) handing_over: CancellationToken,
}

impl SinkParts {
    /// Tasks of their own, so that the next batch is made while one is on its way. None of them
    /// outlives delivery, but for what it knows by then and is still to be saved.
    pub(super) fn spawn(&self, sink: SinkOptions, from: RestoredSink) -> Run {
        let Self { log, broadcaster, progress, enricher, .. } = self;
        let RestoredSink { state, correlator, fits, had, has_past } = from;
        if correlator.is_some() {
            self.sinks.one_correlates();
        }
        let SinkOptions { name, batch, filter, .. } = sink;
        let mut tasks = Tasks::default();
        let (stop, handing_over) = (self.stop.part(), CancellationToken::new());

        let position = state.standing.position;
        let feed = Feed::new(log.clone(), broadcaster.clone(), position, self.gathering.clone());
        let stage = Stage::new(correlator, enricher.clone(), &self.keys, log.clone(), progress);
        let ahead = if batch.events == 1 { EVENTS_AHEAD } else { BATCHES_AHEAD };
        let (out, works) = mpsc::channel(ahead);
        let notes_inputs = stage.holds_back();
        let gather = Gather::new(batch, filter.clone(), stage, Arc::clone(progress), out)
            .delivered_before(had.earlier())
            .fits(fits)
            .handing_over(handing_over.clone());
        tasks.spawn(format!("gathering for sink {name}"), gather.run(feed));

        let most = sink.max_destinations;
        let bounded = Arc::new(Bounded { sink: sink.sink, most, progress: Arc::clone(progress) });
        let transport: Arc<dyn Sink> = match sink.max_event {
            Some(most) => Arc::new(Smaller { sink: bounded, most, progress: Arc::clone(progress) }),
            None => bounded,
        };
        transport.begin(has_past);
        let transport = Transport { sink: transport, timeout: sink.timeout };
        let (traffic, seen) = watch::channel(Traffic::default());
        let redelivery = Redelivery {
            sink: name.clone(),
            transport: transport.clone(),
            retry: sink.retry,
            progress: Arc::clone(progress),
            traffic: seen,
            stop: stop.clone(),
            next: Arc::default(),
        };
        let letters = DeadLetters {
            letters: self.letters.clone(),
            changed: self.letters_changed.clone(),
            redelivery: redelivery.clone(),
            batch,
        };
        tasks.spawn(format!("sending dead letters to sink {name}"), letters.run());
        let replays = Replays {
            orders: self.replays.open(),
            log: log.clone(),
            redelivery,
            batch,
            filter,
            enricher: enricher.clone(),
        };
        tasks.spawn(format!("replays to sink {name}"), replays.run());

        let task = format!("delivery to sink {name}");
        let options = DeliveryOptions {
            sink: name,
            forward: sink.forward_dead_letters,
            lanes: sink.concurrency,
            batch,
            retry: sink.retry,
        };
        let sender = Sender::new(SenderParts {
            transport,
            options,
            progress: Arc::clone(progress),
            had,
            letters: self.letters.clone(),
            notes_inputs,
            stop: stop.clone(),
            own_writes: self.own_writes.clone(),
            pulse: self.delivery.clone(),
            traffic,
        });
        tasks.spawn(task, sender.run(works));
        Run { tasks, stop, handing_over }
    }
}
