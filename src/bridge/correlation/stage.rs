//! Correlation as a step of a watcher: records in, records to be sent out.

use std::{io, time::Duration};

use bytes::BytesMut;
use tidings_kube::correlator::Keys;
use tidings_log::{LogHandle, Position};
use tokio::{task::spawn_blocking, time::sleep};

use super::{Correlator, Decision, Input, Messages, Names, Summary, read};
use crate::{
    bridge::{
        SinkProgress,
        objects::{Enricher, Told},
        tasks::answer_of,
    },
    event::{Correlation, EnvelopeParts, Record, SummarisedMessage},
    journal::{Holding, SavedCorrelator},
};

/// The pause after the log could not be read.
const READ_RETRY: Duration = Duration::from_secs(1);

/// What comes of a record, or of the time.
#[derive(Debug, Default)]
pub(in crate::bridge) struct Passed {
    /// To be sent, before the record.
    pub(in crate::bridge) summary: Option<Record>,
    /// To be sent; nothing if it is held.
    pub(in crate::bridge) record: Option<Record>,
    /// What it was counted under, and its increments; nothing without a correlator.
    pub(in crate::bridge) counted: Option<(Names, u64)>,
    /// Versions held before that have their fate with that.
    pub(in crate::bridge) correlated_away: u64,
    /// A summary that cannot be sent, because the journal no longer has its record.
    pub(in crate::bridge) gone: Option<Box<Summary>>,
}

/// See the [module](self).
pub(in crate::bridge) struct Stage {
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

impl Stage {
    /// Without a correlator everything passes as it is.
    pub(in crate::bridge) fn new(
        correlator: Option<Correlator>,
        enricher: Option<Enricher>,
        shared: &Keys,
        log: LogHandle,
        progress: &SinkProgress,
    ) -> Self {
        let shares_keys = correlator.as_ref().is_some_and(|own| own.keys == *shared);
        let sink = progress.name();
        Self { correlator, enricher, shares_keys, log, sink, space: BytesMut::new() }
    }

    /// What the sink is told of objects by; nothing if it does not ask.
    pub(in crate::bridge) fn enricher(&self) -> Option<&Enricher> {
        self.enricher.as_ref()
    }

    /// A record with what the sink is told of its object, and without a correlation.
    pub(in crate::bridge) fn enriched(&mut self, record: &Record, told: &Told) -> Record {
        told.put_into(record, &mut self.space)
    }

    /// What comes of a record that was journalled at `time_ms`, with what the sink is told of its
    /// object. What is [due](Self::due) by then has to be taken before. With the `names` that ingest
    /// made it is not decoded.
    pub(in crate::bridge) async fn pass(
        &mut self,
        mut record: Record,
        told: Option<Told>,
        names: Option<&Names>,
        time_ms: u64,
    ) -> Passed {
        let mut passed = Passed::default();
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
    pub(in crate::bridge) fn read(&mut self, record: &Record) {
        if let Some(correlator) = &mut self.correlator {
            correlator.read(record.envelope.len());
        }
    }

    /// Comes to where it was when a record had been read that the log no longer has. What is
    /// [due](Self::due) has to be taken after it.
    pub(in crate::bridge) fn read_to(&mut self, read_bytes: u64) {
        if let Some(correlator) = &mut self.correlator {
            correlator.read_to(read_bytes);
        }
    }

    /// What came of a record that the log no longer has; nothing if it was not decided on.
    pub(in crate::bridge) fn decide_again(&mut self, input: &Input) -> Option<Decision> {
        self.correlator.as_mut()?.decide_again(input)
    }

    /// What comes of a summary that had to make room.
    pub(in crate::bridge) async fn evicted(&mut self, summary: Summary) -> Passed {
        let mut passed = Passed::default();
        self.announce(summary, &mut passed).await;
        passed
    }

    /// Whether anything is due at `time_ms`.
    pub(in crate::bridge) fn is_due(&self, time_ms: u64) -> bool {
        self.correlator.as_ref().is_some_and(|correlator| correlator.is_due(time_ms))
    }

    /// What is due at `time_ms`, one at a time: thousands may be at once, and none of them is read
    /// before the one before it is on its way.
    pub(in crate::bridge) async fn due(&mut self, time_ms: u64) -> Option<Passed> {
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
            let told = sequences.iter().map(|seq| {
                let envelope = log.record(*seq)?;
                Ok(envelope
                    .and_then(|envelope| SummarisedMessage::of(&Record { seq: *seq, envelope })))
            });
            told.filter_map(Result::transpose).collect()
        };
        correlation.messages = self.read_log(read).await;
    }

    async fn announce(&mut self, mut summary: Summary, passed: &mut Passed) {
        let seq = summary.seq;
        let record = self
            .read_log(move |log| Ok(log.record(seq)?.map(|envelope| Record { seq, envelope })))
            .await;
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
    pub(in crate::bridge) fn next_due_ms(&self) -> Option<u64> {
        self.correlator.as_ref()?.next_due_ms()
    }

    /// What is held.
    pub(in crate::bridge) fn holding(&self) -> Holding {
        self.correlator.as_ref().map(Correlator::holding).unwrap_or_default()
    }

    /// See [`Correlator::lets_go`].
    pub(in crate::bridge) fn lets_go(&self) -> bool {
        self.correlator.as_ref().is_some_and(Correlator::lets_go)
    }

    /// From now on what is held is to come out, here or after the next start.
    pub(in crate::bridge) fn let_go(&mut self) {
        if let Some(correlator) = &mut self.correlator {
            correlator.let_go();
        }
    }

    /// How much was journalled of all that was read.
    pub(in crate::bridge) fn read_bytes(&self) -> u64 {
        self.correlator.as_ref().map_or(0, |correlator| correlator.held.read_bytes())
    }

    /// See [`Correlator::fit`].
    pub(in crate::bridge) fn fit(&mut self, retention_size: u64) -> bool {
        self.correlator.as_mut().is_some_and(|correlator| correlator.fit(retention_size))
    }

    /// See [`Correlator::holds_back`].
    pub(in crate::bridge) fn holds_back(&self) -> bool {
        self.correlator.as_ref().is_some_and(Correlator::holds_back)
    }

    /// What is to be kept at a position.
    pub(in crate::bridge) fn save(&self, position: Position) -> SavedCorrelator {
        Correlator::save(self.correlator.as_ref(), position)
    }
}
