//! The log of a test, to be looked at.

use std::{
    io,
    sync::{Arc, Mutex, Once},
};

use tracing_subscriber::fmt::MakeWriter;

/// Without a subscriber of the process, a line that a thread without one comes to first is off for all threads.
fn hear_everything() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_writer(io::sink).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// A log of all that this thread logs from now on, until the guard is dropped.
    pub(crate) fn begin() -> (Self, tracing::subscriber::DefaultGuard) {
        hear_everything();
        let log = Self::default();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The same, as lines of JSON.
    pub(crate) fn begin_json() -> (Self, tracing::subscriber::DefaultGuard) {
        hear_everything();
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The only line with this text.
    #[track_caller]
    pub(crate) fn line(&self, part: &str) -> String {
        let text = self.text();
        let lines: Vec<_> = text.lines().filter(|line| line.contains(part)).collect();
        assert_eq!(lines.len(), 1, "expected one line with {part:?}, found these lines:\n{text}");
        lines[0].to_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
