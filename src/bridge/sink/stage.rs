//! Correlation as a step of a watcher: records in, records to be sent out.

use std::{io, time::Duration};

use bytes::BytesMut;
use tokio::{task::spawn_blocking, time::sleep};

use crate::{
    bridge::{
        SinkProgress,
        correlation::{Correlator, Decision, Input, Messages, Names, Summary, read},
        objects::{Enricher, ObjectContext},
        tasks::answer_of,
    },
    correlate::Keys,
    event::{Correlation, EnvelopeParts, Record, SummarisedMessage},
    journal::{Holding, LogHandle, Position, SavedCorrelator},
};

/// The pause after the log could not be read.
const READ_RETRY: Duration = Duration::from_secs(1);

/// The outcome of a record, or of the time.
#[derive(Debug, Default)]
pub(crate) struct StageOutput {
    /// To be sent, before the record.
    pub(crate) summary: Option<Record>,
    /// To be sent; nothing if it is held.
    pub(crate) record: Option<Record>,
    /// The names that it was counted under, and its increments; nothing without a correlator.
    pub(crate) counted: Option<(Names, u64)>,
    /// Versions held before that have their fate with that.
    pub(crate) correlated_away: u64,
    /// A summary that cannot be sent, because the journal no longer has its record.
    pub(crate) gone: Option<Box<Summary>>,
}

/// The step of a watcher between frames and batches. See the [module](self).
pub(crate) struct CorrelateStage {
    correlator: Option<Correlator>,
    /// Nothing where the sink does not ask for what is known of objects.
    enricher: Option<Enricher>,
    /// Whether the keys that ingest makes are this correlator's: all sinks of a journal have the
    /// same, but one whose correlator is older than the state that the others began with.
    shares_keys: bool,
    log: LogHandle,
    sink: String,
    /// Where envelopes are written.
    space: BytesMut,
}

impl CorrelateStage {
    /// Without a correlator everything passes as it is.
    pub(crate) fn new(
        correlator: Option<Correlator>,
        enricher: Option<Enricher>,
        shared: &Keys,
        log: LogHandle,
        progress: &SinkProgress,
    ) -> Self {
        let shares_keys = correlator.as_ref().is_some_and(|own| own.has_keys(shared));
        let sink = progress.name();
        Self { correlator, enricher, shares_keys, log, sink, space: BytesMut::new() }
    }

    /// The source of what the sink is told of objects; nothing if it does not ask.
    pub(crate) fn enricher(&self) -> Option<&Enricher> {
        self.enricher.as_ref()
    }

    /// A record with what the sink is told of its object, and without a correlation.
    pub(crate) fn enriched(&mut self, record: &Record, told: &ObjectContext) -> Record {
        told.put_into(record, &mut self.space)
    }

    /// Passes a record that was journalled at `time_ms`, with what the sink is told of its
    /// object. What is [due](Self::due) by then has to be taken before. With the `names` that ingest
    /// made it is not decoded.
    pub(crate) async fn pass(
        &mut self,
        mut record: Record,
        told: Option<ObjectContext>,
        names: Option<&Names>,
        time_ms: u64,
    ) -> StageOutput {
        let mut passed = StageOutput::default();
        let Some(correlator) = &mut self.correlator else {
            passed.record = Some(match told {
                Some(told) => self.enriched(&record, &told),
                None => record,
            });
            return passed;
        };
        let known = match names {
            Some(names) if self.shares_keys => {
                EnvelopeParts::of(&record.envelope).map(|parts| (parts, *names))
            }
            _ => read(&record).map(|(parts, event)| {
                let names = correlator.names(&parts, &event);
                (parts, names)
            }),
        };
        passed.counted = known.as_ref().map(|(parts, names)| (*names, parts.delta));
        let decision = known.map(|(parts, names)| {
            (parts, correlator.decide(&names, record.seq, parts.delta, time_ms))
        });
        match decision {
            // Nothing that ingest wrote; it is sent as it is.
            None => passed.record = Some(record),
            Some((parts, Decision::Send { mut correlation, messages, delta, released })) => {
                passed.correlated_away += released;
                self.put_messages(&mut correlation, messages).await;
                let object = told.as_ref().map(|told| &*told.json);
                record.envelope = parts.with(delta, object, Some(&correlation), &mut self.space);
                passed.record = Some(record);
            }
            Some((_, Decision::Hold { evicted })) => {
                if let Some(evicted) = evicted {
                    self.announce(evicted, &mut passed).await;
                }
            }
        }
        passed
    }

    /// The next record, which the sink may want or not. What is [due](Self::due) has to be taken
    /// after it.
    pub(crate) fn read(&mut self, record: &Record) {
        if let Some(correlator) = &mut self.correlator {
            correlator.read(record.envelope.len());
        }
    }

    /// Comes to where it was when a record had been read that the log no longer has. What is
    /// [due](Self::due) has to be taken after it.
    pub(crate) fn read_to(&mut self, read_bytes: u64) {
        if let Some(correlator) = &mut self.correlator {
            correlator.read_to(read_bytes);
        }
    }

    /// The decision on a record that the log no longer has; nothing if it was not decided on.
    pub(crate) fn decide_again(&mut self, input: &Input) -> Option<Decision> {
        self.correlator.as_mut()?.decide_again(input)
    }

    /// Passes a summary that had to make room.
    pub(crate) async fn evicted(&mut self, summary: Summary) -> StageOutput {
        let mut passed = StageOutput::default();
        self.announce(summary, &mut passed).await;
        passed
    }

    /// Whether anything is due at `time_ms`.
    pub(crate) fn is_due(&self, time_ms: u64) -> bool {
        self.correlator.as_ref().is_some_and(|correlator| correlator.is_due(time_ms))
    }

    /// The next that is due at `time_ms`: thousands may be at once, and none of them is read
    /// before the one before it is on its way.
    pub(crate) async fn due(&mut self, time_ms: u64) -> Option<StageOutput> {
        let Some(summary) = self.correlator.as_mut()?.due(time_ms) else {
            self.correlator.take_if(|correlator| correlator.is_unwanted());
            return None;
        };
        Some(self.evicted(summary).await)
    }

    /// Reads from the log, again and again for as long as it cannot be read.
    async fn read_log<T: Send + 'static>(
        &self,
        read: impl Fn(&LogHandle) -> io::Result<T> + Clone + Send + 'static,
    ) -> T {
        loop {
            let (log, read) = (self.log.clone(), read.clone());
            match answer_of(spawn_blocking(move || read(&log))).await {
                Ok(read) => return read,
                Err(error) => {
                    tracing::error!(sink = self.sink, %error, "the journal cannot be read: trying again");
                }
            }
            sleep(READ_RETRY).await;
        }
    }

    /// Puts the different messages of what a delivery stands for into what is said of it: those that the
    /// log still has. Where there is but one, the Event says it.
    async fn put_messages(&self, correlation: &mut Correlation, messages: Messages) {
        if messages.distinct() < 2 {
            return;
        }
        correlation.distinct_messages = Some(messages.distinct());
        let sequences: Vec<_> = messages.sequences().collect();
        let read = move |log: &LogHandle| {
            let told = sequences
                .iter()
                .map(|seq| Ok(log.record(*seq)?.as_ref().and_then(SummarisedMessage::of)));
            told.filter_map(Result::transpose).collect()
        };
        correlation.messages = self.read_log(read).await;
    }

    async fn announce(&mut self, mut summary: Summary, passed: &mut StageOutput) {
        let seq = summary.seq;
        let record = self.read_log(move |log| log.record(seq)).await;
        self.put_messages(&mut summary.correlation, std::mem::take(&mut summary.messages)).await;
        // What it is told of was decided when the record was held.
        let told = match (&self.enricher, &record) {
            (Some(enricher), Some(record)) => Some(enricher.tell(record, 0).await),
            _ => None,
        };
        let summarised = record.as_ref().and_then(|record| {
            let parts = EnvelopeParts::of(&record.envelope)?;
            let object = told.as_ref().map(|told| &*told.json);
            let correlation = Some(&summary.correlation);
            let envelope = parts.with(summary.delta, object, correlation, &mut self.space);
            Some(Record { seq: summary.seq, envelope })
        });
        match summarised {
            Some(record) => {
                passed.summary = Some(record);
                passed.correlated_away += summary.pending.saturating_sub(1);
            }
            None => passed.gone = Some(Box::new(summary)),
        }
    }

    /// When the next summary is due if no record brings it about, in milliseconds since the epoch.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.correlator.as_ref()?.next_due_ms()
    }

    /// Counts of what is held.
    pub(crate) fn holding(&self) -> Holding {
        self.correlator.as_ref().map(Correlator::holding).unwrap_or_default()
    }

    /// See [`Correlator::lets_go`].
    pub(crate) fn lets_go(&self) -> bool {
        self.correlator.as_ref().is_some_and(Correlator::lets_go)
    }

    /// From now on what is held is to come out, here or after the next start.
    pub(crate) fn let_go(&mut self) {
        if let Some(correlator) = &mut self.correlator {
            correlator.let_go();
        }
    }

    /// How much was journalled of all that was read.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.correlator.as_ref().map_or(0, Correlator::read_bytes)
    }

    /// See [`Correlator::fit`].
    pub(crate) fn fit(&mut self, retention_size: u64) -> bool {
        self.correlator.as_mut().is_some_and(|correlator| correlator.fit(retention_size))
    }

    /// See [`Correlator::holds_back`].
    pub(crate) fn holds_back(&self) -> bool {
        self.correlator.as_ref().is_some_and(Correlator::holds_back)
    }

    /// The state that is to be kept at a position.
    pub(crate) fn save(&self, position: Position) -> SavedCorrelator {
        Correlator::save(self.correlator.as_ref(), position)
    }
}
