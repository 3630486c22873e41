//! One attempt: a batch, sent within the sink's timeout.

use std::{future::pending, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{Content, Dispatcher, reads};
use crate::{
    bridge::{
        Failure, Outcome, Secrets,
        sink::delivery::{FIRST_RESEND, Number},
    },
    event::{Batch, Record},
};

/// A sink that keeps a deadline of its own answers by itself, with a better reason.
const GRACE_FOR_THE_SINK: Duration = Duration::from_secs(1);
/// An attempt that has not ended so long after its limit never will.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// So long a resend under way is waited for when the program stops.
const RESEND_ENDS_WITHIN: Duration = Duration::from_secs(1);

/// An attempt that has ended.
pub(super) struct Attempted {
    pub(super) line: usize,
    pub(super) numbers: Vec<Number>,
    /// The records that were sent; none if they could not be read.
    pub(super) sent: Vec<Record>,
    /// Records that are neither in the state nor in the log any more.
    pub(super) gone: Vec<Number>,
    /// Nothing if nothing was sent.
    pub(super) outcome: Option<Outcome>,
}

impl Dispatcher {
    /// Makes one attempt, within the sink's timeout.
    pub(super) fn attempt(
        &mut self,
        line: usize,
    ) -> impl Future<Output = Attempted> + Send + use<> {
        let numbers = self.delivery.tickets(line).to_vec();
        let is_resend = numbers.first().is_some_and(|first| *first >= FIRST_RESEND);
        let content = |number: &Number| match *number {
            resend @ FIRST_RESEND.. => self.resends.record(resend).cloned().map(Content::Record),
            live => self.hand.content(live),
        };
        let contents: Vec<_> = numbers.iter().filter_map(content).collect();
        let (sink, stop) = (Arc::clone(&self.parts.options.sink), self.parts.stop.clone());
        let (source, progress) = (self.source.clone(), Arc::clone(&self.parts.progress));
        let within = self.parts.options.send.timeout;
        let limit = within + GRACE_FOR_THE_SINK;
        self.resends.begin(&numbers);
        self.parts.pulse.busy_within("an attempt", limit + STUCK_AFTER);
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
                if !is_resend {
                    pending::<()>().await;
                }
                stop.draining().await;
                sleep(RESEND_ENDS_WITHIN).await;
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
