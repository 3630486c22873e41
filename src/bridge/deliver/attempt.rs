//! One attempt: a batch, sent within the sink's timeout.

use std::{future::pending, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{Content, Deliver, reads};
use crate::{
    bridge::{
        Failure, Outcome, Secrets,
        delivery::{FIRST_ERRAND, Number},
    },
    event::{Batch, Record},
};

/// A sink that keeps a deadline of its own answers by itself, with a better reason.
const GRACE_FOR_THE_SINK: Duration = Duration::from_secs(1);
/// An attempt that has not ended so long after its limit never will.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// So long an errand under way is waited for when the program stops.
const ERRAND_ENDS_WITHIN: Duration = Duration::from_secs(1);

/// An attempt that has ended.
pub(super) struct Attempted {
    pub(super) line: usize,
    pub(super) numbers: Vec<Number>,
    /// What was sent; nothing if that could not be read.
    pub(super) sent: Vec<Record>,
    /// Records that are neither in the state nor in the log any more.
    pub(super) gone: Vec<Number>,
    /// Nothing if nothing was sent.
    pub(super) outcome: Option<Outcome>,
}

impl Deliver {
    /// Makes one attempt, within the sink's timeout.
    pub(super) fn attempt(
        &mut self,
        line: usize,
    ) -> impl Future<Output = Attempted> + Send + use<> {
        let numbers = self.delivery.tickets(line).to_vec();
        let is_errand = numbers.first().is_some_and(|first| *first >= FIRST_ERRAND);
        let content = |number: &Number| match *number {
            errand @ FIRST_ERRAND.. => self.errands.record(errand).cloned().map(Content::Record),
            live => self.hand.content(live),
        };
        let contents: Vec<_> = numbers.iter().filter_map(content).collect();
        let (sink, stop) = (Arc::clone(&self.parts.sink), self.parts.stop.clone());
        let (source, progress) = (self.source.clone(), Arc::clone(&self.parts.progress));
        let within = self.parts.timeout;
        let limit = within + GRACE_FOR_THE_SINK;
        self.parts.pulse.works_within("an attempt", limit + STUCK_AFTER);
        async move {
            let records = match reads::all(contents, &source, &progress).await {
                Ok(records) => records,
                Err(error) => {
                    let sink = &source.sink;
                    tracing::error!(sink, error, "the journal cannot be read: trying again");
                    let (sent, gone) = (Vec::new(), Vec::new());
                    return Attempted { line, numbers, sent, gone, outcome: None };
                }
            };
            let found = numbers.iter().zip(&records);
            let gone: Vec<_> =
                found.filter(|(_, record)| record.is_none()).map(|(n, _)| *n).collect();
            let batch = Batch { records: records.into_iter().flatten().collect() };
            if !gone.is_empty() {
                return Attempted { line, numbers, sent: batch.records, gone, outcome: None };
            }
            let sending = async {
                let silent = |_| {
                    let words = format_args!("no answer within {:.1} s", within.as_secs_f64());
                    Outcome::Failed(Failure::silence(Secrets::none().reason(words)))
                };
                timeout(limit, sink.send(&batch)).await.unwrap_or_else(silent)
            };
            // What is left of the time of a program that ends is for live events.
            let ending = async {
                if !is_errand {
                    pending::<()>().await;
                }
                stop.draining().await;
                sleep(ERRAND_ENDS_WITHIN).await;
            };
            let outcome = tokio::select! {
                outcome = sending => outcome,
                () = ending => Outcome::PerEvent(Vec::new()),
            };
            let outcome = Some(outcome);
            Attempted { line, numbers, sent: batch.records, gone: Vec::new(), outcome }
        }
    }
}
