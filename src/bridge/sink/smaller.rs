//! A sink that takes less of an Event than the journal: what is larger is cut on its way there.
//!
//! The journal, dead letters and what other sinks are sent stay as they are.

use std::sync::Arc;

use futures_util::{FutureExt as _, future::BoxFuture};

use crate::{
    bridge::{EventFate, Outcome, Sink, SinkProgress},
    event::{Batch, Origin, Record, smaller},
};

/// A sink behind a cut. See the [module](self).
pub(crate) struct Smaller {
    pub(crate) sink: Arc<dyn Sink>,
    /// No envelope that it is sent is longer, in bytes.
    pub(crate) most: usize,
    pub(crate) progress: Arc<SinkProgress>,
}

impl Sink for Smaller {
    fn begin(&self, journal_has_past: bool) {
        self.sink.begin(journal_has_past);
    }

    fn survey(&self) -> BoxFuture<'_, bool> {
        self.sink.survey()
    }

    fn destination(&self, origin: &Origin<'_>) -> u64 {
        self.sink.destination(origin)
    }

    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        if batch.records.iter().all(|record| record.envelope.len() <= self.most) {
            return self.sink.send(batch);
        }
        async move {
            let mut is_cut = Vec::with_capacity(batch.records.len());
            let records = batch.records.iter().map(|record| {
                let envelope = smaller(&record.envelope, self.most);
                is_cut.push(envelope.is_some());
                let envelope = envelope.unwrap_or_else(|| record.envelope.clone());
                Record { seq: record.seq, envelope }
            });
            let batch = Batch { records: records.collect() };
            let outcome = self.sink.send(&batch).await;
            let has = |at| had(&outcome, at, batch.records.len());
            let cut = is_cut.iter().enumerate().filter(|(at, cut)| **cut && has(*at));
            let cut = cut.count() as u64;
            self.progress.update(|sink| sink.truncated += cut);
            outcome
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.sink.close()
    }
}

/// Whether the receiver has the event at this place of a batch of so many, as far as it says so.
fn had(outcome: &Outcome, at: usize, of: usize) -> bool {
    match outcome {
        Outcome::Delivered => true,
        Outcome::Partial { rejected, .. } => (*rejected as usize) < of,
        Outcome::PerEvent(fates) => {
            matches!(fates.get(at), Some(EventFate::Delivered | EventFate::Duplicate))
        }
        Outcome::Failed(_) => false,
    }
}
