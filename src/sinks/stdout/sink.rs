//! stdout: one envelope a line.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd as _,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use futures_util::future::BoxFuture;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::retry_on_intr,
};

use crate::{
    bridge::{Failure, FailureClass, Outcome, Secrets, Sink},
    encode::Format,
    event::Batch,
    sinks::{SinkBuildError, lines::LineWriter},
};

/// The standard output, which all sinks of the process share: one at a time writes a batch.
static STDOUT: OnceLock<Arc<Mutex<Lines<Patient>>>> = OnceLock::new();

/// Writes envelopes to the standard output, flushed after each batch. A reader that stops reading (`tidings run |
/// less`) blocks it, and those that wait for their turn.
#[derive(Debug)]
pub struct StdoutSink {
    lines: LineWriter,
    /// A run before may have been killed in the midst of a line.
    journal_has_past: Arc<AtomicBool>,
}

impl StdoutSink {
    /// Starts the writing thread.
    pub fn new(format: Format) -> Result<Self, SinkBuildError> {
        if let Some(out) = STDOUT.get() {
            return Self::to(Arc::clone(out), format);
        }
        // Not the standard library's own handle: its buffer hides how much of a line is out.
        let out = io::stdout().as_fd().try_clone_to_owned();
        let out = out.map_err(|e| {
            SinkBuildError::at(&[], format_args!("cannot start a thread without stdout: {e}"))
        })?;
        Self::to(Arc::clone(STDOUT.get_or_init(|| Lines::new(Patient(out.into())))), format)
    }

    fn to<W: Write + Send + 'static>(
        out: Arc<Mutex<Lines<W>>>,
        format: Format,
    ) -> Result<Self, SinkBuildError> {
        let journal_has_past = Arc::<AtomicBool>::default();
        let has_past = Arc::clone(&journal_has_past);
        let write = move |lines: &[u8]| {
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            let (written, result) = out.write(lines, has_past.load(Relaxed));
            (written, result.map_err(|error| failure(&error)))
        };
        Ok(Self { lines: LineWriter::start("stdout", format, write)?, journal_has_past })
    }
}

struct Lines<W> {
    out: W,
    /// Whether an error left it in the midst of a line.
    torn: bool,
    /// Whether this process has written anything.
    begun: bool,
}

impl<W: Write> Lines<W> {
    fn new(out: W) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { out, torn: false, begun: false }))
    }

    /// Writes lines, on a line of their own whatever went before: in this process, or in one before it
    /// if there was one. What that left nobody can tell, of a pipe least of all; at worst the line that is
    /// ended here is empty.
    fn write(&mut self, lines: &[u8], has_past: bool) -> (usize, io::Result<()>) {
        if self.torn || (has_past && !self.begun) {
            if let Err(error) = self.out.write_all(b"\n") {
                return (0, Err(error));
            }
            self.torn = false;
        }
        self.begun = true;
        let mut out = 0;
        while out < lines.len() {
            match self.out.write(&lines[out..]) {
                Ok(0) => return self.failed(lines, out, io::ErrorKind::WriteZero.into()),
                Ok(more) => out += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.failed(lines, out, error),
            }
        }
        (out, self.out.flush())
    }

    fn failed(&mut self, lines: &[u8], out: usize, error: io::Error) -> (usize, io::Result<()>) {
        self.torn = out > 0 && lines[out - 1] != b'\n';
        (out, Err(error))
    }
}

/// Waits for room where the other end, or whoever started us, has made the descriptor one that does
/// not.
struct Patient(File);

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    retry_on_intr(|| poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None))?;
                }
                answer => return answer,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn failure(error: &io::Error) -> Failure {
    let (class, reason) = match error.kind() {
        // Only a person can give us a reader again.
        io::ErrorKind::BrokenPipe => (FailureClass::Misconfigured, "stdout is closed".to_owned()),
        _ => (FailureClass::Unavailable, format!("cannot write to stdout: {error}")),
    };
    Failure::new(class, Secrets::none().reason(reason))
}

impl Sink for StdoutSink {
    fn begin(&self, journal_has_past: bool) {
        self.journal_has_past.store(journal_has_past, Relaxed);
    }

    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(self.lines.send(batch))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    async fn each_event_is_written_as_one_line() {
        let pipe = Pipe::default();
        let sink = StdoutSink::to(Lines::new(pipe.clone()), Format::Envelope).unwrap();
        assert_eq!(sink.send(&batch(1..=2)).await, Outcome::Delivered);
        assert_eq!(pipe.0.lock().unwrap().0, b"{\"n\":1}\n{\"n\":2}\n");
    }

    #[tokio::test]
    async fn concurrent_attempts_are_written_one_after_the_other() {
        let pipe = Pipe::default();
        let sink = StdoutSink::to(Lines::new(pipe.clone()), Format::Envelope).unwrap();
        let (one, other) = (batch(1..=2), batch(3..=4));
        let (mut first, mut second) = (sink.send(&one), sink.send(&other));
        {
            let _stalled = pipe.0.lock().unwrap();
            assert_eq!((&mut first).now_or_never(), None);
            assert_eq!((&mut second).now_or_never(), None);
        }
        let both = futures_util::future::join(second, first).await;
        assert_eq!(both, (Outcome::Delivered, Outcome::Delivered));
        let lines = b"{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n{\"n\":4}\n";
        assert_eq!(pipe.0.lock().unwrap().0, lines);
    }

    #[tokio::test]
    async fn a_run_after_another_begins_with_the_end_of_a_line_once() {
        let pipe = Pipe::default();
        pipe.0.lock().unwrap().0.extend_from_slice(b"{\"n\":1}\n{\"n\"");
        let shared = Lines::new(pipe.clone());
        let sinks = [0, 1].map(|_| StdoutSink::to(Arc::clone(&shared), Format::Envelope).unwrap());
        for sink in &sinks {
            sink.begin(true);
        }
        for (sink, seq) in [(0, 2), (1, 2), (0, 3)] {
            assert_eq!(sinks[sink].send(&batch(seq..=seq)).await, Outcome::Delivered);
        }
        let text = String::from_utf8(pipe.0.lock().unwrap().0.clone()).unwrap();
        assert_eq!(text, "{\"n\":1}\n{\"n\"\n{\"n\":2}\n{\"n\":2}\n{\"n\":3}\n");
    }

    #[tokio::test]
    async fn a_write_given_up_is_not_repeated() {
        let pipe = Pipe::default();
        let sink = StdoutSink::to(Lines::new(pipe.clone()), Format::Envelope).unwrap();
        {
            let _stalled = pipe.0.lock().unwrap();
            assert_eq!(sink.send(&batch(1..=2)).now_or_never(), None);
        }
        assert_eq!(sink.send(&batch(1..=1)).await, Outcome::Delivered);
        assert_eq!(sink.send(&batch(2..=3)).await, Outcome::Delivered);
        assert_eq!(pipe.0.lock().unwrap().0, b"{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
    }

    #[tokio::test]
    async fn every_write_that_was_abandoned_is_remembered() {
        let pipe = Pipe::default();
        let sink = StdoutSink::to(Lines::new(pipe.clone()), Format::Envelope).unwrap();
        for first in [1, 11, 21] {
            {
                let _stalled = pipe.0.lock().unwrap();
                assert_eq!(sink.send(&batch(first..=first + 1)).now_or_never(), None);
            }
            // Other records come instead of those.
            assert_eq!(sink.send(&batch(first + 5..=first + 5)).await, Outcome::Delivered);
        }
        assert_eq!(sink.lines.written().await, [1, 2, 11, 12, 21, 22]);
    }

    /// Takes so many bytes of each write at most, and fails at some of them.
    struct Faulty {
        out: Arc<Mutex<Vec<u8>>>,
        faults: Vec<Option<io::ErrorKind>>,
    }

    impl Write for Faulty {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            if let Some(kind) = self.faults.pop().flatten() {
                return Err(kind.into());
            }
            let taken = &buf[..buf.len().min(5)];
            self.out.lock().unwrap().extend_from_slice(taken);
            Ok(taken.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn writing_resumes_with_the_first_incomplete_line_after_an_error() {
        let full = Some(io::ErrorKind::StorageFull);
        let out = Arc::<Mutex<Vec<u8>>>::default();
        // From the last to the first: an interruption, half of the second line, nothing, a line.
        let faults = vec![
            full,
            None,
            None,
            None,
            full,
            full,
            None,
            None,
            None,
            Some(io::ErrorKind::Interrupted),
            None,
        ];
        let sink =
            StdoutSink::to(Lines::new(Faulty { out: out.clone(), faults }), Format::Envelope)
                .unwrap();
        let mut failures = 0;
        while sink.send(&batch(1..=4)).await != Outcome::Delivered {
            failures += 1;
        }
        assert_eq!(failures, 3);
        let text = String::from_utf8(out.lock().unwrap().clone()).unwrap();
        let whole: Vec<_> = text.lines().filter(|line| line.ends_with('}')).collect();
        assert_eq!(whole, ["{\"n\":1}", "{\"n\":2}", "{\"n\":3}", "{\"n\":4}"], "{text}");
        // Each failure may leave the beginning of a line, on a line of its own.
        assert!(text.lines().count() <= 4 + failures && text.ends_with('\n'), "{text}");
    }

    #[tokio::test]
    async fn a_sink_begins_a_new_line_after_the_error_of_another() {
        let out = Arc::<Mutex<Vec<u8>>>::default();
        // From the last to the first: half of a line, and no more.
        let faults = vec![Some(io::ErrorKind::StorageFull), None];
        let shared = Lines::new(Faulty { out: out.clone(), faults });
        let sinks = [0, 1].map(|_| StdoutSink::to(Arc::clone(&shared), Format::Envelope).unwrap());
        assert_ne!(sinks[0].send(&batch(1..=1)).await, Outcome::Delivered);
        assert_eq!(sinks[1].send(&batch(1..=1)).await, Outcome::Delivered);
        let text = String::from_utf8(out.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "{\"n\":\n{\"n\":1}\n");
    }

    #[tokio::test]
    async fn a_closed_pipe_is_for_a_person_to_mend() {
        let pipe = Pipe::default();
        pipe.0.lock().unwrap().1 = true;
        let sink = StdoutSink::to(Lines::new(pipe.clone()), Format::Envelope).unwrap();
        let closed =
            Failure::new(FailureClass::Misconfigured, Secrets::none().reason("stdout is closed"));
        let sent = tokio::time::timeout(Duration::from_secs(5), sink.send(&batch(1..=1))).await;
        assert_eq!(sent.unwrap(), Outcome::Failed(closed));
    }
}
