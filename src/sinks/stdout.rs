//! stdout: one envelope a line.

use std::{
    io::{self, Write},
    sync::mpsc,
};

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::SinkBuildError;
use crate::{
    bridge::{Outcome, RetryClass, Secrets, Sink},
    event::Batch,
};

/// Lines for the writing thread, and where it answers.
type Job = (Vec<u8>, oneshot::Sender<io::Result<()>>);

/// Writes envelopes to the standard output, flushed after each batch.
///
/// The writing is done by a thread of its own: a reader that stops reading (`tidings run | less`)
/// blocks it for as long as it likes, and a thread, unlike a blocking task of the runtime, does
/// not keep the process from ending meanwhile.
#[derive(Debug)]
pub struct StdoutSink {
    jobs: mpsc::Sender<Job>,
    /// A write whose answer was not waited for, and the sequences of the records in it.
    unanswered: Option<(Vec<u64>, oneshot::Receiver<io::Result<()>>)>,
    /// Records of the last write that came through although the bridge gave up waiting for it: it
    /// sends them again.
    written: Vec<u64>,
}

impl StdoutSink {
    /// Starts the writing thread.
    pub fn new() -> Result<Self, SinkBuildError> {
        Self::to(io::stdout())
    }

    fn to(mut out: impl Write + Send + 'static) -> Result<Self, SinkBuildError> {
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("stdout".into())
            .spawn(move || {
                for (lines, answer) in queue {
                    // Nobody listening only means that the attempt was given up meanwhile; the
                    // next one asks again.
                    let _ = answer.send(out.write_all(&lines).and_then(|()| out.flush()));
                }
            })
            .map_err(|e| SinkBuildError::Thread(e.to_string()))?;
        Ok(Self { jobs, unanswered: None, written: Vec::new() })
    }

    async fn write(&mut self, batch: &Batch) -> Outcome {
        match self.answer().await {
            // What is left of an earlier one does not come again: it was given up for good.
            Ok(late) if !late.is_empty() => self.written = late,
            Ok(_) => {}
            Err(outcome) => return outcome,
        }
        let mut lines = Vec::with_capacity(batch.bytes() + batch.records.len());
        let mut writing = Vec::with_capacity(batch.records.len());
        for record in &batch.records {
            if let Some(at) = self.written.iter().position(|seq| *seq == record.seq) {
                self.written.swap_remove(at);
                continue;
            }
            lines.extend_from_slice(&record.envelope);
            lines.push(b'\n');
            writing.push(record.seq);
        }
        if lines.is_empty() {
            return Outcome::Delivered;
        }
        let (answer, receiver) = oneshot::channel();
        if self.jobs.send((lines, answer)).is_err() {
            return misfortune(&io::Error::other("its thread has ended"));
        }
        self.unanswered = Some((writing, receiver));
        match self.answer().await {
            Ok(_) => Outcome::Delivered,
            Err(outcome) => outcome,
        }
    }

    /// Waits for the write that is under way, if one is; answers the sequences in it. May be dropped
    /// and called again.
    async fn answer(&mut self) -> Result<Vec<u64>, Outcome> {
        let Some((_, receiver)) = &mut self.unanswered else { return Ok(Vec::new()) };
        let result = receiver.await.unwrap_or_else(|_| Err(io::Error::other("its thread ended")));
        let writing = self.unanswered.take().map(|(writing, _)| writing).unwrap_or_default();
        result.map(|()| writing).map_err(|error| misfortune(&error))
    }
}

fn misfortune(error: &io::Error) -> Outcome {
    let (class, reason) = match error.kind() {
        // Only a person can give us a reader again.
        io::ErrorKind::BrokenPipe => (RetryClass::Misconfigured, "stdout is closed".to_owned()),
        _ => (RetryClass::Unavailable, format!("cannot write to stdout: {error}")),
    };
    Outcome::Retry { after: None, class, reason: Secrets::none().reason(reason) }
}

impl Sink for StdoutSink {
    fn send<'a>(&'a mut self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(self.write(batch))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use futures_util::FutureExt as _;

    use super::*;
    use crate::event::Record;

    /// Takes nothing while its lock is held by the test.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<(Vec<u8>, bool)>>);

    impl Write for Pipe {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            let mut inner = self.0.lock().unwrap();
            if inner.1 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            inner.0.extend_from_slice(buf);
            Ok(buf.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn batch(seqs: std::ops::RangeInclusive<u64>) -> Batch {
        let record = |seq: u64| Record { seq, envelope: format!("{{\"n\":{seq}}}").into() };
        Batch { records: seqs.map(record).collect() }
    }

    #[tokio::test]
    async fn a_line_each() {
        let pipe = Pipe::default();
        let mut sink = StdoutSink::to(pipe.clone()).unwrap();
        assert_eq!(sink.send(&batch(1..=2)).await, Outcome::Delivered);
        assert_eq!(pipe.0.lock().unwrap().0, b"{\"n\":1}\n{\"n\":2}\n");
    }

    #[tokio::test]
    async fn a_write_given_up_is_not_repeated() {
        let pipe = Pipe::default();
        let mut sink = StdoutSink::to(pipe.clone()).unwrap();
        {
            let _stalled = pipe.0.lock().unwrap();
            assert_eq!(sink.send(&batch(1..=2)).now_or_never(), None);
        }
        assert_eq!(sink.send(&batch(1..=1)).await, Outcome::Delivered);
        assert_eq!(sink.send(&batch(2..=3)).await, Outcome::Delivered);
        assert_eq!(pipe.0.lock().unwrap().0, b"{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
    }

    #[tokio::test]
    async fn of_writes_given_up_for_good_no_more_is_kept_than_the_last() {
        let pipe = Pipe::default();
        let mut sink = StdoutSink::to(pipe.clone()).unwrap();
        for first in [1, 11, 21] {
            {
                let _stalled = pipe.0.lock().unwrap();
                assert_eq!(sink.send(&batch(first..=first + 1)).now_or_never(), None);
            }
            // Other records come instead of those.
            assert_eq!(sink.send(&batch(first + 5..=first + 5)).await, Outcome::Delivered);
        }
        assert_eq!(sink.written, [21, 22]);
    }

    #[tokio::test]
    async fn a_closed_pipe_is_for_a_person_to_mend() {
        let pipe = Pipe::default();
        pipe.0.lock().unwrap().1 = true;
        let mut sink = StdoutSink::to(pipe.clone()).unwrap();
        let closed = Outcome::Retry {
            after: None,
            class: RetryClass::Misconfigured,
            reason: Secrets::none().reason("stdout is closed"),
        };
        let sent = tokio::time::timeout(Duration::from_secs(5), sink.send(&batch(1..=1))).await;
        assert_eq!(sent.unwrap(), closed);
    }
}
