//! The lines that a program writes to its log.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// See the [module](self). Clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Those of this thread, for as long as the guard lives.
    pub(crate) fn of_this_thread() -> (Self, DefaultGuard) {
        // Tests on other threads log the same lines: a line that nobody hears there would be off everywhere.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let log = Self::default();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
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
