//! Events as lines, which a thread of the sink writes.

use std::sync::mpsc;

use tokio::sync::{Mutex, oneshot};

use crate::{
    bridge::{Failure, FailureClass, Outcome, RefusedClass, Secrets},
    encode::Format,
    event::Batch,
    sinks::SinkBuildError,
};

/// Lines for the writing thread, and where it answers.
type Job = (Vec<u8>, oneshot::Sender<Written>);

/// How many bytes are written, half a line included, and why no more are.
pub(super) type Written = (usize, Result<(), Failure>);

/// The sequences of a batch's records, each with the bytes of its line: 0 if it was written before.
type Lengths = Vec<(u64, usize)>;

/// Makes lines of events, and has them written by a thread of its own: a write may block for as long as a reader or
/// a disk likes, and a thread, unlike a blocking task of the runtime, does not keep the process from ending meanwhile.
///
/// Lines stand in the order of the batches, so of several attempts one is made at a time.
#[derive(Debug)]
pub(super) struct LineWriter(Mutex<Writing>);

/// The state that one attempt leaves to the next.
#[derive(Debug)]
struct Writing {
    format: Format,
    jobs: mpsc::Sender<Job>,
    /// A write whose answer has not come.
    unanswered: Option<(Lengths, oneshot::Receiver<Written>)>,
    /// Records that are written although their batch was not delivered: the bridge gave up
    /// waiting for it, or it failed in the midst. They are not written again.
    written: Vec<u64>,
}

/// More than are in the hands of the bridge.
const MOST_WRITTEN: usize = 1 << 13;

impl LineWriter {
    /// Starts the thread, which gives lines to `write`.
    pub(super) fn start(
        name: &str,
        format: Format,
        mut write: impl FnMut(&[u8]) -> Written + Send + 'static,
    ) -> Result<Self, SinkBuildError> {
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                for (lines, answer) in queue {
                    // Nobody listening only means that the attempt was given up meanwhile; the
                    // next one asks again.
                    let _ = answer.send(write(&lines));
                }
            })
            .map_err(|e| SinkBuildError::at(&[], format_args!("cannot start a thread: {e}")))?;
        Ok(Self(Mutex::new(Writing { format, jobs, unanswered: None, written: Vec::new() })))
    }

    /// Writes the lines of a batch that are not written yet.
    pub(super) async fn send(&self, batch: &Batch) -> Outcome {
        self.0.lock().await.send(batch).await
    }

    #[cfg(test)]
    pub(super) async fn written(&self) -> Vec<u64> {
        self.0.lock().await.written.clone()
    }
}

impl Writing {
    async fn send(&mut self, batch: &Batch) -> Outcome {
        if let Some(beyond) = self.written.len().checked_sub(MOST_WRITTEN) {
            // They were given up for good.
            self.written.drain(..beyond);
        }
        if let Err(failure) = self.answer().await {
            return Outcome::Failed(failure);
        }
        let mut lines = Vec::with_capacity(batch.bytes() + batch.records.len());
        let mut writing = Vec::with_capacity(batch.records.len());
        for record in &batch.records {
            let start = lines.len();
            if !self.written.contains(&record.seq) {
                match self.format.encode(record) {
                    Ok(line) => lines.extend_from_slice(&line),
                    Err(error) => {
                        let reason = Secrets::none().reason(error);
                        return Outcome::Failed(Failure::refused(RefusedClass::Unsendable, reason));
                    }
                }
                lines.push(b'\n');
            }
            writing.push((record.seq, lines.len() - start));
        }
        if !lines.is_empty() {
            let (answer, receiver) = oneshot::channel();
            if self.jobs.send((lines, answer)).is_err() {
                return Outcome::Failed(ended());
            }
            self.unanswered = Some((writing, receiver));
            if let Err(failure) = self.answer().await {
                return Outcome::Failed(failure);
            }
        }
        self.written.retain(|seq| batch.records.iter().all(|record| record.seq != *seq));
        Outcome::Delivered
    }

    /// Waits for the write that is under way, if one is, and notes what of it is out. May be dropped
    /// and called again.
    async fn answer(&mut self) -> Result<(), Failure> {
        let Some((_, receiver)) = &mut self.unanswered else { return Ok(()) };
        let (mut out, result) = receiver.await.unwrap_or_else(|_| (0, Err(ended())));
        for (seq, bytes) in self.unanswered.take().map(|(writing, _)| writing).unwrap_or_default() {
            match out.checked_sub(bytes) {
                Some(rest) => {
                    out = rest;
                    if bytes > 0 || !self.written.contains(&seq) {
                        self.written.push(seq);
                    }
                }
                None => out = 0,
            }
        }
        result
    }
}

fn ended() -> Failure {
    let reason = Secrets::none().reason("the thread that writes has ended");
    Failure::new(FailureClass::Unavailable, reason)
}
